"""A few rows against weights with a contiguous axis K, in Gluon: decoding, bound by memory.

A program takes a tile of weight rows at a time: [columns, S segments of 128], read in order along K (16
bytes a thread, neighbours in one warp), upcast, through shared memory to the threads that add: one thread
owns one segment of one row, adds its 128 products by ``fma``, k ascending, and stores the partial sum. The
next tile is in flight meanwhile. At the end the program adds the partial sums of its own rows, segments
ascending. Which rows a program has, and how many segments stand side by side, cannot change a bit; the
note on zeros in ``repro_kernels.gpu.product`` holds here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from repro_kernels.gpu.runtime import Build, barrier, launch, processors
from repro_kernels.gpu.tiles import store


@gluon.jit
def _eight(tile):
    """The columns of [..., 8], ascending; the splits stay inside a thread."""
    even, odd = gl.split(gl.reshape(tile, tile.shape[:-1] + [4, 2]))  # noqa: RUF005 - Triton's lists
    c04, c26 = gl.split(gl.reshape(even, even.shape[:-1] + [2, 2]))  # noqa: RUF005
    c15, c37 = gl.split(gl.reshape(odd, odd.shape[:-1] + [2, 2]))  # noqa: RUF005
    c0, c4 = gl.split(c04)
    c2, c6 = gl.split(c26)
    c1, c5 = gl.split(c15)
    c3, c7 = gl.split(c37)
    return c0, c1, c2, c3, c4, c5, c6, c7


@gluon.jit
def _step(w, x, p, SUM: gl.constexpr):
    """``p = fma(w, x, p)`` for w, p [columns, S] and x [S]; the conversions only rename layouts."""
    w = gl.convert_layout(w, SUM)
    x = gl.convert_layout(x, gl.SliceLayout(0, SUM))[None, :]
    return gl.fma(w, gl.broadcast(x, p)[0], p)


@gluon.jit
def _weights(
    b, tile, first, N, K, b_n, EVEN: gl.constexpr, BN: gl.constexpr, S: gl.constexpr, LOAD: gl.constexpr
):
    """Rows tile * BN + 0 .. BN - 1 (the last one for those beyond N), segments first .. first + S - 1."""
    n = tile * BN + gl.arange(0, BN, layout=gl.SliceLayout(1, gl.SliceLayout(2, LOAD)))
    s = first + gl.arange(0, S, layout=gl.SliceLayout(0, gl.SliceLayout(2, LOAD)))
    c = gl.arange(0, 128, layout=gl.SliceLayout(0, gl.SliceLayout(1, LOAD)))
    k = gl.expand_dims(gl.expand_dims(s * 128, 0), 2) + gl.expand_dims(gl.expand_dims(c, 0), 1)
    row = gl.minimum(n, N - 1).to(gl.int64) * b_n
    at = b + gl.expand_dims(gl.expand_dims(row, 1), 2) + k
    if EVEN:
        return gl.load(at)
    else:
        return gl.load(at, mask=k < K, other=0.0)


@gluon.jit(do_not_specialize=["segments"])
def _rows(
    a, b, bias, out, parts, N, K, segments, a_m, b_n, c_m, c_n, o_m, alpha, beta,
    BIAS: gl.constexpr, EVEN: gl.constexpr, BN: gl.constexpr, S: gl.constexpr, LOAD: gl.constexpr,
    LEFT: gl.constexpr, TAKE: gl.constexpr, SUM: gl.constexpr, LAST: gl.constexpr,
    WEIGHTS: gl.constexpr, ROW: gl.constexpr,
):  # fmt: skip
    """Row program_id(0) of out [M, N]; parts [M, N, segments]. EVEN: K is a multiple of 128 * S."""
    m = gl.program_id(0).to(gl.int64)
    program = gl.program_id(1)
    programs = gl.num_programs(1)
    tiles = gl.cdiv(N, BN)
    a += m * a_m
    parts += m * N * segments
    weights = gl.allocate_shared_memory(b.dtype.element_ty, [2, BN, S, 128], WEIGHTS)
    row = gl.allocate_shared_memory(gl.float32, [S, 128], ROW)
    lane_n = gl.arange(0, BN, layout=gl.SliceLayout(1, SUM))
    lane_s = gl.arange(0, S, layout=gl.SliceLayout(0, SUM))
    for first in range(0, segments, S):
        k = (first + gl.arange(0, S, layout=gl.SliceLayout(1, LEFT)))[:, None] * 128
        k += gl.arange(0, 128, layout=gl.SliceLayout(0, LEFT))[None, :]
        row.store(gl.load(a + k, mask=k < K, other=0.0).to(gl.float32))
        weights.index(0).store(_weights(b, program, first, N, K, b_n, EVEN, BN, S, LOAD))
        buffer = 0
        for tile in range(program, tiles, programs):
            following = _weights(b, tile + programs, first, N, K, b_n, EVEN, BN, S, LOAD)
            p = gl.zeros([BN, S], gl.float32, SUM)
            for c in gl.static_range(0, 128, 8):
                w = weights.index(buffer).slice(c, 8, dim=2).load(TAKE).to(gl.float32)
                x = row.slice(c, 8, dim=1).load(gl.SliceLayout(0, TAKE))
                w0, w1, w2, w3, w4, w5, w6, w7 = _eight(w)
                x0, x1, x2, x3, x4, x5, x6, x7 = _eight(x)
                p = _step(w0, x0, p, SUM)
                p = _step(w1, x1, p, SUM)
                p = _step(w2, x2, p, SUM)
                p = _step(w3, x3, p, SUM)
                p = _step(w4, x4, p, SUM)
                p = _step(w5, x5, p, SUM)
                p = _step(w6, x6, p, SUM)
                p = _step(w7, x7, p, SUM)
            n = tile * BN + lane_n
            at = (n.to(gl.int64) * segments)[:, None] + (first + lane_s)[None, :]
            gl.store(parts + at, p, mask=(n < N)[:, None] & (first + lane_s < segments)[None, :])
            buffer = 1 - buffer
            weights.index(buffer).store(following)
    barrier()
    mine = gl.cdiv(tiles - program, programs) * BN
    for base in range(0, mine, 128):
        index = base + gl.arange(0, 128, layout=LAST)
        n = (program + index // BN * programs) * BN + index % BN
        inside = (index < mine) & (n < N)
        at = parts + n.to(gl.int64) * segments
        acc = gl.zeros([128], gl.float32, LAST)
        for s in range(0, segments):
            acc = acc + gl.load(at + s, mask=inside, other=0.0)
        value = alpha * acc
        if BIAS:
            term = gl.load(bias + m * c_m + n.to(gl.int64) * c_n, mask=inside, other=0.0)
            value = beta * term.to(gl.float32) + value
        store(out + m * o_m + n, value, inside)


@functools.cache
def layouts(bits: int, lanes: int) -> dict[str, Any]:
    """Constexprs of a launch: a tile is 32 KiB of weights, a thread works on one segment of one row.

    Args:
        bits: of an element of the weights, 16 or 32.
        lanes: segments side by side; a power of two up to 32.
    """
    warps, vector = (4, 8) if bits == 16 else (2, 4)
    across = 128 // vector
    threads = [32 // lanes, lanes]
    return {
        "BN": warps * threads[0],
        "S": lanes,
        "LOAD": gl.BlockedLayout([1, 1, vector], [1, 32 // across, across], [warps, 1, 1], [2, 1, 0]),
        "LEFT": gl.BlockedLayout([1, 4], [1, 32], [warps, 1], [1, 0]),
        "TAKE": gl.BlockedLayout([1, 1, 8], [*threads, 1], [warps, 1, 1], [2, 1, 0]),
        "SUM": gl.BlockedLayout([1, 1], threads, [warps, 1], [1, 0]),
        "LAST": gl.BlockedLayout([1], [32], [warps], [0]),
        "WEIGHTS": gl.SwizzledSharedLayout(vector, 1, 8, [2, 1, 0]),
        "ROW": gl.SwizzledSharedLayout(4, 1, 8, [1, 0]),
        "num_warps": warps,
    }


def run(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    factors: tuple[float, float],
) -> None:
    """out = the rows of a [M, K] against those of b [N, K], both contiguous along K, as in ``product``.

    Args:
        a: few rows.
        b: weights.
        bias: expanded to [M, N], or None.
        out: [M, N], its last axis contiguous.
        factors: alpha, beta.
    """
    m, k = a.shape
    n = b.shape[0]
    segments = -(-k // 128)
    lanes = min(32, triton.next_power_of_2(segments))
    how = layouts(8 * b.element_size(), lanes)
    programs = min(-(-n // how["BN"]), max(1, 2 * processors(out.device) // m))
    parts = torch.empty(m * n * segments, dtype=torch.float32, device=out.device)
    addend = out if bias is None else bias
    launch(
        _rows, (m, programs), a, b, addend, out, parts, n, k, segments,
        a.stride(0), b.stride(0), *addend.stride(), out.stride(0), *factors,
        BIAS=bias is not None, EVEN=k % (128 * lanes) == 0, **how,
    )  # fmt: skip


def _builds() -> Iterator[Build]:
    for left, right, out in (
        ("*fp32", "*bf16", "*fp32"),
        ("*bf16", "*fp16", "*bf16"),
        ("*fp16", "*fp32", "*fp16"),
    ):
        for lanes, even in ((32, True), (8, False)):
            how = dict(layouts(32 if right == "*fp32" else 16, lanes))
            options = {"num_warps": how.pop("num_warps")}
            pointers = {"a": left, "b": right, "bias": right, "out": out, "parts": "*fp32"}
            sizes = dict.fromkeys(("N", "K", "segments", "a_m", "b_n", "c_m", "c_n", "o_m"), "i32")
            aligned = (*pointers, "N", "K", "a_m", "b_n") if even else tuple(pointers)
            signature = {**pointers, **sizes, "alpha": "fp32", "beta": "fp32"}
            yield Build(_rows, signature, {"BIAS": even, "EVEN": even, **how}, options, aligned)


BUILDS = tuple(_builds())
"""Three mixes of types, whole and masked."""
