"""Matrix products and convolutions under the ``fp32`` dot rule, on CPU tensors.

The bit contract (``repro_kernels.spec.dot``): the contracted axis is cut into segments at multiples of 128; inside a
segment ``p = fma(x_k, w_k, p)``, k ascending, p from +0; then ``acc = RN(acc + p)``, segments ascending, acc from +0.
The result of one output element depends on its two vectors alone: not on the other rows, the batch, the strides, the
thread count or the instruction set. 16-bit operands are upcast exactly; a 16-bit result is one rounding of the fp32
result; NaN results are the canonical one. An empty contraction is +0. Tests: ``tests/kernels/test_gemm*.py``.

Operands: float32, bfloat16, float16, in any mix, any strides and offsets, any size down to 0.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from repro_kernels.cpu import native
from repro_kernels.errors import UnsupportedError

SEGMENT = 128
"""Length of a segment of the contracted axis (``RK_SEGMENT``)."""

_DTYPES = {getattr(torch, name): number for name, number in native.DTYPES.items()}
_ZERO = (ctypes.c_int64 * 1)(0)


def linear(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, *, out_dtype: torch.dtype | None = None
) -> torch.Tensor:
    """``RN_out(RN(x . w^T + b))``.

    Args:
        x: activations [..., K].
        w: weights [N, K], or [K] as torch allows.
        b: bias, broadcastable to [..., N].
        out_dtype: result type; default that of x.

    Returns:
        [..., N], contiguous.

    Raises:
        UnsupportedError: an operand or ``out_dtype`` is not float32, bfloat16 or float16.
        ValueError: the shapes do not fit.
    """
    out_dtype = out_dtype or x.dtype
    if x.dim() == 0 or w.dim() not in (1, 2) or x.shape[-1] != w.shape[-1]:
        raise ValueError(f"linear: shapes {tuple(x.shape)} and {tuple(w.shape)} do not fit")
    weights = w if w.dim() == 2 else w.unsqueeze(0)
    shape = (*x.shape[:-1], weights.shape[0])
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    bias = None
    if b is not None:
        bias = b if b.dim() == 1 else b.expand(shape).reshape(rows.shape[0], shape[-1])
    out = _product(rows.unsqueeze(0), weights.unsqueeze(0), bias, out_dtype).view(shape)
    return out if w.dim() == 2 else out.squeeze(-1)


def matmul(
    a: torch.Tensor, b: torch.Tensor, *, out_dtype: torch.dtype | None = None, k_start: int = 0
) -> torch.Tensor:
    """``torch.matmul`` under the dot rule: 1-D operands, broadcast batches, bmm.

    Args:
        a: [K] or [..., M, K].
        b: [K] or [..., K, N].
        out_dtype: result type; default torch's promotion of the operands' types.
        k_start: position of the first contracted index (>= 0); segments end at multiples of 128 of the position.

    Returns:
        The product, of torch.matmul's shape, contiguous.

    Raises:
        UnsupportedError: an operand or ``out_dtype`` is not float32, bfloat16 or float16.
        ValueError: the shapes do not fit, or ``k_start`` is negative.
    """
    out_dtype = out_dtype or torch.promote_types(a.dtype, b.dtype)
    if a.dim() == 0 or b.dim() == 0 or a.shape[-1] != b.shape[-2 if b.dim() > 1 else 0]:
        raise ValueError(f"matmul: shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit")
    left = a if a.dim() > 1 else a.unsqueeze(0)
    right = (b if b.dim() > 1 else b.unsqueeze(-1)).transpose(-2, -1)
    m, n, k = left.shape[-2], right.shape[-2], left.shape[-1]
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    if right.dim() == 2 and left.dim() > 2:
        # One weight for every batch: rows of one product, which a large tile serves better.
        rows = left.reshape(1, math.prod(batch) * m, k)
        out = _product(rows, right.unsqueeze(0), None, out_dtype, k_start=k_start)
    else:
        out = _product(
            left.expand(*batch, m, k), right.expand(*batch, n, k), None, out_dtype, k_start=k_start
        )
    shape = (*batch, *((m,) if a.dim() > 1 else ()), *((n,) if b.dim() > 1 else ()))
    return out.view(shape)


def addmm(
    bias: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``RN_out(RN(RN(beta * bias) + RN(alpha * acc)))``; with beta = 0 bias is not read and the sum is not taken.

    Args:
        bias: broadcastable to [M, N].
        a: [M, K].
        b: [K, N].
        beta: factor of the bias, used as its nearest float.
        alpha: factor of the product, used as its nearest float.
        out_dtype: result type; default torch's promotion of a's and b's types.

    Returns:
        [M, N], contiguous.

    Raises:
        UnsupportedError: an operand or ``out_dtype`` is not float32, bfloat16 or float16.
        ValueError: the shapes do not fit.
    """
    if a.dim() != 2 or b.dim() != 2:
        raise ValueError(f"addmm: shapes {tuple(a.shape)} and {tuple(b.shape)} are not two matrices")
    return _scaled(bias, a.unsqueeze(0), b.unsqueeze(0), beta, alpha, out_dtype).squeeze(0)


def baddbmm(
    bias: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """As :func:`addmm`, for bias broadcastable to [B, M, N], a [B, M, K] and b [B, K, N].

    Returns:
        [B, M, N], contiguous.

    Raises:
        UnsupportedError: an operand or ``out_dtype`` is not float32, bfloat16 or float16.
        ValueError: the shapes do not fit.
    """
    if a.dim() != 3 or b.dim() != 3 or a.shape[0] != b.shape[0]:
        raise ValueError(f"baddbmm: shapes {tuple(a.shape)} and {tuple(b.shape)} are not two batches")
    return _scaled(bias, a, b, beta, alpha, out_dtype)


def conv(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Convolution over 1, 2 or 3 axes: ``RN_out(RN(acc + b))``, contracting (channel, kernel axes) in that order.

    Padding takes part in the contraction as +0. One output position's dot product has C/groups * prod(kernel) terms.

    Args:
        x: [B, C, *axes], or [C, *axes] without a batch.
        w: [N, C / groups, *kernel].
        b: bias [N].
        stride: step per axis.
        padding: zeros on both sides per axis, or ``"valid"``, or ``"same"`` (an odd zero goes after, as in torch).
        dilation: distance of kernel elements per axis.
        groups: groups of channels.
        out_dtype: result type; default that of x.

    Returns:
        [B, N, *out axes] (or without B), contiguous.

    Raises:
        UnsupportedError: a dtype other than float32, bfloat16 and float16, or not 1 to 3 axes.
        ValueError: the shapes do not fit.
    """
    axes = w.dim() - 2
    if axes not in (1, 2, 3):
        raise UnsupportedError(f"conv over {axes} axes")
    if x.dim() == axes + 1:
        return conv(
            x.unsqueeze(0),
            w,
            b,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            out_dtype=out_dtype,
        ).squeeze(0)
    fits = x.dim() == axes + 2 and groups > 0 and w.shape[0] % groups == 0
    if not fits or x.shape[1] != w.shape[1] * groups:
        raise ValueError(f"conv: shapes {tuple(x.shape)} and {tuple(w.shape)} in {groups} groups do not fit")
    out_dtype = out_dtype or x.dtype
    steps, spread = _per_axis(stride, axes), _per_axis(dilation, axes)
    kernel = tuple(w.shape[2:])
    padded = _pad(x, padding, kernel, spread)
    out_axes = tuple(
        (size - d * (k - 1) - 1) // s + 1
        for size, k, s, d in zip(padded.shape[2:], kernel, steps, spread, strict=True)
    )
    if any(size <= 0 for size in out_axes):
        raise ValueError(f"conv: kernel {kernel} is larger than its input {tuple(padded.shape[2:])}")
    per_group, filters, taps = w.shape[1], w.shape[0] // groups, math.prod(kernel)
    weights = w.reshape(groups, filters, per_group * taps)
    bias = None if b is None else b.reshape(groups, filters, 1)
    out = torch.empty(x.shape[0], groups, filters, math.prod(out_axes), dtype=out_dtype)
    batch_stride, channel_stride, *axis_strides = padded.stride()
    for index in range(x.shape[0]):  # one image at a time: its patches are prod(kernel) times its size
        patches = padded.as_strided(
            (groups, *out_axes, per_group, *kernel),
            (
                per_group * channel_stride,
                *(s * a for s, a in zip(steps, axis_strides, strict=True)),
                channel_stride,
                *(d * a for d, a in zip(spread, axis_strides, strict=True)),
            ),
            padded.storage_offset() + index * batch_stride,
        ).reshape(groups, math.prod(out_axes), per_group * taps)
        _product(weights, patches, bias, out_dtype, out=out[index])
    return out.view(x.shape[0], w.shape[0], *out_axes)


def _per_axis(value: int | Sequence[int], axes: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * axes if len(values) == 1 else values


def _pad(
    x: torch.Tensor, padding: int | Sequence[int] | str, kernel: tuple[int, ...], spread: tuple[int, ...]
) -> torch.Tensor:
    """x with +0 around its last axes: a copy, or x itself where nothing is added."""
    if padding == "same":
        total = [d * (k - 1) for k, d in zip(kernel, spread, strict=True)]
        before, after = [t // 2 for t in total], [t - t // 2 for t in total]
    else:
        width = 0 if isinstance(padding, str) else padding
        before = after = list(_per_axis(width, len(kernel)))
    if not any(before) and not any(after):
        return x
    sizes = [size + lo + hi for size, lo, hi in zip(x.shape[2:], before, after, strict=True)]
    padded = torch.zeros(*x.shape[:2], *sizes, dtype=x.dtype)
    inner = padded
    for axis, (lo, size) in enumerate(zip(before, x.shape[2:], strict=True)):
        inner = inner.narrow(2 + axis, lo, size)
    inner.copy_(x)
    return padded


def _scaled(
    bias: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    beta: float,
    alpha: float,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    if a.shape[2] != b.shape[1]:
        raise ValueError(f"addmm, baddbmm: inner sizes {a.shape[2]} and {b.shape[1]} differ")
    out_dtype = out_dtype or torch.promote_types(a.dtype, b.dtype)
    added = None if beta == 0 else bias
    return _product(a, b.transpose(1, 2), added, out_dtype, beta=beta, alpha=alpha)


@functools.cache
def _kernel() -> Any:
    function = native.fn("gemm")
    function.restype = None
    function.argtypes = [ctypes.c_void_p] * 8 + [ctypes.c_float] * 2
    return function


def _product(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    k_start: int = 0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """a [*batch, M, K] and b [*batch, N, K] (same batch) -> [*batch, M, N], rows of a against rows of b."""
    for tensor in (a, b) if bias is None else (a, b, bias):
        if tensor.dtype not in _DTYPES or tensor.device.type != "cpu":
            raise UnsupportedError(f"a matrix product of {tensor.dtype} on {tensor.device.type}")
    if out_dtype not in _DTYPES:
        raise UnsupportedError(f"a matrix product with results of {out_dtype}")
    if k_start < 0:
        raise ValueError(f"k_start is {k_start}: a position is not negative")
    *batch, m, k = a.shape
    n = b.shape[-2]
    if out is None:
        out = torch.empty(*batch, m, n, dtype=out_dtype)
    if out.numel() == 0:
        return out
    bias_strides, bias_offsets = (0, 0), _ZERO
    if bias is not None:
        bias = bias.expand(*batch, m, n)
        bias_strides, bias_offsets = bias.stride()[-2:], _offsets(bias)
    count = out.numel() // (m * n)
    shape = (count, m, n, k, k_start % SEGMENT, *a.stride()[-2:], *b.stride()[-2:], *bias_strides)
    kinds = (_DTYPES[t.dtype] for t in (a, b, out, out if bias is None else bias))
    numbers = (ctypes.c_int64 * 15)(*shape, *kinds)
    bias_pointer = None if bias is None else bias.data_ptr()
    _kernel()(
        numbers,
        a.data_ptr(),
        b.data_ptr(),
        out.data_ptr(),
        bias_pointer,
        _offsets(a),
        _offsets(b),
        bias_offsets,
        alpha,
        beta,
    )
    return out


def _offsets(t: torch.Tensor) -> Any:
    """Element offset of every batch entry of t [*batch, rows, columns], in C order."""
    sizes, strides = t.shape[:-2], t.stride()[:-2]
    if math.prod(sizes) == 1:
        return _ZERO
    offsets = [0]
    for size, stride in zip(sizes, strides, strict=True):
        offsets = [base + index * stride for base in offsets for index in range(size)]
    return (ctypes.c_int64 * len(offsets))(*offsets)
