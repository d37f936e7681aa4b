"""Matrix products and convolutions under the ``fp32`` dot rule, on CUDA tensors.

The functions, their arguments, result types, errors and bits are those of ``repro_kernels.cpu.gemm``; results
are on the operands' device. No weight is copied, whatever its strides.
Tests: ``tests/gpu/cases_products.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from repro_kernels.errors import UnsupportedError
from repro_kernels.gpu.product import product

_PATCHES = 1 << 28
"""Bytes of convolution patches held at a time, where one image's patches are fewer."""


def linear(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, *, out_dtype: torch.dtype | None = None
) -> torch.Tensor:
    """``RN_out(RN(x . w^T + b))`` for x [..., K], w [N, K] or [K], b broadcastable to [..., N].

    Args, result and errors as in ``repro_kernels.cpu.gemm.linear``.
    """
    if x.dim() == 0 or w.dim() not in (1, 2) or x.shape[-1] != w.shape[-1]:
        raise ValueError(f"linear: shapes {tuple(x.shape)} and {tuple(w.shape)} do not fit")
    n = w.shape[0] if w.dim() == 2 else 1
    out = torch.empty(*x.shape[:-1], n, dtype=out_dtype or x.dtype, device=x.device)
    weights = w if w.dim() == 2 else w.unsqueeze(0)
    m = math.prod(x.shape[:-1])
    bias = b if b is None or b.dim() == 1 else b.expand(out.shape).reshape(m, n)
    product(x.reshape(m, x.shape[-1]), weights, bias, out.view(m, n))
    return out if w.dim() == 2 else out.squeeze(-1)


def matmul(
    a: torch.Tensor, b: torch.Tensor, *, out_dtype: torch.dtype | None = None, k_start: int = 0
) -> torch.Tensor:
    """``torch.matmul`` under the dot rule, the first contracted index at position `k_start`.

    Args, result and errors as in ``repro_kernels.cpu.gemm.matmul``.
    """
    if a.dim() == 0 or b.dim() == 0 or a.shape[-1] != b.shape[-2 if b.dim() > 1 else 0]:
        raise ValueError(f"matmul: shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit")
    if k_start < 0:
        raise ValueError(f"matmul: k_start is {k_start}, and a position is not negative")
    left = a if a.dim() > 1 else a.unsqueeze(0)
    right = (b if b.dim() > 1 else b.unsqueeze(-1)).transpose(-2, -1)
    m, n, k = left.shape[-2], right.shape[-2], left.shape[-1]
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    dtype = out_dtype or torch.promote_types(a.dtype, b.dtype)
    out = torch.empty(*batch, m, n, dtype=dtype, device=a.device)
    if right.dim() == 2 and left.dim() > 2 and left.is_contiguous():
        rows = math.prod(batch) * m  # one right matrix for the whole batch: the rows of one product
        product(left.view(rows, k), right, None, out.view(rows, n), k_start=k_start)
    else:
        left, right = left.expand(*batch, m, k), right.expand(*batch, n, k)
        if (
            n == 1 and m > 1
        ):  # the long axis is columns: a matrix times a vector as the vector times the matrix
            product(right, left, None, out.transpose(-2, -1), k_start=k_start)
        else:
            product(left, right, None, out, k_start=k_start)
    return out.view((*batch, *((m,) if a.dim() > 1 else ()), *((n,) if b.dim() > 1 else ())))


def addmm(
    bias: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``RN_out(RN(RN(beta * bias) + RN(alpha * acc)))`` for a [M, K], b [K, N]; beta = 0 does not read bias.

    Args, result and errors as in ``repro_kernels.cpu.gemm.addmm``.
    """
    if a.dim() != 2 or b.dim() != 2:
        raise ValueError(f"addmm: shapes {tuple(a.shape)} and {tuple(b.shape)} are not two matrices")
    return _scaled(bias, a, b, beta=beta, alpha=alpha, out_dtype=out_dtype)


def baddbmm(
    bias: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """As :func:`addmm`, for a [B, M, K] and b [B, K, N]."""
    if a.dim() != 3 or b.dim() != 3 or a.shape[0] != b.shape[0]:
        raise ValueError(f"baddbmm: shapes {tuple(a.shape)} and {tuple(b.shape)} are not two batches")
    return _scaled(bias, a, b, beta=beta, alpha=alpha, out_dtype=out_dtype)


def _scaled(
    bias: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: float,
    alpha: float,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"addmm, baddbmm: inner sizes {a.shape[-1]} and {b.shape[-2]} differ")
    dtype = out_dtype or torch.promote_types(a.dtype, b.dtype)
    out = torch.empty(*a.shape[:-1], b.shape[-1], dtype=dtype, device=a.device)
    product(a, b.transpose(-2, -1), None if beta == 0 else bias, out, beta=beta, alpha=alpha)
    return out


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
    """Convolution over 1, 2 or 3 axes, contracting (channel, kernel axes) in that order, padding as +0.

    Args, result and errors as in ``repro_kernels.cpu.gemm.conv``.
    """
    axes = w.dim() - 2
    if axes not in (1, 2, 3):
        raise UnsupportedError(f"conv over {axes} axes")
    images = x.unsqueeze(0) if x.dim() == axes + 1 else x
    fits = images.dim() == axes + 2 and groups > 0 and w.shape[0] % groups == 0
    if not fits or images.shape[1] != w.shape[1] * groups:
        raise ValueError(f"conv: shapes {tuple(x.shape)} and {tuple(w.shape)} in {groups} groups do not fit")
    steps, spread, kernel = _per_axis(stride, axes), _per_axis(dilation, axes), tuple(w.shape[2:])
    padded = _pad(images, padding, kernel, spread)
    out_axes = tuple(
        (size - d * (k - 1) - 1) // s + 1
        for size, k, s, d in zip(padded.shape[2:], kernel, steps, spread, strict=True)
    )
    if min(out_axes) <= 0:
        raise ValueError(f"conv: kernel {kernel} is larger than its input {tuple(padded.shape[2:])}")
    count, channels, filters = images.shape[0], w.shape[1], w.shape[0] // groups
    positions, terms = math.prod(out_axes), channels * math.prod(kernel)
    out = torch.empty(count, groups, filters, positions, dtype=out_dtype or x.dtype, device=x.device)
    weights = w.reshape(groups, filters, terms)
    bias = None if b is None else b.reshape(groups, filters, 1)
    batch_stride, channel_stride, *axis_strides = padded.stride()
    strides = (
        batch_stride,
        channels * channel_stride,
        *(s * a for s, a in zip(steps, axis_strides, strict=True)),
        channel_stride,
        *(d * a for d, a in zip(spread, axis_strides, strict=True)),
    )
    patches = padded.as_strided((count, groups, *out_axes, channels, *kernel), strides)
    together = max(1, _PATCHES // max(1, groups * positions * terms * x.element_size()))
    for index in range(0, count, together):
        target = out[index : index + together]
        some = patches[index : index + together].reshape(target.shape[0], groups, positions, terms)
        product(weights.expand(target.shape[0], *weights.shape), some, bias, target)
    return out.view(*x.shape[: x.dim() - axes - 1], w.shape[0], *out_axes)


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
        before = after = list(_per_axis(0 if isinstance(padding, str) else padding, len(kernel)))
    if not any(before) and not any(after):
        return x
    sizes = [size + lo + hi for size, lo, hi in zip(x.shape[2:], before, after, strict=True)]
    padded = x.new_zeros(*x.shape[:2], *sizes)
    inner = padded
    for axis, (lo, size) in enumerate(zip(before, x.shape[2:], strict=True)):
        inner = inner.narrow(2 + axis, lo, size)
    inner.copy_(x)
    return padded
