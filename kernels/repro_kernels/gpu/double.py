"""binary64 inside kernels: constants that stay binary64, polynomials, the rounding test and the rounding.

Triton makes a Python float that meets a function's argument list a binary32, so every constant that is not
exactly one goes through :func:`f64`. fp64 ``+ - *``, ``/``, ``tl.sqrt`` and ``tl.fma`` are IEEE operations
(PTX ``add.rn mul.rn div.rn sqrt.rn fma.rn``); ``tests/gpu`` looks for them in the compiled code.
"""

from __future__ import annotations

import triton
import triton.language as tl

SHIFTER = tl.constexpr(6755399441055744.0)
"""1.5 * 2^52: added to |x| < 2^51 it rounds to an integer, whose two's complement is in the low bits."""

MARGIN = tl.constexpr(44)
"""The first steps are within 2^-48; their rounding test assumes 2^-44 (``cpu/csrc/elementary.h``)."""


@triton.jit
def f64(value: tl.constexpr):
    """A binary64 scalar with all its bits."""
    return tl.full([], value, tl.float64)


@triton.jit
def bits64(x):
    """The bits of a binary64 value, int64."""
    return x.to(tl.int64, bitcast=True)


@triton.jit
def double_of(bits):
    """The binary64 value of int64 bits."""
    return bits.to(tl.float64, bitcast=True)


@triton.jit
def absolute(x):
    """|x|, by the sign bit."""
    return double_of(bits64(x) & 0x7FFFFFFFFFFFFFFF)


@triton.jit
def is_nan(x):
    """Whether x is NaN."""
    return x != x  # noqa: PLR0124


@triton.jit
def absolute32(x):
    """|x| of a binary32 value, by the sign bit."""
    return (x.to(tl.int32, bitcast=True) & 0x7FFFFFFF).to(tl.float32, bitcast=True)


@triton.jit
def with_sign(magnitude, x):
    """A binary32 magnitude, NaN or not, with the sign of x; a NaN stays as it is."""
    bits = x.to(tl.int32, bitcast=True)
    signed = magnitude.to(tl.int32, bitcast=True) | (bits ^ (bits & 0x7FFFFFFF))
    return tl.where(is_nan(magnitude), magnitude, signed.to(tl.float32, bitcast=True))


@triton.jit
def horner(x, P: tl.constexpr):
    """A polynomial, P its coefficients, lowest power first."""
    n: tl.constexpr = len(P.value)
    p = f64(P.value[n - 1])
    for i in tl.static_range(n - 2, -1, -1):
        p = tl.fma(p, x, f64(P.value[i]))
    return p


@triton.jit
def clamp(x, limit: tl.constexpr):
    """A binary32 x within -limit .. limit; NaN stays."""
    x = tl.where(x > limit, limit, x)
    return tl.where(x < -limit, -limit, x)


@triton.jit
def scale(y, t):
    """y * 2^k where t = SHIFTER + k, for normal results."""
    return double_of(bits64(y) + (bits64(t) << 52))


@triton.jit
def split(u):
    """k and m with u = 2^k m, sqrt(1/2) <= m < sqrt(2), k as binary64; for normal u > 0."""
    bits = bits64(u)
    k = (bits - 0x3FE6A09E667F3BCD) >> 52
    return k.to(tl.int32).to(tl.float64), double_of(bits - (k << 52))


@triton.jit
def nearest(value, x):
    """RN in binary32 of a binary64 value; the canonical NaN where it or the binary32 argument x is NaN."""
    y = value.to(tl.float32)
    nan = tl.full([], 0x7FC00000, tl.int32).to(tl.float32, bitcast=True)
    return tl.where(is_nan(y) | is_nan(x), nan, y)


@triton.jit
def near_boundary(value, BITS: tl.constexpr):
    """Whether a rounding boundary may lie within 2^-BITS of a value, relatively: cheap, and never wrongly no.

    A boundary between normal numbers is where the last 29 bits are 2^28. Where results are subnormal,
    2^-151 <= |value| < 2^-125, the answer is yes.
    """
    bits = bits64(value)
    window: tl.constexpr = 2 ** (53 - BITS)
    last = (bits.to(tl.int32) - (0x10000000 - window)) & 0x1FFFFFFF
    tiny = ((bits >> 32).to(tl.int32) & 0x7FFFFFFF) - (872 << 20)
    return (last < 2 * window) | ((tiny >= 0) & (tiny < 26 << 20))


@triton.jit
def undecided(value, BITS: tl.constexpr):
    """Whether two numbers within 2^-BITS of a value, relatively, round differently; false for NaN."""
    low = (value * f64(1.0 - 2.0**-BITS)).to(tl.float32)
    high = (value * f64(1.0 + 2.0**-BITS)).to(tl.float32)
    return (low < high) | (low > high)


@triton.jit
def round_pair(high, low):
    """RN in binary32 of high + low, |low| at most half a unit of high; subnormal results included.

    high is first moved to the odd one of the two neighbours that enclose the sum, unless it is the sum: an
    odd 53-bit number is no binary32 and no midpoint, so the second rounding is that of the exact sum.
    """
    bits = bits64(high)
    inward = (low < 0.0) != (high < 0.0)
    odd = tl.where(inward, bits - 1, bits + 1)
    even = (bits & 1) == 0
    return double_of(tl.where(even & (low != 0.0), odd, bits)).to(tl.float32)


@triton.jit
def any_of(condition):
    """Whether a condition holds anywhere in its block: one value for the whole program."""
    if condition.type.is_block():
        return tl.max(condition.to(tl.int32), axis=None) != 0
    else:
        return condition
