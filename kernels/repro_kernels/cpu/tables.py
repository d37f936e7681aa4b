"""Constants and polynomial coefficients of the elementary functions, as a C header.

    python -m repro_kernels.cpu.tables > kernels/repro_kernels/cpu/csrc/elementary_tables.h

Everything is computed with mpmath at 500 bits and printed in hexadecimal, so the header is a pure function
of this file (a test regenerates it). Polynomials are Chebyshev interpolants, converted to powers; the
degree of each is the smallest whose interpolation error, relative to the function, is below the stated bound.
"""

from __future__ import annotations

from collections.abc import Callable

from mpmath import mp, mpf  # type: ignore[import-untyped]

LIMBS = 5
"""64-bit limbs of a wide number in csrc/elementary_slow.c."""

TWO_OVER_PI_WORDS = 9
"""64-bit words of the fraction of 2/pi: 2^104 * 24 bits are consumed by the largest binary32."""


def binary64(value: mpf) -> str:
    """The nearest binary64 of `value`, as a C hexadecimal literal."""
    return float(value).hex()


def split_high(value: mpf, bits: int) -> mpf:
    """The leading `bits` significant bits of `value` (truncated): products with small integers stay exact."""
    _, exponent = mp.frexp(value)
    scale = mpf(2) ** (bits - exponent)
    return mp.floor(value * scale) / scale


def chebyshev(function: Callable[[mpf], mpf], low: mpf, high: mpf, bits: int) -> list[mpf]:
    """Power coefficients (lowest first) of the interpolant at Chebyshev nodes whose relative error over
    [low, high] is below 2^-bits, sampled on a grid of 97 points."""
    for degree in range(2, 40):
        coefficients = mp.chebyfit(function, [low, high], degree + 1)[::-1]
        worst = mpf(0)
        for i in range(97):
            x = low + (high - low) * i / 96
            exact = function(x)
            value = mp.polyval(coefficients[::-1], x)
            worst = max(worst, abs(value / exact - 1))
        if worst < mpf(2) ** -bits:
            return list(coefficients)
    raise ValueError("no polynomial of degree below 40 is close enough")


def _quotient(function: Callable[[mpf], mpf], at_zero: mpf) -> Callable[[mpf], mpf]:
    """z -> f(sqrt z) / sqrt z for an odd f, with its limit at 0."""
    return lambda z: at_zero if z == 0 else function(mp.sqrt(z)) / mp.sqrt(z)


def _scaled_erfc(t: mpf) -> mpf:
    """(1 + 2x) exp(x^2) erfc(x), t = (x - 3.75) / (x + 3.75) (Shepherd and Laframboise, 1981)."""
    x = mpf(15) / 4 * (1 + t) / (1 - t)
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def polynomials() -> dict[str, list[mpf]]:
    """Name -> coefficients, lowest power first."""
    r = mp.log(2) / 2 * mpf("1.0001")
    s = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1) * mpf("1.0001")
    quarter = (mp.pi / 4) * mpf("1.0001")
    low_t = (mpf("0.9") - mpf("3.75")) / (mpf("0.9") + mpf("3.75"))
    high_t = (mpf("10.3") - mpf("3.75")) / (mpf("10.3") + mpf("3.75"))
    return {
        "expm1": chebyshev(lambda x: mpf(1) if x == 0 else mp.expm1(x) / x, -r, r, 51),
        "log": chebyshev(_quotient(mp.atanh, mpf(1)), mpf(0), s * s, 53),
        "sin": chebyshev(_quotient(mp.sin, mpf(1)), mpf(0), quarter**2, 53),
        "cos": chebyshev(lambda z: mp.cos(mp.sqrt(z)), mpf(0), quarter**2, 53),
        "atan": chebyshev(_quotient(mp.atan, mpf(1)), mpf(0), mpf("0.17158"), 53),
        "asin": chebyshev(_quotient(mp.asin, mpf(1)), mpf(0), mpf("0.25001"), 53),
        "erf": chebyshev(_quotient(mp.erf, 2 / mp.sqrt(mp.pi)), mpf(0), mpf("1.0001"), 52),
        "erfc": chebyshev(_scaled_erfc, low_t, high_t, 50),
    }


def scalars() -> dict[str, str]:
    """Name -> binary64 literal."""
    ln2_high = split_high(mp.log(2), 32)
    log10_2_high = split_high(mp.log10(2), 32)
    half_pi = mp.pi / 2
    p1 = split_high(half_pi, 30)
    p2 = split_high(half_pi - p1, 30)
    return {
        "LOG2_E": binary64(1 / mp.log(2)),
        "LN2": binary64(mp.log(2)),
        "LN2_HIGH": binary64(ln2_high),
        "LN2_LOW": binary64(mp.log(2) - ln2_high),
        "TWO_LOG2_E": binary64(2 / mp.log(2)),
        "LOG10_2_HIGH": binary64(log10_2_high),
        "LOG10_2_LOW": binary64(mp.log10(2) - log10_2_high),
        "TWO_LOG10_E": binary64(2 / mp.log(10)),
        "TWO_OVER_PI": binary64(2 / mp.pi),
        "HALF_PI_1": binary64(p1),
        "HALF_PI_2": binary64(p2),
        "HALF_PI_3": binary64(half_pi - p1 - p2),
        "PI": binary64(mp.pi),
        "HALF_PI": binary64(half_pi),
        "QUARTER_PI": binary64(mp.pi / 4),
    }


def wide(value: mpf) -> str:
    """A number of csrc/elementary_slow.c: {sign, exponent, limbs lowest first}, 0.limbs * 2^exponent."""
    _, exponent = mp.frexp(value)
    mantissa = int(mp.floor(mp.ldexp(value, 64 * LIMBS - exponent)))
    limbs = [(mantissa >> (64 * i)) & (2**64 - 1) for i in range(LIMBS)]
    return f"{{0, {exponent}, {{{', '.join(f'0x{limb:016x}ull' for limb in limbs)}}}}}"


def wide_constants() -> dict[str, str]:
    """Name -> initialiser of a wide number, truncated."""
    return {
        "HALF_PI": wide(mp.pi / 2),
        "LN2": wide(mp.log(2)),
        "LN10": wide(mp.log(10)),
        "TWO_OVER_SQRT_PI": wide(2 / mp.sqrt(mp.pi)),
    }


def header() -> str:
    """The text of csrc/elementary_tables.h."""
    with mp.workprec(700):
        lines = [
            "/* Generated by `python -m repro_kernels.cpu.tables`; do not edit. */",
            "#ifndef RK_ELEMENTARY_TABLES_H",
            "#define RK_ELEMENTARY_TABLES_H",
            "",
            "/* a * b + c, fused where that is one instruction; the error bounds hold either way. */",
            "RK_INLINE double rk_mad(double a, double b, double c) {",
            "#if defined(__FMA__) || defined(__aarch64__)",
            "    return __builtin_fma(a, b, c);",
            "#else",
            "    return a * b + c;",
            "#endif",
            "}",
            "",
        ]
        lines += [f"#define RK_C_{name} {text}" for name, text in scalars().items()]
        for name, coefficients in polynomials().items():
            lines += ["", f"RK_INLINE double rk_poly_{name}(double x) {{"]
            lines += [f"    double p = {binary64(coefficients[-1])};"]
            lines += [f"    p = rk_mad(p, x, {binary64(value)});" for value in coefficients[-2::-1]]
            lines += ["    return p;", "}"]
        lines += ["", f"#define RK_LIMBS {LIMBS}"]
        lines += [f"#define RK_WIDE_{name} {text}" for name, text in wide_constants().items()]
        bits = int(mp.floor(mp.ldexp(2 / mp.pi, 64 * TWO_OVER_PI_WORDS)))
        words = [(bits >> (64 * (TWO_OVER_PI_WORDS - 1 - i))) & (2**64 - 1) for i in range(TWO_OVER_PI_WORDS)]
        lines += [
            "",
            "/* The fraction 2/pi, most significant word first. */",
            f"#define RK_TWO_OVER_PI_WORDS {TWO_OVER_PI_WORDS}",
            "#define RK_TWO_OVER_PI " + ", ".join(f"0x{word:016x}ull" for word in words),
            "",
            "#endif",
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(header(), end="")
