"""Steps of transformer modules in one pass each, under profile ``fp32`` on CPU tensors.

The bit contract: the bits of the module's own sequence of steps, each with its result type and casts. ``a``
below is the input's dtype, RN_a rounds to it. Nothing here is a second numeric path: the tests compare every
function with its steps. Tests: ``tests/kernels/test_fused.py``.
"""

from __future__ import annotations

import ctypes
import functools
import math
from array import array
from typing import Any

import torch

from repro_kernels.cpu import native
from repro_kernels.errors import UnsupportedError

_DTYPES = {getattr(torch, name): number for name, number in native.DTYPES.items()}


def rms_norm_module(x: torch.Tensor, w: torch.Tensor, eps: float, *, one_plus: bool = False) -> torch.Tensor:
    """An RMSNorm module over the last axis, ``r = rsqrt(RN(mean(RN(x * x)) + eps))`` in binary32.

    ``RN_a(w * RN_a(RN(x * r)))``, as Llama's module and its many copies; with ``one_plus``
    ``RN_a(RN(RN(x * r) * RN(1 + w)))``, as Gemma's. The aten operator is ``repro_kernels.cpu.norm.rms_norm``.

    Args:
        x: [..., n]; float32, bfloat16 or float16.
        w: weight [n], of any of these dtypes, upcast exactly.
        eps: a double, used as its nearest float.
        one_plus: which of the two.

    Returns:
        x's shape and dtype, contiguous.

    Raises:
        UnsupportedError: another dtype or device.
        ValueError: w does not have x's last size.
    """
    a = _dtype(x, "rms_norm_module")
    if x.dim() == 0 or w.shape != x.shape[-1:]:
        raise ValueError(f"rms_norm_module: shapes {list(x.shape)} and {list(w.shape)} do not fit")
    out = torch.empty(x.shape, dtype=x.dtype)
    if out.numel() == 0:
        return out
    rows, w = _rows(x), w.contiguous()
    status = _rms_norm()(
        rows.data_ptr(),
        a,
        rows.stride(0),
        w.data_ptr(),
        _dtype(w, "rms_norm_module"),
        out.data_ptr(),
        *rows.shape,
        eps,
        one_plus,
    )
    if status != 0:
        raise MemoryError("no memory for rms_norm_module")
    return out


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``RN_a(RN_a(silu(gate)) * up)``, ``silu(x) = RN(x / RN(1 + exp(-x)))``.

    Args:
        gate: [..., n]; float32, bfloat16 or float16. Halves of one tensor are read in place.
        up: of the same shape and dtype.

    Returns:
        The same shape and dtype, contiguous.

    Raises:
        UnsupportedError: another dtype or device, or two dtypes.
        ValueError: the shapes differ.
    """
    a = _dtype(gate, "swiglu")
    if gate.shape != up.shape:
        raise ValueError(f"swiglu: shapes {list(gate.shape)} and {list(up.shape)} differ")
    if _dtype(up, "swiglu") != a:
        raise UnsupportedError(f"swiglu of {gate.dtype} and {up.dtype}")
    out = torch.empty(gate.shape, dtype=gate.dtype)
    if out.numel() == 0:
        return out
    left, right = _rows(gate), _rows(up)
    _swiglu()(
        left.data_ptr(), left.stride(0), right.data_ptr(), right.stride(0), out.data_ptr(), a, *left.shape
    )
    return out


def rotary(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """transformers' ``apply_rotary_pos_emb``: ``RN_a(RN_a(x * cos) + RN_a(rotate_half(x) * sin))``.

    ``rotate_half`` is (-second half, first half) of the first R elements; elements from R on pass through.

    Args:
        q: [B, H, S, D]; float32, bfloat16 or float16.
        k: [B, Hkv, S, D], of q's dtype.
        cos: [B or 1, S, R], R even and at most D, of q's dtype.
        sin: likewise.

    Returns:
        q and k rotated, each with the memory layout of its input where that is dense.

    Raises:
        UnsupportedError: another dtype or device, or different dtypes.
        ValueError: the shapes do not fit.
    """
    if any(t.dim() != 4 for t in (q, k)) or any(t.dim() != 3 for t in (cos, sin)) or cos.shape != sin.shape:
        raise ValueError("rotary: q, k are [B, H, S, D], cos, sin [B, S, R]")
    width = cos.shape[2]
    for t in (q, k):
        fits = cos.shape[0] in (1, t.shape[0]) and cos.shape[1] == t.shape[2]
        if not fits or width > t.shape[3] or width % 2:
            raise ValueError(f"rotary: shapes {list(t.shape)} and {list(cos.shape)} do not fit")
    a = _dtype(q, "rotary")
    if any(_dtype(t, "rotary") != a for t in (k, cos, sin)):
        raise UnsupportedError(f"rotary of {q.dtype}, {k.dtype}, {cos.dtype} and {sin.dtype}")
    cos, sin = (_last_contiguous(t) for t in (cos, sin))
    return _rotate(q, cos, sin, a), _rotate(k, cos, sin, a)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, a: int) -> torch.Tensor:
    x = _last_contiguous(x)
    out = torch.empty_like(x)
    if out.stride(3) != 1:
        out = torch.empty(x.shape, dtype=x.dtype)
    if out.numel() == 0:
        return out
    tables = [step for t in (cos, sin) for step in (t.stride(0) if t.shape[0] > 1 else 0, t.stride(1))]
    sizes = array("q", (*x.shape, cos.shape[2]))
    strides = array("q", (*x.stride()[:3], *out.stride()[:3], *tables))
    _rotary()(
        x.data_ptr(),
        out.data_ptr(),
        cos.data_ptr(),
        sin.data_ptr(),
        a,
        sizes.buffer_info()[0],
        strides.buffer_info()[0],
    )
    return out


def _dtype(t: torch.Tensor, operation: str) -> int:
    if t.dtype not in _DTYPES or t.device.type != "cpu":
        raise UnsupportedError(f"{operation} of {t.dtype} on {t.device.type}")
    return _DTYPES[t.dtype]


def _last_contiguous(t: torch.Tensor) -> torch.Tensor:
    return t if t.stride(-1) == 1 else t.contiguous()


def _rows(t: torch.Tensor) -> torch.Tensor:
    """t as [rows, n], n contiguous: a view where t's strides allow."""
    if t.dim() < 2:
        return t.contiguous().view(1, -1)
    return _last_contiguous(t).reshape(math.prod(t.shape[:-1]), t.shape[-1])


@functools.cache
def _rms_norm() -> Any:
    function = native.fn("rms_norm_module")
    pointer, size, integer = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    function.restype = integer
    function.argtypes = [
        pointer, integer, size, pointer, integer, pointer, size, size, ctypes.c_float, integer,
    ]  # fmt: skip
    return function


@functools.cache
def _swiglu() -> Any:
    function = native.fn("swiglu")
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    function.restype = None
    function.argtypes = [pointer, size, pointer, size, pointer, ctypes.c_int, size, size]
    return function


@functools.cache
def _rotary() -> Any:
    function = native.fn("rotary")
    function.restype = None
    function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int] + [ctypes.c_void_p] * 2
    return function
