"""The elementary functions' second step: pairs of binary64, relative error below 2^-72.

Only what the first step's rounding test leaves open comes here. Of all 2^32 arguments no value of a function
lies within 2^-62 of a rounding boundary without being on it (``tests/kernels/prove_elementary.py`` prints the
nearest), so a pair within 2^-72 rounds correctly (:func:`repro_kernels.gpu.double.round_pair`). A value on a
boundary, exp2(-150), comes out exactly.

A pair (high, low) stands for high + low, |low| at most half a unit of high. Operations and their errors are
those of Joldes, Muller and Popescu, "Tight and rigorous error bounds for basic building blocks of double-word
arithmetic" (ACM TOMS 44, 2017): products within 5 * 2^-106, sums of numbers of one sign within 3 * 2^-106,
quotients within 10 * 2^-106, here with one more term dropped where noted. Polynomials are within 2^-78
(tables.py); no function below loses more than 2^4 to cancellation. Lanes that are decided already may hold
anything, infinities and NaN included.
"""

from __future__ import annotations

import triton
import triton.language as tl

from repro_kernels.gpu.double import SHIFTER, absolute, bits64, double_of, f64, scale, split
from repro_kernels.gpu.elementary_tables import (
    ERF_HEAD,
    ERF_TAIL,
    ERFC_HEAD,
    ERFC_TAIL,
    EXPM1_HEAD,
    EXPM1_TAIL,
    INVERSE_LN2,
    INVERSE_LN10,
    LN2,
    LN2_PARTS,
    LOG2_E,
    LOG_HEAD,
    LOG_TAIL,
)

# ---- arithmetic ----


@triton.jit
def fast_two_sum(a, b):
    """a + b exactly, |a| >= |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


@triton.jit
def two_sum(a, b):
    """a + b exactly."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@triton.jit
def two_product(a, b):
    """a * b exactly."""
    p = a * b
    return p, tl.fma(a, b, -p)


@triton.jit
def add_pairs(ah, al, bh, bl):
    """Sum; accurate under cancellation too."""
    s, e = two_sum(ah, bh)
    t, f = two_sum(al, bl)
    s, e = fast_two_sum(s, e + t)
    return fast_two_sum(s, e + f)


@triton.jit
def mul_pairs(ah, al, bh, bl):
    """Product."""
    p, e = two_product(ah, bh)
    return fast_two_sum(p, e + tl.fma(ah, bl, al * bh))


@triton.jit
def div_pairs(ah, al, bh, bl):
    """Quotient: one binary64 quotient and a correction from the remainder, which leaves 2^-102."""
    q = ah / bh
    p, e = two_product(q, bh)
    rest = (ah - p) - e + tl.fma(-q, bl, al)
    return fast_two_sum(q, rest / bh)


@triton.jit
def sqrt_pair(ah, al):
    """Square root, likewise."""
    q = tl.sqrt(ah)
    p, e = two_product(q, q)
    return fast_two_sum(q, ((ah - p) - e + al) / (q + q))


@triton.jit
def polynomial(xh, xl, HEAD: tl.constexpr, TAIL: tl.constexpr):
    """HEAD's pairs and TAIL's binary64 coefficients, lowest power first; terms fall in magnitude."""
    n: tl.constexpr = len(TAIL.value)
    p = f64(TAIL.value[n - 1])
    for i in tl.static_range(n - 2, -1, -1):
        p = tl.fma(p, xh, f64(TAIL.value[i]))
    hi, lo = p, f64(0.0)
    m: tl.constexpr = len(HEAD.value)
    for i in tl.static_range(m - 1, -1, -1):
        hi, lo = mul_pairs(hi, lo, xh, xl)
        s, e = two_sum(f64(HEAD.value[i][0]), hi)
        hi, lo = fast_two_sum(s, e + (lo + f64(HEAD.value[i][1])))
    return hi, lo


# ---- exponentials ----


@triton.jit
def _exp_reduce(ah, al):
    """t = SHIFTER + k and the pair a - k ln 2, |a| <= 200: k times the first two parts of ln 2 is exact."""
    t = tl.fma(ah, f64(LOG2_E.value), f64(SHIFTER.value))
    k = t - f64(SHIFTER.value)
    hi, lo = two_sum(tl.fma(-k, f64(LN2_PARTS.value[0]), ah), -k * f64(LN2_PARTS.value[1]))
    hi, lo = fast_two_sum(hi, lo + tl.fma(-k, f64(LN2_PARTS.value[2]), al))
    return t, hi, lo


@triton.jit
def _expm1_reduced(rh, rl):
    """exp(r) - 1, |r| <= ln(2)/2."""
    ph, pl = polynomial(rh, rl, EXPM1_HEAD, EXPM1_TAIL)
    return mul_pairs(ph, pl, rh, rl)


@triton.jit
def exp_pair(ah, al):
    """exp, |a| <= 200."""
    t, rh, rl = _exp_reduce(ah, al)
    hi, lo = _expm1_reduced(rh, rl)
    s, e = two_sum(f64(1.0), hi)
    hi, lo = fast_two_sum(s, e + lo)
    return scale(hi, t), lo * scale(f64(1.0), t)


@triton.jit
def exp2_pair(x):
    """2^x, |x| <= 400; exact at integers."""
    t = x + f64(SHIFTER.value)
    r = x - (t - f64(SHIFTER.value))
    rh, rl = mul_pairs(r, f64(0.0), f64(LN2.value[0]), f64(LN2.value[1]))
    hi, lo = _expm1_reduced(rh, rl)
    s, e = two_sum(f64(1.0), hi)
    hi, lo = fast_two_sum(s, e + lo)
    return scale(hi, t), lo * scale(f64(1.0), t)


@triton.jit
def expm1_pair(x):
    """exp(x) - 1, |x| <= 200: 2^k expm1(r) + (2^k - 1)."""
    t, rh, rl = _exp_reduce(x, f64(0.0))
    hi, lo = _expm1_reduced(rh, rl)
    power = scale(f64(1.0), t)
    bh, bl = two_sum(power, f64(-1.0))
    return add_pairs(bh, bl, hi * power, lo * power)


# ---- logarithms ----


@triton.jit
def log_pair(uh, ul):
    """log(u), u > 0 normal, |ul| at most half a unit: k ln 2 + 2 atanh((m - 1) / (m + 1))."""
    k, m = split(uh)
    ml = ul * double_of(bits64(m) - bits64(uh) + 0x3FF0000000000000)  # 2^-k
    nh, nl = two_sum(m - 1.0, ml)
    dh, dl = two_sum(m, f64(1.0))
    dh, dl = fast_two_sum(dh, dl + ml)
    sh, sl = div_pairs(nh, nl, dh, dl)
    zh, zl = mul_pairs(sh, sl, sh, sl)
    ph, pl = polynomial(zh, zl, LOG_HEAD, LOG_TAIL)
    ph, pl = mul_pairs(ph, pl, sh + sh, sl + sl)
    bh, bl = two_sum(k * f64(LN2_PARTS.value[0]), k * f64(LN2_PARTS.value[1]))
    bh, bl = fast_two_sum(bh, bl + k * f64(LN2_PARTS.value[2]))
    return add_pairs(bh, bl, ph, pl)


@triton.jit
def log1p_pair(x):
    """log(1 + x), x > -1."""
    uh, ul = two_sum(f64(1.0), x)
    return log_pair(uh, ul)


@triton.jit
def log2_pair(x):
    """log(x) / log(2)."""
    hi, lo = log_pair(x, f64(0.0))
    return mul_pairs(hi, lo, f64(INVERSE_LN2.value[0]), f64(INVERSE_LN2.value[1]))


@triton.jit
def log10_pair(x):
    """log(x) / log(10)."""
    hi, lo = log_pair(x, f64(0.0))
    return mul_pairs(hi, lo, f64(INVERSE_LN10.value[0]), f64(INVERSE_LN10.value[1]))


# ---- hyperbolic functions, of |x| ----


@triton.jit
def sinh_pair(a):
    """(m + m / (m + 1)) / 2, m = expm1(a), a >= 0."""
    mh, ml = expm1_pair(a)
    dh, dl = add_pairs(mh, ml, f64(1.0), f64(0.0))
    qh, ql = div_pairs(mh, ml, dh, dl)
    hi, lo = add_pairs(mh, ml, qh, ql)
    return 0.5 * hi, 0.5 * lo


@triton.jit
def cosh_pair(a):
    """(e + 1 / e) / 2, e = exp(a), a >= 0."""
    eh, el = exp_pair(a, f64(0.0))
    qh, ql = div_pairs(f64(1.0), f64(0.0), eh, el)
    hi, lo = add_pairs(eh, el, qh, ql)
    return 0.5 * hi, 0.5 * lo


@triton.jit
def tanh_pair(a):
    """m / (m + 2), m = expm1(2a), 0 <= a <= 100."""
    mh, ml = expm1_pair(a + a)
    dh, dl = add_pairs(mh, ml, f64(2.0), f64(0.0))
    return div_pairs(mh, ml, dh, dl)


# ---- error function ----


@triton.jit
def _erf_series(a):
    """a P(a^2), 0 <= a < 1."""
    zh, zl = two_product(a, a)
    hi, lo = polynomial(zh, zl, ERF_HEAD, ERF_TAIL)
    return mul_pairs(hi, lo, a, f64(0.0))


@triton.jit
def _erfc_tail(a):
    """exp(-a^2) P((a - 3.75) / (a + 3.75)) / (1 + 2a), 0.9 <= a <= 10.3; a^2 and the sums are exact."""
    th, t2 = div_pairs(a - 3.75, f64(0.0), a + 3.75, f64(0.0))
    ph, pl = polynomial(th, t2, ERFC_HEAD, ERFC_TAIL)
    eh, el = exp_pair(-a * a, f64(0.0))
    hi, lo = mul_pairs(ph, pl, eh, el)
    return div_pairs(hi, lo, 1.0 + 2.0 * a, f64(0.0))


@triton.jit
def erf_pair(a):
    """erf, 0 <= a <= 10.3."""
    sh, sl = _erf_series(a)
    ch, cl = _erfc_tail(a)
    ch, cl = add_pairs(f64(1.0), f64(0.0), -ch, -cl)
    return tl.where(a < 1.0, sh, ch), tl.where(a < 1.0, sl, cl)


@triton.jit
def erfc_pair(x):
    """erfc, -10.3 <= x <= 10.3."""
    a = absolute(x)
    sh, sl = _erf_series(a)
    sh, sl = add_pairs(f64(1.0), f64(0.0), -sh, -sl)
    ch, cl = _erfc_tail(a)
    hi, lo = tl.where(a < 1.0, sh, ch), tl.where(a < 1.0, sl, cl)
    mh, ml = add_pairs(f64(2.0), f64(0.0), -hi, -lo)
    return tl.where(x < 0.0, mh, hi), tl.where(x < 0.0, ml, lo)


# ---- root ----


@triton.jit
def rsqrt_pair(x):
    """1 / sqrt(x), x > 0: y (1 + (1 - x y^2) / 2), within 2^-100 whatever the binary64 y's last bits are."""
    y = 1.0 / tl.sqrt(x)
    p, e = two_product(y, y)
    rest = tl.fma(-x, p, f64(1.0))
    return fast_two_sum(y, 0.5 * y * tl.fma(-x, e, rest))
