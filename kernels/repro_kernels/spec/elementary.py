"""Correctly rounded elementary functions of binary32: the authority (numerics.md, "Elementary functions").

Each function maps a binary32 number, carried as a Python ``float``, to RN of the real function's value
there. Real values come from mpmath at a working precision that doubles until both ends of the error
interval round to the same number (Ziv's method). That ends unless the value lies exactly on a rounding
boundary, so arguments whose value is rational are answered exactly first: by the theorems of Lindemann and
of Gelfond and Schneider there are no others than those listed here (for erf and erfc that is only believed;
the loop would end with an error, never with a wrong answer).

Special values follow C Annex F: a NaN operand gives the canonical NaN (but pow(1, NaN) = pow(NaN, 0) = 1),
zeros keep their sign where the function is odd, poles give infinities, arguments outside the domain give
NaN. rsqrt(-0) is -infinity, as 1 / sqrt(-0) is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from mpmath import mp, mpf  # type: ignore[import-untyped]

from repro_kernels.spec.floats import INF, NAN, div, dyadic, rn32, round_dyadic, sqrt

_FIRST_PRECISION: Final = 80
_LAST_PRECISION: Final = 20_000
_GUARD: Final = 12
"""mpmath's results are taken to be within 2^(_GUARD - precision) relative; they aim at 2^-precision."""


def _fraction(value: mpf) -> Fraction:
    sign, mantissa, exponent, _ = value._mpf_
    scaled: Fraction = Fraction(int(mantissa)) * Fraction(2) ** exponent
    return -scaled if sign else scaled


def _ziv(real: Callable[..., Any], *arguments: float) -> float:
    """RN of real(*arguments), which is not a rounding boundary (nor 0) and within 2^(+-400) of 1."""
    precision = _FIRST_PRECISION
    while precision <= _LAST_PRECISION:
        with mp.workprec(precision):
            approximation = _fraction(real(*(mpf(x) for x in arguments)))
        error = abs(approximation) * Fraction(1, 2 ** (precision - _GUARD))
        low, high = rn32(approximation - error), rn32(approximation + error)
        if low == high and approximation:
            return low
        precision *= 2
    raise ArithmeticError(
        f"rounding undecided at {[x.hex() for x in arguments]}: an exact case is not listed"
    )


# Beyond these the result is the overflow, the underflow or the limit, by a wide margin.
_EXP_RANGE: Final = 110.0
_EXP2_RANGE: Final = 160.0


def exp(x: float) -> float:
    """e^x."""
    if math.isnan(x):
        return NAN
    if x > _EXP_RANGE:
        return INF
    if x < -_EXP_RANGE:
        return 0.0
    return 1.0 if x == 0 else _ziv(mp.exp, x)


def exp2(x: float) -> float:
    """2^x; exact at integers."""
    if math.isnan(x):
        return NAN
    if x > _EXP2_RANGE:
        return INF
    if x < -_EXP2_RANGE:
        return 0.0
    return round_dyadic(1, int(x)) if x == int(x) else _ziv(lambda v: mp.power(2, v), x)


def expm1(x: float) -> float:
    """e^x - 1."""
    if math.isnan(x):
        return NAN
    if x > _EXP_RANGE:
        return INF
    if x < -_EXP_RANGE:
        return -1.0
    return x if x == 0 else _ziv(mp.expm1, x)


def _logarithm(x: float, exact: Callable[[float], int | None], real: Callable[..., Any]) -> float:
    if math.isnan(x) or x < 0:
        return NAN
    if x == 0:
        return -INF
    if math.isinf(x):
        return INF
    known = exact(x)
    return float(known) if known is not None else _ziv(real, x)


def log(x: float) -> float:
    """Natural logarithm."""
    return _logarithm(x, lambda v: 0 if v == 1 else None, mp.log)


def log2(x: float) -> float:
    """Logarithm to base 2; exact at powers of two."""

    def exact(v: float) -> int | None:
        fraction, exponent = math.frexp(v)
        return exponent - 1 if fraction == 0.5 else None

    return _logarithm(x, exact, lambda v: mp.log(v) / mp.log(2))


def log10(x: float) -> float:
    """Logarithm to base 10; exact at powers of ten, of which binary32 holds 1 to 10^10."""
    powers = {float(10**k): k for k in range(11)}
    return _logarithm(x, powers.get, lambda v: mp.log(v) / mp.log(10))


def log1p(x: float) -> float:
    """log(1 + x)."""
    if math.isnan(x) or x < -1:
        return NAN
    if x == -1:
        return -INF
    if x == 0 or math.isinf(x):
        return x
    return _ziv(mp.log1p, x)


def sin(x: float) -> float:
    """Sine of x radians, x taken exactly however large."""
    if math.isnan(x) or math.isinf(x):
        return NAN
    return x if x == 0 else _ziv(mp.sin, x)


def cos(x: float) -> float:
    """Cosine of x radians."""
    if math.isnan(x) or math.isinf(x):
        return NAN
    return 1.0 if x == 0 else _ziv(mp.cos, x)


def tan(x: float) -> float:
    """Tangent of x radians."""
    if math.isnan(x) or math.isinf(x):
        return NAN
    return x if x == 0 else _ziv(mp.tan, x)


def asin(x: float) -> float:
    """Inverse sine, -pi/2 to pi/2."""
    if math.isnan(x) or abs(x) > 1:
        return NAN
    return x if x == 0 else _ziv(mp.asin, x)


def acos(x: float) -> float:
    """Inverse cosine, 0 to pi."""
    if math.isnan(x) or abs(x) > 1:
        return NAN
    return 0.0 if x == 1 else _ziv(mp.acos, x)


def atan(x: float) -> float:
    """Inverse tangent, -pi/2 to pi/2."""
    if math.isnan(x):
        return NAN
    return x if x == 0 else _ziv(mp.atan, x)


def sinh(x: float) -> float:
    """Hyperbolic sine."""
    if math.isnan(x):
        return NAN
    if abs(x) > _EXP_RANGE:
        return math.copysign(INF, x)
    return x if x == 0 else _ziv(mp.sinh, x)


def cosh(x: float) -> float:
    """Hyperbolic cosine."""
    if math.isnan(x):
        return NAN
    if abs(x) > _EXP_RANGE:
        return INF
    return 1.0 if x == 0 else _ziv(mp.cosh, x)


def tanh(x: float) -> float:
    """Hyperbolic tangent."""
    if math.isnan(x):
        return NAN
    if abs(x) > _EXP_RANGE:
        return math.copysign(1.0, x)
    return x if x == 0 else _ziv(mp.tanh, x)


def erf(x: float) -> float:
    """2/sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
    if math.isnan(x):
        return NAN
    if abs(x) > 10:
        return math.copysign(1.0, x)
    return x if x == 0 else _ziv(mp.erf, x)


def erfc(x: float) -> float:
    """1 - erf(x)."""
    if math.isnan(x):
        return NAN
    if abs(x) > 15:
        return 2.0 if x < 0 else 0.0
    return 1.0 if x == 0 else _ziv(mp.erfc, x)


def reciprocal(x: float) -> float:
    """1 / x."""
    return div(1.0, x)


def rsqrt(x: float) -> float:
    """1 / sqrt(x); exact where x is a power of four."""
    if math.isnan(x) or x < 0:
        return NAN
    if x == 0:
        return math.copysign(INF, x)
    if math.isinf(x):
        return 0.0
    fraction, exponent = math.frexp(x)
    if fraction == 0.5 and exponent % 2:
        return math.ldexp(1.0, (1 - exponent) // 2)
    return _ziv(lambda v: 1 / mp.sqrt(v), x)


def pow(x: float, y: float) -> float:
    """x^y for any two binary32 numbers."""
    if y == 0 or x == 1:
        return 1.0
    if math.isnan(x) or math.isnan(y):
        return NAN
    odd = abs(y) < 2**24 and y == int(y) and int(y) % 2 == 1
    negative = odd and math.copysign(1.0, x) < 0
    if x == 0 or math.isinf(x):
        magnitude = 0.0 if (x == 0) == (y > 0) else INF
        return -magnitude if negative else magnitude
    if math.isinf(y):
        return 1.0 if abs(x) == 1 else INF if (abs(x) > 1) == (y > 0) else 0.0
    if x < 0 and y != int(y):
        return NAN
    magnitude = _power(abs(x), y)
    return -magnitude if negative else magnitude


def _power(x: float, y: float) -> float:
    """x^y for finite x > 0 and finite y != 0."""
    scale = y * math.log2(x)  # far from the limits below, wherever its rounding errors could matter
    if scale > 200:
        return INF
    if scale < -200:
        return 0.0
    exact = _exact_power(x, Fraction(y))
    return rn32(exact) if exact is not None else _ziv(mp.power, x, y)


def _exact_power(x: float, y: Fraction) -> Fraction | None:
    """x^y if it is a number n * 2^e with n below 2^30, which covers every binary32 and every midpoint.

    With x = m * 2^e, m odd: y's denominator is a power of two, so x^y is rational only if m and 2^e are
    perfect powers of that degree; a negative power of an odd m > 1 is not dyadic.
    """
    m, e = dyadic(x)
    shift = (m & -m).bit_length() - 1
    m, e = m >> shift, e + shift
    if m == 1:
        exponent = e * y
        return Fraction(2) ** int(exponent) if exponent.denominator == 1 else None
    degree = y.denominator
    while degree > 1:
        root = math.isqrt(m)
        if root * root != m or e % 2:
            return None
        m, e, degree = root, e // 2, degree // 2
    if not 0 < y.numerator < 30:
        return None
    power = Fraction(m) ** y.numerator
    return power * Fraction(2) ** (e * y.numerator) if power < 2**30 else None


FUNCTIONS: Final[dict[str, Callable[[float], float]]] = {
    f.__name__: f
    for f in (
        exp, exp2, expm1, log, log2, log10, log1p, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh,
        erf, erfc, rsqrt, sqrt, reciprocal,
    )
}  # fmt: skip
"""Name -> function of one binary32 argument."""
