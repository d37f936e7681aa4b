"""Triton's interpreter with IEEE arithmetic: its own ``fma`` rounds twice and its casts to bfloat16 truncate.

Imported (and applied) in a process that set ``TRITON_INTERPRET=1`` before any kernel module is imported. What is
replaced: ``fma`` by C's ``fmaf`` and ``fma``, which round once; conversions between float32 and bfloat16 by exact ones with round to nearest even.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_SOURCE = """
#include <math.h>
void fma32(const float *x, const float *y, const float *z, float *out, long n) {
    for (long i = 0; i < n; ++i) out[i] = fmaf(x[i], y[i], z[i]);
}
void fma64(const double *x, const double *y, const double *z, double *out, long n) {
    for (long i = 0; i < n; ++i) out[i] = fma(x[i], y[i], z[i]);
}
"""


@functools.cache
def _library() -> ctypes.CDLL:
    """The C functions, compiled once per process."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "fma.so"
        command = ["cc", "-x", "c", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-o", str(target), "-", "-lm"]
        subprocess.run(command, input=_SOURCE.encode(), check=True)
        return ctypes.CDLL(str(target))


def fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """``x * y + z`` rounded once, of float32 or float64 arrays."""
    operands = [np.ascontiguousarray(part) for part in np.broadcast_arrays(x, y, z)]
    out = np.empty_like(operands[2])
    assert all(part.dtype == out.dtype for part in operands)
    function = {4: _library().fma32, 8: _library().fma64}[out.itemsize]
    function(*(ctypes.c_void_p(part.ctypes.data) for part in (*operands, out)), ctypes.c_long(out.size))
    return out


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 -> bfloat16 bits, round to nearest even; a NaN stays one."""
    bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FFF, rounded).astype(np.uint16).reshape(x.shape)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits -> float32, exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32).reshape(bits.shape)


def _create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
    return interpreter.TensorHandle(fma(x.data, y.data, z.data), z.dtype.scalar)


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
