"""Arithmetic that every kernel shares: exact loads, rounding to a type, stores with the canonical NaN.

A 16-bit value is exact in float32, so a kernel works in float32 and rounds where the specification says so.
"""

from __future__ import annotations

import triton
import triton.language as tl

FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2
"""Numbers of the dtypes, as in the C sources."""


@triton.jit
def load(pointer, mask=None):
    """Elements of any float type as float32, exactly; +0 where masked out."""
    if mask is None:
        return tl.load(pointer).to(tl.float32)
    return tl.load(pointer, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def rounded(value, kind: tl.constexpr):
    """float32 -> float32: RN of the type `kind` (float32, bfloat16 or float16), NaN and infinities kept."""
    if kind == tl.float32:
        return value
    return value.to(kind).to(tl.float32)


@triton.jit
def store(pointer, value, mask=None):
    """float32 values, rounded once to the pointer's type; a NaN becomes that type's canonical one.

    The bits are stored as integers: a NaN may not pass through a float operation that renames it.
    """
    if pointer.dtype.element_ty == tl.float32:
        bits = tl.where(value == value, value.to(tl.int32, bitcast=True), 0x7FC00000).to(tl.int32)
        tl.store(pointer.to(tl.pointer_type(tl.int32), bitcast=True), bits, mask=mask)
    else:
        nan: tl.constexpr = 0x7FC0 if pointer.dtype.element_ty == tl.bfloat16 else 0x7E00
        narrow = value.to(pointer.dtype.element_ty).to(tl.int16, bitcast=True)
        bits = tl.where(value == value, narrow, nan).to(tl.int16)
        tl.store(pointer.to(tl.pointer_type(tl.int16), bitcast=True), bits, mask=mask)
