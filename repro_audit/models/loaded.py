"""A loaded model and everything about it that a manifest states. torch is imported for types only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from repro_audit.errors import InconclusiveError
from repro_audit.trace.record import TensorDigest

if TYPE_CHECKING:
    import torch

    from repro_audit.models.tokenizer import Tokenizer


class DamagedWeightsError(InconclusiveError):
    """A weight holds NaN or Inf: nothing can be computed with this model, but it can be compared.

    Attributes:
        tensors: the digests of every tensor, the damaged ones included.
    """

    def __init__(self, message: str, tensors: tuple[TensorDigest, ...]) -> None:
        super().__init__(
            message, hint="the checkpoint is damaged or was trained into overflow: use another one"
        )
        self.tensors = tensors


@dataclass(frozen=True)
class FileDigest:
    """One file of the model: its name relative to the model (``/`` between parts), SHA-256 hex, bytes."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Prompt:
    """A prompt as resolved.

    Attributes:
        text: what the user wrote.
        token_ids: what the model is fed.
        chat_template_text: the rendered chat template, when one was asked for.
        date: the date that the template wrote into the text, if it wrote one.
    """

    text: str
    token_ids: tuple[int, ...]
    chat_template_text: str | None = None
    date: str | None = None


@dataclass(frozen=True)
class GenerationDefaults:
    """Decoding as the model's own generation_config resolves it.

    With ``do_sample`` off, ``temperature`` is 0, ``top_k`` 0 and ``top_p`` 1: greedy, whatever values the
    file leaves lying around.

    Attributes:
        eos_token_ids: tokens that end a sequence, ascending.
        unsupported: (option, value) pairs that would change tokens and that the sampler does not know,
            as ``("repetition_penalty", "1.1")``.
    """

    do_sample: bool = False
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    eos_token_ids: tuple[int, ...] = ()
    unsupported: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Source:
    """Where a parameter's values come from, when not from the file tensor of the same name.

    ``how``: ``rename``, ``stack`` (one source per slice of dim 0), ``concatenate`` (along dim 0),
    ``stack-concatenate`` (several sources per slice of dim 0), ``split`` (a slice of one source's dim 0),
    ``transpose``, ``dequantise`` or ``cast`` (values changed; only under ``cast_weights``).
    """

    parameter: str
    how: str
    keys: tuple[str, ...]


@dataclass
class LoadedModel:
    """A module in evaluation mode whose parameters hold the file's bits, and what identifies it.

    Attributes:
        kind: ``hf``, ``gguf`` or ``python``.
        name: never a local path.
        revision: the hub commit, if it came from a hub repository.
        module: the module; parameters have the file's dtype (GGUF: fp32, dequantised).
        tokenizer: None for ``python`` models.
        files: every file of the model, by name.
        root: hex of the OpenSSF Model Signing root over ``files``; for ``python`` models the SHA-256 of the
            tensor digests' canonical JSON.
        tensors: typed digests of every parameter and persistent buffer, tied ones once, sorted by name.
        config_digest, tokenizer_digest: SHA-256 hex; the tokenizer's is empty without one.
        ignored_keys: file tensors that the class's own rules leave out.
        sources: parameters that are an exact rename, stack, split or dequantisation of file tensors.
        cast_keys: parameters whose values a cast changed (``cast_weights`` only).
        tied: groups of parameter names that are one tensor; the first is the one in ``tensors``.
        context_length: most positions the model was made for; None when it states none.
        example_inputs: the factory's inputs (``python`` models).
        file_for_packages: ``distribution==version:path inside it`` for a packaged model.
    """

    kind: str
    name: str
    module: torch.nn.Module
    tensors: tuple[TensorDigest, ...]
    config_digest: str
    root: str
    files: tuple[FileDigest, ...] = ()
    revision: str | None = None
    tokenizer: Tokenizer | None = None
    tokenizer_digest: str = ""
    ignored_keys: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    cast_keys: tuple[str, ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()
    context_length: int | None = None
    generation: GenerationDefaults = field(default_factory=GenerationDefaults)
    example_inputs: dict[str, torch.Tensor] | None = None
    file_for_packages: str | None = None

    def encode(self, prompt: str, chat: bool = False) -> Prompt:
        """Turn a prompt into tokens, through the chat template if asked.

        Raises:
            InconclusiveError: the model has no tokenizer, or no chat template though one was asked for.
            UsageError: the prompt is empty.
        """
        return self._tokenizer().encode(prompt, chat)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of these tokens, special tokens included.

        Raises:
            InconclusiveError: the model has no tokenizer.
        """
        return self._tokenizer().decode(token_ids)

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InconclusiveError(f"{self.name} has no tokenizer", hint="give token ids or tensors instead")
        return self.tokenizer
