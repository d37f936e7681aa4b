"""Products of whole tiles in Gluon: outer products out of shared memory, with every layout written down.

Operands are upcast exactly on their way to shared memory, where a step's column of one and row of the other
lie side by side; each thread then adds to its own outputs, k ascending, by ``fma``. The next step's operands
are in flight meanwhile. The bits are those of ``repro_kernels.gpu.product``, whose note on zeros holds here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from repro_kernels.gpu.runtime import Build, launch

DEPTH = 16
"""Contracted indices per step; divides a segment."""


@gluon.jit
def _batch_offset(batch, middle, inner, stride0, stride1, stride2):
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


@gluon.jit(do_not_specialize=UNSPECIALISED)
def _tiles(
    a, b, bias, out, parts, M, N, K, start, middle, inner, share, segments, batches,
    a0, a1, a2, a_m, a_k, b0, b1, b2, b_n, b_k, c0, c1, c2, c_m, c_n, o0, o1, o2, o_m, alpha, beta,
    BIAS: gl.constexpr, SPLIT: gl.constexpr, EVEN: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, GROUP: gl.constexpr, ACC: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
    LEFT_ROWS: gl.constexpr, RIGHT_ROWS: gl.constexpr,
):  # fmt: skip
    """A [BM, BN] tile of out, or the partial sums of `share` of its segments (SPLIT).

    GROUP rows of tiles run through the columns together, so that their operands meet in the cache. EVEN: the
    contraction starts at a segment and is a multiple of BK.
    """
    rows = gl.cdiv(M, BM)
    columns = gl.cdiv(N, BN)
    program = gl.program_id(0)
    batch = (program // (rows * columns)).to(gl.int64)
    tile = program % (rows * columns)
    above = tile // (GROUP * columns) * GROUP
    height = min(rows - above, GROUP)
    row = above + tile % (GROUP * columns) % height
    column = tile % (GROUP * columns) // height

    m, m_inside = row_of(row, M, BM, LEFT, LEFT_ROWS)
    n, n_inside = row_of(column, N, BN, RIGHT, RIGHT_ROWS)
    rka = gl.arange(0, BK, layout=gl.SliceLayout(0, LEFT))
    rkb = gl.arange(0, BK, layout=gl.SliceLayout(0, RIGHT))
    a += _batch_offset(batch, middle, inner, a0, a1, a2)
    b += _batch_offset(batch, middle, inner, b0, b1, b2)
    pa = a + (m.to(gl.int64) * a_m)[:, None] + (rka.to(gl.int64) * a_k)[None, :]
    pb = b + (n.to(gl.int64) * b_n)[:, None] + (rkb.to(gl.int64) * b_k)[None, :]

    memory: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0, 1])
    sa = gl.allocate_shared_memory(gl.float32, [2, BM, BK], memory)
    sb = gl.allocate_shared_memory(gl.float32, [2, BN, BK], memory)
    first = gl.program_id(1) * share
    k = first * 128
    if not EVEN:
        k -= start
    last = K - BK
    sa.index(0).store(fetch(pa, m_inside, k, rka, a_k, K, EVEN, LEFT_ROWS))
    sb.index(0).store(fetch(pb, n_inside, k, rkb, b_k, K, EVEN, RIGHT_ROWS))

    om = row * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, ACC))
    on = column * BN + gl.arange(0, BN, layout=gl.SliceLayout(0, ACC))
    inside = (om < M)[:, None] & (on < N)[None, :]
    om64 = om.to(gl.int64)
    on64 = on.to(gl.int64)
    acc = gl.zeros([BM, BN], gl.float32, ACC)
    buffer = 0
    for s in range(first, min(first + share, segments)):
        p = gl.zeros([BM, BN], gl.float32, ACC)
        for _ in range(0, gl.cdiv(min(128, K + start - s * 128), BK)):
            k += BK
            if EVEN:
                k = min(k, last)
            left = fetch(pa, m_inside, k, rka, a_k, K, EVEN, LEFT_ROWS)
            right = fetch(pb, n_inside, k, rkb, b_k, K, EVEN, RIGHT_ROWS)
            p = step(p, sa, sb, buffer, BK, ACC)
            buffer = 1 - buffer
            sa.index(buffer).store(left)
            sb.index(buffer).store(right)
        if SPLIT:
            at = ((batch + s * batches) * M + om64)[:, None] * N + on64[None, :]
            gl.store(parts + at, p, mask=inside)
        else:
            acc = acc + p
    if not SPLIT:
        value = alpha * acc
        if BIAS:
            c = bias + _batch_offset(batch, middle, inner, c0, c1, c2)
            term = gl.load(c + (om64 * c_m)[:, None] + (on64 * c_n)[None, :], mask=inside, other=0.0)
            value = beta * term.to(gl.float32) + value
        at = _batch_offset(batch, middle, inner, o0, o1, o2) + (om64 * o_m)[:, None] + on64[None, :]
        store(out + at, value, inside)


class Form(NamedTuple):
    """A tile: rows, columns, warps along each, threads of a warp along each; 4 x 4 neighbours per thread."""

    rows: int
    columns: int
    warps: tuple[int, int]
    threads: tuple[int, int]


FORMS = (
    Form(128, 128, (4, 2), (4, 8)),
    Form(64, 128, (2, 2), (4, 8)),
    Form(32, 128, (2, 2), (4, 8)),
    Form(16, 128, (1, 4), (4, 8)),
)
"""Tiles from the largest; a choice of speed alone."""


def choose(m: int, n: int, k: int, batches: int) -> Form | None:
    """The tile for a product, or None where a plain kernel serves better."""
    if m < 2 or n < 32 or k < DEPTH:
        return None
    large, medium, small, least = FORMS
    if m <= 32:
        return least if m <= 16 else small
    count = batches * -(-m // large.rows) * -(-n // large.columns)
    return large if m > 64 and count >= 192 else medium


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


def run(
    form: Form,
    grid: tuple[int, int],
    tensors: tuple[torch.Tensor, ...],
    numbers: tuple[int, ...],
    factors: tuple[float, float],
    bias: bool,
    split: bool,
) -> None:
    """Launch the tiles of one product.

    Args:
        form: the tile.
        grid: tiles of the batch, and programs that share a tile's segments.
        tensors: a, b, bias (or any), out, parts.
        numbers: the kernel's integers, in its order.
        factors: alpha, beta.
        bias: whether the bias is read.
        split: whether partial sums are stored instead of results.
    """
    k, start = numbers[2:4]
    a_m, a_k = numbers[12:14]
    b_n, b_k = numbers[17:19]
    launch(
        _tiles, grid, *tensors, *numbers, *factors, BIAS=bias, SPLIT=split,
        EVEN=start == 0 and k % DEPTH == 0, GROUP=8,
        **layouts(form, a_k != 1 and a_m == 1, b_k != 1 and b_n == 1),
    )  # fmt: skip


def _builds() -> Iterator[Build]:
    operands = (("*fp32", "*bf16"), ("*bf16", "*fp16"), ("*fp32", "*fp32"), ("*fp16", "*fp32"))
    for form, (left, right) in zip(FORMS, operands, strict=True):
        for along_rows in (False, True):
            named = {"a_m": 1, "b_n": 1} if along_rows else {"a_k": 1, "b_k": 1}
            how = dict(layouts(form, along_rows, along_rows))
            warps = how.pop("num_warps")
            constexprs = {**named, "c_n": 1, "BIAS": along_rows, "SPLIT": not along_rows, "GROUP": 8, **how}
            integers = [a for a in _tiles.arg_names[5:34] if a not in named and a != "c_n"]
            signature = {
                **dict(
                    zip(
                        ("a", "b", "bias", "out", "parts"), (left, right, "*fp32", left, "*fp32"), strict=True
                    )
                ),
                **dict.fromkeys(integers, "i32"),
                "alpha": "fp32",
                "beta": "fp32",
            }
            aligned = [a for a in integers if a not in UNSPECIALISED]
            for even in (True, False):
                yield Build(
                    _tiles,
                    signature,
                    {**constexprs, "EVEN": even},
                    {"num_warps": warps},
                    ("a", "b", "bias", "out", "parts", *(aligned if even else ())),
                )


BUILDS = tuple(_builds())
"""Every tile, along contracted indices and along rows, whole and masked."""
