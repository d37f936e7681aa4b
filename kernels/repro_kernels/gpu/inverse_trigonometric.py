"""asin, acos and atan for kernels: the two steps of ``elementary_core.py``, on float32 blocks.

The second steps end in one arc tangent of a pair, within 2^-72: its argument is within 2^-98, its polynomial
within 2^-78.

Cost in fp64 operations per element, beside two conversions: atan 15 and a quotient; asin and acos 18 and a
root.
"""

from __future__ import annotations

import triton
import triton.language as tl

from repro_kernels.gpu.double import (
    MARGIN,
    absolute,
    any_of,
    f64,
    horner,
    near_boundary,
    nearest,
    round_pair,
    undecided,
    with_sign,
)
from repro_kernels.gpu.doubledouble import add_pairs, div_pairs, mul_pairs, polynomial, sqrt_pair, two_sum
from repro_kernels.gpu.elementary_tables import ASIN, ATAN, ATAN_HEAD, ATAN_TAIL, HALF_PI, PI, QUARTER_PI


@triton.jit
def atan_pair(th, t2):
    """atan(t), t >= 0: base + atan((t - b) / (1 + t b)) with b = 0, 1, infinity."""
    high, middle = th > f64(2.414213562373095), th > f64(0.41421356237309503)
    mh, ml = add_pairs(th, t2, f64(-1.0), f64(0.0))
    ph, pl = add_pairs(th, t2, f64(1.0), f64(0.0))
    nh = tl.where(high, f64(-1.0), tl.where(middle, mh, th))
    nl = tl.where(high, f64(0.0), tl.where(middle, ml, t2))
    dh = tl.where(high, th, tl.where(middle, ph, f64(1.0)))
    dl = tl.where(high, t2, tl.where(middle, pl, f64(0.0)))
    sh, sl = div_pairs(nh, nl, dh, dl)
    zh, zl = mul_pairs(sh, sl, sh, sl)
    ph, pl = polynomial(zh, zl, ATAN_HEAD, ATAN_TAIL)
    ph, pl = mul_pairs(ph, pl, sh, sl)
    bh = tl.where(high, f64(HALF_PI.value[0]), tl.where(middle, f64(QUARTER_PI.value[0]), f64(0.0)))
    bl = tl.where(high, f64(HALF_PI.value[1]), tl.where(middle, f64(QUARTER_PI.value[1]), f64(0.0)))
    return add_pairs(bh, bl, ph, pl)


@triton.jit
def atan_rn(x):
    """Inverse tangent."""
    d = x.to(tl.float64)
    a = absolute(d)
    high, middle = a > f64(2.414213562373095), a > f64(0.41421356237309503)
    numerator = tl.where(high, f64(-1.0), tl.where(middle, a - 1.0, a))
    s = numerator / tl.where(high, a, tl.where(middle, a + 1.0, f64(1.0)))
    base = tl.where(high, f64(HALF_PI.value[0]), tl.where(middle, f64(QUARTER_PI.value[0]), f64(0.0)))
    v = base + s * horner(s * s, ATAN)
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        hi, lo = atan_pair(a, f64(0.0))
        y = tl.where(hard, round_pair(hi, lo), y)
    return with_sign(y, x)


@triton.jit
def asin_pair(a):
    """asin(a) = atan(a / sqrt(1 - a^2)), 0 <= a < 1; a^2 is exact."""
    ch, cl = two_sum(f64(1.0), a * a * -1.0)
    ch, cl = sqrt_pair(ch, cl)
    th, t2 = div_pairs(a, f64(0.0), ch, cl)
    return atan_pair(th, t2)


@triton.jit
def asin_rn(x):
    """Inverse sine: pi/2 - 2 asin(sqrt((1 - a) / 2)) above 1/2."""
    d = x.to(tl.float64)
    a = absolute(d)
    h = 0.5 * (1.0 - a)
    high = a > 0.5
    v = tl.where(high, tl.sqrt(h), a) * horner(tl.where(high, h, a * a), ASIN)
    v = tl.where(high, f64(HALF_PI.value[0]) - 2.0 * v, v)
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        hi, lo = asin_pair(a)
        y = tl.where(hard, round_pair(hi, lo), y)
    return with_sign(y, x)


@triton.jit
def acos_pair(x):
    """acos(x) = 2 atan(sqrt((1 - x) / (1 + x))), |x| < 1."""
    nh, nl = two_sum(f64(1.0), x * -1.0)
    dh, dl = two_sum(f64(1.0), x)
    qh, ql = div_pairs(nh, nl, dh, dl)
    qh, ql = sqrt_pair(qh, ql)
    hi, lo = atan_pair(qh, ql)
    return hi + hi, lo + lo


@triton.jit
def acos_rn(x):
    """Inverse cosine."""
    d = x.to(tl.float64)
    a = absolute(d)
    h = 0.5 * (1.0 - a)
    high = a > 0.5
    v = tl.where(high, tl.sqrt(h), d) * horner(tl.where(high, h, a * a), ASIN)
    folded = tl.where(d < 0.0, f64(PI.value[0]) - 2.0 * v, 2.0 * v)
    v = tl.where(high, folded, f64(HALF_PI.value[0]) - v)
    y, near = nearest(v, x), near_boundary(v, MARGIN)
    if any_of(near):
        hard = undecided(v, MARGIN)
        hi, lo = acos_pair(d)
        y = tl.where(hard, round_pair(hi, lo), y)
    return y
