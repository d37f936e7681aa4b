"""sinh, cosh, erf and erfc for kernels, from exponentials: the two steps of ``elementary_core.py``.

Cost in fp64 operations per element, beside two conversions and a quotient: sinh 20, cosh 17, erf and gelu 56.
"""

from __future__ import annotations

import triton
import triton.language as tl

from repro_kernels.gpu.double import (
    MARGIN,
    absolute,
    absolute32,
    any_of,
    clamp,
    horner,
    near_boundary,
    nearest,
    round_pair,
    undecided,
    with_sign,
)
from repro_kernels.gpu.doubledouble import cosh_pair, erf_pair, erfc_pair, sinh_pair
from repro_kernels.gpu.elementary_core import exp_core, expm1_core
from repro_kernels.gpu.elementary_tables import ERF, ERFC

# ---- hyperbolic functions ----


@triton.jit
def sinh_rn(x):
    """Hyperbolic sine."""
    a = clamp(absolute32(x), 200.0).to(tl.float64)
    m = expm1_core(a)
    v = 0.5 * (m + m / (m + 1.0))
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        hi, lo = sinh_pair(a)
        y = tl.where(hard, round_pair(hi, lo), y)
    return with_sign(y, x)


@triton.jit
def cosh_rn(x):
    """Hyperbolic cosine."""
    a = clamp(absolute32(x), 200.0).to(tl.float64)
    e = exp_core(a)
    v = 0.5 * (e + 1.0 / e)
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        hi, lo = cosh_pair(a)
        y = tl.where(hard, round_pair(hi, lo), y)
    return y


# ---- error function ----


@triton.jit
def _erfc_tail(a):
    """erfc(a), 0.9 <= a <= 10.3 (``rk_erfc_tail`` of csrc/elementary.h); a^2 is exact."""
    p, q = 1.0 + 2.0 * a, a + 3.75
    inverse = 1.0 / (p * q)
    return exp_core(a * a * -1.0) * horner((a - 3.75) * p * inverse, ERFC) * (q * inverse)


@triton.jit
def erf_rn(x):
    """Error function; it rounds to 1 from 3.92 on."""
    a = clamp(absolute32(x), 8.0).to(tl.float64)
    v = tl.where(a < 1.0, a * horner(a * a, ERF), 1.0 - _erfc_tail(a))
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        hi, lo = erf_pair(a)
        y = tl.where(hard, round_pair(hi, lo), y)
    return with_sign(y, x)


@triton.jit
def erfc_rn(x):
    """1 - erf(x): below the smallest midpoint from 10.06 on, and 2 from -3.84 down."""
    d = clamp(x, 10.25).to(tl.float64)
    a = absolute(d)
    v = tl.where(a < 1.0, 1.0 - a * horner(a * a, ERF), _erfc_tail(a))
    v = tl.where(d < 0.0, 2.0 - v, v)
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        hi, lo = erfc_pair(d)
        y = tl.where(hard, round_pair(hi, lo), y)
    return y
