"""What kernels of several modules share: rounding to a result type, and stores with a canonical NaN.

Everything here is IEEE: an upcast is exact, a cast down rounds to nearest even and keeps subnormals. PTX's
conversions turn NaN into a payload of their own, so a store puts the canonical one (0x7fc00000, 0x7fc0,
0x7e00) back by integers. Fused multiply-adds are ``tl.fma``; quotients ``tl.div_rn``; roots
``tl.sqrt_rn``.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load(pointer, mask):
    """Elements of any of the three float types as float32, exactly; +0 outside the mask."""
    return tl.load(pointer, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def rounded(value, dtype: tl.constexpr):
    """RN of `dtype` applied to a float32 value, as float32 again (a NaN stays some NaN)."""
    return value.to(dtype).to(tl.float32)


@triton.jit
def canonical(value):
    """A float32 value with 0x7fc00000 for every NaN."""
    bits = value.to(tl.int32, bitcast=True)
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC00000, bits).to(tl.float32, bitcast=True)


@triton.jit
def as_type(value, dtype: tl.constexpr):
    """RN of `dtype` applied to a float32 value, NaN canonical."""
    if dtype == tl.float32:
        return canonical(value)
    else:  # a branch: Triton compiles what follows a return, too
        nan: tl.constexpr = 0x7FC0 if dtype == tl.bfloat16 else 0x7E00
        short = value.to(dtype).to(tl.int16, bitcast=True)
        is_nan = (value.to(tl.int32, bitcast=True) & 0x7FFFFFFF) > 0x7F800000
        return tl.where(is_nan, nan, short.to(tl.int32)).to(tl.int16).to(dtype, bitcast=True)


@triton.jit
def store(pointer, value, mask):
    """Store a float32 value as the pointer's type: one rounding to nearest even, NaN canonical."""
    tl.store(pointer, as_type(value, pointer.dtype.element_ty), mask=mask)
