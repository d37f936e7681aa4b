"""One contiguous row, normalised by one program out of registers, in Gluon: read once, written once.

A row is a tile [S, 128] of segments. It is read 16 bytes a thread, neighbours side by side, and left in
shared memory too, where a lane takes a segment and adds its 128 terms in order; the partial sums meet in
shared memory, and every thread adds them in order. The row itself stays in registers for the scaling. The
bits are those of ``repro_kernels.gpu.norm``, which calls this one for rows that fit.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from repro_kernels.gpu.rows import eight
from repro_kernels.gpu.runtime import Build, launch
from repro_kernels.gpu.tiles import store

SEGMENTS = (8, 32, 64, 128)
"""Segments of a tile: few sizes, so that few kernels are compiled."""

LONGEST = 128 * SEGMENTS[-1]
"""Elements of the longest row that stays in registers."""

FEW = 256
"""Rows that leave a GPU mostly idle: each gets more threads."""


@gluon.jit
def _add(x, p, SQUARE: gl.constexpr, LANES: gl.constexpr):
    """``p = RN(p + t)``, t = x or RN(x * x)."""
    x = gl.convert_layout(x, LANES)
    if SQUARE:
        x = x * x
    return p + x


@gluon.jit
def _total(
    tile, parts, SQUARE: gl.constexpr, S: gl.constexpr, TAKE: gl.constexpr, LANES: gl.constexpr,
    EVERY: gl.constexpr, ONE: gl.constexpr,
):  # fmt: skip
    """The segment sum of a row [S, 128] in shared memory, +0 beyond its elements: [1], in every thread."""
    p = gl.zeros([S], gl.float32, LANES)
    for c in gl.static_range(0, 128, 8):
        x0, x1, x2, x3, x4, x5, x6, x7 = eight(tile.slice(c, 8, dim=1).load(TAKE).to(gl.float32))
        p = _add(x0, p, SQUARE, LANES)
        p = _add(x1, p, SQUARE, LANES)
        p = _add(x2, p, SQUARE, LANES)
        p = _add(x3, p, SQUARE, LANES)
        p = _add(x4, p, SQUARE, LANES)
        p = _add(x5, p, SQUARE, LANES)
        p = _add(x6, p, SQUARE, LANES)
        p = _add(x7, p, SQUARE, LANES)
    parts.store(gl.expand_dims(gl.convert_layout(p, gl.SliceLayout(0, EVERY)), 0))
    acc = gl.zeros([1], gl.float32, ONE)
    for s in gl.static_range(0, S, 8):
        p0, p1, p2, p3, p4, p5, p6, p7 = eight(parts.slice(s, 8, dim=1).load(EVERY))
        acc = acc + gl.convert_layout(p0, ONE)
        acc = acc + gl.convert_layout(p1, ONE)
        acc = acc + gl.convert_layout(p2, ONE)
        acc = acc + gl.convert_layout(p3, ONE)
        acc = acc + gl.convert_layout(p4, ONE)
        acc = acc + gl.convert_layout(p5, ONE)
        acc = acc + gl.convert_layout(p6, ONE)
        acc = acc + gl.convert_layout(p7, ONE)
    return acc


@gluon.jit
def _rsqrt(x, ONE: gl.constexpr):
    """``elementary_core.rsqrt_rn`` of [1] in Gluon, where that file's scalars have no layout."""
    d = x.to(gl.float64)
    one = gl.full([1], 1.0, gl.float64, ONE)
    y = one / gl.sqrt(d)
    p = y * y
    e = gl.fma(y, y, -p)
    correction = 0.5 * y * gl.fma(-d, e, gl.fma(-d, p, one))
    high = y + correction
    low = correction - (high - y)
    bits = high.to(gl.int64, bitcast=True)
    odd = gl.where((low < 0.0) != (high < 0.0), bits - 1, bits + 1)
    bits = gl.where(((bits & 1) == 0) & (low != 0.0), odd, bits)
    finite = (d > 0.0) & (0.5 * d != d)
    root = gl.where(finite, bits.to(gl.float64, bitcast=True), y).to(gl.float32)
    bits = root.to(gl.int32, bitcast=True)
    return gl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC00000, bits).to(gl.float32, bitcast=True)


@gluon.jit(do_not_specialize=["slices", "mode"])
def _row(
    x, w, b, out, stride, n, slices, mode, run, eps, size, CENTRE: gl.constexpr, S: gl.constexpr,
    LOAD: gl.constexpr, TAKE: gl.constexpr, LANES: gl.constexpr, EVERY: gl.constexpr, MEMORY: gl.constexpr,
):  # fmt: skip
    """One row of x, `stride` apart, to one of out, n apart; arguments as in ``norm.normalise_rows``.

    mode: 1, round before the factor; 2, the factor is RN(1 + w); 0, neither. A number of the launch and no
    constant, so that one kernel serves all three.
    """
    row = gl.program_id(0).to(gl.int64)
    ONE: gl.constexpr = gl.SliceLayout(1, LOAD)
    s = gl.arange(0, S, layout=ONE)
    i = gl.expand_dims(s * 128, 1) + gl.expand_dims(gl.arange(0, 128, layout=gl.SliceLayout(0, LOAD)), 0)
    inside = i < n
    raw = gl.load(x + row * stride + i, mask=inside, other=0.0)
    slice = (row % slices) * (n // run)
    if w is not None:
        factors = gl.load(w + slice + i // run, mask=inside, other=0.0)
    if b is not None:
        summands = gl.load(b + slice + i // run, mask=inside, other=0.0)
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    parts = gl.allocate_shared_memory(gl.float32, [1, S], flat)
    size = gl.zeros([1], gl.float32, ONE) + size
    v = raw.to(gl.float32)
    if CENTRE:
        tile = gl.allocate_shared_memory(gl.float32, [S, 128], MEMORY)
        tile.store(v)
        mean = gl.div_rn(_total(tile, parts, False, S, TAKE, LANES, EVERY, ONE), size)
        v = gl.where(inside, v - gl.expand_dims(mean, 1), 0.0)
        tile.store(v)
    else:
        tile = gl.allocate_shared_memory(x.dtype.element_ty, [S, 128], MEMORY)
        tile.store(raw)
    total = _total(tile, parts, True, S, TAKE, LANES, EVERY, ONE)
    factor = _rsqrt(gl.div_rn(total, size) + eps, ONE)
    v = v * gl.expand_dims(factor, 1)
    v = gl.where(mode == 1, v.to(out.dtype.element_ty).to(gl.float32), v)
    if w is not None:
        f = factors.to(gl.float32)
        v = v * gl.where(mode == 2, 1.0 + f, f)
    if b is not None:
        v = v + summands.to(gl.float32)
    store(out + row * n + i, v, inside)


def warps_of(segments: int, rows: int) -> int:
    """Warps of a program: a choice of speed alone."""
    return max(segments // 16, 4 if rows <= FEW else 2)


@functools.cache
def layouts(bits: int, segments: int, warps: int, centre: bool) -> dict[str, Any]:
    """Constexprs of a launch.

    Args:
        bits: of an element of x.
        segments: a power of two, at least 8.
        warps: of a program.
        centre: whether the tile in shared memory is float32 and not x's type.
    """
    vector = 128 // bits
    across = 128 // vector
    return {
        "S": segments,
        "LOAD": gl.BlockedLayout([1, vector], [32 // across, across], [warps, 1], [1, 0]),
        "TAKE": gl.BlockedLayout([1, 8], [32, 1], [warps, 1], [1, 0]),
        "LANES": gl.BlockedLayout([1], [32], [warps], [0]),
        "EVERY": gl.BlockedLayout([1, 8], [32, 1], [warps, 1], [1, 0]),
        "MEMORY": gl.SwizzledSharedLayout(4 if centre else vector, 1, 8, [1, 0]),
        "num_warps": warps,
    }


def run(
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    out: torch.Tensor,
    numbers: tuple[int, int, int, int, int, int, float, float],
    centre: bool,
) -> None:
    """Normalise rows of at most :data:`LONGEST` elements.

    Args:
        x: as in ``norm.normalise_rows``, as are w, b, out and centre.
        w: factors or None.
        b: summands or None.
        out: the results.
        numbers: rows, stride, n, slices, mode (1 for first, 2 for one_plus), run, eps and n again, the last
            two as floats.
        centre: subtract the mean.
    """
    rows, stride, n, *rest = numbers
    segments = next(s for s in SEGMENTS if s * 128 >= n)
    warps = warps_of(segments, rows)
    launch(
        _row, rows, x, w, b, out, stride, n, *rest, CENTRE=centre,
        **layouts(8 * x.element_size(), segments, warps, centre),
    )  # fmt: skip


def _builds() -> Iterator[Build]:
    numbers = dict.fromkeys(("stride", "n", "slices", "mode"), "i32") | {"eps": "fp32", "size": "fp32"}
    aligned = ("x", "w", "out", "stride", "n")
    for kind, bits, segments in (("*fp32", 32, 32), ("*bf16", 16, 64), ("*fp16", 16, 128)):
        for centre in (False, True):
            how = dict(layouts(bits, segments, warps_of(segments, 2048), centre))
            options = {"num_warps": how.pop("num_warps")}
            signature = {"x": kind, "w": kind, **({"b": kind} if centre else {}), "out": kind, **numbers}
            how |= {"run": 1, "CENTRE": centre}
            yield Build(_row, signature, how if centre else {"b": None, **how}, options, aligned)
    how = dict(layouts(32, 8, 4, True))
    options = {"num_warps": how.pop("num_warps")}
    signature = {"x": "*fp32", "w": "*bf16", "out": "*fp32", "run": "i32", **numbers}
    yield Build(_row, signature, {"b": None, "CENTRE": True, **how}, options)


BUILDS = tuple(_builds())
"""Every type of rows, four lengths of them, with and without a mean, whole and masked."""
