"""Rows written into a cache at positions that a CUDA tensor holds: one launch, nothing read back.

The function, its arguments and errors are those of ``repro_kernels.cpu.positions``. Tests:
``tests/gpu/cases_positions.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from repro_kernels.cpu.positions import check
from repro_kernels.gpu.runtime import Build, launch

_BLOCK = 1024


@triton.jit
def _write(
    keys, values, new_keys, new_values, positions, heads, capacity, size, width,
    k_row, k_head, k_step, v_row, v_head, v_step, BLOCK: tl.constexpr,
):  # fmt: skip
    """Row program_id(0): a block of the elements of all its heads, of key and value alike."""
    row = tl.program_id(0).to(tl.int64)
    position = tl.load(positions + row)
    e = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    head = e // size
    d = e - head * size
    moved = tl.load(new_keys + row * k_row + head * k_head + d * k_step, mask=head < heads, other=0.0)
    tl.store(keys + ((row * heads + head) * capacity + position) * size + d, moved, mask=head < heads)
    head = e // width
    d = e - head * width
    moved = tl.load(new_values + row * v_row + head * v_head + d * v_step, mask=head < heads, other=0.0)
    tl.store(values + ((row * heads + head) * capacity + position) * width + d, moved, mask=head < heads)


def write_rows(
    keys: torch.Tensor,
    values: torch.Tensor,
    new_keys: torch.Tensor,
    new_values: torch.Tensor,
    positions: torch.Tensor,
) -> None:
    """Rows into the cache at their positions: :func:`repro_kernels.cpu.positions.write_rows`."""
    check(keys, values, new_keys, new_values, positions)
    rows, heads, size = new_keys.shape
    width = new_values.shape[2]
    most = heads * max(size, width)
    if not rows or not most:
        return
    launch(
        _write, (rows, -(-most // _BLOCK)), keys, values, new_keys, new_values, positions.contiguous(),
        heads, keys.shape[2], max(size, 1), max(width, 1), *new_keys.stride(), *new_values.stride(),
        BLOCK=_BLOCK,
    )  # fmt: skip


def _builds() -> Iterator[Build]:
    for kind in ("*fp32", "*bf16", "*fp16"):
        pointers = dict.fromkeys(("keys", "values", "new_keys", "new_values"), kind)
        known = {**pointers, "positions": "*i64"}
        numbers = {name: "i32" for name in _write.arg_names if name not in known and name != "BLOCK"}
        yield Build(_write, {**known, **numbers}, {"BLOCK": _BLOCK}, divisible=tuple(pointers), fma=False)


BUILDS = tuple(_builds())
"""Every dtype."""
