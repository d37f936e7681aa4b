"""Matrix products under the ``fp32`` dot rule on a GPU: which kernel, which tiles, and the plain kernels.

Every kernel gives one output element to one thread, which adds its products by explicit ``fma`` with k
ascending inside a segment of 128, and its segments in order. So tiles, splits and launches cannot change a
bit. Three forms:

- ``repro_kernels.gpu.rows``: a few rows against weights with a contiguous axis K, in Gluon.
- ``repro_kernels.gpu.outer``: outer products out of shared memory, in Gluon, for tiles of ``tiling``.
- ``_plain``: the same outer products out of global memory, for anything: small sizes, Triton's interpreter.

Where too few tiles would occupy a GPU, programs share the segments of a tile: they store each segment's
partial sum, and ``_combine`` adds those in order. Positions outside the contraction count as 0 times 0,
which leaves a partial sum as it is but for the sign of a zero, and that the addition to ``acc`` (never -0)
washes out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from repro_kernels.errors import UnsupportedError
from repro_kernels.gpu import rows, tiling
from repro_kernels.gpu.language import load, store
from repro_kernels.gpu.runtime import INTERPRETED, Build, device_of, launch, processors
from repro_kernels.gpu.tiles import UNSPECIALISED

SEGMENT = 128
"""Length of a segment of the contracted axis."""

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
"""The types of operands and results."""

_PROGRAMS = 264
"""Programs that keep a large GPU busy; with fewer tiles, segments are shared out. A choice of speed alone."""

_ROWS = 8
"""At most this many rows go to ``rows``."""


@triton.jit
def scaled(acc, addend, alpha, beta, BIAS: tl.constexpr):
    """``RN(RN(beta * addend) + RN(alpha * acc))``; without a bias ``RN(alpha * acc)``."""
    value = alpha * acc
    if BIAS:
        value = beta * addend + value
    return value


@triton.jit
def batch_offset(batch, middle, inner, stride0, stride1, stride2):
    """Element offset of batch entry number `batch` of [*, middle, inner] in C order."""
    rest = batch // inner
    return (rest // middle) * stride0 + (rest % middle) * stride1 + (batch % inner) * stride2


@triton.jit(do_not_specialize=UNSPECIALISED)
def _plain(
    a, b, bias, out, parts, M, N, K, start, middle, inner, share, segments, batches,
    a0, a1, a2, a_m, a_k, b0, b1, b2, b_n, b_k, c0, c1, c2, c_m, c_n, o0, o1, o2, o_m, alpha, beta,
    BIAS: tl.constexpr, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A [BM, BN] tile of out, or the partial sums of `share` of its segments (SPLIT)."""
    columns = tl.cdiv(N, BN)
    tile = tl.program_id(0)
    batch = (tile // (tl.cdiv(M, BM) * columns)).to(tl.int64)
    m = (tile // columns % tl.cdiv(M, BM)).to(tl.int64) * BM + tl.arange(0, BM)
    n = (tile % columns).to(tl.int64) * BN + tl.arange(0, BN)
    a += batch_offset(batch, middle, inner, a0, a1, a2) + m * a_m
    b += batch_offset(batch, middle, inner, b0, b1, b2) + n * b_n
    inside = (m < M)[:, None] & (n < N)[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    first = tl.program_id(1) * share
    for s in range(first, tl.minimum(first + share, segments)):
        p = tl.zeros([BM, BN], tl.float32)
        low = tl.maximum(s * 128 - start, 0)
        high = tl.minimum(s * 128 - start + 128, K)
        left = a + low.to(tl.int64) * a_k
        right = b + low.to(tl.int64) * b_k
        for k in range(low, high, 8):
            for u in tl.static_range(8):
                x = load(left + u * a_k, (k + u < high) & (m < M))
                w = load(right + u * b_k, (k + u < high) & (n < N))
                p = tl.fma(tl.broadcast_to(x[:, None], [BM, BN]), tl.broadcast_to(w[None, :], [BM, BN]), p)
            left += 8 * a_k
            right += 8 * b_k
        if SPLIT:
            width = columns * BN
            at = ((batch + s * batches) * tl.cdiv(M, BM) * BM + m[:, None]) * width + n[None, :]
            tl.store(parts + at, p)
        else:
            acc = acc + p
    if not SPLIT:
        addend = acc
        if BIAS:
            c = bias + batch_offset(batch, middle, inner, c0, c1, c2)
            addend = load(c + m[:, None] * c_m + n[None, :] * c_n, inside)
        at = batch_offset(batch, middle, inner, o0, o1, o2) + m[:, None] * o_m + n[None, :]
        store(out + at, scaled(acc, addend, alpha, beta, BIAS), inside)


@triton.jit(do_not_specialize=["M", "high", "middle", "inner", "segments", "batches"])
def _combine(
    parts, bias, out, M, N, middle, inner, segments, batches, high, wide,
    c0, c1, c2, c_m, c_n, o0, o1, o2, o_m, alpha, beta,
    BIAS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """parts [segments, batches, high, wide] -> out [batches, M, N]: the partial sums added in order."""
    blocks = tl.cdiv(wide, LANES)
    row = tl.program_id(0) // blocks
    m = row % M
    batch = (row // M).to(tl.int64)
    n = tl.program_id(0) % blocks * LANES + tl.arange(0, LANES)
    parts += (batch * high + m) * wide
    step = batches.to(tl.int64) * high * wide
    inside = n < N
    acc = tl.zeros([LANES], tl.float32)
    for first in range(0, segments, 8):
        for u in tl.static_range(8):
            s = first + u
            acc = acc + tl.load(parts + s * step + n, mask=(n < wide) & (s < segments), other=0.0)
    addend = acc
    if BIAS:
        at = batch_offset(batch, middle, inner, c0, c1, c2) + m.to(tl.int64) * c_m + n * c_n
        addend = load(bias + at, inside)
    at = batch_offset(batch, middle, inner, o0, o1, o2) + m.to(tl.int64) * o_m + n
    store(out + at, scaled(acc, addend, alpha, beta, BIAS), inside)


class Batch(NamedTuple):
    """Three sizes of a batch, and each operand's three strides (a, b, bias or zeros, out)."""

    sizes: tuple[int, int, int]
    strides: tuple[tuple[int, int, int], ...]


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
    """``RN_out(RN(RN(beta * bias) + RN(alpha * acc)))``, acc the rows of a against the rows of b, into out.

    Without a bias: ``RN_out(RN(alpha * acc))``.

    Args:
        a: [*batch, M, K], any strides; nothing is copied.
        b: [*batch, N, K], the same batch, any strides.
        bias: broadcastable to out, or None.
        out: [*batch, M, N], its last axis contiguous.
        beta: factor of the bias, used as its nearest float.
        alpha: factor of the product, used as its nearest float.
        k_start: position of the first contracted index.

    Raises:
        UnsupportedError: a tensor is not float32, bfloat16 or float16, or they are not on one CUDA device.
    """
    for t in (a, b, out) if bias is None else (a, b, out, bias):
        if t.dtype not in FLOATS:
            raise UnsupportedError(f"a matrix product with {t.dtype}")
    device_of(a, b, out, bias)
    if not out.numel():
        return
    if bias is not None:
        bias = bias.expand(out.shape)
    batches = [t.stride()[:-2] if t is not None else (0,) * (a.dim() - 2) for t in (a, b, bias, out)]
    batch = _merged(tuple(a.shape[:-2]), batches)
    if batch is None:  # more than three axes that strides cannot join: one product per entry of the first
        for index in range(a.shape[0]):
            part = None if bias is None else bias[index]
            product(a[index], b[index], part, out[index], beta=beta, alpha=alpha, k_start=k_start)
        return
    _run(a, b, bias, out, batch, beta, alpha, k_start % SEGMENT)


def _merged(sizes: tuple[int, ...], strides: list[tuple[int, ...]]) -> Batch | None:
    """The batch axes joined where every operand's strides allow it, padded to three; None if more remain."""
    shape: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(sizes):
        if size == 1:
            continue
        if shape and all(kept[-1] == own[axis] * size for kept, own in zip(steps, strides, strict=True)):
            shape[-1] *= size
            for kept, own in zip(steps, strides, strict=True):
                kept[-1] = own[axis]
            continue
        shape.append(size)
        for kept, own in zip(steps, strides, strict=True):
            kept.append(own[axis])
    if len(shape) > 3:
        return None
    missing = 3 - len(shape)
    full = [1] * missing + shape
    return Batch(
        (full[0], full[1], full[2]),
        tuple(tuple([0] * missing + kept) for kept in steps),  # type: ignore[misc]
    )


def _run(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    batch: Batch,
    beta: float,
    alpha: float,
    start: int,
) -> None:
    m, k = a.shape[-2:]
    n = b.shape[-2]
    segments = -(-(start + k) // SEGMENT)
    batches = math.prod(batch.sizes)
    a_step, b_step, c_step, o_step = batch.strides
    c = (0, 0) if bias is None else bias.stride()[-2:]
    addend = out if bias is None else bias
    has_bias = bias is not None
    by_rows = m <= _ROWS and start == 0 and k >= 64 and a.stride(-1) == 1 and b.stride(-1) == 1
    if by_rows and batches == 1 and not INTERPRETED:
        term = None if bias is None else bias.reshape(m, n)
        rows.run(a.reshape(m, k), b.reshape(n, k), term, out.reshape(m, n), (alpha, beta))  # views
        return
    form, share = None, segments
    if not INTERPRETED and m > 1 and n >= 16 and k >= 16:
        form, share = tiling.choose(m, n, segments, batches, processors(out.device))
    height, width = plain_tiles(m, n) if form is None else (form.rows, form.columns)
    down, across = -(-m // height), -(-n // width)
    if form is None:
        share = -(-segments // min(max(_PROGRAMS // (batches * down * across), 1), max(segments, 1)))
        if segments * batches * down * height * across * width > tiling.PARTS:
            share = segments
    split = share < segments
    high, wide = down * height, across * width
    parts = torch.empty(
        segments * batches * high * wide if split else 0, dtype=torch.float32, device=out.device
    )
    sizes = (m, n, k, start, batch.sizes[1], batch.sizes[2], share, segments, batches)
    strides = (*a_step, *a.stride()[-2:], *b_step, *b.stride()[-2:], *c_step, *c, *o_step, out.stride(-2))
    grid = (batches * down * across, -(-segments // share) if split else 1)
    if form is not None:
        operands = (a, b, addend, out, parts)
        tiling.run(form, grid, operands, (*sizes, *strides), (alpha, beta), has_bias, split)
    else:
        launch(
            _plain, grid, a, b, addend, out, parts, *sizes, *strides, alpha, beta,
            BIAS=has_bias, SPLIT=split, BM=height, BN=width, num_warps=4 if height * width >= 2048 else 1,
        )  # fmt: skip
    if split:
        lanes = 512 if wide >= 512 else 128
        launch(
            _combine, batches * m * -(-wide // lanes), parts, addend, out, m, n, *sizes[4:6], segments,
            batches, high, wide, *c_step, *c, *o_step, out.stride(-2), alpha, beta,
            BIAS=has_bias, LANES=lanes, num_warps=4,
        )  # fmt: skip


def plain_tiles(m: int, n: int) -> tuple[int, int]:
    """Rows and columns of a ``_plain`` tile."""
    rows = 1 if m == 1 else 8 if m <= 8 else 32
    return rows, min(128 if rows == 1 else 64, max(16, triton.next_power_of_2(n)))


def _builds() -> Iterator[Build]:
    pointers = ("a", "b", "bias", "out", "parts")
    for left, right, out in (
        ("*fp32", "*bf16", "*fp32"),
        ("*bf16", "*bf16", "*bf16"),
        ("*fp16", "*fp32", "*fp16"),
    ):
        types = dict(zip(pointers, (left, right, right, out, "*fp32"), strict=True))
        factors = {"alpha": "fp32", "beta": "fp32"}
        named = {"a_k": 1, "b_k": 1, "c_n": 1}
        integers = dict.fromkeys([a for a in _plain.arg_names[5:34] if a not in named], "i32")
        for split in (False, True):
            how = {"BIAS": not split, "SPLIT": split, "BM": 1 if split else 32, "BN": 128 if split else 64}
            options = {"num_warps": 1 if split else 4}
            yield Build(_plain, {**types, **integers, **factors}, {**named, **how}, options, pointers)
        last = dict.fromkeys(_combine.arg_names[3:20], "i32")
        some = {name: types[name] for name in ("parts", "bias", "out")}
        yield Build(_combine, {**some, **last, **factors}, {"BIAS": True, "LANES": 512}, {}, ("parts",))


BUILDS = tuple(_builds())
"""Every kernel for three mixes of types."""
