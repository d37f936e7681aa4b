"""Derived buffers: what a model computes once and does not store (RoPE frequencies), computed again under the
profile.

The values that loading left behind come from PyTorch's own pow and cos. They are replaced for the length of a
run: transformers' ``_init_weights`` fills a module's non-persistent buffers, and here it runs under the
dispatch mode. A floating buffer that it does not fill cannot be audited and is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from repro_audit.engine.dispatch import ProfileMode, numpy_bits
from repro_audit.errors import InconclusiveError
from repro_audit.trace.digest import tensor_digest
from repro_audit.trace.record import TensorDigest


@contextmanager
def derived_buffers(module: nn.Module, mode: ProfileMode) -> Iterator[tuple[TensorDigest, ...]]:
    """Replace every floating non-persistent buffer by the profile's value; yields digests of all non-
    persistent ones.

    Raises:
        InconclusiveError: a floating buffer that no ``_init_weights`` fills, by name.
    """
    undo: list[tuple[dict[str, Any], str, torch.Tensor]] = []
    found: dict[str, TensorDigest] = {}
    try:
        for path, child in module.named_modules():
            names = [
                name for name in child._non_persistent_buffers_set if child._buffers.get(name) is not None
            ]
            floating = [name for name in names if child._buffers[name].is_floating_point()]
            for name in floating:
                old = child._buffers[name]
                assert old is not None
                undo.append((child._buffers, name, old))
                child._buffers[name] = torch.full_like(old, float("nan"))
            if floating:
                _recompute(_initialiser(module, path), path, child, floating, mode)
            for name in sorted(names):
                full = f"{path}.{name}" if path else name
                value = child._buffers[name]
                assert value is not None
                kind = str(value.dtype).removeprefix("torch.")
                found[full] = TensorDigest(
                    full, kind, tuple(value.shape), tensor_digest(numpy_bits(value), kind)
                )
        yield tuple(found[name] for name in sorted(found))
    finally:
        for buffers, name, old in reversed(undo):
            buffers[name] = old


def _initialiser(module: nn.Module, path: str) -> Any:
    """``_init_weights`` of the innermost model around ``path``, or None."""
    parts = path.split(".") if path else []
    for depth in range(len(parts), -1, -1):
        owner = module.get_submodule(".".join(parts[:depth]))
        if hasattr(owner, "_init_weights"):
            return owner._init_weights
    return None


def _recompute(initialise: Any, path: str, child: nn.Module, names: list[str], mode: ProfileMode) -> None:
    if initialise is not None:
        stand_ins: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        try:
            tables: tuple[dict[str, Any], dict[str, Any]] = (child._parameters, child._buffers)
            for entries in tables:
                for name, tensor in list(entries.items()):
                    if tensor is not None and name not in names:
                        # Flagged as initialised: transformers leaves it alone.
                        stand_in = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
                        stand_in._is_hf_initialized = True  # type: ignore[attr-defined]
                        stand_ins.append((entries, name, tensor))
                        entries[name] = stand_in
            with mode:
                initialise(child)
        finally:
            for entries, name, tensor in stand_ins:
                entries[name] = tensor
    for name in names:
        buffer = child._buffers[name]
        if buffer is None or bool(buffer.isnan().any()):
            raise InconclusiveError(
                f"buffer {path + '.' if path else ''}{name} is not stored, and nothing recomputes it",
                hint="register it as persistent, so that its values are part of the model",
            )
