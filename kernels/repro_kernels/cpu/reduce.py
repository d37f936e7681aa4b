"""Reductions under profile ``fp32`` on CPU tensors: sums and means here, the rest of the family by name.

The bit contract (``repro_kernels.spec.reduce``): elements, upcast exactly, are flattened in logical C order
and cut into segments of 128; inside a segment ``p = RN(p + t)`` from +0, then ``acc = RN(acc + p)`` over
the segments. A result depends on its own elements alone: not on the other rows, strides, thread count or
instruction set. The result is rounded to ``out_dtype`` once. Tests: ``tests/kernels/test_reduce.py``.

Operands: float32, bfloat16, float16, any strides and offsets, any size down to 0 (an empty sum is +0, an
empty mean NaN). Integer and boolean sums are exact in torch and no business of this module.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch

from repro_kernels.arguments import Dims, reduced_axes
from repro_kernels.cpu import native
from repro_kernels.cpu.convert import arange, linspace, to_integer
from repro_kernels.cpu.index import index_add, scatter_add
from repro_kernels.cpu.layout import Layout, across, along, axis, check, kernel, number, reduced_shape
from repro_kernels.cpu.norm import batch_norm, group_norm, layer_norm, rms_norm
from repro_kernels.cpu.order import (
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
from repro_kernels.cpu.softmax import log_softmax, softmax
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

_REDUCE = struct.Struct("=11qd")
"""``reduce_job`` of csrc/reduce.c."""


def sum(
    x: torch.Tensor, dim: Dims = None, keepdim: bool = False, *, out_dtype: torch.dtype | None = None
) -> torch.Tensor:
    """``RN_out(segment sum)`` over one axis, several, or all.

    Args:
        x: the tensor.
        dim: what to reduce.
        keepdim: keep the reduced axes with size 1.
        out_dtype: result type; default that of x.

    Raises:
        UnsupportedError: a dtype other than float32, bfloat16, float16.
        IndexError: an axis that does not exist.
    """
    dims = reduced_axes(x, dim)
    return _run(x, across(x, dims) if dims else along(x, 0), dims, keepdim, out_dtype or x.dtype)


def mean(
    x: torch.Tensor, dim: Dims = None, keepdim: bool = False, *, out_dtype: torch.dtype | None = None
) -> torch.Tensor:
    """``RN_out(RN(sum / RN(n)))``; arguments and errors as in :func:`sum`."""
    dims = reduced_axes(x, dim)
    seen = across(x, dims) if dims else along(x, 0)
    return _run(x, seen, dims, keepdim, out_dtype or x.dtype, divisor=float(seen.n))


def var(
    x: torch.Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    correction: float = 1,
    out_dtype: torch.dtype | None = None,
    root: bool = False,
) -> torch.Tensor:
    """``RN_out(RN(sum of RN(d*d) / RN(max(n - correction, 0))))``, ``d = RN(x - mean)``, the mean in float32.

    Args:
        x: the tensor.
        dim: what to reduce.
        keepdim: keep the reduced axes with size 1.
        correction: taken off the number of elements.
        out_dtype: result type; default that of x.
        root: the standard deviation: one RN(sqrt) before the last rounding.

    Raises:
        UnsupportedError: a dtype other than float32, bfloat16, float16.
        IndexError: an axis that does not exist.
    """
    dims = reduced_axes(x, dim)
    seen = across(x, dims) if dims else along(x, 0)
    centers = _run(x, seen, dims, keepdim, torch.float32, divisor=float(seen.n))
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
    """``RN_out(RN(sqrt(var)))``, the variance in float32; arguments and errors as in :func:`var`."""
    return var(x, dim, keepdim, correction=correction, out_dtype=out_dtype, root=True)


def cumsum(x: torch.Tensor, dim: int, *, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """``c_i = RN(c_{i-1} + x_i)`` along an axis, from +0 and kept in float32; each result ``RN_out(c_i)``.

    Args:
        x: the tensor; a result of another type than x's is a cast of the sums, not of x.
        dim: the axis.
        out_dtype: result type; default that of x.

    Raises:
        UnsupportedError: a dtype other than float32, bfloat16, float16.
        IndexError: an axis that does not exist.
    """
    seen = along(x, axis(x, dim))
    out = torch.empty_like(seen.data, dtype=out_dtype or x.dtype)
    source, target = number(x.dtype, "cumsum"), number(out.dtype, "cumsum")
    if out.numel():
        data, outer, n, inner = seen
        _cumsum()(data.data_ptr(), source, outer, n, inner, out.data_ptr(), target)
    return out


@functools.cache
def _cumsum() -> Any:
    function = native.fn("cumsum")
    pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    function.argtypes = [pointer, integer, size, size, size, pointer, integer]
    function.restype = None
    return function


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
    """One pass of the kernel; `divisor`, an integer or already a float32, is used as its nearest float."""
    data, outer, n, inner = seen
    source, target = number(x.dtype, "a reduction"), number(out_dtype, "a reduction")
    out = torch.empty(reduced_shape(x, dims, keepdim), dtype=out_dtype)
    if out.numel() == 0:
        return out
    sums = out if target == 0 else torch.empty(out.shape, dtype=torch.float32)
    record = _REDUCE.pack(
        data.data_ptr(),
        0 if centers is None else centers.data_ptr(),
        sums.data_ptr(),
        out.data_ptr(),
        outer,
        n,
        inner,
        source,
        target,
        divisor is not None,
        root,
        divisor or 0.0,
    )
    check(kernel("reduce")(record), "a reduction")
    return out
