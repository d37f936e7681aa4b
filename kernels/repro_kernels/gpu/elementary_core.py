"""Correctly rounded binary32 functions for kernels: ``exp_rn(x)`` and so on, of float32 blocks or scalars.

The first step is the binary64 one of ``cpu/csrc/elementary.h``: a branch-free core with a relative error
below 2^-48, accepted if every number within 2^-44 of it rounds alike. About one argument in 2^19 is left
open; a program in which any lane is open takes the second step (``doubledouble.py``) for the whole block.
Both steps round the real function's value, so the bits depend on neither the step nor on what else is in the
block. Special values are chosen branch-free in the core. NaN results are 0x7fc00000.

Cost in fp64 operations per element, beside two conversions: exp 15, sigmoid and silu too; expm1 17; log 14
and a quotient; tanh and gelu_tanh 19 and a quotient; rsqrt 11, a root and a quotient. At half the fp32 rate
(A100, H100, H200) that leaves exp, sigmoid and silu of float32 tensors to the memory's speed; at 1/64 of it
(consumer GPUs) nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl

from repro_kernels.gpu.double import (
    MARGIN,
    SHIFTER,
    absolute32,
    any_of,
    clamp,
    double_of,
    f64,
    horner,
    near_boundary,
    nearest,
    round_pair,
    scale,
    split,
    undecided,
    with_sign,
)
from repro_kernels.gpu.doubledouble import (
    exp2_pair,
    exp_pair,
    expm1_pair,
    log1p_pair,
    log2_pair,
    log10_pair,
    log_pair,
    rsqrt_pair,
    tanh_pair,
)
from repro_kernels.gpu.elementary_tables import (
    EXPM1,
    LN2,
    LN2_LOW,
    LN2_PARTS,
    LOG,
    LOG2_E,
    LOG10_2,
    TWO_LOG2_E,
    TWO_LOG10_E,
)
from repro_kernels.gpu.language import canonical

INFINITY = tl.constexpr(float("inf"))
NAN_BITS = tl.constexpr(0x7FF8000000000000)  # not a NaN: Triton compares constants with themselves

# ---- exponentials ----


@triton.jit
def exp_core(x):
    """exp in binary64, |x| <= 200."""
    t = tl.fma(x, f64(LOG2_E.value), f64(SHIFTER.value))
    k = t - f64(SHIFTER.value)
    r = tl.fma(k, f64(-LN2_PARTS.value[0]), x)
    r = tl.fma(k, f64(-LN2_LOW.value), r)
    return scale(tl.fma(r, horner(r, EXPM1), f64(1.0)), t)


@triton.jit
def exp_rn(x):
    """e^x."""
    d = clamp(x, 200.0).to(tl.float64)  # where it over- or underflows
    v = exp_core(d)
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        if any_of(hard):  # often not, if results are subnormal
            hi, lo = exp_pair(d, f64(0.0))
            y = tl.where(hard, round_pair(hi, lo), y)
    return y


@triton.jit
def exp2_core(x):
    """2^x in binary64, |x| <= 400."""
    t = x + f64(SHIFTER.value)
    r = (x - (t - f64(SHIFTER.value))) * f64(LN2.value[0])
    return scale(tl.fma(r, horner(r, EXPM1), f64(1.0)), t)


@triton.jit
def exp2_rn(x):
    """2^x."""
    d = clamp(x, 400.0).to(tl.float64)
    v = exp2_core(d)
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        hi, lo = exp2_pair(d)
        y = tl.where(hard, round_pair(hi, lo), y)
    return y


@triton.jit
def expm1_core(x):
    """exp(x) - 1 in binary64, |x| <= 200: 2^k expm1(r) + (2^k - 1); no cancellation below 1/4."""
    t = tl.fma(x, f64(LOG2_E.value), f64(SHIFTER.value))
    k = t - f64(SHIFTER.value)
    r = tl.fma(k, f64(-LN2_PARTS.value[0]), x)
    r = tl.fma(k, f64(-LN2_LOW.value), r)
    power = scale(f64(1.0), t)
    return tl.fma(power, r * horner(r, EXPM1), power - 1.0)


@triton.jit
def expm1_rn(x):
    """e^x - 1."""
    d = clamp(x, 200.0).to(tl.float64)
    v = expm1_core(d)
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        hi, lo = expm1_pair(d)
        y = tl.where(hard, round_pair(hi, lo), y)
    return tl.where(x == 0.0, x, y)


@triton.jit
def tanh_rn(x):
    """Hyperbolic tangent."""
    a = clamp(absolute32(x), 100.0).to(tl.float64)
    m = expm1_core(a + a)
    v = m / (m + 2.0)
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        hi, lo = tanh_pair(a)
        y = tl.where(hard, round_pair(hi, lo), y)
    return with_sign(y, x)


# ---- logarithms ----


@triton.jit
def _log_specials(u, y):
    """y where 0 < u < infinity; else what a logarithm is at u."""
    y = tl.where(u == 0.0, f64(-INFINITY.value), y)
    y = tl.where(u >= 0.0, y, double_of(tl.full([], NAN_BITS.value, tl.int64)))
    return tl.where(u == f64(INFINITY.value), u, y)


@triton.jit
def log_rn(x):
    """Natural logarithm."""
    d = x.to(tl.float64)
    k, m = split(d)
    s = (m - 1.0) / (m + 1.0)
    y = tl.fma(k, f64(LN2_LOW.value), 2.0 * s * horner(s * s, LOG))
    v = _log_specials(d, tl.fma(k, f64(LN2_PARTS.value[0]), y))
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        hi, lo = log_pair(d, f64(0.0))
        y = tl.where(hard, round_pair(hi, lo), y)
    return y


@triton.jit
def log2_core(x):
    """Logarithm to base 2 in binary64 for 0 < x < infinity."""
    k, m = split(x)
    s = (m - 1.0) / (m + 1.0)
    return k + f64(TWO_LOG2_E.value) * s * horner(s * s, LOG)


@triton.jit
def log2_rn(x):
    """Logarithm to base 2."""
    d = x.to(tl.float64)
    v = _log_specials(d, log2_core(d))
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        hi, lo = log2_pair(d)
        y = tl.where(hard, round_pair(hi, lo), y)
    return y


@triton.jit
def log10_rn(x):
    """Logarithm to base 10."""
    d = x.to(tl.float64)
    k, m = split(d)
    s = (m - 1.0) / (m + 1.0)
    y = f64(TWO_LOG10_E.value) * s * horner(s * s, LOG)
    y = tl.fma(k, f64(LOG10_2.value[0]), tl.fma(k, f64(LOG10_2.value[1]), y))
    v = _log_specials(d, y)
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        hi, lo = log10_pair(d)
        y = tl.where(hard, round_pair(hi, lo), y)
    return y


@triton.jit
def log1p_rn(x):
    """log(1 + x); where 1 + x needs no scaling, x itself, not the rounded sum, gives m - 1."""
    d = x.to(tl.float64)
    u = 1.0 + d
    k, m = split(u)
    f = tl.where(k == 0.0, d, m - 1.0)
    s = f / (2.0 + f)
    y = tl.fma(k, f64(LN2_LOW.value), 2.0 * s * horner(s * s, LOG))
    v = _log_specials(u, tl.fma(k, f64(LN2_PARTS.value[0]), y))
    v = tl.where(d == 0.0, d, v)
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        hi, lo = log1p_pair(d)
        y = tl.where(hard, round_pair(hi, lo), y)
    return y


# ---- roots ----


@triton.jit
def sqrt_rn(x):
    """Square root."""
    return canonical(tl.sqrt_rn(x))


@triton.jit
def reciprocal_rn(x):
    """1 / x."""
    return canonical(tl.div_rn(1.0, x))


@triton.jit
def rsqrt_rn(x):
    """1 / sqrt(x). The pair costs few operations more than the binary64 value, so it is the only step."""
    d = x.to(tl.float64)
    hi, lo = rsqrt_pair(d)
    y = tl.where((d > 0.0) & (d < f64(INFINITY.value)), round_pair(hi, lo), (1.0 / tl.sqrt(d)).to(tl.float32))
    return canonical(y)
