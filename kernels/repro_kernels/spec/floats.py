"""IEEE-754 arithmetic from integers: what every other spec module stands on (numerics.md, "Ground rules").

A value of any format is carried as a Python ``float``, which holds every binary32, bfloat16 and binary16
value exactly. No function here trusts a floating-point unit for a finite result: the exact result is formed
as an integer times a power of two (or as a ``Fraction``) and rounded once, to nearest even, subnormals kept.
A NaN is always the canonical one, 0x7fc00000 and its 16-bit counterparts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

NAN: Final = math.nan
INF: Final = math.inf


@dataclass(frozen=True)
class Format:
    """A binary interchange format.

    Attributes:
        name: how the rest of the spec calls it.
        width: bits in all.
        precision: significand bits, the hidden one included.
        emin: exponent of the smallest normal number.
        emax: exponent of the largest finite number.
        nan_bits: the canonical NaN.
    """

    name: str
    width: int
    precision: int
    emin: int
    emax: int
    nan_bits: int

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next number: torch's ``finfo(dtype).eps``."""
        return math.ldexp(1.0, 1 - self.precision)

    @property
    def lowest(self) -> float:
        """The most negative finite number: torch's ``finfo(dtype).min``."""
        return -math.ldexp(float((1 << self.precision) - 1), self.emax - self.precision + 1)


BINARY32: Final = Format("fp32", 32, 24, -126, 127, 0x7FC00000)
BFLOAT16: Final = Format("bf16", 16, 8, -126, 127, 0x7FC0)
BINARY16: Final = Format("fp16", 16, 11, -14, 15, 0x7E00)
FORMATS: Final = {f.name: f for f in (BINARY32, BFLOAT16, BINARY16)}


def value(bits: int, fmt: Format = BINARY32) -> float:
    """The number that a bit pattern stands for; every NaN pattern gives the one NaN."""
    fraction_bits = fmt.precision - 1
    sign = -1.0 if bits >> (fmt.width - 1) else 1.0
    field = (bits >> fraction_bits) & ((1 << (fmt.width - fmt.precision)) - 1)
    fraction = bits & ((1 << fraction_bits) - 1)
    if field == (1 << (fmt.width - fmt.precision)) - 1:
        return NAN if fraction else sign * INF
    if field == 0:
        return sign * math.ldexp(float(fraction), fmt.emin - fraction_bits)
    return sign * math.ldexp(float(fraction | 1 << fraction_bits), field - 1 + fmt.emin - fraction_bits)


def bits(x: float, fmt: Format = BINARY32) -> int:
    """The bit pattern of a number of the format, NaN canonical.

    Raises:
        ValueError: x is not a number of this format.
    """
    if math.isnan(x):
        return fmt.nan_bits
    fraction_bits = fmt.precision - 1
    sign = int(math.copysign(1.0, x) < 0) << (fmt.width - 1)
    if math.isinf(x):
        return sign | ((1 << (fmt.width - fmt.precision)) - 1) << fraction_bits
    if x == 0:
        return sign
    if rn(x, fmt) != x:
        raise ValueError(f"{x!r} is not a number of {fmt.name}")
    exponent = max(math.frexp(x)[1] - 1, fmt.emin)
    significand = int(math.ldexp(abs(x), fraction_bits - exponent))
    if significand >> fraction_bits:
        return sign | (exponent - fmt.emin + 1) << fraction_bits | significand & ((1 << fraction_bits) - 1)
    return sign | significand


def dyadic(x: float) -> tuple[int, int]:
    """A finite number as (n, e) with x = n * 2**e exactly."""
    numerator, denominator = x.as_integer_ratio()
    return numerator, 1 - denominator.bit_length()


def round_dyadic(n: int, e: int, fmt: Format = BINARY32, *, zero: float = 0.0) -> float:
    """RN of n * 2**e: to nearest, ties to even, subnormals kept, overflow to infinity.

    Args:
        n: integer significand, any size, with sign.
        e: exponent of two, any size.
        fmt: the format to round to.
        zero: what an exact zero becomes (n carries no sign then); a result that underflows keeps n's sign.
    """
    if n == 0:
        return zero
    magnitude = abs(n)
    leading = magnitude.bit_length() - 1 + e
    ulp = max(leading, fmt.emin) - (fmt.precision - 1)
    shift = ulp - e
    if shift <= 0:
        kept = magnitude << -shift
    else:
        kept, lost, half = magnitude >> shift, magnitude & ((1 << shift) - 1), 1 << (shift - 1)
        if lost > half or (lost == half and kept & 1):
            kept += 1
    if kept.bit_length() - 1 + ulp > fmt.emax:
        return math.copysign(INF, n)
    return math.copysign(math.ldexp(float(kept), ulp), n)


def round_ratio(numerator: int, denominator: int, fmt: Format = BINARY32, *, zero: float = 0.0) -> float:
    """RN of numerator / denominator, denominator > 0; `zero` as in :func:`round_dyadic`."""
    shift = max(0, denominator.bit_length() - abs(numerator).bit_length() + fmt.precision + 4)
    quotient, remainder = divmod(abs(numerator) << shift, denominator)
    sticky = quotient << 1 | (remainder != 0)  # enough bits kept, so one more tells a tie from a near-tie
    return round_dyadic(-sticky if numerator < 0 else sticky, -shift - 1, fmt, zero=zero)


def rn(x: float | int | Fraction, fmt: Format = BINARY32) -> float:
    """RN of an exact number (a binary64 number, an integer or a fraction) in a format."""
    if isinstance(x, float):
        if math.isnan(x):
            return NAN
        if math.isinf(x):
            return x
        return round_dyadic(*dyadic(x), fmt, zero=x)
    if isinstance(x, int):
        return round_dyadic(x, 0, fmt)
    return round_ratio(x.numerator, x.denominator, fmt)


def rn32(x: float | int | Fraction) -> float:
    """RN: rounding to nearest even in binary32."""
    return rn(x, BINARY32)


def add(x: float, y: float) -> float:
    """RN(x + y)."""
    if not (math.isfinite(x) and math.isfinite(y)):
        return _canonical(x + y)
    (n, e), (m, f) = dyadic(x), dyadic(y)
    low = min(e, f)
    # binary64's sum is zero only where the exact sum is, with the sign that IEEE-754 gives it
    return round_dyadic((n << (e - low)) + (m << (f - low)), low, zero=x + y)


def sub(x: float, y: float) -> float:
    """RN(x - y)."""
    return add(x, -y)


def mul(x: float, y: float) -> float:
    """RN(x * y)."""
    return rn32(x * y)  # two 24-bit significands: binary64 holds the product exactly


def fma(x: float, y: float, z: float) -> float:
    """RN(x * y + z), rounded once."""
    product = x * y  # exact in binary64, as in mul
    if not (math.isfinite(product) and math.isfinite(z)):
        return _canonical(product + z)
    (n, e), (m, f) = dyadic(product), dyadic(z)
    low = min(e, f)
    return round_dyadic((n << (e - low)) + (m << (f - low)), low, zero=product + z)


def div(x: float, y: float) -> float:
    """RN(x / y)."""
    if math.isnan(x) or math.isnan(y) or (y == 0 and x == 0) or (math.isinf(x) and math.isinf(y)):
        return NAN
    sign = math.copysign(1.0, x) * math.copysign(1.0, y)
    if y == 0 or math.isinf(x):
        return sign * INF
    if math.isinf(y) or x == 0:
        return sign * 0.0
    quotient = Fraction(x) / Fraction(y)
    return round_ratio(quotient.numerator, quotient.denominator)


def sqrt(x: float) -> float:
    """RN(sqrt(x)); sqrt(-0) is -0, a negative number gives NaN."""
    if math.isnan(x) or x < 0:
        return NAN
    if x == 0 or math.isinf(x):
        return x
    n, e = dyadic(x)
    shift = 128 + (e & 1)  # an even exponent, and more bits than any rounding boundary needs
    root = math.isqrt(n << shift)
    sticky = root << 1 | (root * root != n << shift)
    return round_dyadic(sticky, (e - shift) // 2 - 1)


def _canonical(x: float) -> float:
    """The result of an operation with a non-finite operand: an infinity, or the one NaN."""
    return NAN if math.isnan(x) else x
