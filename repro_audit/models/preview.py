"""What can be known of a model before its weights are read: its tokenizer and how much context it has.

A prompt that does not fit is refused here, not after minutes of loading. Whatever a preview cannot tell (a
hub id that is not on this machine yet, a Python factory), the checks after loading still do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro_audit.models import spec as kinds

if TYPE_CHECKING:
    from repro_audit.models.tokenizer import Tokenizer

_TOKENIZER_PREFIXES = ("tokenizer", "vocab", "merges", "spiece", "sentencepiece", "tekken", "special_tokens")
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "n_ctx")


@dataclass(frozen=True)
class Preview:
    """Tokenizer and context length, where the files tell them."""

    tokenizer: Tokenizer | None
    context_length: int | None


def preview(model: str, revision: str | None = None) -> Preview | None:
    """Look at a model without its weights; None where that is not possible.

    Args:
        model: MODEL as typed.
        revision: hub revision given apart from it.

    Raises:
        UsageError: the model does not exist.
        InconclusiveError: its files are damaged.
    """
    spec = kinds.parse_spec(model, revision)
    if spec.kind == kinds.FOLDER:
        assert spec.path is not None
        return _folder(spec.path, spec.name)
    if spec.kind in (kinds.GGUF, kinds.DEMO):
        return _gguf(spec)
    return None


def _folder(folder: Path, name: str) -> Preview:
    from repro_audit.models.files import read_json
    from repro_audit.models.hf import load_tokenizer

    values = read_json(folder / "config.json", "config.json")
    names = sorted(item.name for item in folder.iterdir() if item.name.startswith(_TOKENIZER_PREFIXES))
    return Preview(load_tokenizer(folder, name, names), _context(values))


def _context(values: Mapping[str, Any]) -> int | None:
    text = values.get("text_config")
    inner = text if isinstance(text, dict) else values
    found = next((inner[key] for key in _CONTEXT_KEYS if isinstance(inner.get(key), int)), None)
    return found if found is not None and found > 0 else None


def _gguf(spec: kinds.ModelSpec) -> Preview:
    from repro_audit.models.gguf_arch import architecture, config_values
    from repro_audit.models.gguf_file import read_gguf
    from repro_audit.models.gguf_model import demo_file
    from repro_audit.models.gguf_tokenizer import gguf_tokenizer

    path = spec.path if spec.path is not None else demo_file(spec.name.removeprefix("demo:"))[0]
    file = read_gguf(path, path.name)
    stated, _ = architecture(file, path.name)
    return Preview(gguf_tokenizer(path, file, path.name), _context(config_values(file, stated, path.name)))
