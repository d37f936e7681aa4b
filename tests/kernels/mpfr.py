"""Correctly rounded binary32 results from MPFR (gmpy2): independent of the spec, which uses mpmath."""

from __future__ import annotations

from collections.abc import Iterable

import gmpy2
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bits = npt.NDArray[np.uint32]

# MPFR's exponents are those of a fraction in [1/2, 1).
BINARY32 = gmpy2.context(precision=24, emin=-148, emax=128, subnormalize=True)


def function(name: str, x: Floats) -> Floats:
    """The function of each element; the sign of an infinite rsqrt(-0) is C's, not MPFR's."""
    gmpy2.set_context(BINARY32)
    if name == "reciprocal":
        return _collect(1 / gmpy2.mpfr(v) for v in x.tolist())
    if name == "rsqrt":
        return _collect(gmpy2.rec_sqrt(gmpy2.mpfr(v)) if v else 1 / gmpy2.mpfr(v) for v in x.tolist())
    real = getattr(gmpy2, name)
    return _collect(real(gmpy2.mpfr(v)) for v in x.tolist())


def power(x: Floats, y: Floats) -> Floats:
    """x^y of each pair."""
    gmpy2.set_context(BINARY32)
    return _collect(gmpy2.mpfr(a) ** gmpy2.mpfr(b) for a, b in zip(x.tolist(), y.tolist(), strict=True))


def bits(x: Floats) -> Bits:
    """Bit patterns, NaN canonical."""
    return np.where(np.isnan(x), np.uint32(0x7FC00000), x.view(np.uint32))


def of_bits(patterns: Iterable[int]) -> Floats:
    """The numbers that bit patterns stand for."""
    return np.array(list(patterns), np.uint32).view(np.float32)


def _collect(values: Iterable[gmpy2.mpfr]) -> Floats:
    return np.array([float(v) for v in values], np.float32)
