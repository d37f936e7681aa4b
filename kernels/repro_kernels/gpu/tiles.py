"""What the Gluon kernels of tiles share: loads that upcast, outer products out of shared memory, stores.

Operands are upcast exactly on their way to shared memory, where a step's column of one and row of the other
lie side by side; each thread then adds to its own outputs, k ascending, by ``fma``.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

DEPTH = 16
"""Contracted indices per step; divides a segment."""


@gluon.jit
def batch_offset(batch, middle, inner, stride0, stride1, stride2):
    """Element offset of batch entry number `batch` of [*, middle, inner] in C order."""
    rest = batch // inner
    return (rest // middle) * stride0 + (rest % middle) * stride1 + (batch % inner) * stride2


@gluon.jit
def fetch(pointers, inside, k, rk, step, K, EVEN: gl.constexpr, ROWS: gl.constexpr):
    """Elements k + rk of every row, as float32; +0 outside the contraction and, if ROWS, the rows."""
    at = pointers + k.to(gl.int64) * step
    if EVEN and ROWS:
        return gl.load(at, mask=inside[:, None], other=0.0).to(gl.float32)
    elif EVEN:
        return gl.load(at).to(gl.float32)
    else:
        real = (k + rk >= 0) & (k + rk < K)
        return gl.load(at, mask=inside[:, None] & real[None, :], other=0.0).to(gl.float32)


@gluon.jit
def step(p, left, right, buffer, DEPTH_: gl.constexpr, ACC: gl.constexpr):
    """``p = fma(x_k, w_k, p)`` for the contracted indices of one step, ascending."""
    for u in gl.static_range(0, DEPTH_):
        x = left.index(buffer).slice(u, 1, dim=1).load(ACC)
        w = right.index(buffer).slice(u, 1, dim=1).permute((1, 0)).load(ACC)
        p = gl.fma(gl.broadcast(x, p)[0], gl.broadcast(w, p)[0], p)
    return p


@gluon.jit
def row_of(tile, size, BLOCK: gl.constexpr, LAYOUT: gl.constexpr, ROWS: gl.constexpr):
    """Rows of a tile, and which are inside; unless ROWS, the last stands in for those beyond."""
    r = tile * BLOCK + gl.arange(0, BLOCK, layout=gl.SliceLayout(1, LAYOUT))
    inside = r < size
    if not ROWS:
        r = gl.minimum(r, size - 1)
    return r, inside


@gluon.jit
def store(pointer, value, mask):
    """Store float32 values as the pointer's type: one rounding to nearest even, NaN canonical."""
    dtype: gl.constexpr = pointer.dtype.element_ty
    bits = value.to(gl.int32, bitcast=True)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    if dtype == gl.float32:
        gl.store(pointer, gl.where(nan, 0x7FC00000, bits).to(gl.float32, bitcast=True), mask=mask)
    else:
        canonical: gl.constexpr = 0x7FC0 if dtype == gl.bfloat16 else 0x7E00
        short = value.to(dtype).to(gl.int16, bitcast=True).to(gl.int32)
        short = gl.where(nan, canonical, short).to(gl.int16)
        gl.store(pointer, short.to(dtype, bitcast=True), mask=mask)


UNSPECIALISED = ("M", "start", "middle", "inner", "share", "segments", "batches")
"""Numbers that change from call to call: a kernel is not compiled anew for them."""


class Form(NamedTuple):
    """A tile: rows, columns, warps along each, threads of a warp along each; 4 x 4 neighbours per thread."""

    rows: int
    columns: int
    warps: tuple[int, int]
    threads: tuple[int, int]


@functools.cache
def layouts(form: Form, left_rows: bool, right_rows: bool) -> dict[str, Any]:
    """Constexprs of a tile; `left_rows`: neighbours in memory are rows, not contracted indices."""
    warps = form.warps[0] * form.warps[1]
    return {
        "BM": form.rows,
        "BN": form.columns,
        "BK": DEPTH,
        "ACC": gl.BlockedLayout([4, 4], list(form.threads), list(form.warps), [1, 0]),
        "LEFT": _operand(form.rows, warps, left_rows),
        "RIGHT": _operand(form.columns, warps, right_rows),
        "LEFT_ROWS": left_rows,
        "RIGHT_ROWS": right_rows,
        "num_warps": warps,
    }


def _operand(rows: int, warps: int, along_rows: bool) -> Any:
    """How [rows, DEPTH] is loaded: 8 contracted indices a thread, or 4 neighbouring rows."""
    if along_rows:
        across = min(32, rows // 4)
        return gl.BlockedLayout([4, 1], [across, 32 // across], [1, warps], [0, 1])
    return gl.BlockedLayout([1, 8], [32, 1], [warps // 2, 2], [1, 0])
