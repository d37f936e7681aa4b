"""Division with a whole quotient (numerics.md, "Ground rules": each step rounded once)."""

from __future__ import annotations

import math
from fractions import Fraction

from repro_kernels.spec.floats import NAN, add, div, sub


def fmod(x: float, y: float) -> float:
    """x - n*y for n = x / y cut toward zero: exact, so never rounded; a zero has the sign of x.

    NaN if x is infinite or y is zero; x if y is infinite.
    """
    if math.isnan(x) or math.isnan(y) or math.isinf(x) or y == 0:
        return NAN
    if math.isinf(y) or x == 0:
        return x
    rest = abs(Fraction(x)) % abs(Fraction(y))
    return math.copysign(float(rest), x)  # a multiple of the smaller ulp below |y|: a binary32 number


def remainder(x: float, y: float) -> float:
    """r = fmod(x, y), and RN(r + y) if r is not zero and of the other sign than y."""
    r = fmod(x, y)
    if r != 0 and not math.isnan(r) and (r < 0) != (y < 0):
        return add(r, y)
    return r


def div_trunc(x: float, y: float) -> float:
    """RN(x / y) cut toward zero."""
    quotient = div(x, y)
    return quotient if not math.isfinite(quotient) else math.copysign(float(math.trunc(quotient)), quotient)


def div_floor(x: float, y: float) -> float:
    """Python's and PyTorch's sequence: q = RN(RN(x - fmod(x, y)) / y) is brought to the whole number below.

    x / 0 is RN(x / y). q is lessened by 1 if fmod(x, y) is not zero and of the other sign than y; then a
    zero q gives a zero of the sign of x / y, any other q the greatest whole number f up to it, or RN(f + 1)
    if RN(q - f) exceeds one half.
    """
    if y == 0:
        return div(x, y)
    r = fmod(x, y)
    q = div(sub(x, r), y)
    if r != 0 and not math.isnan(r) and (r < 0) != (y < 0):
        q = sub(q, 1.0)
    if q == 0:
        return math.copysign(0.0, div(x, y))
    if not math.isfinite(q):
        return q
    whole = float(math.floor(q))
    return add(whole, 1.0) if sub(q, whole) > 0.5 else whole
