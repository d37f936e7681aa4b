"""The dot rule on a GPU: tensors become a launch of the kernel that suits their shape.

Whatever the kernel, one lane owns the chain of one output in one segment, ``p = fma(x_k, w_k, p)``, k ascending,
and one lane adds the partial sums of an output, segments ascending. Which lanes, warps and programs those are
differs; the bits do not. Past a segment's end lanes add ``fma(0, 0, p)``, which can only turn a -0 into a +0, and
``RN(acc + p)`` does not see that: acc starts at +0 and never becomes -0.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from repro_kernels.cpu.layout import DTYPES
from repro_kernels.errors import UnsupportedError
from repro_kernels.gpu.language import load, store
from repro_kernels.gpu.runtime import Build, launch, processors, require
from repro_kernels.spec.floats import rn32

SEGMENT = 128
"""Length of a segment of the contracted axis."""

_FEW = 4
"""Most rows for which the weights are read row by row."""

_UNROLL = 8


@triton.jit
def finish(acc, bias, alpha, beta, mask, SCALED: tl.constexpr):
    """``RN(RN(beta * bias) + RN(alpha * acc))``; bias: pointers, or None; a factor of 1 changes nothing."""
    if SCALED:
        acc = alpha * acc
    if bias is not None:
        term = load(bias, mask)
        if SCALED:
            term = beta * term
        acc = term + acc
    return acc


@triton.jit
def columns8(tile):
    """The columns of [..., 8], ascending, through splits that stay inside a thread."""
    even, odd = tl.split(tl.reshape(tile, tile.shape[:-1] + [4, 2]))
    c04, c26 = tl.split(tl.reshape(even, even.shape[:-1] + [2, 2]))
    c15, c37 = tl.split(tl.reshape(odd, odd.shape[:-1] + [2, 2]))
    c0, c4 = tl.split(c04)
    c1, c5 = tl.split(c15)
    c2, c6 = tl.split(c26)
    c3, c7 = tl.split(c37)
    return c0, c1, c2, c3, c4, c5, c6, c7


@triton.jit
def _place(z, inner, outer_stride, inner_stride):
    """Offset of entry z of a batch with two axes."""
    return (z // inner).to(tl.int64) * outer_stride + (z % inner).to(tl.int64) * inner_stride


@triton.jit
def segment_bounds(s, start, k):
    """The contracted indices of segment s, the first index having position `start` in its segment."""
    return tl.maximum(s * 128 - start, 0).to(tl.int64), tl.minimum((s + 1) * 128 - start, k).to(tl.int64)


@triton.jit
def _tile(
    a, b, bias, out, M, N, K, start, segments, inner, alpha, beta,
    a_m, a_k, a_0, a_1, b_n, b_k, b_0, b_1, c_m, c_n, c_0, c_1,
    SCALED: tl.constexpr, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """A tile of [BM, BN] outputs, each in a lane. SPLIT: the partial sum of one segment, to [segments, ...]."""
    tiles_m = tl.cdiv(M, BM)
    rm = (tl.program_id(0) % tiles_m) * BM + tl.arange(0, BM)
    rn = (tl.program_id(0) // tiles_m) * BN + tl.arange(0, BN)
    z = tl.program_id(1)
    m_inside, n_inside = rm < M, rn < N
    rm64, rn64 = rm.to(tl.int64), rn.to(tl.int64)
    left = a + _place(z, inner, a_0, a_1) + tl.where(m_inside, rm64, 0) * a_m
    right = b + _place(z, inner, b_0, b_1) + tl.where(n_inside, rn64, 0) * b_n
    first = 0
    last = segments
    if SPLIT:
        first = tl.program_id(2)
        last = first + 1
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(first, last):
        low, high = segment_bounds(s, start, K)
        part = tl.zeros((BM, BN), tl.float32)
        for k in range(low, high, UNROLL):
            for u in tl.static_range(UNROLL):
                inside = k + u < high
                at = tl.where(inside, k + u, low)
                x = load(left + at * a_k, m_inside & inside)
                w = load(right + at * b_k, n_inside & inside)
                x, w = tl.broadcast(x[:, None], w[None, :])
                part = tl.fma(x, w, part)
        acc = acc + part
    inside = m_inside[:, None] & n_inside[None, :]
    to = (z.to(tl.int64) * M + rm64[:, None]) * N + rn64[None, :]
    if SPLIT:
        tl.store(out + (first.to(tl.int64) * tl.num_programs(1) * M * N + to), acc, mask=inside)
    else:
        if bias is not None:
            bias = bias + _place(z, inner, c_0, c_1) + rm64[:, None] * c_m + rn64[None, :] * c_n
        store(out + to, finish(acc, bias, alpha, beta, inside, SCALED), inside)


@triton.jit
def _rows(
    a, b, bias, out, parts, M, N, K, start, segments, alpha, beta,
    a_m, a_k, b_n, c_m, c_n,
    SCALED: tl.constexpr, BN: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """BN rows of b, contiguous, against every row of a: a lane takes one segment of one row, 8 elements a load.

    parts: [programs, M, segments, BN] floats of scratch memory.
    """
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    n_inside = n < N
    n_lanes = n >= 0
    right = b + tl.where(n_inside, n.to(tl.int64), 0) * b_n
    scratch = parts + tl.program_id(0).to(tl.int64) * M * segments * BN + tl.arange(0, BN)
    r8 = tl.arange(0, 8)
    for first in range(0, segments, LANES):
        s = first + tl.arange(0, LANES)
        base = s * 128 - start
        row = a
        to = scratch[:, None] + s[None, :] * BN
        for _ in range(0, M):
            part = tl.zeros((BN, LANES), tl.float32)
            for c in tl.static_range(0, 128, 8):
                at = base[:, None] + (c + r8)[None, :]
                inside = (at >= 0) & (at < K)
                x = load(row + at.to(tl.int64) * a_k, inside)
                w = load(right[:, None, None] + at[None, :, :], inside[None, :, :] & n_inside[:, None, None])
                x0, x1, x2, x3, x4, x5, x6, x7 = columns8(x)
                w0, w1, w2, w3, w4, w5, w6, w7 = columns8(w)
                part = tl.fma(w0, tl.broadcast_to(x0[None, :], (BN, LANES)), part)
                part = tl.fma(w1, tl.broadcast_to(x1[None, :], (BN, LANES)), part)
                part = tl.fma(w2, tl.broadcast_to(x2[None, :], (BN, LANES)), part)
                part = tl.fma(w3, tl.broadcast_to(x3[None, :], (BN, LANES)), part)
                part = tl.fma(w4, tl.broadcast_to(x4[None, :], (BN, LANES)), part)
                part = tl.fma(w5, tl.broadcast_to(x5[None, :], (BN, LANES)), part)
                part = tl.fma(w6, tl.broadcast_to(x6[None, :], (BN, LANES)), part)
                part = tl.fma(w7, tl.broadcast_to(x7[None, :], (BN, LANES)), part)
            tl.store(to, part, mask=(s < segments)[None, :] & n_lanes[:, None])
            to += segments * BN
            row += a_m
    tl.debug_barrier()
    target = out + n.to(tl.int64)
    if bias is not None:
        bias = bias + n.to(tl.int64) * c_n
    for _ in range(0, M):
        acc = tl.zeros((BN,), tl.float32)
        for _s in range(0, segments):
            acc = acc + tl.load(scratch)
            scratch += BN
        store(target, finish(acc, bias, alpha, beta, n_inside, SCALED), n_inside)
        target += N
        if bias is not None:
            bias += c_m


@triton.jit
def _combine(
    parts, bias, out, M, N, segments, total, inner, alpha, beta, c_m, c_n, c_0, c_1,
    SCALED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Partial sums [segments, batch, M, N] to out [batch, M, N]."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = e < total
    acc = tl.zeros((BLOCK,), tl.float32)
    at = e
    for _ in range(0, segments):
        acc = acc + tl.load(parts + at, mask=inside, other=0.0)
        at += total
    if bias is not None:
        z = e // N // M
        bias = bias + _place(z, inner, c_0, c_1) + e // N % M * c_m + e % N * c_n
    store(out + e, finish(acc, bias, alpha, beta, inside, SCALED), inside)


class _Problem(NamedTuple):
    """At most two batch axes, strides in elements: (rows, columns, outer batch, inner batch)."""

    outer: int
    inner: int
    a: tuple[int, int, int, int]
    b: tuple[int, int, int, int]
    bias: tuple[int, int, int, int]


def product(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    k_start: int = 0,
) -> None:
    """:func:`repro_kernels.cpu.product.product` on one CUDA device.

    Args:
        a: [*batch, M, K], any strides.
        b: [*batch, N, K], the same batch, any strides.
        bias: broadcastable to out, or None.
        out: [*batch, M, N], contiguous.
        beta: factor of the bias, used as its nearest float.
        alpha: factor of the product, used as its nearest float.
        k_start: position of the first contracted index.

    Raises:
        UnsupportedError: a tensor is not float32, bfloat16 or float16, or not on the device of out.
    """
    check(a, b, bias, out)
    if not out.numel():
        return
    m, k = a.shape[-2:]
    n = b.shape[-2]
    if bias is not None:
        bias = bias.expand(out.shape)
    start = k_start % SEGMENT
    segments = -(-(k + start) // SEGMENT) if k else 0
    factors = (rn32(alpha), rn32(beta))
    for problem, places in _problems(a, b, bias, out):
        left, right, term, to = places
        count = problem.outer * problem.inner
        sizes = (m, n, k, start, segments)
        scaled = factors != (1.0, 1.0)
        if count == 1 and m <= _FEW and problem.b[1] == 1 and segments:
            _by_rows(left, right, term, to, sizes, problem, factors, scaled)
        else:
            _by_tiles(left, right, term, to, sizes, problem, factors, scaled)


def _by_rows(left, right, term, to, sizes, problem, factors, scaled) -> None:  # type: ignore[no-untyped-def]  # noqa: PLR0917
    m, n, _, _, segments = sizes
    lanes = min(32, triton.next_power_of_2(segments))
    rows = max(4, 256 // lanes) if n >= 16 * processors(to.device) else 4
    programs = -(-n // rows)
    parts = torch.empty(programs * m * segments * rows, dtype=torch.float32, device=to.device)
    launch(
        _rows, programs, left, right, term, to, parts, *sizes, *factors,
        problem.a[0], problem.a[1], problem.b[0], *problem.bias[:2],
        SCALED=scaled, BN=rows, LANES=lanes,
    )  # fmt: skip


def _by_tiles(left, right, term, to, sizes, problem, factors, scaled) -> None:  # type: ignore[no-untyped-def]  # noqa: PLR0917
    m, n, _, _, segments = sizes
    count = problem.outer * problem.inner
    block_m = min(64, max(4, triton.next_power_of_2(m)))
    block_n = 64 if block_m > 16 else min(128, max(16, triton.next_power_of_2(n)))
    tiles = -(-m // block_m) * -(-n // block_n)
    split = segments > 1 and tiles * count < 2 * processors(to.device)
    target = torch.empty(segments, count, m, n, dtype=torch.float32, device=to.device) if split else to
    launch(
        _tile, (tiles, count, segments if split else 1), left, right, None if split else term, target,
        *sizes, problem.inner, *factors, *problem.a, *problem.b, *problem.bias,
        SCALED=scaled and not split, SPLIT=split, BM=block_m, BN=block_n, UNROLL=_UNROLL,
    )  # fmt: skip
    if split:
        total = count * m * n
        launch(
            _combine, -(-total // 256), target, term, to, m, n, segments, total, problem.inner,
            *factors, *problem.bias, SCALED=scaled, BLOCK=256,
        )  # fmt: skip


def check(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> None:
    """Raise unless every tensor is of a specified type and on the device of out.

    Raises:
        UnsupportedError: one is not.
    """
    require(out.device)
    for t in (a, b, out) if bias is None else (a, b, out, bias):
        if t.dtype not in DTYPES:
            raise UnsupportedError(f"a matrix product with {t.dtype}")
        if t.device != out.device:
            raise UnsupportedError(f"a matrix product of tensors on {out.device} and {t.device}")


def _problems(a, b, bias, out):  # type: ignore[no-untyped-def]
    """Launches over at most two batch axes each: neighbouring axes are merged, what is left is looped over."""
    operands = [t for t in (a, b, bias) if t is not None]
    sizes, steps = _merged(a.shape[:-2], [t.stride()[:-2] for t in operands])
    width = a.shape[-2] * b.shape[-2]
    looped = sizes[:-2]
    sizes = [1] * (2 - len(sizes[-2:])) + sizes[-2:]
    entries = sizes[0] * sizes[1] * width
    flat = out.view(-1)
    for number, index in enumerate(itertools.product(*map(range, looped))):
        strides, places = [], []
        for t, step in zip(operands, steps, strict=True):
            offset = sum(i * s for i, s in zip(index, step, strict=False))
            inner = [0] * (2 - len(step[-2:])) + list(step[-2:])
            strides.append((*t.stride()[-2:], *inner))
            places.append(t.as_strided((1,), (1,), t.storage_offset() + offset) if offset else t)
        if bias is None:
            strides.append((0, 0, 0, 0))
            places.append(None)
        to = flat[number * entries : (number + 1) * entries] if looped else out
        yield _Problem(sizes[0], sizes[1], *strides), (*places, to)


def _merged(sizes, strides):  # type: ignore[no-untyped-def]
    """Batch axes without those of size 1, neighbours merged where every operand allows it."""
    kept = [d for d, size in enumerate(sizes) if size != 1]
    shape = [sizes[d] for d in kept]
    steps = [[s[d] for d in kept] for s in strides]
    d = len(shape) - 1
    while d > 0:
        if all(s[d - 1] == s[d] * shape[d] for s in steps):
            shape[d - 1 : d + 1] = [shape[d - 1] * shape[d]]
            for s in steps:
                del s[d - 1]
        d -= 1
    return shape, steps


BUILDS: tuple[Build, ...] = ()
