/* Sums by the segment rule, with what is built on one sum (mean, variance), and cumulative sums.
 *
 * A tensor is seen as [outer, n, inner] in C order; the middle axis is reduced. */
#include "reduce.h"

/* What is added: t = x, or t = RN(d * d) with d = RN(x - center). */
enum { RK_PLAIN = 0, RK_DEVIATION = 1 };
#define RK_COLUMNS 64

static inline void rk_terms(float *t, int64_t n, int mode, float center) {
    if (mode == RK_DEVIATION)
        for (int64_t i = 0; i < n; ++i) {
            const float d = t[i] - center;
            t[i] = d * d;
        }
}

/* RN(acc / divisor) if asked, then its square root if asked. */
static inline float rk_finish(float acc, int divide, float divisor, int root) {
    const float y = divide ? acc / divisor : acc;
    return root ? __builtin_sqrtf(y) : y;
}

/* Rows first .. end - 1 of contiguous elements. Where nothing is to be converted and rows are whole segments, the chains
 * run over x itself. */
static void reduce_rows(const void *x, int dtype, int64_t first, int64_t end, int64_t n, int mode,
                        const float *centers, float *sums) {
    const int64_t block = RK_CHAINS * RK_SEGMENT, stride = rk_stride(n);
    const int direct = dtype == RK_F32 && mode == RK_PLAIN && n == stride;
    RK_FP_ENTER;
    for (int64_t group; first < end; first += group) {
        float t[RK_CHAINS * RK_SEGMENT];
        group = rk_group(end - first, n);
        if (direct) {
            rk_sums((const float *)x + first * n, group, n, sums + first);
        } else if (stride <= block) {
            for (int64_t r = 0; r < group; ++r) {
                rk_row_load(t + r * stride, rk_at(x, dtype, (first + r) * n), dtype, n);
                rk_terms(t + r * stride, n, mode, centers ? centers[first + r] : 0.0f);
                rk_row_pad(t + r * stride, n);
            }
            rk_sums(t, group, n, sums + first);
        } else {
            float acc = 0.0f, parts[RK_CHAINS];
            for (int64_t i = 0; i < n; i += block) {
                const int64_t m = rk_min64(block, n - i);
                rk_row_load(t, rk_at(x, dtype, first * n + i), dtype, m);
                rk_terms(t, m, mode, centers ? centers[first] : 0.0f);
                rk_row_pad(t, m);
                rk_chains(t, rk_segments(m), RK_SEGMENT, parts);
                for (int64_t s = 0; s < rk_segments(m); ++s) acc += parts[s];
            }
            sums[first] = acc;
        }
    }
    RK_FP_LEAVE;
}

/* One long row: the threads share its segments, whose partial sums are then added in order. */
static int reduce_long_row(const void *x, int dtype, int64_t n, int mode, float center, float *sum) {
    const int64_t segments = rk_segments(n), blocks = (segments + RK_CHAINS - 1) / RK_CHAINS;
    const int64_t block = RK_CHAINS * RK_SEGMENT;
    float *parts = malloc((size_t)(blocks * RK_CHAINS) * sizeof(float));
    if (!parts) return 1;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < blocks; ++b) {
        RK_FP_ENTER;
        float t[RK_CHAINS * RK_SEGMENT];
        const int64_t m = rk_min64(block, n - b * block);
        rk_row_load(t, rk_at(x, dtype, b * block), dtype, m);
        rk_terms(t, m, mode, center);
        rk_row_pad(t, m);
        rk_chains(t, rk_segments(m), RK_SEGMENT, parts + b * RK_CHAINS);
        RK_FP_LEAVE;
    }
    float acc = 0.0f;
    for (int64_t s = 0; s < segments; ++s) acc += parts[s];
    free(parts);
    *sum = acc;
    return 0;
}

/* inner > 1: neighbouring columns in the lanes of a vector, each with its own chain. */
static void reduce_columns(const void *x, int dtype, int64_t outer, int64_t n, int64_t inner, int mode,
                           const float *centers, float *sums) {
    const int64_t blocks = (inner + RK_COLUMNS - 1) / RK_COLUMNS;
#pragma omp parallel for schedule(static) if (outer * n * inner > RK_SERIAL)
    for (int64_t job = 0; job < outer * blocks; ++job) {
        RK_FP_ENTER;
        const int64_t o = job / blocks, column = job % blocks * RK_COLUMNS;
        const int64_t width = rk_min64(RK_COLUMNS, inner - column);
        float t[RK_COLUMNS] = {0}, p[RK_COLUMNS], acc[RK_COLUMNS] = {0}, center[RK_COLUMNS] = {0};
        if (centers) memcpy(center, centers + o * inner + column, (size_t)width * sizeof(float));
        for (int64_t k = 0; k < n;) {
            const int64_t end = rk_min64(n, k + RK_SEGMENT);
            memset(p, 0, sizeof p);
            for (; k < end; ++k) {
                rk_row_load(t, rk_at(x, dtype, (o * n + k) * inner + column), dtype, width);
                if (mode == RK_DEVIATION)
                    for (int64_t j = 0; j < RK_COLUMNS; ++j) {
                        const float d = t[j] - center[j];
                        t[j] = d * d;
                    }
                for (int64_t j = 0; j < RK_COLUMNS; ++j) p[j] += t[j];
            }
            for (int64_t j = 0; j < RK_COLUMNS; ++j) acc[j] += p[j];
        }
        memcpy(sums + o * inner + column, acc, (size_t)width * sizeof(float));
        RK_FP_LEAVE;
    }
}

/* x [outer, n, inner] -> out [outer, inner]. centers [outer, inner]: sum squared deviations from them, or NULL.
 * divide: by divisor, after the sum; root: then the square root. sums is scratch of as many floats as out has elements
 * (out itself, if that is float32). */
typedef struct {
    const void *x;
    const float *centers;
    float *sums;
    void *out;
    int64_t outer, n, inner, dtype, out_dtype, divide, root;
    double divisor;
} reduce_job;

/* Returns 0, or 1 without memory. */
RK_EXPORT int RK_NAME(reduce)(const reduce_job *job) {
    const void *x = job->x;
    const int64_t outer = job->outer, n = job->n, inner = job->inner;
    const int dtype = (int)job->dtype, mode = job->centers ? RK_DEVIATION : RK_PLAIN;
    const float *centers = job->centers;
    float *sums = job->sums;
    int failed = 0;
    RK_FP_ENTER;
    if (inner > 1) reduce_columns(x, dtype, outer, n, inner, mode, centers, sums);
    else if (outer * n <= RK_SERIAL) reduce_rows(x, dtype, 0, outer, n, mode, centers, sums);
    else if (outer < 4 && n > RK_SERIAL)
        for (int64_t o = 0; o < outer && !failed; ++o)
            failed = reduce_long_row(rk_at(x, dtype, o * n), dtype, n, mode, centers ? centers[o] : 0.0f, sums + o);
    else {
        const int64_t pieces = rk_min64(RK_PIECES, outer);
#pragma omp parallel for schedule(static)
        for (int64_t p = 0; p < pieces; ++p)
            reduce_rows(x, dtype, outer * p / pieces, outer * (p + 1) / pieces, n, mode, centers, sums);
    }
    for (int64_t i = 0; i < outer * inner && !failed; ++i)
        rk_store(job->out, (int)job->out_dtype, i,
                 rk_finish(sums[i], (int)job->divide, (float)job->divisor, (int)job->root));
    RK_FP_LEAVE;
    return failed;
}

/* Running sums from +0 along the middle axis, kept in float32; each is rounded to out's type. Either `width` neighbouring
 * columns, or (inner = 1) `width` neighbouring rows, whose chains hide each other's latency. */
static void cumsum_columns(const void *x, int dtype, int64_t n, int64_t inner, int64_t width, void *out, int out_dtype) {
    float t[RK_COLUMNS] = {0}, c[RK_COLUMNS] = {0};
    for (int64_t k = 0; k < n; ++k) {
        rk_row_load(t, rk_at(x, dtype, k * inner), dtype, width);
        for (int64_t j = 0; j < RK_COLUMNS; ++j) c[j] += t[j];
        rk_row_store((void *)rk_at(out, out_dtype, k * inner), out_dtype, c, width);
    }
}

static void cumsum_rows(const void *x, int dtype, int64_t n, int64_t width, void *out, int out_dtype) {
    float t[4][512] = {{0}}, c0 = 0, c1 = 0, c2 = 0, c3 = 0;
    for (int64_t i = 0; i < n; i += 512) {
        const int64_t m = rk_min64(512, n - i);
        for (int64_t r = 0; r < width; ++r) rk_row_load(t[r], rk_at(x, dtype, r * n + i), dtype, m);
        for (int64_t k = 0; k < m; ++k) {
            t[0][k] = c0 += t[0][k];
            t[1][k] = c1 += t[1][k];
            t[2][k] = c2 += t[2][k];
            t[3][k] = c3 += t[3][k];
        }
        for (int64_t r = 0; r < width; ++r)
            rk_row_store((void *)rk_at(out, out_dtype, r * n + i), out_dtype, t[r], m);
    }
}

RK_EXPORT void RK_NAME(cumsum)(const void *x, int dtype, int64_t outer, int64_t n, int64_t inner, void *out,
                               int out_dtype) {
    const int64_t lines = inner == 1 ? outer : inner, wide = inner == 1 ? 4 : RK_COLUMNS;
    const int64_t blocks = (lines + wide - 1) / wide, jobs = inner == 1 ? blocks : outer * blocks;
#pragma omp parallel for schedule(static) if (outer * n * inner > RK_SERIAL)
    for (int64_t job = 0; job < jobs; ++job) {
        RK_FP_ENTER;
        const int64_t line = job % blocks * wide, width = rk_min64(wide, lines - line);
        const int64_t at = inner == 1 ? line * n : job / blocks * n * inner + line;
        const void *from = rk_at(x, dtype, at);
        void *to = (void *)rk_at(out, out_dtype, at);
        if (inner == 1) cumsum_rows(from, dtype, n, width, to, out_dtype);
        else cumsum_columns(from, dtype, n, inner, width, to, out_dtype);
        RK_FP_LEAVE;
    }
}
