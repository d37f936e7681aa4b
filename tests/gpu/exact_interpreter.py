"""Triton's interpreter with IEEE arithmetic: its own ``fma`` rounds twice and its casts to bfloat16 truncate.

Imported (and applied) in a process that set ``TRITON_INTERPRET=1`` before any kernel module is imported. What is
replaced: ``fma`` of float32 by one rounding (binary64 with round-to-odd), of float64 by libm's; conversions
between float32 and bfloat16 by exact ones with round to nearest even.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_LIBM = ctypes.CDLL(ctypes.util.find_library("m"))
_LIBM.fma.restype = ctypes.c_double
_LIBM.fma.argtypes = [ctypes.c_double] * 3
_fma64 = np.vectorize(_LIBM.fma, otypes=[np.float64])


def fma32(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """``RN(x * y + z)`` of float32 arrays: the product is exact in binary64, the sum is rounded to odd."""
    product = x.astype(np.float64) * y.astype(np.float64)
    addend = z.astype(np.float64)
    total = np.asarray(product + addend)
    back = total - product
    error = (product - (total - back)) + (addend - back)
    bits = total.view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & ((bits & 1) == 0)
    # towards the error: away from zero in magnitude where the signs agree
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + step, bits).view(np.float64).astype(np.float32)


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 -> bfloat16 bits, round to nearest even; a NaN stays one."""
    bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FFF, rounded).astype(np.uint16).reshape(x.shape)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits -> float32, exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32).reshape(bits.shape)


def _create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
    function = _fma64 if x.dtype.scalar == tl.float64 else fma32
    operands = np.broadcast_arrays(x.data, y.data, z.data)
    return interpreter.TensorHandle(function(*operands), z.dtype.scalar)


def _cast(original: Any) -> Any:
    def cast(self: Any, src: Any, dst_type: Any, *rest: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if source == tl.float32 and target == tl.bfloat16:
            return interpreter.TensorHandle(to_bfloat16(src.data), target)
        if source == tl.bfloat16 and target == tl.float32:
            return interpreter.TensorHandle(from_bfloat16(src.data), target)
        return original(self, src, dst_type, *rest)

    return cast


def _with_index(original: Any) -> Any:
    """The bounds of a loop are arrays of one element, which numpy 2.4 no longer takes for integers."""

    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    return patch


def apply() -> None:
    """Replace the interpreter's inexact operations, once per process."""
    builder = interpreter.InterpreterBuilder
    np.seterr(all="ignore")
    interpreter._patch_lang_tensor = _with_index(interpreter._patch_lang_tensor)
    builder.create_fma = _create_fma
    for name in ("create_fp_trunc", "create_fp_ext", "cast_impl"):
        setattr(builder, name, _cast(getattr(builder, name)))
