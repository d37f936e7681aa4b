"""sin, cos and tan for kernels: the two steps of ``elementary_core.py``, on float32 blocks.

The first step reduces |x| <= 2^22 by pi/2 in three parts (``rk_reduce`` of csrc/elementary.h: the products
are exact). The second step takes larger arguments too: an exact integer product with the bits of 2/pi (Payne
and Hanek), then pairs. It is within 2^-72: arguments are pairs within 2^-92, polynomials within 2^-78.

Cost in fp64 operations per element, beside two conversions: sin and cos 22, tan 22 and a quotient.
"""

from __future__ import annotations

import triton
import triton.language as tl

from repro_kernels.gpu.double import (
    MARGIN,
    SHIFTER,
    absolute,
    any_of,
    bits64,
    double_of,
    f64,
    horner,
    near_boundary,
    nearest,
    round_pair,
    undecided,
)
from repro_kernels.gpu.doubledouble import (
    add_pairs,
    div_pairs,
    mul_pairs,
    polynomial,
    two_sum,
)
from repro_kernels.gpu.elementary_tables import (
    COS,
    COS_HEAD,
    COS_TAIL,
    HALF_PI,
    HALF_PI_PARTS,
    SIN,
    SIN_HEAD,
    SIN_TAIL,
    TWO_OVER_PI,
    TWO_OVER_PI_DIGITS,
)

LIMIT = tl.constexpr(4194304.0)
"""2^22. Up to here n < 2^22 in x = n pi/2 + r, and n times the first two parts of pi/2 is exact."""

POWERS = tl.constexpr((1.0, 2.0**-32, 2.0**-64, 2.0**-96, 2.0**-128))

# ---- reduction ----


@triton.jit
def _reduce(x):
    """n (its two's complement in the low bits of an int64) and r with x = n pi/2 + r, |x| <= LIMIT."""
    t = tl.fma(x, f64(TWO_OVER_PI.value), f64(SHIFTER.value))
    n = t - f64(SHIFTER.value)
    r = tl.fma(n, f64(-HALF_PI_PARTS.value[0]), x)
    r = tl.fma(n, f64(-HALF_PI_PARTS.value[1]), r)
    return bits64(t), tl.fma(n, f64(-HALF_PI_PARTS.value[2]), r)


@triton.jit
def _digit(word, FIRST: tl.constexpr):
    """Digit FIRST + word of 2/pi, 64 bits each, digit 0 being the integer part; word = 0, 1, 2."""
    d0 = tl.full([], TWO_OVER_PI_DIGITS.value[FIRST - 1] if FIRST > 0 else 0, tl.uint64)
    d1 = tl.full([], TWO_OVER_PI_DIGITS.value[FIRST], tl.uint64)
    d2 = tl.full([], TWO_OVER_PI_DIGITS.value[FIRST + 1], tl.uint64)
    return tl.where(word == 0, d0, tl.where(word == 1, d1, d2))


@triton.jit
def _aligned(high, low, shift):
    """The 64 bits that start `shift` bits, below 64, into the 128 of high and low."""
    return (high << shift) | ((low >> 1) >> (63 - shift))


@triton.jit
def _reduce_wide(x):
    """n and the pair r with x = n pi/2 + r, any finite binary32 x.

    Of the bits of 2/pi, those that contribute multiples of 4 to x * 2/pi are skipped and the next 192 used:
    of a fraction that is at least 2^-34 for every binary32, less than 2^-126 is lost. Below 1/2, r is x.
    """
    bits = x.to(tl.int32, bitcast=True)
    exponent = (bits >> 23) & 0xFF
    m = ((bits & 0x7FFFFF) | 0x800000).to(tl.uint64)
    first = tl.maximum(exponent - 88, 0)  # |x| = m * 2^(first - 62)
    word, shift = first >> 6, (first & 63).to(tl.uint64)
    d0, d1, d2, d3 = _digit(word, 0), _digit(word, 1), _digit(word, 2), _digit(word, 3)
    a0, a1, a2 = _aligned(d0, d1, shift), _aligned(d1, d2, shift), _aligned(d2, d3, shift)
    # the product's words p0 p1 p2, modulo 2^192, are x * 2/pi modulo 4: two bits of quadrant, then a fraction
    p2 = a2 * m
    low = a1 * m
    p1 = low + tl.umulhi(a2, m)
    p0 = a0 * m + tl.umulhi(a1, m) + (p1 < low).to(tl.uint64)
    high, low = (p0 << 2) | (p1 >> 62), (p1 << 2) | (p2 >> 62)
    # taken as lying in [-1/2, 1/2)
    above = (high >> 63) != 0
    n = (p0 >> 62).to(tl.int64) + above.to(tl.int64)
    ones = tl.full([], 0xFFFFFFFFFFFFFFFF, tl.uint64)
    high = tl.where(above, (high ^ ones) + (low == 0).to(tl.uint64), high)
    low = tl.where(above, (low ^ ones) + 1, low)
    sh, sl = two_sum(_part(high >> 32, 1), _part(high & 0xFFFFFFFF, 2))
    th, t2 = two_sum(_part(low >> 32, 3), _part(low & 0xFFFFFFFF, 4))
    sh, sl = add_pairs(sh, sl, th, t2)
    sh, sl = mul_pairs(sh, sl, f64(HALF_PI.value[0]), f64(HALF_PI.value[1]))
    negative = bits < 0
    sign = tl.where(above != negative, f64(-1.0), f64(1.0))
    small = exponent < 126
    n = tl.where(small, 0, tl.where(negative, -n, n))
    return n, tl.where(small, x.to(tl.float64), sign * sh), tl.where(small, f64(0.0), sign * sl)


@triton.jit
def _part(word, PLACE: tl.constexpr):
    """A 32-bit number in an unsigned 64-bit one, times 2^(-32 PLACE)."""
    return word.to(tl.int64).to(tl.float64) * f64(POWERS.value[PLACE])


# ---- sine, cosine, tangent ----


@triton.jit
def _sin_of(n, r):
    """sin(n pi/2 + r)."""
    z = r * r
    odd = (n & 1) != 0
    return double_of(bits64(tl.where(odd, horner(z, COS), r * horner(z, SIN))) ^ ((n & 2) << 62))


@triton.jit
def _sin_cos_pairs(rh, rl):
    """The pairs sin(r), cos(r), |r| <= pi/4."""
    zh, zl = mul_pairs(rh, rl, rh, rl)
    sh, sl = polynomial(zh, zl, SIN_HEAD, SIN_TAIL)
    sh, sl = mul_pairs(sh, sl, rh, rl)
    ch, cl = polynomial(zh, zl, COS_HEAD, COS_TAIL)
    return sh, sl, ch, cl


@triton.jit
def sin_pair(x, QUARTERS: tl.constexpr):
    """sin(x + QUARTERS pi/2), any finite binary32 x."""
    n, rh, rl = _reduce_wide(x)
    n = n + QUARTERS
    sh, sl, ch, cl = _sin_cos_pairs(rh, rl)
    odd = (n & 1) != 0
    sign = tl.where((n & 2) != 0, f64(-1.0), f64(1.0))
    return sign * tl.where(odd, ch, sh), sign * tl.where(odd, cl, sl)


@triton.jit
def _shifted_sine(x, QUARTERS: tl.constexpr):
    d = x.to(tl.float64)
    n, r = _reduce(d)
    v = _sin_of(n + QUARTERS, r)
    v = tl.where(absolute(d) == f64(float("inf")), d - d, v)  # NaN
    y, large = nearest(v, x), _large(d)
    if any_of(near_boundary(v, MARGIN) | large):
        hard = undecided(v, MARGIN) | large
        hi, lo = sin_pair(x, QUARTERS)
        y = tl.where(hard, round_pair(hi, lo), y)
    return y


@triton.jit
def _large(d):
    """Whether the first step's reduction does not reach: finite |d| > LIMIT."""
    a = absolute(d)
    return (a > f64(LIMIT.value)) & (a < f64(float("inf")))


@triton.jit
def sin_rn(x):
    """Sine of x radians, x taken exactly however large."""
    y = _shifted_sine(x, 0)
    return tl.where(x == 0.0, x, y)


@triton.jit
def cos_rn(x):
    """Cosine of x radians."""
    return _shifted_sine(x, 1)


@triton.jit
def tan_pair(x):
    """tan(x), any finite binary32 x."""
    n, rh, rl = _reduce_wide(x)
    sh, sl, ch, cl = _sin_cos_pairs(rh, rl)
    odd = (n & 1) != 0
    nh, nl = tl.where(odd, ch, sh), tl.where(odd, cl, sl)
    dh, dl = tl.where(odd, sh * -1.0, ch), tl.where(odd, sl * -1.0, cl)
    return div_pairs(nh, nl, dh, dl)


@triton.jit
def tan_rn(x):
    """Tangent of x radians."""
    d = x.to(tl.float64)
    n, r = _reduce(d)
    z = r * r
    s, c = r * horner(z, SIN), horner(z, COS)
    odd = (n & 1) != 0
    v = tl.where(odd, c, s) / tl.where(odd, s * -1.0, c)
    v = tl.where(absolute(d) == f64(float("inf")), d - d, v)  # NaN
    y, large = nearest(v, x), _large(d)
    if any_of(near_boundary(v, MARGIN) | large):
        hard = undecided(v, MARGIN) | large
        hi, lo = tan_pair(x)
        y = tl.where(hard, round_pair(hi, lo), y)
    return tl.where(x == 0.0, x, y)
