"""Rows written into a cache at positions that a tensor holds: moves, nothing is computed.

Tests: ``tests/gpu/cases_positions.py``.
"""

from __future__ import annotations

import torch


def write_rows(
    keys: torch.Tensor,
    values: torch.Tensor,
    new_keys: torch.Tensor,
    new_values: torch.Tensor,
    positions: torch.Tensor,
) -> None:
    """Row r of the new keys and values becomes ``keys[r, :, positions[r]]``, ``values[r, :, positions[r]]``.

    Args:
        keys: [slots, heads, capacity, size], contiguous, written to.
        values: [slots, heads, capacity, size of a value], contiguous, of the same type.
        new_keys: [rows, heads, size], rows <= slots, of that type, any strides.
        new_values: [rows, heads, size of a value].
        positions: int64 [rows], in 0 .. capacity - 1; on a GPU nobody checks.

    Raises:
        ValueError: shapes or types that do not fit.
    """
    check(keys, values, new_keys, new_values, positions)
    slots = torch.arange(len(positions))
    keys[slots, :, positions] = new_keys
    values[slots, :, positions] = new_values


def check(
    keys: torch.Tensor,
    values: torch.Tensor,
    new_keys: torch.Tensor,
    new_values: torch.Tensor,
    positions: torch.Tensor,
) -> None:
    """Raise ValueError for arguments of :func:`write_rows` that do not fit together."""
    rows = positions.numel()
    for held, new in ((keys, new_keys), (values, new_values)):
        fits = held.dim() == 4 and new.shape == (rows, held.shape[1], held.shape[3])
        if not fits or rows > held.shape[0] or held.shape[:3] != keys.shape[:3]:
            raise ValueError(f"write_rows: shapes {list(held.shape)} and {list(new.shape)} do not fit")
        if not held.is_contiguous() or held.dtype != keys.dtype or new.dtype != keys.dtype:
            raise ValueError(f"write_rows: {new.dtype} into {held.dtype}, or a cache that is a view")
    if positions.dtype != torch.int64 or positions.dim() != 1:
        raise ValueError(f"write_rows: positions are {positions.dtype} {list(positions.shape)}")
