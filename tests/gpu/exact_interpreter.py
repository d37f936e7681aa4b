"""Triton's interpreter with IEEE arithmetic: its own ``fma`` rounds twice and its casts to bfloat16 truncate.

Imported (and applied) in a process that set ``TRITON_INTERPRET=1`` before any kernel module is imported. What
is replaced: ``fma`` by C's ``fmaf`` and ``fma``, which round once; conversions between float32 and bfloat16
by exact ones with round to nearest even. A float argument becomes a float32, as at a launch, and no constant.
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
        command = [
            "cc",
            "-x",
            "c",
            "-O2",
            "-ffp-contract=off",
            "-shared",
            "-fPIC",
            "-o",
            str(target),
            "-",
            "-lm",
        ]
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


def _comparison(original: Any) -> Any:
    """The result of a comparison is a boolean, also where a scalar one is later spread over a block."""

    def compare(self: Any, left: Any, right: Any) -> Any:
        return interpreter.TensorHandle(original(self, left, right).data, tl.int1)

    return compare


def _create_splat(self: Any, ret_ty: Any, arg: Any) -> Any:
    """A scalar comparison is a bool that calls itself a float; the interpreter would spread it as one."""
    value = np.asarray(arg.data).reshape(-1)[0]
    return interpreter.TensorHandle(np.full(ret_ty.shape, value, arg.data.dtype), arg.dtype.scalar)


def _with_index(original: Any) -> Any:
    """The bounds of a loop are arrays of one element, which numpy 2.4 no longer takes for integers."""

    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    return patch


def _float_argument(original: Any) -> Any:
    """A launch passes a Python float as a float32; the interpreter would leave it a constant."""

    def convert(argument: Any) -> Any:
        if isinstance(argument, float):
            handle = interpreter.TensorHandle(np.array([argument], np.float32), tl.float32)
            return tl.tensor(handle, tl.float32)
        return original(argument)

    return convert


_prepared: set[tuple[bool, bool]] = set()
"""Views of the language prepared by this launch: a function's module names ``tl``, ``tl.core`` or both."""


def _call(self: Any, *args: Any, **named: Any) -> Any:
    """A device function called by a kernel; preparing the language costs milliseconds, so once per launch."""
    named_here = [value for value in self.fn.__globals__.values() if value is tl or value is tl.core]
    view = (tl in named_here, tl.core in named_here)
    if view not in _prepared:
        _prepared.add(view)
        interpreter._patch_lang(self.fn)
    return self.rewrite()(*args, **named)


def _launch(original: Any) -> Any:
    def call(self: Any, *args: Any, **named: Any) -> Any:
        _prepared.clear()
        return original(self, *args, **named)

    return call


def apply() -> None:
    """Replace the interpreter's inexact operations, once per process."""
    builder = interpreter.InterpreterBuilder
    interpreter.InterpretedFunction.__call__ = _call
    interpreter.GridExecutor.__call__ = _launch(interpreter.GridExecutor.__call__)
    np.seterr(all="ignore")
    interpreter._patch_lang_tensor = _with_index(interpreter._patch_lang_tensor)
    interpreter._implicit_cvt = _float_argument(interpreter._implicit_cvt)
    builder.create_fma = _create_fma
    builder.create_splat = _create_splat
    for name in [n for n in dir(builder) if n.startswith(("create_fcmp", "create_icmp"))]:
        setattr(builder, name, _comparison(getattr(builder, name)))
    for name in ("create_fp_trunc", "create_fp_ext", "cast_impl"):
        setattr(builder, name, _cast(getattr(builder, name)))
