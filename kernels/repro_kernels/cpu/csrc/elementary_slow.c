/* The slow path of the elementary functions: 320-bit arithmetic in integers, no floating-point arithmetic on
 * the data path except exact conversions. Called for the lanes whose fast binary64 result lies too close to a
 * rounding boundary (about one in 2^20) and by the tests as an implementation independent of the fast path.
 *
 * Every wide operation truncates, with a relative error below 2^-316; no function below performs more than
 * 2^10 of them on numbers that cancel fewer than 160 bits, so results carry over 2^-140 relative accuracy.
 * The hardest one-argument binary32 cases lie near 2^-60, those of pow near 2^-90 of a boundary. Results that
 * ARE a boundary (exp2, pow, and no other function) are recognised exactly before any of this is reached.
 */
#include "elementary.h"

#define LIMBS RK_LIMBS
#define BITS (64 * LIMBS)
typedef unsigned __int128 u128;

/* (-1)^sign * (m / 2^BITS) * 2^exp, m's top bit set, m[0] the least significant limb; zero has m = 0. */
typedef struct {
    int sign;
    int64_t exp;
    uint64_t m[LIMBS];
} wide;

static const wide HALF_PI = RK_WIDE_HALF_PI, LN2 = RK_WIDE_LN2, LN10 = RK_WIDE_LN10;
static const wide TWO_OVER_SQRT_PI = RK_WIDE_TWO_OVER_SQRT_PI;
static const uint64_t TWO_OVER_PI[RK_TWO_OVER_PI_WORDS] = {RK_TWO_OVER_PI};
static const wide ZERO = {0, 0, {0}};

static int is_zero(const wide *a) { return a->m[LIMBS - 1] == 0; }

/* Normalises n limbs (lowest first) that stand for limbs / 2^(64 n) * 2^exp; truncates to LIMBS. n <= 2 LIMBS. */
static wide normalise(int sign, int64_t exp, uint64_t *limbs, int n) {
    wide out = ZERO;
    int top = n - 1;
    while (top >= 0 && limbs[top] == 0) top--;
    if (top < 0) return out;
    int shift = __builtin_clzll(limbs[top]);
    out.sign = sign;
    out.exp = exp - 64 * (int64_t)(n - 1 - top) - shift;
    for (int i = 0; i < LIMBS; i++) {
        int at = top - i;
        uint64_t high = at >= 0 ? limbs[at] : 0, low = at >= 1 ? limbs[at - 1] : 0;
        out.m[LIMBS - 1 - i] = shift ? (high << shift) | (low >> (64 - shift)) : high;
    }
    return out;
}

static wide from_u64(uint64_t value) { return normalise(0, 64, &value, 1); }

/* Exact: every finite binary32 is an integer times a power of two. */
static wide from_float(float x) {
    uint32_t bits = rk_bits(x), fraction = bits & 0x7fffffu;
    int biased = (int)(bits >> 23 & 0xff);
    wide out = from_u64(biased ? fraction | 0x800000u : fraction);
    if (!is_zero(&out)) out.exp += (biased ? biased : 1) - 150;
    out.sign = (int)(bits >> 31);
    return out;
}

static wide scaled(wide a, int64_t exponent) {
    if (!is_zero(&a)) a.exp += exponent;
    return a;
}

static wide negated(wide a) {
    a.sign ^= 1;
    return a;
}

static wide mul(const wide *a, const wide *b) {
    uint64_t p[2 * LIMBS] = {0};
    for (int i = 0; i < LIMBS; i++) {
        uint64_t carry = 0;
        for (int j = 0; j < LIMBS; j++) {
            u128 t = (u128)a->m[i] * b->m[j] + p[i + j] + carry;
            p[i + j] = (uint64_t)t;
            carry = (uint64_t)(t >> 64);
        }
        p[i + LIMBS] = carry;
    }
    return normalise(a->sign ^ b->sign, a->exp + b->exp, p, 2 * LIMBS);
}

static wide mul_small(const wide *a, uint64_t factor) {
    uint64_t p[LIMBS + 1], carry = 0;
    for (int i = 0; i < LIMBS; i++) {
        u128 t = (u128)a->m[i] * factor + carry;
        p[i] = (uint64_t)t;
        carry = (uint64_t)(t >> 64);
    }
    p[LIMBS] = carry;
    return normalise(a->sign, a->exp + 64, p, LIMBS + 1);
}

static wide div_small(const wide *a, uint64_t divisor) {
    uint64_t q[LIMBS + 1], rest = 0;
    for (int i = LIMBS; i >= 0; i--) {
        u128 t = ((u128)rest << 64) | (i ? a->m[i - 1] : 0);
        q[i] = (uint64_t)(t / divisor);
        rest = (uint64_t)(t % divisor);
    }
    return normalise(a->sign, a->exp, q, LIMBS + 1);
}

/* limbs a >= limbs b, n limbs each */
static int not_less(const uint64_t *a, const uint64_t *b, int n) {
    for (int i = n - 1; i >= 0; i--)
        if (a[i] != b[i]) return a[i] > b[i];
    return 1;
}

/* a -= b, n limbs each; returns the borrow. */
static uint64_t subtract(uint64_t *a, const uint64_t *b, int n) {
    uint64_t borrow = 0;
    for (int i = 0; i < n; i++) {
        u128 t = (u128)a[i] - b[i] - borrow;
        a[i] = (uint64_t)t;
        borrow = (uint64_t)(t >> 64) & 1;
    }
    return borrow;
}

/* One guard limb below the operands; an addend more than BITS below the other is lost, which is truncation. */
static wide add(const wide *x, const wide *y) {
    if (is_zero(x)) return *y;
    if (is_zero(y)) return *x;
    const wide *a = x->exp >= y->exp ? x : y, *b = a == x ? y : x;
    int64_t shift = a->exp - b->exp;
    if (shift >= BITS) return *a;
    enum { N = LIMBS + 2 }; /* guard limb, operand limbs, carry limb */
    uint64_t p[N] = {0}, q[N] = {0};
    for (int i = 0; i < LIMBS; i++) p[i + 1] = a->m[i];
    int words = (int)(shift / 64), bits = (int)(shift % 64);
    for (int i = 0; i < LIMBS + 1; i++) {
        int at = i + words; /* limb `at` of (guard, m), moved down by `words` */
        uint64_t low = at >= 1 && at <= LIMBS ? b->m[at - 1] : 0, high = at < LIMBS ? b->m[at] : 0;
        q[i] = bits ? (low >> bits) | (high << (64 - bits)) : low;
    }
    int sign = a->sign;
    if (a->sign == b->sign) {
        u128 carry = 0;
        for (int i = 0; i < N; i++) {
            carry += (u128)p[i] + q[i];
            p[i] = (uint64_t)carry;
            carry >>= 64;
        }
    } else if (not_less(p, q, N)) {
        subtract(p, q, N);
    } else {
        subtract(q, p, N);
        sign ^= 1;
        return normalise(sign, a->exp + 64, q, N);
    }
    return normalise(sign, a->exp + 64, p, N);
}

static wide sub(const wide *a, const wide *b) {
    wide minus = negated(*b);
    return add(a, &minus);
}

/* Long division, one bit a step. */
static wide divide(const wide *a, const wide *b) {
    wide out = ZERO;
    if (is_zero(a)) return out;
    uint64_t rest[LIMBS + 1], divisor[LIMBS + 1];
    for (int i = 0; i < LIMBS; i++) rest[i] = a->m[i], divisor[i] = b->m[i];
    rest[LIMBS] = divisor[LIMBS] = 0;
    out.sign = a->sign ^ b->sign;
    out.exp = a->exp - b->exp;
    int first = not_less(rest, divisor, LIMBS + 1);
    out.exp += first;
    for (int step = 0; step < BITS; step++) {
        if (step || !first) {
            for (int i = LIMBS; i > 0; i--) rest[i] = (rest[i] << 1) | (rest[i - 1] >> 63);
            rest[0] <<= 1;
        }
        int bit = not_less(rest, divisor, LIMBS + 1);
        if (bit) subtract(rest, divisor, LIMBS + 1);
        for (int i = LIMBS - 1; i > 0; i--) out.m[i] = (out.m[i] << 1) | (out.m[i - 1] >> 63);
        out.m[0] = (out.m[0] << 1) | (uint64_t)bit;
    }
    return out;
}

/* 2^e as a binary64, |e| <= 1000 */
static double power_of_two(int64_t e) { return rk_double((uint64_t)(1023 + e) << 52); }

/* Within 2^-52, for |exp| < 900. */
static double to_double(const wide *a) {
    double magnitude = (double)(a->m[LIMBS - 1] >> 11) * power_of_two(a->exp - 53);
    return is_zero(a) ? 0.0 : a->sign ? -magnitude : magnitude;
}

/* Round to nearest even in binary32, subnormals and overflow included. */
static float to_float(const wide *a) {
    double q;
    if (is_zero(a) || a->exp < -149) {
        q = 0.0;
    } else if (a->exp > 128) {
        q = 0x1p200;
    } else {
        int kept = a->exp >= -125 ? 24 : (int)(a->exp + 149);
        uint64_t top = a->m[LIMBS - 1], rest = 0;
        uint64_t integer = kept ? top >> (64 - kept) : 0;
        uint64_t below = kept ? top << kept : top;
        for (int i = 0; i < LIMBS - 1; i++) rest |= a->m[i];
        if (below >> 63 && ((below << 1) || rest || (integer & 1))) integer++;
        q = (double)integer * power_of_two(a->exp - kept);
    }
    return (float)(a->sign ? -q : q);
}

/* Sum of term_0 = first, term_n = term_(n-1) * ratio * multiplier(n) / divisor(n), until terms no longer count. */
typedef uint64_t (*coefficient)(uint64_t n);

static wide series(const wide *first, const wide *ratio, coefficient multiplier, coefficient divisor) {
    wide sum = *first, term = *first;
    for (uint64_t n = 1; !is_zero(&term); n++) {
        term = mul(&term, ratio);
        if (multiplier) term = mul_small(&term, multiplier(n));
        term = div_small(&term, divisor(n));
        if (is_zero(&term) || term.exp < sum.exp - BITS) break;
        sum = add(&sum, &term);
    }
    return sum;
}

static uint64_t n_itself(uint64_t n) { return n; }
static uint64_t n_plus_one(uint64_t n) { return n + 1; }
static uint64_t sine_divisor(uint64_t n) { return 2 * n * (2 * n + 1); }
static uint64_t cosine_divisor(uint64_t n) { return 2 * n * (2 * n - 1); }
static uint64_t odd(uint64_t n) { return 2 * n + 1; }
static uint64_t odd_before(uint64_t n) { return 2 * n - 1; }
static uint64_t two(uint64_t n) {
    (void)n;
    return 2;
}

/* exp(x); beyond |x| = 200 a number far outside binary32 on the right side. */
static wide w_exp(const wide *x) {
    wide one = from_u64(1);
    if (is_zero(x)) return one;
    if (x->exp > 8 || (x->exp == 8 && x->m[LIMBS - 1] >> 56 >= 200)) return scaled(one, x->sign ? -800 : 800);
    double ratio = to_double(x) * RK_C_LOG2_E;
    int64_t k = (int64_t)(ratio + (ratio < 0 ? -0.5 : 0.5));
    wide shift = mul_small(&LN2, (uint64_t)(k < 0 ? -k : k));
    shift.sign = k < 0;
    wide r = sub(x, &shift);
    return scaled(series(&one, &r, 0, n_itself), k);
}

static wide w_expm1(const wide *x) {
    if (x->exp < 0 && !is_zero(x)) return series(x, x, 0, n_plus_one); /* |x| < 1/2 */
    wide e = w_exp(x), one = from_u64(1);
    return sub(&e, &one);
}

/* 2 atanh(s), |s| < 1/2 */
static wide two_atanh(const wide *s) {
    wide square = mul(s, s);
    return scaled(series(s, &square, odd_before, odd), 1);
}

static wide w_log(const wide *x) {
    wide m = *x, one = from_u64(1);
    int64_t k = x->exp;
    m.exp = 0; /* [1/2, 1) */
    if (m.m[LIMBS - 1] < 0xb504f333f9de6484ull) m.exp = 1, k--;
    wide numerator = sub(&m, &one), denominator = add(&m, &one);
    wide s = divide(&numerator, &denominator);
    wide tail = two_atanh(&s), head = mul_small(&LN2, (uint64_t)(k < 0 ? -k : k));
    head.sign = k < 0;
    return add(&head, &tail);
}

static wide w_log1p(const wide *x) {
    wide one = from_u64(1), two_ = from_u64(2);
    if (x->exp < -1) { /* |x| < 1/4 */
        wide denominator = add(&two_, x), s = divide(x, &denominator);
        return two_atanh(&s);
    }
    wide sum = add(&one, x);
    return w_log(&sum);
}

static wide w_sqrt(const wide *x) {
    if (is_zero(x)) return *x;
    int64_t half = x->exp >> 1;
    wide m = scaled(*x, -2 * half); /* [1/2, 2) */
    wide y = from_u64((uint64_t)(__builtin_sqrt(to_double(&m)) * 0x1p53));
    y.exp -= 53;
    for (int i = 0; i < 3; i++) { /* 53 -> 106 -> 212 -> all bits */
        wide q = divide(&m, &y);
        y = scaled(add(&y, &q), -1);
    }
    return scaled(y, half);
}

/* x = n * pi/2 + r, |r| <= pi/4; returns n mod 4. Exact product with 2/pi for large x (Payne and Hanek). */
static int reduce(float x, wide *r) {
    if (__builtin_fabsf(x) < 0.78f) {
        *r = from_float(x);
        return 0;
    }
    enum { N = RK_TWO_OVER_PI_WORDS };
    uint32_t bits = rk_bits(x);
    uint64_t m = (bits & 0x7fffffu) | 0x800000u;
    int e = (int)(bits >> 23 & 0xff) - 150; /* x = m * 2^e, -24 <= e <= 104 */
    uint64_t p[N + 3] = {0}, carry = 0;  /* p = m * 2/pi * 2^(64 N), then shifted left by e + 24 */
    for (int i = 0; i < N; i++) {
        u128 t = (u128)TWO_OVER_PI[N - 1 - i] * m + carry;
        p[i] = (uint64_t)t;
        carry = (uint64_t)(t >> 64);
    }
    p[N] = carry;
    int shift = e + 24, words = shift / 64, rest = shift % 64;
    for (int i = N + 2; i >= 0; i--) {
        uint64_t high = i - words >= 0 ? p[i - words] : 0, low = i - words >= 1 ? p[i - words - 1] : 0;
        p[i] = rest ? (high << rest) | (low >> (64 - rest)) : high;
    }
    /* the product is p * 2^(-64 N - 24): 2 bits of quadrant lie at bits 24 and 25 of p[N] */
    int quadrant = (int)(p[N] >> 24 & 3);
    uint64_t fraction[N + 1];
    for (int i = 0; i < N; i++) fraction[i] = p[i];
    fraction[N] = p[N] & 0xffffff;
    int above = (int)(fraction[N] >> 23);
    if (above) { /* over one half: count from the next quadrant */
        uint64_t unit[N + 1] = {0};
        unit[N] = 1ull << 24;
        subtract(unit, fraction, N + 1);
        for (int i = 0; i <= N; i++) fraction[i] = unit[i];
        quadrant = (quadrant + 1) & 3;
    }
    wide f = normalise(above, 64 - 24, fraction, N + 1);
    *r = mul(&f, &HALF_PI);
    if (bits >> 31) {
        r->sign ^= 1;
        quadrant = (4 - quadrant) & 3;
    }
    return quadrant;
}

static void sine_cosine(float x, wide *sine, wide *cosine) {
    wide r, one = from_u64(1);
    int quadrant = reduce(x, &r);
    wide square = negated(mul(&r, &r));
    wide s = series(&r, &square, 0, sine_divisor), c = series(&one, &square, 0, cosine_divisor);
    *sine = quadrant & 1 ? c : s;
    *cosine = quadrant & 1 ? s : c;
    if (quadrant & 2) *sine = negated(*sine);
    if (quadrant == 1 || quadrant == 2) *cosine = negated(*cosine);
}

/* atan of any x: reciprocal from 2 on, then three halvings of the angle and the series. */
static wide w_atan(const wide *x) {
    wide one = from_u64(1);
    if (is_zero(x)) return *x;
    if (x->exp > 1) {
        wide magnitude = *x;
        magnitude.sign = 0;
        wide inverse = divide(&one, &magnitude), angle = w_atan(&inverse);
        wide out = sub(&HALF_PI, &angle);
        out.sign = x->sign;
        return out;
    }
    wide t = *x;
    for (int i = 0; i < 3; i++) {
        wide square = mul(&t, &t), sum = add(&one, &square), root = w_sqrt(&sum), denominator = add(&one, &root);
        t = divide(&t, &denominator);
    }
    wide square = negated(mul(&t, &t));
    return scaled(series(&t, &square, odd_before, odd), 3);
}

/* 2 atan(sqrt((1 - x) / (1 + x))), -1 < x <= 1 */
static wide w_acos(const wide *x) {
    wide one = from_u64(1), a = sub(&one, x), b = add(&one, x), q = divide(&a, &b), root = w_sqrt(&q);
    return scaled(w_atan(&root), 1);
}

static wide w_asin(const wide *x) {
    wide one = from_u64(1), a = sub(&one, x), b = add(&one, x), product = mul(&a, &b), root = w_sqrt(&product);
    wide q = divide(x, &root);
    return w_atan(&q);
}

/* 2/sqrt(pi) exp(-x^2) sum 2^n x^(2n+1) / (1 3 ... (2n+1)): positive terms, |x| <= 12 */
static wide w_erf(const wide *x) {
    wide square = mul(x, x), minus = negated(square), e = w_exp(&minus);
    wide sum = series(x, &square, two, odd), product = mul(&sum, &e);
    return mul(&product, &TWO_OVER_SQRT_PI);
}

static wide w_sinh(const wide *x) {
    wide one = from_u64(1), m = w_expm1(x), sum = add(&one, &m), q = divide(&m, &sum);
    return scaled(add(&m, &q), -1);
}

static wide w_cosh(const wide *x) {
    wide one = from_u64(1), e = w_exp(x), inverse = divide(&one, &e);
    return scaled(add(&e, &inverse), -1);
}

static wide w_tanh(const wide *x) {
    wide twice = scaled(*x, 1), m = w_expm1(&twice), two_ = from_u64(2), sum = add(&m, &two_);
    return divide(&m, &sum);
}

/* exp2 of an integer is a power of two, and 2^-150 a midpoint: decided by the exact binary64 value. */
static float slow_exp2(float x, const wide *w) {
    if (x >= 200.0f) return RK_INFINITY;
    if (x <= -200.0f) return 0.0f;
    int integer = (int)x;
    if ((float)integer == x) return (float)power_of_two(integer);
    wide y = mul(w, &LN2), e = w_exp(&y);
    return to_float(&e);
}

float RK_NAME(elementary_slow)(int function, float x) {
    if (x != x) return RK_NAN;
    int infinite = __builtin_fabsf(x) == RK_INFINITY, negative = (int)(rk_bits(x) >> 31);
    wide w = infinite ? ZERO : from_float(x), y, z;
    const wide one = from_u64(1);
    switch (function) {
    case RK_exp:
        if (infinite) return negative ? 0.0f : x;
        y = w_exp(&w);
        break;
    case RK_exp2:
        return slow_exp2(x, &w);
    case RK_expm1:
        if (infinite) return negative ? -1.0f : x;
        if (x == 0) return x;
        y = w_expm1(&w);
        break;
    case RK_log:
    case RK_log2:
    case RK_log10:
        if (x == 0) return -RK_INFINITY;
        if (negative) return RK_NAN;
        if (infinite) return x;
        if (x == 1) return 0.0f;
        y = w_log(&w);
        if (function == RK_log2) y = divide(&y, &LN2);
        if (function == RK_log10) y = divide(&y, &LN10);
        break;
    case RK_log1p:
        if (x == -1) return -RK_INFINITY;
        if (x < -1) return RK_NAN;
        if (infinite || x == 0) return x;
        y = w_log1p(&w);
        break;
    case RK_sin:
    case RK_cos:
    case RK_tan:
        if (infinite) return RK_NAN;
        if (x == 0) return function == RK_cos ? 1.0f : x;
        sine_cosine(x, &y, &z);
        if (function == RK_cos) y = z;
        if (function == RK_tan) y = divide(&y, &z);
        break;
    case RK_asin:
    case RK_acos:
        if (__builtin_fabsf(x) > 1) return RK_NAN;
        if (x == 0 && function == RK_asin) return x;
        if (x == 1 && function == RK_acos) return 0.0f;
        if (x == -1 && function == RK_acos) y = scaled(HALF_PI, 1);
        else if (__builtin_fabsf(x) == 1) y = HALF_PI, y.sign = negative;
        else y = function == RK_asin ? w_asin(&w) : w_acos(&w);
        break;
    case RK_atan:
        if (infinite) y = HALF_PI, y.sign = negative;
        else if (x == 0) return x;
        else y = w_atan(&w);
        break;
    case RK_sinh:
        if (infinite || x == 0) return x;
        w.sign = 0;
        y = w_sinh(&w);
        y.sign = negative;
        break;
    case RK_cosh:
        if (infinite) return RK_INFINITY;
        w.sign = 0;
        y = w_cosh(&w);
        break;
    case RK_tanh:
        if (infinite) return negative ? -1.0f : 1.0f;
        if (x == 0) return x;
        w.sign = 0;
        y = w_tanh(&w);
        y.sign = negative;
        break;
    case RK_erf:
        if (__builtin_fabsf(x) > 12) return negative ? -1.0f : 1.0f;
        if (x == 0) return x;
        y = w_erf(&w);
        break;
    case RK_erfc:
        if (__builtin_fabsf(x) > 12) return negative ? 2.0f : 0.0f;
        if (x == 0) return 1.0f;
        y = w_erf(&w);
        y = sub(&one, &y);
        break;
    case RK_rsqrt:
        if (x == 0) return negative ? -RK_INFINITY : RK_INFINITY;
        if (negative) return RK_NAN;
        if (infinite) return 0.0f;
        y = w_sqrt(&w);
        y = divide(&one, &y);
        break;
    case RK_sqrt:
        return rk_canonical(__builtin_sqrtf(x));
    default: /* RK_reciprocal */
        return rk_canonical(1.0f / x);
    }
    return to_float(&y);
}

/* Whether |x|^y (x = m 2^e finite, positive, y finite, nonzero) has a finite binary expansion of at most 25
 * bits, the only way for it to be a binary32 or a midpoint of two; then *value is exact. With m odd: m = 1 needs
 * e*y an integer; m > 1 needs y = n/2^f > 0, m a perfect 2^f-th power and e a multiple of 2^f. */
static int exact_power(float x, float y, double *value) {
    uint32_t bits = rk_bits(x), ybits = rk_bits(y);
    int biased = (int)(bits >> 23), ybiased = (int)(ybits >> 23 & 0xff);
    uint64_t m = (bits & 0x7fffffu) | (biased ? 0x800000u : 0);
    int64_t e = (biased ? biased : 1) - 150;
    uint64_t n = (ybits & 0x7fffffu) | (ybiased ? 0x800000u : 0);
    int64_t f = (ybiased ? ybiased : 1) - 150; /* |y| = n 2^f */
    int64_t sign = ybits >> 31 ? -1 : 1;
    int zeros = __builtin_ctzll(m);
    m >>= zeros, e += zeros;
    zeros = __builtin_ctzll(n);
    n >>= zeros, f += zeros;
    if (m > 1 && sign < 0) return 0;
    for (; f < 0; f++) {
        uint64_t root = (uint64_t)__builtin_sqrt((double)m); /* m < 2^24: exact when m is a square */
        if (e == 0 && m == 1) break;
        if (root * root != m || (e & 1)) return 0;
        m = root, e >>= 1;
    }
    if (e == 0 && m == 1) {
        *value = 1.0;
        return 1;
    }
    if (f > 24 || (m > 1 && (n << f) > 25)) {
        if (m > 1) return 0;
        *value = (e > 0) == (sign > 0) ? 0x1p400 : 0x1p-400;
        return 1;
    }
    int64_t power = (int64_t)(n << f); /* below 2^48, |e| < 2^8 */
    uint64_t product = 1;
    for (int64_t i = 0; m > 1 && i < power; i++) {
        product *= m;
        if (product >> 25) return 0;
    }
    int64_t exponent = sign * e * power;
    *value = (double)product * power_of_two(exponent > 400 ? 400 : exponent < -400 ? -400 : exponent);
    return 1;
}

float RK_NAME(pow_slow)(float x, float y) {
    float magnitude = __builtin_fabsf(x), length = __builtin_fabsf(y);
    if (y == 0 || x == 1) return 1.0f;
    if (x != x || y != y) return RK_NAN;
    int integer = length >= 0x1p24f || (float)(int32_t)y == y;
    int odd_integer = integer && length < 0x1p24f && ((int32_t)y & 1);
    int negative = rk_bits(x) >> 31 && odd_integer;
    if (magnitude == 0 || magnitude == RK_INFINITY) {
        float out = (magnitude == 0) == (y > 0) ? 0.0f : RK_INFINITY;
        return negative ? -out : out;
    }
    if (length == RK_INFINITY) return magnitude == 1 ? 1.0f : (magnitude > 1) == (y > 0) ? RK_INFINITY : 0.0f;
    if (x < 0 && !integer) return RK_NAN;
    double exact;
    if (exact_power(magnitude, y, &exact)) return (float)(negative ? -exact : exact);
    wide base = from_float(magnitude), exponent = from_float(y);
    wide logarithm = w_log(&base), product = mul(&logarithm, &exponent), out = w_exp(&product);
    out.sign = negative;
    return to_float(&out);
}
