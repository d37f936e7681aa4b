"""Normalisations under profile ``fp32`` on CPU tensors.

The bit contract (``repro_kernels.spec.norm``): means by the segment rule over the group's elements in
logical C order; ``layer_norm = RN(RN(RN(d * rsqrt(RN(var + eps))) * w) + b)`` with ``d = RN(x - mean)``,
correction 0; ``rms_norm = RN(RN(x * rsqrt(RN(mean(RN(x*x)) + eps))) * w)``; group norm is layer norm over a
sample's group of channels; batch norm (evaluation only) is ``RN(RN(RN(RN(x - mean) * rsqrt(RN(var + eps)))
* w) + b)`` with the running statistics. Everything inside is float32 whatever the operands, and the result
is rounded to x's type once. An absent w or b is an absent step. Tests: ``tests/kernels/test_norm.py``.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Sequence
from typing import Any

import torch

from repro_kernels.cpu import native
from repro_kernels.cpu.layout import check, kernel, number

_NORM = struct.Struct("=12qd")
"""``norm_job`` of csrc/reduce_norm.c."""


@functools.cache
def _batch_norm() -> Any:
    function = native.fn("batch_norm")
    pointer, integer, size, real = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_float
    function.argtypes = [
        *(pointer, integer, size, size, size),
        *(pointer, pointer, real, pointer, pointer, pointer, integer),
    ]
    function.restype = None
    return function


def layer_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    w: torch.Tensor | None = None,
    b: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Layer norm over the last axes.

    Args:
        x: float32, bfloat16 or float16, any strides.
        normalized_shape: the sizes of the last axes, which share mean and variance.
        w: factors of that shape, any of the three types, or None.
        b: summands of that shape, or None.
        eps: used as its nearest float.

    Returns:
        A contiguous tensor of x's shape and dtype.

    Raises:
        UnsupportedError: another dtype.
        ValueError: the shapes do not fit.
    """
    return _last_axes(x, normalized_shape, w, b, eps=eps, centre=True)


def rms_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    w: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """RMS norm over the last axes, as aten defines it: rounded to x's type once, at the end.

    Args:
        x: float32, bfloat16 or float16, any strides.
        normalized_shape: the sizes of the last axes.
        w: factors of that shape, any of the three types, or None.
        eps: used as its nearest float; None is ``torch.finfo(x.dtype).eps``.

    Returns:
        A contiguous tensor of x's shape and dtype.

    Raises:
        UnsupportedError: another dtype.
        ValueError: the shapes do not fit.
    """
    number(x.dtype, "rms_norm")
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    return _last_axes(x, normalized_shape, w, None, eps=eps, centre=False)


def group_norm(
    x: torch.Tensor,
    groups: int,
    w: torch.Tensor | None = None,
    b: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Group norm: layer norm over each sample's group of channels, w and b per channel.

    Args:
        x: [batch, channels, ...], float32, bfloat16 or float16, any strides.
        groups: divides the channels.
        w: [channels] or None.
        b: [channels] or None.
        eps: used as its nearest float.

    Returns:
        A contiguous tensor of x's shape and dtype.

    Raises:
        UnsupportedError: another dtype.
        ValueError: the shapes do not fit.
    """
    if x.dim() < 2 or groups < 1 or x.shape[1] % groups:
        raise ValueError(f"group_norm: {groups} groups do not divide shape {tuple(x.shape)}")
    _fits("group_norm", x.shape[1:2], w, b)
    run = math.prod(x.shape[2:])
    return _run(x, x.shape[1] // groups * run, w, b, eps=eps, centre=True, slices=groups, run=run)


def batch_norm(  # noqa: PLR0917 - torch's order
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    w: torch.Tensor | None = None,
    b: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Batch norm in evaluation mode, with the running statistics.

    Args:
        x: [batch, channels, ...], float32, bfloat16 or float16, any strides.
        mean: running mean [channels].
        variance: running variance [channels].
        w: [channels] or None.
        b: [channels] or None.
        eps: used as its nearest float.

    Returns:
        A contiguous tensor of x's shape and dtype.

    Raises:
        UnsupportedError: another dtype.
        ValueError: the shapes do not fit.
    """
    source = number(x.dtype, "batch_norm")
    if x.dim() < 2:
        raise ValueError(f"batch_norm: shape {tuple(x.shape)} has no channels")
    _fits("batch_norm", x.shape[1:2], mean, variance, w, b)
    per_channel = [None if p is None else p.float().contiguous() for p in (mean, variance, w, b)]
    pointers = [None if p is None else p.data_ptr() for p in per_channel]
    data = x.contiguous()
    out = torch.empty_like(data)
    batch, channels, run = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    _batch_norm()(
        *(data.data_ptr(), source, batch, channels, run, pointers[0], pointers[1], eps),
        *(pointers[2], pointers[3], out.data_ptr(), source),
    )
    return out


def _last_axes(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    *,
    eps: float,
    centre: bool,
) -> torch.Tensor:
    shape = tuple(normalized_shape)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ValueError(f"norm over {shape}: shape {tuple(x.shape)} does not fit")
    _fits("norm", shape, w, b)
    return _run(x, math.prod(shape), w, b, eps=eps, centre=centre, slices=1, run=1)


def _fits(operation: str, shape: Sequence[int], *parameters: torch.Tensor | None) -> None:
    for p in parameters:
        if p is not None and p.shape != shape:
            raise ValueError(f"{operation}: a parameter has shape {tuple(p.shape)}, not {tuple(shape)}")


def _run(
    x: torch.Tensor,
    n: int,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    *,
    eps: float,
    centre: bool,
    slices: int,
    run: int,
) -> torch.Tensor:
    source = number(x.dtype, "norm")
    data = x.contiguous()
    out = torch.empty_like(data)
    if out.numel() == 0:
        return out
    w = None if w is None else w.contiguous()
    b = None if b is None else b.contiguous()
    record = _NORM.pack(
        data.data_ptr(),
        0 if w is None else w.data_ptr(),
        0 if b is None else b.data_ptr(),
        out.data_ptr(),
        out.numel() // n,
        n,
        slices,
        run,
        source,
        0 if w is None else number(w.dtype, "norm"),
        0 if b is None else number(b.dtype, "norm"),
        centre,
        eps,
    )
    check(kernel("norm")(record), "norm")
    return out
