/* Softmax and log-softmax of rows, and the draw of a token from one row of probabilities. */
#include "reduce.h"
#include "elementary.h"

#define RK_KEY_INFINITY 0x7f800000

/* The maximum of the allowed elements as a float: NaN if one is NaN, -inf if there is none. */
static inline float row_maximum(const float *t, const uint8_t *allowed, int64_t n) {
    int32_t best = ~RK_KEY_INFINITY;
    if (allowed)
        for (int64_t i = 0; i < n; ++i) {
            const int32_t key = allowed[i] ? rk_key(t[i]) : ~RK_KEY_INFINITY;
            best = key > best ? key : best;
        }
    else
        for (int64_t i = 0; i < n; ++i) {
            const int32_t key = rk_key(t[i]);
            best = key > best ? key : best;
        }
    return rk_float((uint32_t)best ^ ((uint32_t)(best >> 31) >> 1)); /* the key is its own inverse */
}

/* x [rows, n] -> out [rows, n]; allowed is NULL or [rows, n], 0 where the entry is masked (softmax only). */
typedef struct {
    const void *x;
    const uint8_t *allowed;
    void *out;
    int64_t rows, n, dtype, out_dtype, logarithm;
} softmax_job;

/* One row; e and t are scratch of a padded row each. */
static void softmax_row(const softmax_job *job, int64_t r, float *e, float *t) {
    const int64_t n = job->n;
    const int dtype = (int)job->dtype, out_dtype = (int)job->out_dtype;
    const uint8_t *mask = job->allowed ? job->allowed + r * n : NULL;
    rk_row_load(t, rk_at(job->x, dtype, r * n), dtype, n);
    float m = row_maximum(t, mask, n), s;
    for (int64_t i = 0; job->logarithm && m == 0.0f; ++i) /* the first of equals, whose sign a logarithm can show */
        if (t[i] == 0.0f) {
            m = t[i];
            break;
        }
    if (m == -__builtin_inff()) { /* nothing to normalise: +0, or -inf for logarithms, by definition */
        const float y = job->logarithm ? m : 0.0f;
        for (int64_t i = 0; i < n; ++i) t[i] = y;
    } else {
        for (int64_t i = 0; i < n; ++i) t[i] -= m;
        rk_exp_array(t, e, n);
        if (mask) for (int64_t i = 0; i < n; ++i) e[i] = mask[i] ? e[i] : 0.0f;
        rk_row_pad(e, n);
        rk_sums(e, 1, n, &s);
        if (job->logarithm) {
            const float log_s = rk_logf(s);
            for (int64_t i = 0; i < n; ++i) t[i] -= log_s;
        } else {
            for (int64_t i = 0; i < n; ++i) t[i] = e[i] / s;
            if (mask) for (int64_t i = 0; i < n; ++i) t[i] = mask[i] ? t[i] : 0.0f; /* also beside a NaN */
        }
    }
    rk_row_store((void *)rk_at(job->out, out_dtype, r * n), out_dtype, t, n);
}

/* Rows first .. end - 1. Returns 0, or 1 without memory. */
static int softmax_rows(const softmax_job *job, int64_t first, int64_t end) {
    const int64_t stride = rk_stride(job->n);
    float near[8192], *e = near;
    if (2 * stride > 8192) e = malloc((size_t)(2 * stride) * sizeof(float));
    if (!e) return 1;
    RK_FP_ENTER;
    for (; first < end; ++first) softmax_row(job, first, e, e + stride);
    RK_FP_LEAVE;
    if (e != near) free(e);
    return 0;
}

/* Returns 0, or 1 without memory. */
RK_EXPORT int RK_NAME(softmax)(const softmax_job *job) {
    const int64_t rows = job->rows, pieces = rk_min64(RK_PIECES, rows);
    if (rows * job->n <= RK_SERIAL / 8) return softmax_rows(job, 0, rows);
    int failed = 0;
#pragma omp parallel for schedule(static) reduction(| : failed)
    for (int64_t p = 0; p < pieces; ++p) failed |= softmax_rows(job, rows * p / pieces, rows * (p + 1) / pieces);
    return failed;
}

/* z = RN(logits / temperature). */
RK_EXPORT void RK_NAME(scale_logits)(const float *logits, int64_t n, float temperature, float *z) {
    RK_FP_ENTER;
    for (int64_t i = 0; i < n; ++i) z[i] = logits[i] / temperature;
    RK_FP_LEAVE;
}

/* How many of the leading elements of y, added in order from +0, are needed to reach p; n if they never do. */
RK_EXPORT int64_t RK_NAME(prefix)(const float *y, int64_t n, float p) {
    RK_FP_ENTER;
    float c = 0.0f;
    int64_t i = 0;
    while (i < n) {
        c += y[i++];
        if (c >= p) break;
    }
    RK_FP_LEAVE;
    return i;
}

/* The first index whose running sum of y exceeds RN(u * the whole sum); kept is NULL, or 0 for what counts +0.
 * sums is scratch of n floats. */
RK_EXPORT int64_t RK_NAME(draw)(const float *y, const uint8_t *kept, int64_t n, float u, float *sums) {
    RK_FP_ENTER;
    float c = 0.0f;
    if (kept) for (int64_t i = 0; i < n; ++i) sums[i] = c += kept[i] ? y[i] : 0.0f;
    else for (int64_t i = 0; i < n; ++i) sums[i] = c += y[i];
    const float threshold = u * c;
    int64_t low = 0, high = n - 1; /* y >= 0, so the sums ascend; the last exceeds the threshold, for u < 1 */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (sums[middle] > threshold) high = middle;
        else low = middle + 1;
    }
    RK_FP_LEAVE;
    return low;
}
