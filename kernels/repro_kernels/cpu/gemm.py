"""Matrix products and convolutions under the ``fp32`` dot rule, on CPU tensors.

The bit contract (``repro_kernels.spec.dot``): the contracted axis is cut into segments at multiples of 128;
inside a segment ``p = fma(x_k, w_k, p)``, k ascending, p from +0; then ``acc = RN(acc + p)``, segments
ascending, acc from +0. The result of one output element depends on its two vectors alone: not on the other
rows, the batch, the strides, the thread count or the instruction set. 16-bit operands are upcast exactly; a
16-bit result is one rounding of the fp32 result; a NaN is the canonical one. An empty contraction is +0.

Operands: float32, bfloat16, float16, in any mix, any strides and offsets, any size down to 0.
Tests: ``tests/kernels/test_gemm.py``, ``test_gemm_conv.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from repro_kernels.cpu.product import call, product
from repro_kernels.errors import UnsupportedError


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
        [..., N] (or [...] for w [K]), contiguous.

    Raises:
        UnsupportedError: an operand or ``out_dtype`` is not float32, bfloat16 or float16.
        ValueError: the shapes do not fit.
    """
    if x.dim() == 0 or w.dim() not in (1, 2) or x.shape[-1] != w.shape[-1]:
        raise ValueError(f"linear: shapes {tuple(x.shape)} and {tuple(w.shape)} do not fit")
    k, n = x.shape[-1], w.shape[0] if w.dim() == 2 else 1
    out = torch.empty(*x.shape[:-1], n, dtype=out_dtype or x.dtype)
    m = x.numel() // k if k else math.prod(x.shape[:-1])
    if b is None and w.dim() == 2 and x.is_contiguous() and out.numel():
        call((1, m, n, k, 0), x, w, out, None, (k, 1, *w.stride()))
        return out
    bias = b if b is None or b.dim() == 1 else b.expand(out.shape).reshape(m, n)
    product(x.reshape(m, k), w.view(n, k) if w.dim() == 1 else w, bias, out.view(m, n))
    return out if w.dim() == 2 else out.squeeze(-1)


def matmul(
    a: torch.Tensor, b: torch.Tensor, *, out_dtype: torch.dtype | None = None, k_start: int = 0
) -> torch.Tensor:
    """``torch.matmul`` under the dot rule: 1-D operands, broadcast batches, bmm.

    Args:
        a: [K] or [..., M, K].
        b: [K] or [..., K, N].
        out_dtype: result type; default torch's promotion of the operands' types.
        k_start: position of the first contracted index (>= 0); segments end at its multiples of 128.

    Returns:
        The product, of torch.matmul's shape, contiguous.

    Raises:
        UnsupportedError: an operand or ``out_dtype`` is not float32, bfloat16 or float16.
        ValueError: the shapes do not fit, or ``k_start`` is negative.
    """
    if a.dim() == 0 or b.dim() == 0 or a.shape[-1] != b.shape[-2 if b.dim() > 1 else 0]:
        raise ValueError(f"matmul: shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit")
    if k_start < 0:
        raise ValueError(f"matmul: k_start is {k_start}, and a position is not negative")
    left = a if a.dim() > 1 else a.unsqueeze(0)
    right = (b if b.dim() > 1 else b.unsqueeze(-1)).transpose(-2, -1)
    m, n, k = left.shape[-2], right.shape[-2], left.shape[-1]
    batch = left.shape[:-2]
    if right.shape[:-2] != batch and right.dim() != 2:
        batch = torch.broadcast_shapes(batch, right.shape[:-2])  # type: ignore[no-untyped-call]
    out = torch.empty(*batch, m, n, dtype=out_dtype or torch.promote_types(a.dtype, b.dtype))
    if right.dim() == 2 and left.dim() > 2:
        # One right matrix for the whole batch: the rows of one product, which a large tile serves better.
        rows = math.prod(batch) * m
        product(left.reshape(rows, k), right, None, out.view(rows, n), k_start=k_start)
    else:
        left, right = left.expand(*batch, m, k), right.expand(*batch, n, k)
        if n == 1:  # Lanes are columns: a matrix times a vector is computed as the vector times the matrix.
            left, right, out = right, left, out.view(*batch, n, m)
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
    """``RN_out(RN(RN(beta * bias) + RN(alpha * acc)))``.

    With beta = 0 bias is not read: ``RN_out(RN(alpha * acc))``.

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
    """As :func:`addmm`, for bias broadcastable to [B, M, N], a [B, M, K] and b [B, K, N].

    Returns:
        [B, M, N], contiguous.

    Raises:
        UnsupportedError: an operand or ``out_dtype`` is not float32, bfloat16 or float16.
        ValueError: the shapes do not fit.
    """
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
    out_dtype = out_dtype or torch.promote_types(a.dtype, b.dtype)
    out = torch.empty(*a.shape[:-1], b.shape[-1], dtype=out_dtype)
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
    """Convolution over 1, 2 or 3 axes: ``RN_out(RN(acc + b))``.

    The contraction runs over (channel, kernel axes) in that order, C / groups * prod(kernel) terms; padding
    takes part in it as +0.

    Args:
        x: [B, C, *axes], or [C, *axes] without a batch.
        w: [N, C / groups, *kernel].
        b: bias [N].
        stride: step per axis.
        padding: zeros on both sides per axis, or ``"valid"``, or ``"same"`` (an odd zero goes after).
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
    channels, filters, positions = w.shape[1], w.shape[0] // groups, math.prod(out_axes)
    terms = channels * math.prod(kernel)
    out = torch.empty(images.shape[0], groups, filters, positions, dtype=out_dtype or x.dtype)
    weights = w.reshape(groups, filters, terms)
    bias = None if b is None else b.reshape(groups, filters, 1)
    batch_stride, channel_stride, *axis_strides = padded.stride()
    strides = (
        channels * channel_stride,
        *(s * a for s, a in zip(steps, axis_strides, strict=True)),
        channel_stride,
        *(d * a for d, a in zip(spread, axis_strides, strict=True)),
    )
    for index in range(images.shape[0]):  # one image at a time: its patches are prod(kernel) times its size
        patches = padded.as_strided(
            (groups, *out_axes, channels, *kernel), strides, padded.storage_offset() + index * batch_stride
        )
        product(weights, patches.reshape(groups, positions, terms), bias, out[index])
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
    padded = torch.zeros(*x.shape[:2], *sizes, dtype=x.dtype)
    inner = padded
    for axis, (lo, size) in enumerate(zip(before, x.shape[2:], strict=True)):
        inner = inner.narrow(2 + axis, lo, size)
    inner.copy_(x)
    return padded
