/* Normalisations: rows of n elements share mean and variance (layer, group, RMS); batch norm reads them.
 *
 * Everything inside is float32; the result is rounded to out's type once, at the end. */
#include "reduce.h"
#include "elementary.h"

/* v[i] = RN(v[i] * w[i / run]), or RN(v[i] + w[i / run]). */
static inline void rk_row_affine(float *restrict v, const void *w, int dtype, int64_t n, int64_t run, int adds) {
    if (run == 1 && adds) {
        if (dtype == RK_F32) for (int64_t i = 0; i < n; ++i) v[i] += ((const float *)w)[i];
        else if (dtype == RK_BF16) for (int64_t i = 0; i < n; ++i) v[i] += rk_from_bf16(((const uint16_t *)w)[i]);
        else for (int64_t i = 0; i < n; ++i) v[i] += rk_from_f16(((const uint16_t *)w)[i]);
    } else if (run == 1) {
        if (dtype == RK_F32) for (int64_t i = 0; i < n; ++i) v[i] *= ((const float *)w)[i];
        else if (dtype == RK_BF16) for (int64_t i = 0; i < n; ++i) v[i] *= rk_from_bf16(((const uint16_t *)w)[i]);
        else for (int64_t i = 0; i < n; ++i) v[i] *= rk_from_f16(((const uint16_t *)w)[i]);
    } else {
        for (int64_t c = 0; c < n / run; ++c) {
            const float f = rk_load(w, dtype, c);
            for (int64_t i = c * run; i < (c + 1) * run; ++i) v[i] = adds ? v[i] + f : v[i] * f;
        }
    }
}

static inline void rk_row_squares(float *restrict t, const float *restrict v, int64_t n) {
    for (int64_t i = 0; i < n; ++i) t[i] = v[i] * v[i];
}

/* Normalises `rows` rows in scratch memory: v holds the elements, t is free. */
static inline void rk_normalise(float *v, float *t, int64_t rows, int64_t n, float eps, int centre) {
    const int64_t stride = rk_stride(n);
    float sums[RK_CHAINS];
    if (centre) {
        rk_sums(v, rows, n, sums);
        for (int64_t r = 0; r < rows; ++r) {
            const float mean = sums[r] / (float)n;
            for (int64_t i = r * stride; i < r * stride + n; ++i) v[i] -= mean;
        }
    }
    for (int64_t r = 0; r < rows; ++r) {
        rk_row_squares(t + r * stride, v + r * stride, n);
        rk_row_pad(t + r * stride, n);
    }
    rk_sums(t, rows, n, sums);
    for (int64_t r = 0; r < rows; ++r) {
        const float inverse = rk_rsqrtf(sums[r] / (float)n + eps);
        for (int64_t i = r * stride; i < r * stride + n; ++i) v[i] *= inverse;
    }
}

/* x [rows, n] -> out [rows, n], of one dtype. Row r uses w and b (either may be NULL) at slice r % slices, n / run
 * factors long, each for `run` neighbouring elements. centre: subtract the mean (layer, group norm) or not (RMS norm). */
typedef struct {
    const void *x, *w, *b;
    void *out;
    int64_t rows, n, slices, run, dtype, w_dtype, b_dtype, centre;
    double eps;
} norm_job;

/* Rows first .. end - 1. Returns 0, or 1 without memory. */
static int norm_rows(const norm_job *job, int64_t first, int64_t end) {
    const int64_t n = job->n, stride = rk_stride(n), most = rk_group(end - first, n) * stride;
    float near[8192], *v = near;
    if (2 * most > 8192) v = malloc((size_t)(2 * most) * sizeof(float));
    if (!v) return 1;
    RK_FP_ENTER;
    const int dtype = (int)job->dtype, w_dtype = (int)job->w_dtype, b_dtype = (int)job->b_dtype;
    const float eps = (float)job->eps;
    for (int64_t group; first < end; first += group) {
        group = rk_group(end - first, n);
        for (int64_t r = 0; r < group; ++r) {
            rk_row_load(v + r * stride, rk_at(job->x, dtype, (first + r) * n), dtype, n);
            if (job->centre) rk_row_pad(v + r * stride, n);
        }
        rk_normalise(v, v + most, group, n, eps, (int)job->centre);
        for (int64_t r = 0; r < group; ++r) {
            const int64_t slice = (first + r) % job->slices * (n / job->run);
            float *row = v + r * stride;
            if (job->w) rk_row_affine(row, rk_at(job->w, w_dtype, slice), w_dtype, n, job->run, 0);
            if (job->b) rk_row_affine(row, rk_at(job->b, b_dtype, slice), b_dtype, n, job->run, 1);
            rk_row_store((void *)rk_at(job->out, dtype, (first + r) * n), dtype, row, n);
        }
    }
    RK_FP_LEAVE;
    if (v != near) free(v);
    return 0;
}

/* Returns 0, or 1 without memory. */
RK_EXPORT int RK_NAME(norm)(const norm_job *job) {
    const int64_t rows = job->rows, pieces = rk_min64(RK_PIECES, rows);
    if (rows * job->n <= RK_SERIAL) return norm_rows(job, 0, rows);
    int failed = 0;
#pragma omp parallel for schedule(static) reduction(| : failed)
    for (int64_t p = 0; p < pieces; ++p) failed |= norm_rows(job, rows * p / pieces, rows * (p + 1) / pieces);
    return failed;
}

/* Batch norm in evaluation mode: x [batch, channels, run], statistics, w and b (either may be NULL) per channel. */
RK_EXPORT void RK_NAME(batch_norm)(const void *x, int dtype, int64_t batch, int64_t channels, int64_t run,
                                   const float *mean, const float *variance, float eps, const float *w, const float *b,
                                   void *out, int out_dtype) {
#pragma omp parallel for schedule(static) if (batch * channels * run > RK_SERIAL)
    for (int64_t row = 0; row < batch * channels; ++row) {
        RK_FP_ENTER;
        const int64_t c = row % channels;
        const float m = mean[c], inverse = rk_rsqrtf(variance[c] + eps);
        for (int64_t i = row * run; i < (row + 1) * run; ++i) {
            float v = (rk_load(x, dtype, i) - m) * inverse;
            if (w) v *= w[c];
            if (b) v += b[c];
            rk_store(out, out_dtype, i, v);
        }
        RK_FP_LEAVE;
    }
}
