"""Casts and float ranges (numerics.md, "Ground rules": float to int saturates)."""

from __future__ import annotations

import math
from fractions import Fraction

from repro_kernels.spec.floats import BINARY32, Format, rn


def to_integer(x: float, width: int, signed: bool = True) -> int:
    """A float as an integer of `width` bits: truncated towards zero, saturated at the ends, NaN to 0."""
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    if math.isnan(x):
        return 0
    if math.isinf(x):
        return high if x > 0 else low
    return min(max(math.trunc(x), low), high)


def arange(start: float, step: float, count: int, out: Format = BINARY32) -> list[float]:
    """RN_out(start + i * step), exact before its one rounding; start and step are doubles."""
    return [rn(Fraction(start) + i * Fraction(step), out) for i in range(count)]


def linspace(start: float, end: float, count: int, out: Format = BINARY32) -> list[float]:
    """RN_out(start + i * (end - start) / (count - 1)), exact before its one rounding; count 1 gives start."""
    span = Fraction(end) - Fraction(start)
    return [rn(Fraction(start) + span * i / max(count - 1, 1), out) for i in range(count)]
