"""The second steps of the elementary functions against MPFR, in Triton's interpreter, without the first ones.

    TRITON_INTERPRET=1 python -m tests.gpu.second_steps [NAME ...]

Prints the largest relative error of each, and exits with 1 if one is not below 2^-72 (pow: 2^-108).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import gmpy2
import numpy as np
import torch
import triton
import triton.language as tl
from repro_kernels.gpu import doubledouble, inverse_trigonometric, trigonometric
from repro_kernels.gpu.double import f64
from repro_kernels.gpu.pow import power_fixed

from tests.gpu import exact_interpreter

PRECISION = 300
PAIR_BITS, POWER_BITS = 72, 108
RANGES: dict[str, tuple[float, float]] = {
    "exp": (-110, 100), "exp2": (-160, 130), "expm1": (-40, 100), "log": (0, 1e30), "log2": (0, 1e30),
    "log10": (0, 1e30), "log1p": (-1, 1e30), "sin": (-1e4, 1e30), "cos": (-1e4, 1e30), "tan": (-1e4, 1e30),
    "asin": (0, 1), "acos": (-1, 1), "atan": (0, 1e30), "sinh": (0, 100), "cosh": (0, 100), "tanh": (0, 20),
    "erf": (0, 6), "erfc": (-6, 10.2), "rsqrt": (0, 1e30),
}  # fmt: skip
"""Name -> where its second step is needed; the functions that are odd take magnitudes."""


@triton.jit
def _pair(d, x, NAME: tl.constexpr):
    if NAME == "exp":
        return doubledouble.exp_pair(d, f64(0.0))
    elif NAME == "exp2":
        return doubledouble.exp2_pair(d)
    elif NAME == "expm1":
        return doubledouble.expm1_pair(d)
    elif NAME == "log":
        return doubledouble.log_pair(d, f64(0.0))
    elif NAME == "log2":
        return doubledouble.log2_pair(d)
    elif NAME == "log10":
        return doubledouble.log10_pair(d)
    elif NAME == "log1p":
        return doubledouble.log1p_pair(d)
    elif NAME == "sin":
        return trigonometric.sin_pair(x, 0)
    elif NAME == "cos":
        return trigonometric.sin_pair(x, 1)
    elif NAME == "tan":
        return trigonometric.tan_pair(x)
    elif NAME == "asin":
        return inverse_trigonometric.asin_pair(d)
    elif NAME == "acos":
        return inverse_trigonometric.acos_pair(d)
    elif NAME == "atan":
        return inverse_trigonometric.atan_pair(d, f64(0.0))
    elif NAME == "sinh":
        return doubledouble.sinh_pair(d)
    elif NAME == "cosh":
        return doubledouble.cosh_pair(d)
    elif NAME == "tanh":
        return doubledouble.tanh_pair(d)
    elif NAME == "erf":
        return doubledouble.erf_pair(d)
    elif NAME == "erfc":
        return doubledouble.erfc_pair(d)
    else:
        return doubledouble.rsqrt_pair(d)


@triton.jit
def _pairs(x, high, low, NAME: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    hi, lo = _pair(v.to(tl.float64), v, NAME)
    tl.store(high + i, hi)
    tl.store(low + i, lo)


@triton.jit
def _powers(x, y, exponent, high, low, BLOCK: tl.constexpr):  # noqa: PLR0917
    i = tl.arange(0, BLOCK)
    e, hh, hl = power_fixed(tl.load(x + i).to(tl.float64), tl.load(y + i).to(tl.float64))
    tl.store(exponent + i, e)
    tl.store(high + i, hh.to(tl.int64, bitcast=True))
    tl.store(low + i, hl.to(tl.int64, bitcast=True))


def arguments(name: str, count: int = 1024) -> torch.Tensor:
    """Binary32 arguments: over the range, of any magnitude in it, and about 1."""
    rng = np.random.default_rng(sorted(RANGES).index(name))
    low, high = RANGES[name]
    near = 1 + rng.uniform(-1, 1, 2 * count) * np.exp2(-rng.uniform(1, 22, 2 * count))
    some = np.concatenate([
        rng.uniform(low, min(high, 100), 4 * count),
        np.exp2(rng.uniform(-145, 100, 2 * count)) * rng.choice([-1, 1], 2 * count),
        rng.choice([-1, 1], 2 * count) * near,
        np.exp2(rng.uniform(-20, 5, 2 * count)) * rng.choice([-1, 1], 2 * count),
    ]).astype(np.float32)  # fmt: skip
    some = some[(some > low) & (some < high) & (some != 0)]
    return torch.from_numpy(rng.choice(some, count).astype(np.float32))


def error_bits(exact: gmpy2.mpfr, computed: Fraction) -> float:
    """log2 of the relative error."""
    error = abs(gmpy2.mpfr(gmpy2.mpq(computed.numerator, computed.denominator)) / exact - 1)
    return float(gmpy2.log2(error)) if error else -float("inf")


def real(name: str) -> Callable[[Any], Any]:
    """The real function, by MPFR."""
    return gmpy2.rec_sqrt if name == "rsqrt" else getattr(gmpy2, name)  # type: ignore[no-any-return]


def worst_pair(name: str) -> float:
    """log2 of the largest relative error of a pair."""
    x = arguments(name)
    high, low = (torch.empty(x.numel(), dtype=torch.float64) for _ in range(2))
    _pairs[(1,)](x, high, low, NAME=name, BLOCK=x.numel())
    function, worst = real(name), -float("inf")
    for argument, hi, lo in zip(x.tolist(), high.tolist(), low.tolist(), strict=True):
        exact = function(gmpy2.mpfr(argument))
        if exact and abs(exact) > gmpy2.exp2(-151):
            worst = max(worst, error_bits(exact, Fraction(hi) + Fraction(lo)))
    return worst


def worst_power(count: int = 512) -> float:
    """log2 of the largest relative error of the integer power."""
    rng = np.random.default_rng(9)
    base = np.exp2(np.concatenate([
        rng.uniform(-149, 127, count // 2),
        rng.choice([-1, 1], count // 2) * np.exp2(-rng.uniform(1, 22, count // 2)),
    ])).astype(np.float32)  # fmt: skip
    base[base == 1] = 2
    result = rng.choice([-1, 1], count) * np.exp2(rng.uniform(-20, 7, count))
    exponent = (result / np.log2(base.astype(np.float64))).astype(np.float32)
    x, y = torch.from_numpy(base), torch.from_numpy(exponent)
    e, high, low = (torch.empty(count, dtype=torch.int64) for _ in range(3))
    _powers[(1,)](x, y, e, high, low, BLOCK=count)
    worst = -float("inf")
    for a, b, i, hi, lo in zip(x.tolist(), y.tolist(), e.tolist(), high.tolist(), low.tolist(), strict=True):
        fraction = Fraction((hi % 2**64) << 64 | lo % 2**64, 2**128)
        worst = max(worst, error_bits(gmpy2.mpfr(a) ** gmpy2.mpfr(b), (1 + fraction) * Fraction(2) ** i))
    return worst


def main(names: list[str]) -> int:
    """Print the errors; 1 if one is too large."""
    exact_interpreter.apply()
    gmpy2.set_context(gmpy2.context(precision=PRECISION))
    failed = False
    for name in names or [*RANGES, "pow"]:
        worst, bits = (worst_power(), POWER_BITS) if name == "pow" else (worst_pair(name), PAIR_BITS)
        failed |= not worst < -bits
        print(f"{name}: 2^{worst:.1f}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
