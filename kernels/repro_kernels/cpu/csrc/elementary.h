/* Correctly rounded binary32 elementary functions, without libm.
 *
 *   float rk_expf(float)                                      one value
 *   void rk_exp_array(const float *x, float *y, int64_t n)    n values; x == y is allowed, other overlaps are not
 *
 * and the same for every name of RK_UNARY; float rk_powf(float, float) and rk_pow_array. NaN results are 0x7fc00000.
 *
 * Method: a branch-free approximation in binary64 (rk_<name>_core) with a relative error below RK_MARGIN_<name>. If
 * both ends of the error interval round to the same binary32, that is the correctly rounded result; if not (about one
 * argument in 2^19), or where the core does not reach (it then returns RK_UNDECIDED), elementary_slow.c decides.
 * A margin is more than 16 times the analysed error, which is a few units of 2^-53: polynomials are within 2^-50 of
 * their functions (tables.py), argument reductions are exact or carry a low part.
 */
#ifndef RK_ELEMENTARY_H
#define RK_ELEMENTARY_H

#include "common.h"
#include "elementary_tables.h"

#define RK_UNARY(X)                                                                                             \
    X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) \
    X(cosh) X(tanh) X(erf) X(erfc) X(rsqrt) X(sqrt) X(reciprocal)

#define RK_ENUM(name) RK_##name,
enum { RK_UNARY(RK_ENUM) RK_UNARY_COUNT };
#undef RK_ENUM

#define RK_INFINITY __builtin_inff()
#define RK_NAN __builtin_nanf("")

float RK_NAME(elementary_slow)(int function, float x);
float RK_NAME(pow_slow)(float x, float y);

/* A midpoint of two binary32 numbers: no error interval around it can pass the rounding test. */
#define RK_UNDECIDED 0x1.000001p0

/* Adding it to |x| < 2^51 rounds to an integer, whose two's complement is then in the low bits. */
#define RK_SHIFTER 0x1.8p52

/* ---- exponentials ---- */

RK_INLINE double rk_clamp(double x, double limit) { /* NaN stays */
    x = x > limit ? limit : x;
    return x < -limit ? -limit : x;
}

/* y * 2^k, where t = RK_SHIFTER + k, for normal results */
RK_INLINE double rk_scale(double y, double t) { return rk_double(rk_bits64(y) + (rk_bits64(t) << 52)); }

/* |x| >= 200 is as good as 200: exp overflows at 88.8 and is below the smallest midpoint at -104. */
RK_INLINE double rk_exp_core(double x) {
    x = rk_clamp(x, 200.0);
    double t = rk_mad(x, RK_C_LOG2_E, RK_SHIFTER), k = t - RK_SHIFTER;
    double r = rk_mad(-k, RK_C_LN2_LOW, rk_mad(-k, RK_C_LN2_HIGH, x)); /* k * LN2_HIGH is exact */
    return rk_scale(rk_mad(r, rk_poly_expm1(r), 1.0), t);
}

RK_INLINE double rk_exp2_core(double x) {
    x = rk_clamp(x, 400.0);
    double t = x + RK_SHIFTER, r = (x - (t - RK_SHIFTER)) * RK_C_LN2;
    return rk_scale(rk_mad(r, rk_poly_expm1(r), 1.0), t);
}

/* 2^k expm1(r) + (2^k - 1); no cancellation below 1/4. */
RK_INLINE double rk_expm1_core(double x) {
    double c = rk_clamp(x, 200.0);
    double t = rk_mad(c, RK_C_LOG2_E, RK_SHIFTER), k = t - RK_SHIFTER;
    double r = rk_mad(-k, RK_C_LN2_LOW, rk_mad(-k, RK_C_LN2_HIGH, c));
    double scale = rk_scale(1.0, t), y = rk_mad(scale, r * rk_poly_expm1(r), scale - 1.0);
    return x == 0.0 ? x : y;
}

/* ---- logarithms ---- */

/* u = 2^k m, sqrt(1/2) <= m < sqrt(2), for normal u > 0 */
RK_INLINE double rk_split(double u, double *k) {
    uint64_t bits = rk_bits64(u), t = bits - 0x3fe6a09e667f3bcdull + (1024ull << 52);
    *k = rk_double((t >> 52) | 0x4330000000000000ull) - (0x1p52 + 1024.0);
    return rk_double(bits - (t & 0xfff0000000000000ull) + (1024ull << 52));
}

/* atanh(s) / s, |s| <= (sqrt(2) - 1) / (sqrt(2) + 1) */
RK_INLINE double rk_atanh_ratio(double s) { return rk_poly_log(s * s); }

/* y where 0 < u < infinity. (The other values as constants here would make GCC branch instead of vectorise.) */
RK_INLINE double rk_log_range(double u, double y) {
    y = u > 0.0 ? y : RK_UNDECIDED;
    return u < __builtin_inf() ? y : RK_UNDECIDED;
}

RK_INLINE double rk_log_core(double x) {
    double k, m = rk_split(x, &k), s = (m - 1.0) / (m + 1.0);
    return rk_log_range(x, rk_mad(k, RK_C_LN2_HIGH, rk_mad(k, RK_C_LN2_LOW, 2.0 * s * rk_atanh_ratio(s))));
}

RK_INLINE double rk_log2_core(double x) {
    double k, m = rk_split(x, &k), s = (m - 1.0) / (m + 1.0);
    return rk_log_range(x, k + RK_C_TWO_LOG2_E * s * rk_atanh_ratio(s));
}

RK_INLINE double rk_log10_core(double x) {
    double k, m = rk_split(x, &k), s = (m - 1.0) / (m + 1.0);
    double low = rk_mad(k, RK_C_LOG10_2_LOW, RK_C_TWO_LOG10_E * s * rk_atanh_ratio(s));
    return rk_log_range(x, rk_mad(k, RK_C_LOG10_2_HIGH, low));
}

/* With k = 0 the argument itself, not the rounded 1 + x, gives m - 1. */
RK_INLINE double rk_log1p_core(double x) {
    double u = 1.0 + x, k, m = rk_split(u, &k);
    double f = k == 0.0 ? x : m - 1.0, s = f / (2.0 + f);
    double y = rk_mad(k, RK_C_LN2_HIGH, rk_mad(k, RK_C_LN2_LOW, 2.0 * s * rk_atanh_ratio(s)));
    return x == 0.0 ? x : rk_log_range(u, y);
}

/* ---- trigonometric functions ---- */

/* Up to here n < 2^22, n * HALF_PI_1 and n * HALF_PI_2 are exact, and so is every difference that cancels. */
#define RK_TRIG_LIMIT 0x1p22

/* x = n pi/2 + r; n's two's complement is in the low bits of the result. */
RK_INLINE uint64_t rk_reduce(double x, double *r) {
    double t = rk_mad(x, RK_C_TWO_OVER_PI, RK_SHIFTER), n = t - RK_SHIFTER;
    *r = rk_mad(-n, RK_C_HALF_PI_3, rk_mad(-n, RK_C_HALF_PI_2, rk_mad(-n, RK_C_HALF_PI_1, x)));
    return rk_bits64(t);
}

RK_INLINE double rk_sin_of(uint64_t n, double r) {
    double z = r * r, s = r * rk_poly_sin(z), c = rk_poly_cos(z);
    return rk_double(rk_bits64(n & 1 ? c : s) ^ (n & 2) << 62);
}

RK_INLINE double rk_cos_of(uint64_t n, double r) { return rk_sin_of(n + 1, r); }

RK_INLINE double rk_tan_of(uint64_t n, double r) {
    double z = r * r, s = r * rk_poly_sin(z), c = rk_poly_cos(z);
    return n & 1 ? -c / s : s / c;
}

/* The same for any finite |x| > RK_TRIG_LIMIT, by an exact product (Payne and Hanek): of the bits of 2/pi, those that
 * contribute multiples of 4 to x * 2/pi are skipped and the next 192 used, so that 2^-166 is lost of a fraction that is
 * at least 2^-34 for every binary32. */
RK_INLINE uint64_t rk_reduce_large(float x, double *r) {
    static const uint64_t digits[RK_TWO_OVER_PI_WORDS + 1] = {0, RK_TWO_OVER_PI}; /* 64 bits before the point */
    uint32_t bits = rk_bits(x);
    uint64_t m = (bits & 0x7fffffu) | 0x800000u, p[3];
    int first = 64 - 2 + (int)(bits >> 23 & 0xff) - 150; /* x = m * 2^(first - 62) */
    unsigned __int128 carry = 0;
    for (int i = 2; i >= 0; i--) {
        int word = first / 64 + i, shift = first % 64;
        uint64_t digit = shift ? digits[word] << shift | digits[word + 1] >> (64 - shift) : digits[word];
        carry += (unsigned __int128)digit * m;
        p[i] = (uint64_t)carry;
        carry >>= 64;
    }
    /* p / 2^190 is x * 2/pi modulo 4: two bits of quadrant, then a fraction, taken as lying in [-1/2, 1/2) */
    unsigned __int128 fraction = ((unsigned __int128)(p[0] << 2 | p[1] >> 62) << 64) | (p[1] << 2 | p[2] >> 62);
    uint64_t above = (uint64_t)(fraction >> 127), quadrant = (p[0] >> 62) + above;
    if (above) fraction = -fraction;
    uint64_t high = (uint64_t)(fraction >> 64);
    int zeros = high ? __builtin_clzll(high) : 64; /* never more than 34 */
    double magnitude = (double)(uint64_t)((fraction << zeros) >> 64) * rk_double((uint64_t)(1023 - 64 - zeros) << 52);
    uint64_t negative = above ^ bits >> 31;
    *r = rk_double(rk_bits64(magnitude * RK_C_HALF_PI) | negative << 63);
    return bits >> 31 ? -quadrant : quadrant;
}

#define RK_TRIG_CORE(name)                                                              \
    RK_INLINE double rk_##name##_core(double x) {                                       \
        double r;                                                                       \
        uint64_t n = rk_reduce(x, &r);                                                  \
        return __builtin_fabs(x) > RK_TRIG_LIMIT ? RK_UNDECIDED : rk_##name##_of(n, r); \
    }
RK_TRIG_CORE(sin)
RK_TRIG_CORE(cos)
RK_TRIG_CORE(tan)

RK_INLINE double rk_with_sign(double magnitude, double sign) {
    return rk_double(rk_bits64(magnitude) | (rk_bits64(sign) & 0x8000000000000000ull));
}

/* base + atan((a - b) / (1 + a b)) with b = 0, 1, infinity */
RK_INLINE double rk_atan_core(double x) {
    double a = __builtin_fabs(x);
    int high = a > 0x1.3504f3p+1, middle = a > 0x1.a8279ap-2; /* 1 + sqrt 2, sqrt 2 - 1 */
    double numerator = high ? -1.0 : middle ? a - 1.0 : a, denominator = high ? a : middle ? a + 1.0 : 1.0;
    double base = high ? RK_C_HALF_PI : middle ? RK_C_QUARTER_PI : 0.0, s = numerator / denominator;
    return rk_with_sign(base + s * rk_poly_atan(s * s), x);
}

/* asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)) above 1/2 */
RK_INLINE double rk_asin_core(double x) {
    double a = __builtin_fabs(x), h = 0.5 * (1.0 - a), root = __builtin_sqrt(h);
    int high = a > 0.5;
    double v = (high ? root : a) * rk_poly_asin(high ? h : a * a);
    return rk_with_sign(high ? RK_C_HALF_PI - 2.0 * v : v, x);
}

RK_INLINE double rk_acos_core(double x) {
    double a = __builtin_fabs(x), h = 0.5 * (1.0 - a), root = __builtin_sqrt(h);
    int high = a > 0.5;
    double v = (high ? root : x) * rk_poly_asin(high ? h : a * a);
    return high ? (x < 0.0 ? RK_C_PI - 2.0 * v : 2.0 * v) : RK_C_HALF_PI - v;
}

/* ---- hyperbolic functions ---- */

RK_INLINE double rk_sinh_core(double x) {
    double m = rk_expm1_core(__builtin_fabs(x));
    return rk_with_sign(0.5 * (m + m / (m + 1.0)), x);
}

RK_INLINE double rk_cosh_core(double x) {
    double e = rk_exp_core(__builtin_fabs(x));
    return 0.5 * (e + 1.0 / e);
}

RK_INLINE double rk_tanh_core(double x) {
    double m = rk_expm1_core(2.0 * __builtin_fabs(x));
    return rk_with_sign(m / (m + 2.0), x);
}

/* ---- error function ---- */

/* erfc(a), 0.9 <= a <= 10.3: exp(-a^2) P(t) / (1 + 2a), t = (a - 3.75) / (a + 3.75); a^2 is exact for binary32 a. */
RK_INLINE double rk_erfc_tail(double a) {
    double p = 1.0 + 2.0 * a, q = a + 3.75, inverse = 1.0 / (p * q);
    return rk_exp_core(-a * a) * rk_poly_erfc((a - 3.75) * p * inverse) * (q * inverse);
}

/* erf rounds to 1 from 3.92 on. */
RK_INLINE double rk_erf_core(double x) {
    double a = __builtin_fabs(x);
    a = a > 8.0 ? 8.0 : a;
    double y = a < 1.0 ? a * rk_poly_erf(a * a) : 1.0 - rk_erfc_tail(a);
    return rk_with_sign(y, x);
}

/* erfc is below the smallest midpoint from 10.06 on, and 2 from -3.84 down. */
RK_INLINE double rk_erfc_core(double x) {
    double a = __builtin_fabs(x);
    a = a > 10.25 ? 10.25 : a;
    double y = a < 1.0 ? 1.0 - a * rk_poly_erf(a * a) : rk_erfc_tail(a);
    return x < 0.0 ? 2.0 - y : y;
}

/* ---- roots ---- */

RK_INLINE double rk_rsqrt_core(double x) { return 1.0 / __builtin_sqrt(x); }

/* ---- power ---- */

/* sign * exp2(y log2|x|) for finite y and finite x != 0; log2 is within 2^-51 and |y log2|x|| matters up to 151. */
RK_INLINE double rk_pow_core(double x, double y) {
    double a = __builtin_fabs(x), length = __builtin_fabs(y), k, m = rk_split(a, &k), s = (m - 1.0) / (m + 1.0);
    double result = rk_exp2_core(y * (k + RK_C_TWO_LOG2_E * s * rk_atanh_ratio(s)));
    double c = length > 0x1p24 ? 0x1p24 : length, t = c + RK_SHIFTER; /* from 2^24 on every binary32 is even */
    double signed_result = rk_double(rk_bits64(result) ^ rk_bits64(t) << 63); /* the sign of (-1)^c */
    signed_result = t - RK_SHIFTER == c ? signed_result : RK_UNDECIDED;
    result = x > 0.0 ? result : signed_result;
    result = a > 0.0 ? result : RK_UNDECIDED;
    result = a < __builtin_inf() ? result : RK_UNDECIDED;
    return length < __builtin_inf() ? result : RK_UNDECIDED;
}

/* ---- rounding test ---- */

#define RK_MARGIN 0x1p-44
#define RK_MARGIN_POW 0x1p-41

/* The rounded value in *y; nonzero if the two ends of the interval disagree. */
RK_INLINE uint32_t rk_round_test(double value, double margin, float *y) {
    float low = (float)(value * (1.0 - margin)), high = (float)(value * (1.0 + margin)); /* keeps -0 and infinities */
    *y = low == low ? low : RK_NAN;
    return rk_bits(low) ^ rk_bits(high);
}

/* Above RK_TRIG_LIMIT: exact reduction, then the same polynomials. Infinities stay undecided. */
#define RK_LARGE_TRIG(name)                                                        \
    RK_INLINE double rk_##name##_large(float x) {                                  \
        double r;                                                                  \
        if (__builtin_fabsf(x) == RK_INFINITY) return RK_UNDECIDED;                \
        uint64_t n = rk_reduce_large(x, &r);                                       \
        return rk_##name##_of(n, r);                                               \
    }                                                                              \
    static __attribute__((unused, noinline)) float rk_##name##_retry(float x) {    \
        float y;                                                                   \
        if (__builtin_fabsf(x) > (float)RK_TRIG_LIMIT &&                           \
            !rk_round_test(rk_##name##_large(x), RK_MARGIN, &y))                   \
            return y;                                                              \
        return RK_NAME(elementary_slow)(RK_##name, x);                             \
    }
#define RK_PLAIN_RETRY(name) \
    RK_INLINE float rk_##name##_retry(float x) { return RK_NAME(elementary_slow)(RK_##name, x); }

RK_LARGE_TRIG(sin)
RK_LARGE_TRIG(cos)
RK_LARGE_TRIG(tan)
#define RK_CORED(X)                                                                                               \
    X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(erf) \
    X(erfc) X(rsqrt)
RK_CORED(RK_PLAIN_RETRY)

/* ---- values and arrays ---- */

#define RK_BLOCK 256

#define RK_DEFINE_SCALAR(name)                                                     \
    static inline __attribute__((unused)) float rk_##name##f(float x) {            \
        float y;                                                                   \
        if (rk_round_test(rk_##name##_core((double)x), RK_MARGIN, &y) == 0) return y; \
        return rk_##name##_retry(x);                                               \
    }

/* Blocks, so that x == y is allowed and a failing lane costs one block's repetition. */
#define RK_DEFINE_ARRAY(name)                                                                              \
    static __attribute__((unused, noinline)) void rk_##name##_array(const float *x, float *y, int64_t n) { \
        float in[RK_BLOCK], out[RK_BLOCK];                                                                 \
        for (int64_t start = 0; start < n; start += RK_BLOCK) {                                            \
            int count = n - start < RK_BLOCK ? (int)(n - start) : RK_BLOCK;                                \
            int padded = (count + 15) & ~15;                                                               \
            uint32_t bad = 0;                                                                              \
            memcpy(in, x + start, sizeof(float) * (size_t)count);                                          \
            for (int i = count; i < padded; i++) in[i] = 1.0f;                                             \
            for (int j = 0; j < padded; j += 16)                                                           \
                for (int i = j; i < j + 16; i++)                                                           \
                    bad |= rk_round_test(rk_##name##_core((double)in[i]), RK_MARGIN, &out[i]);             \
            if (bad)                                                                                       \
                for (int i = 0; i < count; i++) out[i] = rk_##name##f(in[i]);                              \
            memcpy(y + start, out, sizeof(float) * (size_t)count);                                         \
        }                                                                                                  \
    }

#define RK_DEFINE_BOTH(name) RK_DEFINE_SCALAR(name) RK_DEFINE_ARRAY(name)
RK_CORED(RK_DEFINE_BOTH)
RK_DEFINE_BOTH(sin)
RK_DEFINE_BOTH(cos)
RK_DEFINE_BOTH(tan)

/* The two that the hardware rounds correctly. */
RK_INLINE float rk_sqrtf(float x) { return rk_canonical(__builtin_sqrtf(x)); }
RK_INLINE float rk_reciprocalf(float x) { return rk_canonical(1.0f / x); }

static __attribute__((unused, noinline)) void rk_sqrt_array(const float *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = rk_sqrtf(x[i]);
}

static __attribute__((unused, noinline)) void rk_reciprocal_array(const float *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = rk_reciprocalf(x[i]);
}

static inline __attribute__((unused)) float rk_powf(float x, float y) {
    float z;
    if (rk_round_test(rk_pow_core((double)x, (double)y), RK_MARGIN_POW, &z) == 0) return z;
    return RK_NAME(pow_slow)(x, y);
}

/* z[i] = x[i]^y[i]; z may be x or y */
static __attribute__((unused, noinline)) void rk_pow_array(const float *x, const float *y, float *z, int64_t n) {
    for (int64_t start = 0; start < n; start += RK_BLOCK, x += RK_BLOCK, y += RK_BLOCK, z += RK_BLOCK) {
        int count = n - start < RK_BLOCK ? (int)(n - start) : RK_BLOCK;
        float out[RK_BLOCK];
        uint32_t bad = 0;
        for (int i = 0; i < count; i++)
            bad |= rk_round_test(rk_pow_core((double)x[i], (double)y[i]), RK_MARGIN_POW, &out[i]);
        if (bad)
            for (int i = 0; i < count; i++) out[i] = rk_powf(x[i], y[i]);
        memcpy(z, out, sizeof(float) * (size_t)count);
    }
}

#endif
