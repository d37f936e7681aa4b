"""Convolution on a GPU: the dot rule over (channel, kernel axes), each input element read where it lies.

Tests: ``tests/gpu/cases_gemm.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from repro_kernels.errors import UnsupportedError
from repro_kernels.gpu.language import load, store
from repro_kernels.gpu.dot import SEGMENT, check
from repro_kernels.gpu.runtime import Build, launch


@triton.jit
def _conv(
    x, w, bias, out, filters, positions, channels, terms,
    in_0, in_1, in_2, out_1, out_2, kernel_0, kernel_1, kernel_2,
    stride_0, stride_1, stride_2, pad_0, pad_1, pad_2, step_0, step_1, step_2,
    x_b, x_c, x_0, x_1, x_2, w_n, w_c, w_0, w_1, w_2, b_n, groups,
    BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """[BM filters, BN positions] of one group of one image. x [B, C, *in], w [N, C / groups, *kernel]."""
    tiles = tl.cdiv(filters, BM)
    rf = (tl.program_id(0) % tiles) * BM + tl.arange(0, BM)
    rp = (tl.program_id(0) // tiles) * BN + tl.arange(0, BN)
    image = tl.program_id(1) // groups
    group = tl.program_id(1) % groups
    f_inside, p_inside = rf < filters, rp < positions
    filter = (group * filters + tl.where(f_inside, rf, 0)).to(tl.int64)
    i_0 = rp // out_2 // out_1 * stride_0 - pad_0
    i_1 = rp // out_2 % out_1 * stride_1 - pad_1
    i_2 = rp % out_2 * stride_2 - pad_2
    left = w + filter * w_n
    right = x + image.to(tl.int64) * x_b + (group * channels).to(tl.int64) * x_c
    acc = tl.zeros((BM, BN), tl.float32)
    for low in range(0, terms, 128):
        high = tl.minimum(low + 128, terms)
        part = tl.zeros((BM, BN), tl.float32)
        for k in range(low, high, UNROLL):
            for u in tl.static_range(UNROLL):
                term = k + u
                real = term < high
                k_2 = term % kernel_2
                k_1 = term // kernel_2 % kernel_1
                k_0 = term // (kernel_2 * kernel_1) % kernel_0
                c = (term // (kernel_2 * kernel_1 * kernel_0)).to(tl.int64)
                at = c * w_c + k_0.to(tl.int64) * w_0 + k_1.to(tl.int64) * w_1 + k_2.to(tl.int64) * w_2
                y = load(left + at, f_inside & real)
                j_0, j_1, j_2 = i_0 + k_0 * step_0, i_1 + k_1 * step_1, i_2 + k_2 * step_2
                inside = (j_0 >= 0) & (j_0 < in_0) & (j_1 >= 0) & (j_1 < in_1) & (j_2 >= 0) & (j_2 < in_2)
                place = c * x_c + j_0.to(tl.int64) * x_0 + j_1.to(tl.int64) * x_1 + j_2.to(tl.int64) * x_2
                v = load(right + place, inside & p_inside & real)
                y, v = tl.broadcast(y[:, None], v[None, :])
                part = tl.fma(y, v, part)
        acc = acc + part
    valid = f_inside[:, None] & p_inside[None, :]
    if bias is not None:
        acc = acc + load(bias + filter * b_n, f_inside)[:, None]
    to = (image.to(tl.int64) * groups * filters + filter[:, None]) * positions + rp.to(tl.int64)[None, :]
    store(out + to, acc, valid)


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
    """Convolution over 1, 2 or 3 axes, ``RN_out(RN(acc + b))``: :func:`repro_kernels.cpu.gemm.conv`."""
    axes = w.dim() - 2
    if axes not in (1, 2, 3):
        raise UnsupportedError(f"conv over {axes} axes")
    images = x.unsqueeze(0) if x.dim() == axes + 1 else x
    fits = images.dim() == axes + 2 and groups > 0 and w.shape[0] % groups == 0
    if not fits or images.shape[1] != w.shape[1] * groups:
        raise ValueError(f"conv: shapes {tuple(x.shape)} and {tuple(w.shape)} in {groups} groups do not fit")
    steps, spread, kernel = _per_axis(stride, axes), _per_axis(dilation, axes), tuple(w.shape[2:])
    before, total = _padding(padding, kernel, spread)
    padded = tuple(size + p for size, p in zip(images.shape[2:], total, strict=True))
    out_axes = tuple(
        (size - d * (k - 1) - 1) // s + 1 for size, k, s, d in zip(padded, kernel, steps, spread, strict=True)
    )
    if min(out_axes) <= 0:
        raise ValueError(f"conv: kernel {kernel} is larger than its input {padded}")
    filters, positions = w.shape[0] // groups, math.prod(out_axes)
    terms = w.shape[1] * math.prod(kernel)
    out = torch.empty(images.shape[0], w.shape[0], *out_axes, dtype=out_dtype or x.dtype, device=x.device)
    check(images, w, b, out)
    block_m = min(32, max(4, triton.next_power_of_2(filters)))
    block_n = min(128, max(16, triton.next_power_of_2(positions)))
    missing = 3 - axes
    launch(
        _conv,
        (-(-filters // block_m) * -(-positions // block_n), images.shape[0] * groups),
        *(images, w, b, out, filters, positions, w.shape[1], terms),
        *(*(1,) * missing, *images.shape[2:], *((1,) * missing + out_axes)[1:]),
        *(*(1,) * missing, *kernel, *(1,) * missing, *steps),
        *(*(0,) * missing, *before, *(1,) * missing, *spread),
        *(*images.stride()[:2], *(0,) * missing, *images.stride()[2:]),
        *(*w.stride()[:2], *(0,) * missing, *w.stride()[2:]),
        *(0 if b is None else b.stride(0), groups),
        BM=block_m,
        BN=block_n,
        UNROLL=4,
    )  # fmt: skip
    return out.view(*x.shape[: x.dim() - axes - 1], w.shape[0], *out_axes)


def _per_axis(value: int | Sequence[int], axes: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * axes if len(values) == 1 else values


def _padding(
    padding: int | Sequence[int] | str, kernel: tuple[int, ...], spread: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Zeros before each axis, and before and after it together."""
    if padding == "same":
        total = tuple(d * (k - 1) for k, d in zip(kernel, spread, strict=True))
        return tuple(t // 2 for t in total), total
    before = _per_axis(0 if isinstance(padding, str) else padding, len(kernel))
    return before, tuple(2 * p for p in before)


BUILDS: tuple[Build, ...] = ()
