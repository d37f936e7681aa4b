"""Reductions under profile ``fp32`` on CUDA tensors: sums and means here, the rest of the family by name.

The functions, their arguments, errors and bits are those of ``repro_kernels.cpu.reduce``. A sum over few rows
runs in two launches, the partial sums of all segments and then their sum in order; over many rows, one lane
does both. Tests: ``tests/gpu/cases_reduce.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import torch
import triton
import triton.language as tl

from repro_kernels.arguments import Dims, reduced_axes
from repro_kernels.cpu.layout import Layout, across, along, axis, number, reduced_shape
from repro_kernels.gpu.convert import arange, linspace, to_integer
from repro_kernels.gpu.index import index_add, scatter_add
from repro_kernels.gpu.language import store
from repro_kernels.gpu.norm import batch_norm, group_norm, layer_norm, rms_norm
from repro_kernels.gpu.order import (
    amax,
    amin,
    argmax,
    argmin,
    argsort,
    clamp,
    max,
    maximum,
    min,
    minimum,
    relu,
    sort,
    topk,
)
from repro_kernels.gpu.runtime import Build, launch
from repro_kernels.gpu.segments import DEVIATION, PLAIN, SEGMENT, ascending, segment_sums, vector
from repro_kernels.gpu.softmax import log_softmax, softmax
from repro_kernels.spec.floats import rn32

__all__ = [
    "amax",
    "amin",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "batch_norm",
    "clamp",
    "cumsum",
    "group_norm",
    "index_add",
    "layer_norm",
    "linspace",
    "log_softmax",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "relu",
    "rms_norm",
    "scatter_add",
    "softmax",
    "sort",
    "std",
    "sum",
    "to_integer",
    "topk",
    "var",
]

_LANES = 128
_MANY = 1 << 15
"""Sums that occupy a GPU with one lane each."""


@triton.jit
def _finish(acc, divisor, DIVIDE: tl.constexpr, ROOT: tl.constexpr):
    """RN(acc / divisor) if asked, then its square root if asked."""
    if DIVIDE:
        acc = tl.div_rn(acc, divisor)
    if ROOT:
        acc = tl.sqrt_rn(acc)
    return acc


@triton.jit
def _whole(
    x, centers, out, n, inner, total, divisor,
    TERM: tl.constexpr, VECTOR: tl.constexpr, DIVIDE: tl.constexpr, ROOT: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """x [outer, n, inner] -> out [outer, inner], one lane a sum."""
    e = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    valid = e < total
    o = e // inner
    base = o * n * inner + (e - o * inner)
    center = 0.0
    if TERM == 1:
        center = tl.load(centers + e, mask=valid, other=0.0)
    acc = tl.zeros([LANES], tl.float32)
    for s in range(0, n, 128):
        length = tl.where(valid, tl.minimum(n - s, 128), 0)
        acc = acc + segment_sums(x, base, inner, length, center, TERM, VECTOR)
        base += 128 * inner
    store(out + e, _finish(acc, divisor, DIVIDE, ROOT), valid)


@triton.jit
def _partials(
    x, centers, parts, n, inner, segments, total,
    TERM: tl.constexpr, VECTOR: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """x [outer, n, inner] -> the partial sums, parts [outer, segments, inner]."""
    e = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    valid = e < total
    row = e // inner
    j = e - row * inner
    o = row // segments
    s = row - o * segments
    center = 0.0
    if TERM == 1:
        center = tl.load(centers + o * inner + j, mask=valid, other=0.0)
    length = tl.where(valid, tl.minimum(n - s * 128, 128), 0)
    base = (o * n + s * 128) * inner + j
    tl.store(parts + e, segment_sums(x, base, inner, length, center, TERM, VECTOR), mask=valid)


@triton.jit
def _combine(
    parts, out, inner, segments, total, divisor,
    DIVIDE: tl.constexpr, ROOT: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """parts [outer, segments, inner] -> out [outer, inner], the partial sums added in order."""
    e = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    valid = e < total
    o = e // inner
    base = o * segments * inner + (e - o * inner)
    acc = ascending(parts, base, inner, segments, valid)
    store(out + e, _finish(acc, divisor, DIVIDE, ROOT), valid)


@triton.jit
def _four(x, at, step, k, n, valid):
    """Elements k .. k + 3 of each line, +0 past its end."""
    x0 = tl.load(x + at, mask=valid & (k < n), other=0.0).to(tl.float32)
    x1 = tl.load(x + at + step, mask=valid & (k + 1 < n), other=0.0).to(tl.float32)
    x2 = tl.load(x + at + 2 * step, mask=valid & (k + 2 < n), other=0.0).to(tl.float32)
    x3 = tl.load(x + at + 3 * step, mask=valid & (k + 3 < n), other=0.0).to(tl.float32)
    return x0, x1, x2, x3


@triton.jit
def _store_four(out, at, step, k, n, valid, c, x0, x1, x2, x3):
    """Adds four elements to c, one after the other, and stores each sum."""
    c = c + x0
    store(out + at, c, valid & (k < n))
    c = c + x1
    store(out + at + step, c, valid & (k + 1 < n))
    c = c + x2
    store(out + at + 2 * step, c, valid & (k + 2 < n))
    c = c + x3
    store(out + at + 3 * step, c, valid & (k + 3 < n))
    return c


@triton.jit
def _running(x, out, n, inner, total, LANES: tl.constexpr):
    """x, out [outer, n, inner]: running sums along the middle axis, one lane a line, loads before stores."""
    e = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    valid = e < total
    o = e // inner
    at = o * n * inner + (e - o * inner)
    c = tl.zeros([LANES], tl.float32)
    for k in range(0, n, 16):
        a0, a1, a2, a3 = _four(x, at, inner, k, n, valid)
        b0, b1, b2, b3 = _four(x, at + 4 * inner, inner, k + 4, n, valid)
        c0, c1, c2, c3 = _four(x, at + 8 * inner, inner, k + 8, n, valid)
        d0, d1, d2, d3 = _four(x, at + 12 * inner, inner, k + 12, n, valid)
        c = _store_four(out, at, inner, k, n, valid, c, a0, a1, a2, a3)
        c = _store_four(out, at + 4 * inner, inner, k + 4, n, valid, c, b0, b1, b2, b3)
        c = _store_four(out, at + 8 * inner, inner, k + 8, n, valid, c, c0, c1, c2, c3)
        c = _store_four(out, at + 12 * inner, inner, k + 12, n, valid, c, d0, d1, d2, d3)
        at += 16 * inner


def sum(
    x: torch.Tensor, dim: Dims = None, keepdim: bool = False, *, out_dtype: torch.dtype | None = None
) -> torch.Tensor:
    """``RN_out(segment sum)``: :func:`repro_kernels.cpu.reduce.sum`."""
    dims = reduced_axes(x, dim)
    return _run(x, across(x, dims) if dims else along(x, 0), dims, keepdim, out_dtype or x.dtype)


def mean(
    x: torch.Tensor, dim: Dims = None, keepdim: bool = False, *, out_dtype: torch.dtype | None = None
) -> torch.Tensor:
    """``RN_out(RN(sum / RN(n)))``: :func:`repro_kernels.cpu.reduce.mean`."""
    dims = reduced_axes(x, dim)
    seen = across(x, dims) if dims else along(x, 0)
    return _run(x, seen, dims, keepdim, out_dtype or x.dtype, divisor=rn32(seen.n))


def var(
    x: torch.Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    correction: float = 1,
    out_dtype: torch.dtype | None = None,
    root: bool = False,
) -> torch.Tensor:
    """``RN_out(RN(sum of RN(d*d) / RN(n - correction)))``: :func:`repro_kernels.cpu.reduce.var`."""
    dims = reduced_axes(x, dim)
    seen = across(x, dims) if dims else along(x, 0)
    centers = _run(x, seen, dims, keepdim, torch.float32, divisor=rn32(seen.n))
    count = seen.n - correction if isinstance(correction, int) else Fraction(seen.n) - Fraction(correction)
    divisor = rn32(count) if count > 0 else 0.0
    return _run(x, seen, dims, keepdim, out_dtype or x.dtype, divisor=divisor, centers=centers, root=root)


def std(
    x: torch.Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    correction: float = 1,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``RN_out(RN(sqrt(var)))``: :func:`repro_kernels.cpu.reduce.std`."""
    return var(x, dim, keepdim, correction=correction, out_dtype=out_dtype, root=True)


def cumsum(x: torch.Tensor, dim: int, *, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """``c_i = RN(c_{i-1} + x_i)``, each result ``RN_out(c_i)``: :func:`repro_kernels.cpu.reduce.cumsum`."""
    data, outer, n, inner = along(x, axis(x, dim))
    out = torch.empty_like(data, dtype=out_dtype or x.dtype)
    number(x.dtype, "cumsum"), number(out.dtype, "cumsum")
    if out.numel():
        lanes = _lanes(outer * inner)
        launch(_running, -(-outer * inner // lanes), data, out, n, inner, outer * inner, LANES=lanes)
    return out


def _run(
    x: torch.Tensor,
    seen: Layout,
    dims: Sequence[int],
    keepdim: bool,
    out_dtype: torch.dtype,
    *,
    divisor: float | None = None,
    centers: torch.Tensor | None = None,
    root: bool = False,
) -> torch.Tensor:
    """One sum per result; `divisor` is a float32."""
    data, outer, n, inner = seen
    number(x.dtype, "a reduction"), number(out_dtype, "a reduction")
    out = torch.empty(reduced_shape(x, dims, keepdim), dtype=out_dtype, device=x.device)
    total, segments = outer * inner, -(-n // SEGMENT)
    if total == 0:
        return out
    how = {"TERM": PLAIN if centers is None else DEVIATION, "VECTOR": 1}
    if inner == 1:
        how["VECTOR"] = vector(n, x.element_size())
    last = {"DIVIDE": divisor is not None, "ROOT": root}
    by = 0.0 if divisor is None else divisor
    lanes = _lanes(total)
    if segments <= 1 or total >= _MANY:
        launch(
            _whole, -(-total // lanes), data, centers, out, n, inner, total, by, **how, **last, LANES=lanes
        )
        return out
    parts = torch.empty(total * segments, dtype=torch.float32, device=x.device)
    count = parts.numel()
    wide = _lanes(count)
    launch(_partials, -(-count // wide), data, centers, parts, n, inner, segments, count, **how, LANES=wide)
    launch(_combine, -(-total // lanes), parts, out, inner, segments, total, by, **last, LANES=lanes)
    return out


def _lanes(count: int) -> int:
    """Lanes of a program: a warp where there are few, so that they spread over the GPU."""
    return 32 if count <= 32 * 256 else _LANES


def _builds() -> Iterator[Build]:
    whole = {"n": "i32", "total": "i32"}
    for kind, wide in (("*fp32", 4), ("*bf16", 8), ("*fp16", 8)):
        rows = {"inner": 1, "TERM": DEVIATION, "VECTOR": wide, "LANES": _LANES}
        last = {"DIVIDE": True, "ROOT": True}
        signature = {"x": kind, "centers": "*fp32", **whole}
        yield Build(
            _whole,
            {**signature, "out": kind, "divisor": "fp32"},
            {**rows, **last},
            divisible=("x", "n"),
            fma=False,
        )
        yield Build(
            _partials,
            {**signature, "parts": "*fp32", "segments": "i32"},
            rows,
            divisible=("x", "n"),
            fma=False,
        )
        yield Build(_running, {"x": kind, "out": kind, "inner": "i32", **whole}, {"LANES": _LANES}, fma=False)
    columns = {"centers": None, "TERM": PLAIN, "VECTOR": 1, "LANES": _LANES}
    signature = {"x": "*bf16", "parts": "*fp32", "inner": "i32", "segments": "i32", **whole}
    yield Build(_partials, signature, columns, fma=False)
    signature = {"parts": "*fp32", "out": "*bf16", "divisor": "fp32", "segments": "i32", "total": "i32"}
    final = {"inner": 1, "DIVIDE": True, "ROOT": False, "LANES": 32}
    yield Build(_combine, signature, final, {"num_warps": 1}, fma=False)


BUILDS = tuple(_builds())
"""Representative specialisations: every kernel and dtype, rows and columns."""
