/* Matrix products by the dot rule of profile fp32 (repro_kernels.spec.dot): segments of 128 terms at multiples of 128
 * of the position, a chain of FMAs inside each, partial sums added in order. That order is fixed; which elements are
 * computed together is not, and is chosen for speed:
 *
 *   rows of the left matrix are packed once, upcast, into panels [k][rows of a tile];
 *   a task is a block of output columns: segment by segment, the right matrix's rows are packed, upcast, into panels
 *   [k][RK_NR]; a tile of partial sums in registers runs over the segment and is added to the block's accumulators.
 *
 * Lanes are output columns, so no sum ever crosses lanes. */
#include <omp.h>
#include <stdlib.h>

#include "gemm_simd.h"

#define MAX_COLUMNS 128             /* of a task */
#define MAX_ROWS 512                /* of the left matrix packed at a time */
#define MAX_PACKED ((int64_t)4 << 20) /* elements of the left matrix packed at a time, beyond one tile of rows */
#define MIN_PARALLEL 65536          /* multiplications below which a second thread costs more than it saves */

/* ---- packing ---- */

/* Columns n0 .. n0 + count of a panel, segment of kc terms; strides in elements. Missing columns are zeros, whose sums
 * nobody reads. */
RK_INLINE void pack_panel(float *dst, const void *src, int dtype, int64_t at, int64_t count, int64_t kc,
                          int64_t stride_n, int64_t stride_k) {
    int64_t done = 0;
    if (stride_k == 1 && count == RK_NR) {
        const int step = dtype == RK_BF16 ? 2 * RK_VL : RK_VL;
        for (; done + step <= kc; done += step) {
            for (int v = 0; v < RK_NV; v++) {
                rk_vec r[RK_VL];
                const int64_t from = at + v * RK_VL * stride_n + done;
                float *to = dst + done * RK_NR + v * RK_VL;
                if (dtype == RK_BF16) { /* pairs of bf16 travel as one 32-bit element */
                    for (int i = 0; i < RK_VL; i++)
                        r[i] = rk_vload((const float *)((const uint16_t *)src + from + i * stride_n));
                    rk_vtranspose(r);
                    for (int i = 0; i < RK_VL; i++) {
                        rk_vstore(to + 2 * i * RK_NR, rk_vlow_bf16(r[i]));
                        rk_vstore(to + (2 * i + 1) * RK_NR, rk_vhigh_bf16(r[i]));
                    }
                } else {
                    for (int i = 0; i < RK_VL; i++) r[i] = rk_vload_any(src, dtype, from + i * stride_n);
                    rk_vtranspose(r);
                    for (int i = 0; i < RK_VL; i++) rk_vstore(to + i * RK_NR, r[i]);
                }
            }
        }
    } else if (stride_n == 1 && count == RK_NR) {
        for (; done < kc; done++)
            for (int v = 0; v < RK_NV; v++)
                rk_vstore(dst + done * RK_NR + v * RK_VL, rk_vload_any(src, dtype, at + done * stride_k + v * RK_VL));
    }
    for (int64_t n = 0; n < RK_NR; n++)
        for (int64_t k = done; k < kc; k++)
            dst[k * RK_NR + n] = n < count ? rk_load(src, dtype, at + n * stride_n + k * stride_k) : 0.0f;
}

/* Rows of the left matrix, K terms, to [k][rows]. */
RK_INLINE void pack_rows(float *dst, const void *src, int dtype, int64_t at, int64_t rows, int64_t K,
                         int64_t stride_m, int64_t stride_k) {
    if (rows == 1 && stride_k == 1) {
        for (int64_t k = 0; k < K; k++) dst[k] = rk_load(src, dtype, at + k);
        return;
    }
    for (int64_t k0 = 0; k0 < K; k0 += 64) /* short stretches: rows may lie a multiple of 4096 bytes apart */
        for (int64_t m = 0; m < rows; m++)
            for (int64_t k = k0; k < K && k < k0 + 64; k++)
                dst[k * rows + m] = rk_load(src, dtype, at + m * stride_m + k * stride_k);
}

#define BY_DTYPE(dtype, call)       \
    switch (dtype) {                \
    case RK_BF16: call(RK_BF16); break; \
    case RK_F16: call(RK_F16); break;   \
    default: call(RK_F32);          \
    }

static void pack_panel_any(float *dst, const void *src, int dtype, int64_t at, int64_t count, int64_t kc,
                           int64_t stride_n, int64_t stride_k) {
#define CALL(d) pack_panel(dst, src, d, at, count, kc, stride_n, stride_k)
    BY_DTYPE(dtype, CALL)
#undef CALL
}

static void pack_rows_any(float *dst, const void *src, int dtype, int64_t at, int64_t rows, int64_t K,
                          int64_t stride_m, int64_t stride_k) {
#define CALL(d) pack_rows(dst, src, d, at, rows, K, stride_m, stride_k)
    BY_DTYPE(dtype, CALL)
#undef CALL
}

/* ---- the tile: `rows` x `wide` panels over one segment; acc = RN(acc + p), from +0 in the first segment ---- */

typedef void tile_fn(const float *a, const float *b, int64_t kc, float *acc, int64_t width, int first);

RK_INLINE void tile(const int rows, const int wide, const float *a, const float *b, int64_t kc, float *acc,
                    int64_t width, int first) {
    rk_vec p[RK_MR][4 * RK_NV];
#pragma GCC unroll 16
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 8
        for (int v = 0; v < wide * RK_NV; v++) p[m][v] = rk_vset(0.0f);
    for (int64_t k = 0; k < kc; k++) {
        rk_vec w[4 * RK_NV];
#pragma GCC unroll 8
        for (int v = 0; v < wide * RK_NV; v++)
            w[v] = rk_vload(b + (v / RK_NV) * (RK_SEGMENT * RK_NR) + k * RK_NR + v % RK_NV * RK_VL);
#pragma GCC unroll 16
        for (int m = 0; m < rows; m++) {
            rk_vec x = rk_vset(a[k * rows + m]);
#pragma GCC unroll 8
            for (int v = 0; v < wide * RK_NV; v++) p[m][v] = rk_vfma(x, w[v], p[m][v]);
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 8
        for (int v = 0; v < wide * RK_NV; v++) {
            float *to = acc + m * width + v * RK_VL;
            rk_vstore(to, (first ? rk_vset(0.0f) : rk_vload(to)) + p[m][v]);
        }
}

#define TILE(rows)                                                                                              \
    static void tile_##rows(const float *a, const float *b, int64_t kc, float *acc, int64_t width, int first) { \
        tile(rows, 1, a, b, kc, acc, width, first);                                                             \
    }                                                                                                           \
    static void wide_##rows(const float *a, const float *b, int64_t kc, float *acc, int64_t width, int first) { \
        tile(rows, RK_WIDE(rows), a, b, kc, acc, width, first);                                                 \
    }
#define EACH_4(X) X(1) X(2) X(3) X(4)
#define EACH_6(X) EACH_4(X) X(5) X(6)
#define EACH_8(X) EACH_6(X) X(7) X(8)
#define EACH_14(X) EACH_8(X) X(9) X(10) X(11) X(12) X(13) X(14)
#define EACH_(n, X) RK_CAT(EACH_, n)(X)
EACH_(RK_MR, TILE)
#define TILE_ENTRY(rows) {tile_##rows, wide_##rows, RK_WIDE(rows)},
static const struct {
    tile_fn *one, *many;
    int wide;
} tiles[] = {EACH_(RK_MR, TILE_ENTRY)};

/* ---- one task ---- */

typedef struct {
    const void *a, *b, *bias;
    void *c;
    const int64_t *a_off, *b_off, *bias_off;
    int64_t M, N, K, first_length, am, ak, bn, bk, im, in;
    int adt, bdt, cdt, idt;
    float alpha, beta;
    int64_t columns; /* of a task */
} problem;

/* Scale, add the bias, round once to the result's type. */
static void finish(const problem *q, int64_t z, int64_t m0, int64_t rows, int64_t n0, int64_t count, const float *acc,
                   int64_t width) {
    float added[MAX_COLUMNS];
    for (int64_t m = 0; m < rows; m++, acc += width) {
        if (q->bias && (m == 0 || q->im != 0))
            for (int64_t n = 0; n < count; n++)
                added[n] = q->beta * rk_load(q->bias, q->idt, q->bias_off[z] + (m0 + m) * q->im + (n0 + n) * q->in);
        const int64_t to = (z * q->M + m0 + m) * q->N + n0;
#define CALL(d)                                                                                          if (q->bias)                                                                                             for (int64_t n = 0; n < count; n++) rk_store(q->c, d, to + n, added[n] + q->alpha * acc[n]);     else                                                                                                     for (int64_t n = 0; n < count; n++) rk_store(q->c, d, to + n, q->alpha * acc[n])
        BY_DTYPE(q->cdt, CALL)
#undef CALL
    }
}

/* Rows [m0, m0 + rows) of batch entry z, columns [n0, n0 + count): packed rows in `left`. */
static void block(const problem *q, int64_t z, int64_t m0, int64_t rows, int64_t n0, int64_t count, const float *left,
                  float *right, float *acc) {
    const int64_t panels = (count + RK_NR - 1) / RK_NR, width = panels * RK_NR;
    const int64_t heights = (rows + RK_MR - 1) / RK_MR, wide = heights == 1 ? tiles[rows - 1].wide : 1;
    if (q->K == 0) memset(acc, 0, (size_t)(rows * width) * sizeof *acc);
    for (int64_t k = 0, kc = q->first_length; k < q->K; k += kc, kc = RK_SEGMENT) {
        if (kc > q->K - k) kc = q->K - k;
        for (int64_t j = 0; j < panels; j++) {
            const int64_t n = n0 + j * RK_NR, left_over = n0 + count - n;
            pack_panel_any(right + j * RK_SEGMENT * RK_NR, q->b, q->bdt, q->b_off[z] + n * q->bn + k * q->bk,
                           left_over < RK_NR ? left_over : RK_NR, kc, q->bn, q->bk);
        }
        for (int64_t j = 0, step; j < panels; j += step) {
            step = panels - j < wide ? 1 : wide;
            for (int64_t i = 0; i < heights; i++) {
                const int64_t top = i * rows / heights, height = (i + 1) * rows / heights - top;
                tile_fn *run = step == 1 ? tiles[height - 1].one : tiles[height - 1].many;
                run(left + top * q->K + k * height, right + j * RK_SEGMENT * RK_NR, kc,
                    acc + top * width + j * RK_NR, width, k == 0);
            }
        }
    }
    finish(q, z, m0, rows, n0, count, acc, width);
}

/* ---- the whole ---- */

static void run_rows(const problem *q, int64_t z0, int64_t zs, int64_t m0, int64_t rows, float *memory,
                     int64_t left_size, int64_t thread_size) {
    const int64_t heights = (rows + RK_MR - 1) / RK_MR, blocks = (q->N + q->columns - 1) / q->columns;
#pragma omp parallel if (zs * rows * q->N * (q->K + 16) > MIN_PARALLEL)
    {
        RK_FP_ENTER;
        float *right = memory + left_size + omp_get_thread_num() * thread_size;
        float *acc = right + MAX_COLUMNS * RK_SEGMENT;
#pragma omp for schedule(static)
        for (int64_t t = 0; t < zs * heights; t++) {
            const int64_t z = t / heights, i = t % heights;
            const int64_t top = i * rows / heights, height = (i + 1) * rows / heights - top;
            pack_rows_any(memory + (z * rows + top) * q->K, q->a, q->adt, q->a_off[z0 + z] + (m0 + top) * q->am,
                          height, q->K, q->am, q->ak);
        }
#pragma omp for schedule(dynamic) nowait
        for (int64_t t = 0; t < zs * blocks; t++) {
            const int64_t z = t / blocks, n0 = t % blocks * q->columns;
            block(q, z0 + z, m0, rows, n0, q->N - n0 < q->columns ? q->N - n0 : q->columns,
                  memory + z * rows * q->K, right, acc);
        }
        RK_FP_LEAVE;
    }
}

/* c[z, m, n] = RN_c(RN(beta * bias) + RN(alpha * sum_k a[z, m, k] * b[z, n, k])), c contiguous.
 *
 * shape: batch, M, N, K, k_start (position of the first term, modulo 128), then strides in elements: a's of m and k,
 * b's of n and k, bias's of m and n; then the dtypes of a, b, c, bias. a_off, b_off, bias_off: where each batch entry
 * starts, in elements. Without bias (NULL): RN_c(RN(alpha * sum)). Returns 0, or 1 when memory ran out. */
RK_EXPORT int RK_NAME(gemm)(const int64_t *shape, const void *a, const void *b, void *c, const void *bias,
                            const int64_t *a_off, const int64_t *b_off, const int64_t *bias_off, float alpha,
                            float beta) {
    const int64_t batch = shape[0], first = RK_SEGMENT - shape[4];
    problem q = {a, b, bias, c, a_off, b_off, bias_off, shape[1], shape[2], shape[3], first, shape[5], shape[6],
                 shape[7], shape[8], shape[9], shape[10], (int)shape[11], (int)shape[12], (int)shape[13],
                 (int)shape[14], alpha, beta, 0};
    const int threads = omp_get_max_threads();

    /* Few rows: narrow blocks, so that a segment of them stays in the first-level cache. About four tasks a thread. */
    const int64_t most = q.M <= RK_MR ? MAX_COLUMNS / 2 : MAX_COLUMNS;
    q.columns = (batch * q.N / (4 * threads) + RK_NR - 1) / RK_NR * RK_NR;
    q.columns = q.columns > most ? most : q.columns < RK_NR ? RK_NR : q.columns;

    int64_t rows = q.K ? MAX_PACKED / q.K / RK_MR * RK_MR : MAX_ROWS;
    rows = rows < RK_MR ? RK_MR : rows > MAX_ROWS ? MAX_ROWS : rows;
    if (rows > q.M) rows = q.M;
    int64_t together = MAX_PACKED / (rows * q.K + 1); /* batch entries packed at a time */
    together = rows < q.M || together < 1 ? 1 : together > batch ? batch : together;

    const int64_t left_size = (together * rows * q.K + 15) / 16 * 16;
    const int64_t thread_size = MAX_COLUMNS * RK_SEGMENT + rows * MAX_COLUMNS;
    float *memory = aligned_alloc(64, (size_t)(left_size + threads * thread_size) * sizeof *memory);
    if (!memory) return 1;
    for (int64_t z = 0; z < batch; z += together)
        for (int64_t m = 0; m < q.M; m += rows)
            run_rows(&q, z, batch - z < together ? batch - z : together, m, q.M - m < rows ? q.M - m : rows, memory,
                     left_size, thread_size);
    free(memory);
    return 0;
}
