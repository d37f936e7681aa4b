/* Elementwise operators over arrays: the elementary functions of elementary.h and the composites, which are the
 * parenthesised trees of spec/composite.py, each step rounded. One table maps a number (the order of
 * repro_kernels.cpu.elementary) to a function on an array of binary32; 16-bit arrays pass through it in blocks.
 */
#include "elementary.h"

#define CHUNK 1024            /* values between two conversions; fits the first-level cache */
#define GRAIN (16 * CHUNK)    /* values below which one thread does all */
#define PARAMETERS 3

/* x and y may be the same array. */
typedef void (*array_function)(const float *x, float *y, int64_t n, const float *parameters);

#define THUNK(name)                                                                              \
    static void name##_thunk(const float *x, float *y, int64_t n, const float *parameters) {     \
        (void)parameters;                                                                        \
        rk_##name##_array(x, y, n);                                                              \
    }
RK_UNARY(THUNK)

/* A composite sees at most CHUNK values at a time; t and u are its scratch. */
#define COMPOSITE(name, ...)                                                                     \
    static void name(const float *x, float *y, int64_t n, const float *p) {                      \
        float t[CHUNK], u[CHUNK];                                                                \
        const float p0 = p[0], p1 = p[1], p2 = p[2]; /* y might alias them */                    \
        (void)p0, (void)p1, (void)p2, (void)t, (void)u;                                          \
        for (; n > 0; x += CHUNK, y += CHUNK, n -= CHUNK) {                                      \
            int64_t count = n < CHUNK ? n : CHUNK;                                               \
            __VA_ARGS__                                                                          \
        }                                                                                        \
    }
#define EACH _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++)

/* 1 / (1 + exp(-x)) */
COMPOSITE(sigmoid,
          EACH t[i] = -x[i];
          rk_exp_array(t, t, count);
          EACH y[i] = rk_canonical(1.0f / (1.0f + t[i]));)

/* x / (1 + exp(-x)) */
COMPOSITE(silu,
          EACH t[i] = -x[i];
          rk_exp_array(t, t, count);
          EACH y[i] = rk_canonical(x[i] / (1.0f + t[i]));)

/* (0.5 * x) * (1 + erf(x * c)) */
COMPOSITE(gelu,
          EACH t[i] = x[i] * 0x1.6a09e6p-1f;
          rk_erf_array(t, t, count);
          EACH y[i] = rk_canonical((0.5f * x[i]) * (1.0f + t[i]));)

/* (0.5 * x) * (1 + tanh(c * (x + d * ((x * x) * x)))) */
COMPOSITE(gelu_tanh,
          EACH t[i] = 0x1.988454p-1f * (x[i] + 0x1.6e4e26p-5f * ((x[i] * x[i]) * x[i]));
          rk_tanh_array(t, t, count);
          EACH y[i] = rk_canonical((0.5f * x[i]) * (1.0f + t[i]));)

/* p = beta, threshold: x where x * beta > threshold, else log1p(exp(x * beta)) / beta */
COMPOSITE(softplus,
          EACH t[i] = x[i] * p0;
          rk_exp_array(t, u, count);
          rk_log1p_array(u, u, count);
          EACH y[i] = rk_canonical(t[i] > p1 ? x[i] : u[i] / p0);)

/* p = alpha, scale, input_scale: (alpha * scale) * expm1(x * input_scale) where x <= 0, else x * scale */
COMPOSITE(elu,
          EACH t[i] = x[i] * p2;
          rk_expm1_array(t, t, count);
          EACH y[i] = rk_canonical(x[i] <= 0.0f ? (p0 * p1) * t[i] : x[i] * p1);)

/* x * tanh(log1p(exp(x))) */
COMPOSITE(mish,
          rk_exp_array(x, t, count);
          rk_log1p_array(t, t, count);
          rk_tanh_array(t, t, count);
          EACH y[i] = rk_canonical(x[i] * t[i]);)

/* (x < 0 ? x : +0) - log1p(exp(-|x|)) */
COMPOSITE(log_sigmoid,
          EACH t[i] = -__builtin_fabsf(x[i]);
          rk_exp_array(t, t, count);
          rk_log1p_array(t, t, count);
          EACH y[i] = rk_canonical((x[i] < 0.0f ? x[i] : 0.0f) - t[i]);)

/* The first of two equal operands wins, and NaN stays. */
RK_INLINE float maximum(float a, float b) { return a < b ? b : a; }
RK_INLINE float minimum(float a, float b) { return a > b ? b : a; }

/* min(max(x + 3, 0), 6) / 6 */
COMPOSITE(hardsigmoid,
          EACH y[i] = rk_canonical(minimum(maximum(x[i] + 3.0f, 0.0f), 6.0f) / 6.0f);)

/* (x * min(max(x + 3, 0), 6)) / 6 */
COMPOSITE(hardswish,
          EACH y[i] = rk_canonical((x[i] * minimum(maximum(x[i] + 3.0f, 0.0f), 6.0f)) / 6.0f);)

/* p = low, high: min(max(x, low), high) */
COMPOSITE(hardtanh, EACH y[i] = rk_canonical(minimum(maximum(x[i], p0), p1));)

/* max(x, 0) */
COMPOSITE(relu, EACH y[i] = rk_canonical(maximum(x[i], 0.0f));)

/* p = slope: x where x > 0, else x * slope */
COMPOSITE(leaky_relu, EACH y[i] = rk_canonical(x[i] > 0.0f ? x[i] : x[i] * p0);)

/* for conversions between the floating dtypes */
COMPOSITE(identity, EACH y[i] = rk_canonical(x[i]);)

/* p = divisor */
COMPOSITE(div_scalar, EACH y[i] = rk_canonical(x[i] / p0);)

/* p = exponent. The exponents below have an operation of their own whose result is the correctly rounded power. */
static void pow_scalar(const float *x, float *y, int64_t n, const float *p) {
    float exponent = p[0];
    if (exponent == 2.0f) {
        for (int64_t i = 0; i < n; i++) y[i] = rk_canonical(x[i] * x[i]);
    } else if (exponent == 1.0f) {
        for (int64_t i = 0; i < n; i++) y[i] = rk_canonical(x[i]);
    } else if (exponent == -1.0f) {
        rk_reciprocal_array(x, y, n);
    } else if (exponent == 0.5f) { /* pow(-0, 1/2) = +0, pow(-inf, 1/2) = +inf */
        for (int64_t i = 0; i < n; i++)
            y[i] = rk_canonical(x[i] == -RK_INFINITY ? RK_INFINITY : __builtin_sqrtf(x[i]) + 0.0f);
    } else {
        float exponents[CHUNK];
        for (int64_t i = 0; i < CHUNK; i++) exponents[i] = exponent;
        for (; n > 0; x += CHUNK, y += CHUNK, n -= CHUNK) rk_pow_array(x, exponents, y, n < CHUNK ? n : CHUNK);
    }
}

#define ROW(name) name##_thunk,
static const array_function FUNCTIONS[] = {
    RK_UNARY(ROW) sigmoid, silu, gelu, gelu_tanh, softplus, elu, mish, log_sigmoid, hardsigmoid, hardswish, hardtanh,
    relu, leaky_relu, identity, div_scalar, pow_scalar,
};

static void run(array_function function, const float *parameters, const void *x, int x_dtype, void *y, int y_dtype,
                int64_t begin, int64_t end) {
    float in[CHUNK], out[CHUNK];
    if (x_dtype == RK_F32 && y_dtype == RK_F32) {
        function((const float *)x + begin, (float *)y + begin, end - begin, parameters);
        return;
    }
    for (int64_t start = begin; start < end; start += CHUNK) {
        int64_t count = end - start < CHUNK ? end - start : CHUNK;
        const float *source = in;
        if (x_dtype == RK_BF16)
            for (int64_t i = 0; i < count; i++) in[i] = rk_from_bf16(((const uint16_t *)x)[start + i]);
        else if (x_dtype == RK_F16)
            for (int64_t i = 0; i < count; i++) in[i] = rk_from_f16(((const uint16_t *)x)[start + i]);
        else
            source = (const float *)x + start;
        function(source, y_dtype == RK_F32 ? (float *)y + start : out, count, parameters);
        if (y_dtype == RK_BF16)
            for (int64_t i = 0; i < count; i++) ((uint16_t *)y)[start + i] = rk_to_bf16(out[i]);
        else if (y_dtype == RK_F16)
            for (int64_t i = 0; i < count; i++) ((uint16_t *)y)[start + i] = rk_to_f16(out[i]);
    }
}

/* y[i] = FUNCTIONS[number](x[i]) for n contiguous values. `code` packs the function's number (low byte) and the dtypes
 * of x and y (bits 8 and 12 on): fewer arguments, shorter calls. Three parameters, rounded to binary32 here, whose
 * meaning is the function's, or null. x == y is allowed when the dtypes are equal. */
RK_EXPORT void RK_NAME(unary)(int64_t code, const void *x, void *y, int64_t n, const double *parameters) {
    static const double none[PARAMETERS] = {0};
    const double *given = parameters ? parameters : none;
    array_function function = FUNCTIONS[code & 0xff];
    int x_dtype = (int)(code >> 8 & 15), y_dtype = (int)(code >> 12 & 15);
    if (n <= GRAIN) {
        RK_FP_ENTER;
        const float p[PARAMETERS] = {(float)given[0], (float)given[1], (float)given[2]};
        run(function, p, x, x_dtype, y, y_dtype, 0, n);
        RK_FP_LEAVE;
        return;
    }
    int64_t chunks = (n + CHUNK - 1) / CHUNK;
#pragma omp parallel
    {
        RK_FP_ENTER;
        const float p[PARAMETERS] = {(float)given[0], (float)given[1], (float)given[2]};
#pragma omp for schedule(static) nowait
        for (int64_t c = 0; c < chunks; c++) {
            int64_t end = (c + 1) * CHUNK;
            run(function, p, x, x_dtype, y, y_dtype, c * CHUNK, end < n ? end : n);
        }
        RK_FP_LEAVE;
    }
}

/* z[i] = pow(x[i], y[i]), binary32 */
RK_EXPORT void RK_NAME(pow)(const float *x, const float *y, float *z, int64_t n) {
#pragma omp parallel if (n > GRAIN)
    {
        RK_FP_ENTER;
#pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < (n + CHUNK - 1) / CHUNK; i++) {
            int64_t start = i * CHUNK;
            rk_pow_array(x + start, y + start, z + start, n - start < CHUNK ? n - start : CHUNK);
        }
        RK_FP_LEAVE;
    }
}

/* ---- for the tests and the exhaustive proof ---- */

#define CORE_BLOCK(name)                                                        \
    static void name##_core_block(const float *x, double *y, int64_t n) {       \
        for (int64_t i = 0; i < n; i++) y[i] = rk_##name##_core((double)x[i]);  \
    }
RK_CORED(CORE_BLOCK)
#define TRIG_BLOCK(name)                                                        \
    static void name##_core_block(const float *x, double *y, int64_t n) {       \
        for (int64_t i = 0; i < n; i++) y[i] = rk_##name##_core((double)x[i]);  \
        for (int64_t i = 0; i < n; i++)                                         \
            if (y[i] == RK_UNDECIDED) y[i] = rk_##name##_large(x[i]);           \
    }
TRIG_BLOCK(sin)
TRIG_BLOCK(cos)
TRIG_BLOCK(tan)

#define CORE_ROW(name) [RK_##name] = name##_core_block,
static void (*const CORES[RK_UNARY_COUNT])(const float *x, double *y, int64_t n) = {
    RK_CORED(CORE_ROW) CORE_ROW(sin) CORE_ROW(cos) CORE_ROW(tan)};

/* The fast path's binary64 approximation, RK_UNDECIDED where it does not reach; not for sqrt and reciprocal. */
RK_EXPORT void RK_NAME(elementary_core)(int number, const float *x, double *y, int64_t n) {
    RK_FP_ENTER;
    CORES[number](x, y, n);
    RK_FP_LEAVE;
}

/* The wide integer path alone; y not null: pow(x, y). */
RK_EXPORT void RK_NAME(elementary_wide)(int number, const float *x, const float *y, float *z, int64_t n) {
    RK_FP_ENTER;
    for (int64_t i = 0; i < n; i++)
        z[i] = y ? RK_NAME(pow_slow)(x[i], y[i]) : RK_NAME(elementary_slow)(number, x[i]);
    RK_FP_LEAVE;
}

/* Over the bit patterns first .. first + count - 1: wherever the approximation lies within `band` (relative) of a
 * rounding boundary, or is undecided, compares the function with the wide integer path. Elsewhere the function is right
 * if the approximation's error is below `band`, which leaves it many times its analysed error.
 * counts: {patterns that differ, the last of them, comparisons, patterns within hard_band}; the first `capacity` of the
 * latter are written to `hard`. */
RK_EXPORT void RK_NAME(elementary_prove)(int number, uint32_t first, int64_t count, double band, double hard_band,
                                         int64_t counts[4], uint32_t *hard, int64_t capacity) {
    memset(counts, 0, 4 * sizeof *counts);
    RK_FP_ENTER;
    for (int64_t start = 0; start < count; start += CHUNK) {
        float x[CHUNK], y[CHUNK];
        double approximation[CHUNK];
        uint32_t close[CHUNK], any = 0;
        int64_t size = count - start < CHUNK ? count - start : CHUNK;
        for (int64_t i = 0; i < size; i++) x[i] = rk_float(first + (uint32_t)(start + i));
        FUNCTIONS[number](x, y, size, 0);
        CORES[number](x, approximation, size);
        for (int64_t i = 0; i < size; i++) {
            float rounded;
            close[i] = rk_round_test(approximation[i], band, &rounded);
            any |= close[i] | (rk_bits(rounded) ^ rk_bits(y[i]));
        }
        for (int64_t i = 0; any && i < size; i++) {
            float want;
            int same_ends = !rk_round_test(approximation[i], band, &want);
            if (same_ends && rk_bits(want) == rk_bits(y[i])) continue;
            counts[2]++;
            want = RK_NAME(elementary_slow)(number, x[i]);
            if (rk_bits(want) != rk_bits(y[i])) counts[0]++, counts[1] = rk_bits(x[i]);
            if (approximation[i] != RK_UNDECIDED && rk_round_test(approximation[i], hard_band, &want))
                if (counts[3]++ < capacity) hard[counts[3] - 1] = rk_bits(x[i]);
        }
    }
    RK_FP_LEAVE;
}
