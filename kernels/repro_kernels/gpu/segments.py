"""The segment rule on a GPU: one lane owns one segment, or one whole sum, and adds its elements in order.

No tree, no shuffle, no atomic: a lane's additions are the chain that ``repro_kernels.spec.reduce`` writes, so
how many lanes, warps or programs share the work cannot change a bit. Elements past a segment's end add +0,
which leaves a partial sum as it is: a sum that starts at +0 never becomes -0.
"""

from __future__ import annotations

import triton
import triton.language as tl

SEGMENT = 128
"""Length of a segment of the profile's sums."""

PLAIN, DEVIATION, SQUARE = 0, 1, 2
"""What is added: t = x, t = RN(d * d) with d = RN(x - center), or t = RN(x * x)."""


@triton.jit
def _columns4(tile):
    """The columns of [lanes, 4], ascending."""
    even, odd = tl.split(tl.reshape(tile, [tile.shape[0], 2, 2]))
    c0, c2 = tl.split(even)
    c1, c3 = tl.split(odd)
    return c0, c1, c2, c3


@triton.jit
def _columns8(tile):
    """The columns of [lanes, 8], ascending."""
    even, odd = tl.split(tl.reshape(tile, [tile.shape[0], 4, 2]))
    c0, c2, c4, c6 = _columns4(even)
    c1, c3, c5, c7 = _columns4(odd)
    return c0, c1, c2, c3, c4, c5, c6, c7


@triton.jit
def _term(x, inside, center, TERM: tl.constexpr):
    """What element x adds; +0 outside the segment."""
    if TERM == 1:
        d = x - center
        x = tl.where(inside, d * d, 0.0)
    if TERM == 2:
        x = x * x
    return x


@triton.jit
def segment_sums(x, base, step, length, center, TERM: tl.constexpr, VECTOR: tl.constexpr):
    """``p`` of one segment per lane: ``p = RN(p + t)``, k ascending, from +0.

    Args:
        x: pointer to float32, bfloat16 or float16.
        base: [lanes] int64, where a segment's first element is.
        step: from one element of a segment to the next.
        length: [lanes], elements of the segment, 0 .. 128.
        center: [lanes] or a scalar float32, for DEVIATION.
        TERM: PLAIN, DEVIATION or SQUARE.
        VECTOR: 1; or 4 or 8 elements a load, if step is 1 and every length a multiple of it.
    """
    p = tl.zeros([base.shape[0]], tl.float32)
    if VECTOR == 1:
        for k in range(0, 128, 16):
            for u in tl.static_range(16):
                inside = k + u < length
                t = tl.load(x + base + (k + u) * step, mask=inside, other=0.0).to(tl.float32)
                p = p + _term(t, inside, center, TERM)
    else:
        for k in range(0, 128, 4 * VECTOR):
            for u in tl.static_range(4):
                at = k + u * VECTOR
                inside = at < length
                offsets = base[:, None] + (at + tl.arange(0, VECTOR))[None, :]
                tile = tl.load(x + offsets, mask=inside[:, None], other=0.0).to(tl.float32)
                if VECTOR == 4:
                    c0, c1, c2, c3 = _columns4(tile)
                    p = p + _term(c0, inside, center, TERM)
                    p = p + _term(c1, inside, center, TERM)
                    p = p + _term(c2, inside, center, TERM)
                    p = p + _term(c3, inside, center, TERM)
                else:
                    c0, c1, c2, c3, c4, c5, c6, c7 = _columns8(tile)
                    p = p + _term(c0, inside, center, TERM)
                    p = p + _term(c1, inside, center, TERM)
                    p = p + _term(c2, inside, center, TERM)
                    p = p + _term(c3, inside, center, TERM)
                    p = p + _term(c4, inside, center, TERM)
                    p = p + _term(c5, inside, center, TERM)
                    p = p + _term(c6, inside, center, TERM)
                    p = p + _term(c7, inside, center, TERM)
    return p


@triton.jit
def ascending(parts, base, step, count, valid):
    """``acc = RN(acc + p)`` over `count` partial sums per lane, ascending, from +0.

    Args:
        parts: pointer to float32.
        base: [lanes] int64, where the first partial sum is.
        step: from one to the next.
        count: how many; the same for all lanes.
        valid: [lanes], whether the lane has any.
    """
    acc = tl.zeros([base.shape[0]], tl.float32)
    for s in range(0, count, 8):
        for u in tl.static_range(8):
            p = tl.load(parts + base + (s + u) * step, mask=valid & (s + u < count), other=0.0)
            acc = acc + p
    return acc


def vector(n: int, itemsize: int) -> int:
    """Elements per load for contiguous rows of n elements: 16 bytes where all rows keep their alignment."""
    return 16 // itemsize if n % 16 == 0 else 1
