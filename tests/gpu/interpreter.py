"""``python -m tests.gpu.interpreter NAME...``: small cases in Triton's interpreter, one JSON line for each.

The interpreter computes with numpy. Where that is not IEEE arithmetic it is replaced: ``tl.fma`` rounds twice up
to Triton 3.8, so C's ``fmaf`` and ``fma`` take its place, and conversions to bfloat16 truncate, so they round to
nearest even here. What this proves is a kernel's order and rounding steps, not the code a GPU gets.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import ctypes
import hashlib
import json
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

from tests.gpu import cases

_SOURCE = """
#include <math.h>
void fma32(const float *x, const float *y, const float *z, float *out, long n) {
    for (long i = 0; i < n; ++i) out[i] = fmaf(x[i], y[i], z[i]);
}
void fma64(const double *x, const double *y, const double *z, double *out, long n) {
    for (long i = 0; i < n; ++i) out[i] = fma(x[i], y[i], z[i]);
}
"""


def _library() -> ctypes.CDLL:
    """The C functions, compiled once per source and user."""
    name = f"repro-fma-{os.getuid()}-{hashlib.sha256(_SOURCE.encode()).hexdigest()[:16]}"
    target = Path(tempfile.gettempdir()) / name / "fma.so"
    if not target.exists():
        target.parent.mkdir(mode=0o700, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        command = [
            "cc",
            "-x",
            "c",
            "-O2",
            "-ffp-contract=off",
            "-shared",
            "-fPIC",
            "-o",
            str(partial),
            "-",
            "-lm",
        ]
        subprocess.run(command, input=_SOURCE.encode(), check=True)
        partial.rename(target)
    return ctypes.CDLL(str(target))


_FMA = _library()


def _fma(_builder: object, x: Any, y: Any, z: Any) -> Any:
    kind = z.data.dtype
    function = {"float32": _FMA.fma32, "float64": _FMA.fma64}[kind.name]
    parts = np.broadcast_arrays(x.data, y.data, z.data)
    operands = [np.ascontiguousarray(part, dtype=kind) for part in parts]
    out = np.empty_like(operands[0])
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*operands, out)]
    function(*pointers, ctypes.c_long(out.size))
    return interpreter.TensorHandle(out.reshape(parts[0].shape), z.dtype.scalar)


def _to_bfloat16(x: np.ndarray) -> np.ndarray:
    bits = x.astype(np.float32).view(np.uint32)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FFF, nearest).astype(np.uint16)


_plain_cast = interpreter.InterpreterBuilder.cast_impl


def _cast(builder: Any, value: Any, kind: Any) -> Any:
    source, target = value.dtype.scalar, kind.scalar
    data = value.data
    if source == tl.bfloat16 and target.is_floating():
        wide = (data.astype(np.uint32) << 16).view(np.float32)
        return _cast(builder, interpreter.TensorHandle(wide, tl.float32), kind)
    if target == tl.bfloat16 and source == tl.float32:
        return interpreter.TensorHandle(_to_bfloat16(data), target)
    if source == target:
        return interpreter.TensorHandle(data, target)
    return _plain_cast(builder, value, kind)


def _fp_to_fp(builder: Any, value: Any, kind: Any, _mode: object) -> Any:
    return _cast(builder, value, kind)


def patch() -> None:
    """Make the interpreter's fma and float conversions exact."""
    builder = interpreter.InterpreterBuilder
    builder.create_fma = _fma
    builder.cast_impl = _cast
    builder.create_fp_to_fp = _fp_to_fp


def main(names: list[str]) -> None:
    patch()
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    for name in names or [n for n, c in cases.load().items() if c.small]:
        try:
            found = cases.difference(cases.run(name, "gpu", torch.device("cpu")), cases.expected(name))
        except Exception:  # one case's failure is its own result
            found = traceback.format_exc()
        print(json.dumps({"case": name, "difference": found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
