"""Constants and polynomials of the elementary functions on a GPU, as a Python module.

    python -m repro_kernels.gpu.tables > kernels/repro_kernels/gpu/elementary_tables.py

The binary64 polynomials are those of ``repro_kernels.cpu.tables``. The second step has longer ones, of which
the low powers are pairs high + low and the high powers, whose share of the value is below 2^-26, binary64:
a rounding error there is below 2^-79 of the value. Everything is a pure function of this file and of
``cpu/tables.py`` (a test regenerates it).
"""

from __future__ import annotations

from collections.abc import Callable

from mpmath import mp, mpf  # type: ignore[import-untyped]

from repro_kernels.cpu import tables

_BITS = 78
"""The second step's polynomials are within 2^-78 of their functions, relatively."""

_PLAIN_BITS = 26
"""From the power on where the remaining terms are below 2^-26 of the value, coefficients are binary64."""


def wide_polynomials() -> dict[str, tuple[list[mpf], int]]:
    """Name -> (coefficients, lowest power first; how many of them are pairs)."""
    r = mp.log(2) / 2 * mpf("1.0001")
    s = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1) * mpf("1.0001")
    quarter = ((mp.pi / 4) * mpf("1.0001")) ** 2
    low_t = (mpf("0.9") - mpf("3.75")) / (mpf("0.9") + mpf("3.75"))
    high_t = (mpf("10.3") - mpf("3.75")) / (mpf("10.3") + mpf("3.75"))
    quotient = tables._quotient
    ranges: dict[str, tuple[Callable[[mpf], mpf], mpf, mpf]] = {
        "EXPM1": (lambda x: mpf(1) if x == 0 else mp.expm1(x) / x, -r, r),
        "LOG": (quotient(mp.atanh, mpf(1)), mpf(0), s * s),
        "SIN": (quotient(mp.sin, mpf(1)), mpf(0), quarter),
        "COS": (lambda z: mp.cos(mp.sqrt(z)), mpf(0), quarter),
        "ATAN": (quotient(mp.atan, mpf(1)), mpf(0), mpf("0.17158")),
        "ERF": (quotient(mp.erf, 2 / mp.sqrt(mp.pi)), mpf(0), mpf("1.0001")),
        "ERFC": (tables._scaled_erfc, low_t, high_t),
    }
    found = {}
    for name, (function, low, high) in ranges.items():
        coefficients = tables.chebyshev(function, low, high, _BITS)
        found[name] = coefficients, _pairs(coefficients, function, low, high)
    return found


def _pairs(coefficients: list[mpf], function: Callable[[mpf], mpf], low: mpf, high: mpf) -> int:
    """The first power from which on the terms' magnitudes add up to less than 2^-26 of any value."""
    reach = max(abs(low), abs(high))
    least = min(abs(function(low + (high - low) * i / 96)) for i in range(97))
    tail, power = mpf(0), len(coefficients)
    while (
        power and tail + abs(coefficients[power - 1]) * reach ** (power - 1) < least * mpf(2) ** -_PLAIN_BITS
    ):
        power -= 1
        tail += abs(coefficients[power]) * reach**power
    return power


def _pair(value: mpf) -> tuple[float, float]:
    high = float(value)
    return high, float(value - high)


def _constants() -> dict[str, float | tuple[float, ...]]:
    """Name -> a binary64 number or several whose sum is the constant."""
    ln2_high = tables.split_high(mp.log(2), 32)
    ln2_middle = tables.split_high(mp.log(2) - ln2_high, 40)
    log10_2_high = tables.split_high(mp.log10(2), 32)
    half_pi = mp.pi / 2
    p1 = tables.split_high(half_pi, 30)
    p2 = tables.split_high(half_pi - p1, 30)
    return {
        "LOG2_E": float(1 / mp.log(2)),
        "LN2": _pair(mp.log(2)),
        "LN2_PARTS": (float(ln2_high), float(ln2_middle), float(mp.log(2) - ln2_high - ln2_middle)),
        "LN2_LOW": float(mp.log(2) - ln2_high),
        "TWO_LOG2_E": float(2 / mp.log(2)),
        "LOG10_2": (float(log10_2_high), float(mp.log10(2) - log10_2_high)),
        "TWO_LOG10_E": float(2 / mp.log(10)),
        "INVERSE_LN2": _pair(1 / mp.log(2)),
        "INVERSE_LN10": _pair(1 / mp.log(10)),
        "TWO_OVER_PI": float(2 / mp.pi),
        "HALF_PI_PARTS": (float(p1), float(p2), float(half_pi - p1 - p2)),
        "PI": _pair(mp.pi),
        "HALF_PI": _pair(half_pi),
        "QUARTER_PI": _pair(mp.pi / 4),
    }


def _fixed(value: mpf, bits: int = 128) -> str:
    """floor(value * 2^bits), 0 <= value < 1, as its two 64-bit words, the high one first."""
    words = int(mp.floor(mp.ldexp(value, bits)))
    return f"({hex(words >> 64)}, {hex(words & (2**64 - 1))})"


def fixed_series() -> dict[str, list[str]]:
    """Name -> entries of the integer series of gpu/pow.py, lowest power first.

    LOG2: (2 / ln 2) / (2i + 1) / 4, whose first neglected term, i = 25, is below 2^-130 at z = 0.0295.
    EXP2: ln(2)^n / n! from n = 1; the first neglected term, n = 32, is below 2^-134. From n = 20 on,
    EXP2_TAIL: the low word, the high one being 0.
    """
    exp2 = [mp.log(2) ** n / mp.factorial(n) for n in range(1, 32)]
    return {
        "FIXED_LOG2": [_fixed(2 / mp.log(2) / (2 * i + 1) / 4) for i in range(25)],
        "FIXED_EXP2": [_fixed(c) for c in exp2[:19]],
        "FIXED_EXP2_TAIL": [hex(int(mp.floor(mp.ldexp(c, 128)))) for c in exp2[19:]],
    }


def _tuple(name: str, entries: list[str]) -> list[str]:
    return [f"{name} = tl.constexpr((", *(f"    {entry}," for entry in entries), "))"]


def module() -> str:
    """The text of gpu/elementary_tables.py."""
    with mp.workprec(700):
        lines = [
            '"""Generated by ``python -m repro_kernels.gpu.tables``; do not edit.',
            "",
            "Decimals are the shortest that read back as the same binary64. Polynomials: lowest power first;",
            "NAME_HEAD holds pairs high + low, NAME_TAIL the powers that follow.",
            '"""',
            "",
            "import triton.language as tl",
            "",
        ]
        for name, value in _constants().items():
            lines.append(f"{name} = tl.constexpr({value!r})")
        for name, coefficients in tables.polynomials().items():
            lines += ["", *_tuple(name.upper(), [repr(float(c)) for c in coefficients])]
        for name, (coefficients, pairs) in wide_polynomials().items():
            head = [repr(_pair(c)) for c in coefficients[:pairs]]
            lines += ["", *_tuple(f"{name}_HEAD", head)]
            lines += ["", *_tuple(f"{name}_TAIL", [repr(float(c)) for c in coefficients[pairs:]])]
        for name, entries in fixed_series().items():
            lines += ["", *_tuple(name, entries)]
        words = tables.TWO_OVER_PI_WORDS
        bits = int(mp.floor(mp.ldexp(2 / mp.pi, 64 * words)))
        digits = [hex((bits >> (64 * (words - 1 - i))) & (2**64 - 1)) for i in range(words)]
        lines += ["", *_tuple("TWO_OVER_PI_DIGITS", digits)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(module(), end="")
