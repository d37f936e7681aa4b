"""Text to tokens and back, always from local files, with the chat template's text and date made visible."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from repro_audit.errors import InconclusiveError, ReproAuditError, UsageError
from repro_audit.models.loaded import Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: What transformers raises for tokenizer files that it cannot use.
_UNREADABLE = (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, ImportError)
#: What a template may raise besides: it computes with whatever its author wrote.
_TEMPLATE_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_CLOCK = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1""")


class ReadingTokenizer:
    """Context manager that turns a failure to read a tokenizer into one sentence.

    The tokenizers library raises plain ``Exception``, which an ``except`` clause could not tell from anything
    else: only that exact class is taken, besides what transformers raises itself.

    Args:
        what: how the sentence begins, as ``the tokenizer of NAME cannot be read``.
        hint: what to do.

    Raises:
        InconclusiveError: on leaving the block by such an error.
    """

    def __init__(self, what: str, hint: str) -> None:
        self._what = what
        self._hint = hint

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """Replace the error where it is about the tokenizer."""
        if error is not None and (kind is Exception or isinstance(error, _UNREADABLE)):
            text = str(error).strip() or type(error).__name__
            reason = text.splitlines()[0][:200]
            raise InconclusiveError(f"{self._what} ({reason})", hint=self._hint) from error


class Tokenizer:
    """A transformers tokenizer behind the two operations that a run needs.

    Args:
        backend: the tokenizer.
        name: the model's name, for errors.
    """

    def __init__(self, backend: PreTrainedTokenizerBase, name: str) -> None:
        self._backend = backend
        self._name = name

    def encode(self, prompt: str, chat: bool = False) -> Prompt:
        """Tokens of a prompt.

        Without ``chat`` the tokenizer adds the special tokens it adds by itself. With it, the prompt is the
        one user message of the model's chat template, which writes every special token, and maybe a date.

        Raises:
            InconclusiveError: ``chat`` without a chat template, or a template that fails.
            UsageError: the prompt is empty, or comes to no tokens.
        """
        if not prompt:
            raise UsageError("the prompt is empty", hint="give at least one character")
        _require_unicode(prompt, UsageError("the prompt is not Unicode text", hint="give it as UTF-8"))
        text, date = self._render(prompt) if chat else (None, None)
        ids = self._backend(prompt if text is None else text, add_special_tokens=text is None)["input_ids"]
        if not ids:
            raise UsageError(
                "the prompt comes to no tokens", hint="give text that the model's tokenizer knows"
            )
        return Prompt(prompt, tuple(int(i) for i in ids), text, date)

    def encode_rendered(self, text: str) -> tuple[int, ...]:
        """Tokens of what a chat template made of a prompt: it has every special token written out."""
        return tuple(int(i) for i in self._backend(text, add_special_tokens=False)["input_ids"])

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of these tokens; special tokens are written out and spaces left as they are."""
        text: Any = self._backend.decode(
            list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return str(text)

    def _render(self, prompt: str) -> tuple[str, str | None]:
        import jinja2

        if not getattr(self._backend, "chat_template", None):
            raise InconclusiveError(f"{self._name} has no chat template", hint="leave out --chat")
        template = str(self._backend.get_chat_template())
        before = datetime.now()
        try:
            text: Any = self._backend.apply_chat_template(
                [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
            )
        except (*_TEMPLATE_ERRORS, jinja2.TemplateError) as error:
            raise InconclusiveError(
                f"the chat template of {self._name} failed ({error})", hint="leave out --chat"
            ) from error
        _require_unicode(
            str(text),
            InconclusiveError(
                f"the chat template of {self._name} writes text that is not Unicode", hint="leave out --chat"
            ),
        )
        return str(text), _date_in(str(text), template, (before, datetime.now()))


def _date_in(text: str, template: str, moments: tuple[datetime, datetime]) -> str | None:
    """The dates in a rendered text: what the template's strftime_now calls wrote, around these moments."""
    patterns = [match[2] for match in _CLOCK.finditer(template)]
    written = dict.fromkeys(moment.strftime(pattern) for pattern in patterns for moment in moments)
    return " ".join(date for date in written if date and date in text) or None


def _require_unicode(text: str, otherwise: ReproAuditError) -> None:
    """A lone surrogate, as the bytes of a command line that are no UTF-8 become, has no tokens."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise otherwise
