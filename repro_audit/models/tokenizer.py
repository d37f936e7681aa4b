"""Text to tokens and back, always from local files, with the chat template's text and date made visible."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.models.loaded import Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
        text, date = self._render(prompt) if chat else (None, None)
        ids = self._backend(prompt if text is None else text, add_special_tokens=text is None)["input_ids"]
        if not ids:
            raise UsageError(
                "the prompt comes to no tokens", hint="give text that the model's tokenizer knows"
            )
        return Prompt(prompt, tuple(int(i) for i in ids), text, date)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of these tokens; special tokens are written out and spaces left as they are."""
        text: Any = self._backend.decode(
            list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return str(text)

    def _render(self, prompt: str) -> tuple[str, str | None]:
        import jinja2

        dates: list[str] = []

        def strftime_now(pattern: str) -> str:
            dates.append(datetime.now().strftime(pattern))
            return dates[-1]

        if not getattr(self._backend, "chat_template", None):
            raise InconclusiveError(f"{self._name} has no chat template", hint="leave out --chat")
        try:
            text: Any = self._backend.apply_chat_template(
                [{"role": "user", "content": prompt}],
                tokenize=False,
                add_generation_prompt=True,
                strftime_now=strftime_now,
            )
        except jinja2.TemplateError as error:
            raise InconclusiveError(
                f"the chat template of {self._name} failed ({error})", hint="leave out --chat"
            ) from error
        return str(text), " ".join(dict.fromkeys(dates)) or None
