"""Correctly rounded binary32 powers for kernels: ``pow_rn(x, y)`` on float32 blocks.

The first step is ``rk_pow_core`` of csrc/elementary.h: exp2(y log2|x|) in binary64, accepted if every number
within 2^-41 of it rounds alike. The second step, for blocks with a lane that is left open, works in 128-bit
integers: 2^t with t = y log2|x| within 2^-110, so the power is within 2^-110, relatively. (Of 2^64 pairs the
hardest are expected near 2^-89 of a rounding boundary.) Powers on a boundary are found exactly, first.

Error of the second step, in its order: the quotient s is truncated at 2^-128, and scaled so that it is at
least 1/4; a product drops less than 3 units of 2^-128; the series of log2 adds 13 products whose errors
shrink with z < 0.03, so that its value, at least 2.88 / 4, is within 2^-124; log2|x|, at least 0.5 or kept in
a scale of its own, is within 2^-118; t, below 2^7.3, within 2^-110; 2^t adds 19 products, within 2^-122.
"""

from __future__ import annotations

import triton
import triton.language as tl

from repro_kernels.gpu.double import (
    SHIFTER,
    absolute,
    any_of,
    bits64,
    double_of,
    f64,
    is_nan,
    near_boundary,
    nearest,
    undecided,
    with_sign,
)
from repro_kernels.gpu.elementary_core import exp2_core, log2_core
from repro_kernels.gpu.elementary_tables import FIXED_EXP2, FIXED_EXP2_TAIL, FIXED_LOG2

MARGIN_POW = tl.constexpr(41)
"""The first step's relative margin: log2 is within 2^-51, times 151."""

# ---- 128-bit fractions: pairs of unsigned 64-bit words, the high one first ----


@triton.jit
def u64(value: tl.constexpr):
    """An unsigned 64-bit scalar."""
    return tl.full([], value, tl.uint64)


@triton.jit
def _add(ah, al, bh, bl):
    low = al + bl
    return ah + bh + (low < al).to(tl.uint64), low


@triton.jit
def _negate(ah, al):
    ones = u64(0xFFFFFFFFFFFFFFFF)
    return _add(ah ^ ones, al ^ ones, u64(0), u64(1))


@triton.jit
def _mul(ah, al, bh, bl):
    """The high 128 bits of a product, less at most 3."""
    high, low = _add(tl.umulhi(ah, bh), ah * bh, u64(0), tl.umulhi(ah, bl))
    return _add(high, low, u64(0), tl.umulhi(al, bh))


@triton.jit
def _shift_right(ah, al, n):
    """By 1 .. 63 bits."""
    return ah >> n, (ah << (64 - n)) | (al >> n)


@triton.jit
def _series(xh, xl, th, t2, COEFFICIENTS: tl.constexpr, COUNT: tl.constexpr):
    """c_0 + x (c_1 + ... x (c_(COUNT-1) + x t))."""
    for i in tl.static_range(COUNT - 1, -1, -1):
        th, t2 = _mul(th, t2, xh, xl)
        th, t2 = _add(th, t2, u64(COEFFICIENTS.value[i][0]), u64(COEFFICIENTS.value[i][1]))
    return th, t2


# ---- the two halves of the second step ----


@triton.jit
def _log2_fixed(a):
    """log2 of finite a > 0, binary64 values of binary32 numbers.

    Returns:
        (high, low, exponent, negative): the magnitude as a 128-bit integer times 2^-exponent, and its sign.
    """
    # a = 2^k M / 2^23, or M / 2^24 if that is at least sqrt(1/2): s = (m - 1) / (m + 1) is num / den
    bits = bits64(a)
    k = (bits - 0x3FE6A09E667F3BCD) >> 52
    whole = ((bits & 0xFFFFFFFFFFFFF) | 0x10000000000000) >> 29
    one = tl.where((bits >> 52) - 1023 == k, 0x800000, 0x1000000).to(tl.int64)
    below = whole < one
    num, den = tl.where(below, one - whole, whole - one), whole + one
    # num 2^j has 24 bits, j = 1 .. 23; s 2^j by long division, 32 bits at a time
    j = 23 - ((bits64(tl.maximum(num, 1).to(tl.float64)) >> 52) - 1023)
    divisor = den.to(tl.uint64)
    rest = num.to(tl.uint64) << j.to(tl.uint64)
    sh, sl = u64(0), u64(0)
    for _i in tl.static_range(4):
        rest = rest << 32
        digit = rest // divisor
        rest = rest - digit * divisor
        sh, sl = (sh << 32) | (sl >> 32), (sl << 32) | digit
    # z = s^2, scaled back
    zh, zl = _mul(sh, sl, sh, sl)
    zh, zl = _shift_right(zh, zl, (2 * j).to(tl.uint64))
    th = u64(FIXED_LOG2.value[24][0])
    for i in tl.static_range(23, 12, -1):
        th = tl.umulhi(th, zh) + u64(FIXED_LOG2.value[i][0])
    wh, wl = _series(zh, zl, th, u64(0), FIXED_LOG2, 13)
    wh, wl = _mul(wh, wl, sh, sl)  # |log2 m| 2^(126 + j)
    # k != 0: |k| 2^118 +- |log2 m| 2^118
    magnitude = tl.where(k < 0, -k, k)
    fh, fl = _shift_right(wh, wl, (8 + j).to(tl.uint64))
    nh, nl = _negate(fh, fl)
    same = below == (k < 0)
    fh, fl = tl.where(same, fh, nh), tl.where(same, fl, nl)
    kh, kl = _add(magnitude.to(tl.uint64) << 54, u64(0), fh, fl)
    near = k == 0
    high, low = tl.where(near, wh, kh), tl.where(near, wl, kl)
    return high, low, tl.where(near, 126 + j, 118), tl.where(near, below, k < 0)


@triton.jit
def _exp2_fixed(high, low):
    """i and h (two words) with 2^t = 2^i (1 + h), t a two's complement 128-bit integer times 2^-118."""
    i = high.to(tl.int64, bitcast=True) >> 54
    gh, gl = (high << 10) | (low >> 54), low << 10
    t = u64(FIXED_EXP2_TAIL.value[11])
    for n in tl.static_range(10, -1, -1):
        t = tl.umulhi(t, gh) + u64(FIXED_EXP2_TAIL.value[n])
    hh, hl = _series(gh, gl, u64(0), t, FIXED_EXP2, 19)
    hh, hl = _mul(hh, hl, gh, gl)
    return i, hh, hl


@triton.jit
def power_fixed(a, y):
    """i and h (two words) with a^y = 2^i (1 + h).

    Both are binary64 values of binary32 numbers, a > 0, y != 0, 2^-25 < |y log2 a| < 2^8. h is 0 if a^y is a
    power of two.
    """
    high, low, exponent, negative = _log2_fixed(a)
    bits = bits64(y)
    n = (((bits & 0xFFFFFFFFFFFFF) | 0x10000000000000) >> 29).to(tl.uint64)  # |y| = n 2^f, 24 bits
    f = ((bits >> 52) & 0x7FF) - 1046
    p0 = low * n
    p2, p1 = _add(tl.umulhi(high, n), high * n, u64(0), tl.umulhi(low, n))
    # the product's 152 bits to a scale of 2^-118; a shift of 14 .. 60 for lanes that matter
    shift = tl.minimum(tl.maximum(exponent - f - 118, 1), 63).to(tl.uint64)
    th, t2 = (p2 << (64 - shift)) | (p1 >> shift), (p1 << (64 - shift)) | (p0 >> shift)
    nh, nl = _negate(th, t2)
    minus = negative != (y < 0.0)
    return _exp2_fixed(tl.where(minus, nh, th), tl.where(minus, nl, t2))


@triton.jit
def _round_fixed(i, hh, hl):
    """RN of 2^i (1 + h): 52 bits of h, the last one set if any other is, are a binary64 that rounds alike."""
    odd = (((hh & 0xFFF) | hl) != 0).to(tl.int64)
    return double_of(((i + 1023) << 52) + ((hh >> 12).to(tl.int64) | odd)).to(tl.float32)


# ---- powers on a rounding boundary ----


@triton.jit
def _exact(a, y):
    """Whether a^y has at most 25 bits, and its value; for a no power of two.

    a = m 2^e, m odd: that takes y = n / 2^f > 0, m a perfect 2^f-th power and e a multiple of 2^f. As
    m < 2^24, f <= 3; as m >= 3, the root's exponent is at most 15. (A power of two needs no such test: its
    logarithm is exact.)
    """
    bits = bits64(a)
    fraction = (bits & 0xFFFFFFFFFFFFF) | 0x10000000000000
    lowest = fraction & (-fraction)
    zeros = (bits64(lowest.to(tl.float64)) >> 52) - 1023
    m = (fraction >> zeros).to(tl.float64)
    e = ((bits >> 52) & 0x7FF) - 1075 + zeros
    for _i in tl.static_range(3):
        half = y != tl.math.floor(y)
        root = tl.math.floor(tl.sqrt(m))
        fits = half & (root * root == m) & ((e & 1) == 0)
        m, e, y = tl.where(fits, root, m), tl.where(fits, e >> 1, e), tl.where(fits, y + y, y)
    whole = (y == tl.math.floor(y)) & (y > 0.0) & (y < 16.0)
    power = tl.where(whole, y, 0.0).to(tl.int32)
    product = tl.full([], 1.0, tl.float64)
    for i in tl.static_range(15):
        product = tl.where(i < power, product * m, product)
    exponent = tl.minimum(tl.maximum(e * power, -400), 400)
    value = product * double_of((exponent + 1023) << 52)
    return whole & (product < 33554432.0) & (m > 1.0), value


# ---- pow ----


@triton.jit
def pow_rn(x, y):
    """x^y for any two float32 numbers, special values as C Annex F."""
    d, e = x.to(tl.float64), y.to(tl.float64)
    a, length = absolute(d), absolute(e)
    infinity = f64(float("inf"))
    t = e * log2_core(a)
    t = tl.where(t > 400.0, f64(400.0), t)
    v = exp2_core(tl.where(t < -400.0, f64(-400.0), t))
    ordinary = (a > 0.0) & (a < infinity) & (length > 0.0) & (length < infinity)
    z, near = nearest(v, x), near_boundary(v, MARGIN_POW) & ordinary
    if any_of(near):
        hard = undecided(v, MARGIN_POW) & near
        exact, value = _exact(a, e)
        i, hh, hl = power_fixed(a, e)
        z = tl.where(hard, tl.where(exact, value.to(tl.float32), _round_fixed(i, hh, hl)), z)
    zero, inf32 = tl.full([], 0.0, tl.float32), tl.full([], float("inf"), tl.float32)
    one = tl.full([], 1.0, tl.float32)
    # an infinite exponent; then a base of 0 or infinity
    z = tl.where(length == infinity, tl.where((a > 1.0) == (e > 0.0), inf32, zero), z)
    z = tl.where((length == infinity) & (a == 1.0), one, z)
    z = tl.where((a == 0.0) | (a == infinity), tl.where((a == 0.0) == (e > 0.0), zero, inf32), z)
    # the sign of (-1)^y; from 2^24 on every binary32 is even
    c = tl.where(length > 16777216.0, f64(16777216.0), length)
    t = c + f64(SHIFTER.value)
    fractional = t - f64(SHIFTER.value) != c
    odd = (t - f64(SHIFTER.value) == c) & ((bits64(t) & 1) != 0)
    z = tl.where(odd, with_sign(z, x), z)
    nan = tl.full([], 0x7FC00000, tl.int32).to(tl.float32, bitcast=True)
    z = tl.where((d < 0.0) & (a < infinity) & fractional, nan, z)
    z = tl.where(is_nan(d) | is_nan(e), nan, z)
    return tl.where((e == 0.0) | (d == 1.0), one, z)
