/* Matrix products by the dot rule of profile fp32 (repro_kernels.spec.dot): segments of 128 terms at multiples of 128
 * of the position, a chain of FMAs inside each, partial sums added in order. That order is fixed; which elements are
 * computed together is not, and is chosen for speed:
 *
 *   the left matrix is packed once, upcast, as [segment][row][k];
 *   a task is a block of output columns: segment by segment, the right matrix's rows are packed, upcast, into panels
 *   [k][RK_NR]; a tile of partial sums in registers runs over the segment and is added to the block's accumulators
 *   (one row of a weight goes without packing: gemm_row.h).
 *
 * Lanes are output columns, so no sum ever crosses lanes. */
#include <omp.h>
#include <stdlib.h>

#include "gemm_row.h"

#define MAX_COLUMNS 128             /* of a task */
#define MIN_ROWS 128                /* of the left matrix packed at a time: every lot of rows packs the right matrix again */
#define MAX_ROWS 512
#define SHARED ((int64_t)1 << 20)   /* elements of packed rows that the second-level cache holds beside the rest */
#define MIN_PARALLEL 65536          /* multiplications below which a second thread costs more than it saves */

/* ---- packing ---- */

/* Columns n0 .. n0 + count of a panel, segment of kc terms; strides in elements. Missing columns are zeros, whose sums
 * nobody reads. Elements `ahead` are needed next. */
RK_INLINE void pack_panel(float *dst, const void *src, int dtype, int64_t at, int64_t count, int64_t kc,
                          int64_t stride_n, int64_t stride_k, int64_t ahead) {
    int64_t done = 0;
    if (stride_k == 1 && count == RK_NR) {
        for (int g = 0; g < RK_GROUPS; g++)
            for (done = 0; done + RK_STEP(dtype) <= kc; done += RK_STEP(dtype)) {
                const int64_t from = at + g * RK_RL * stride_n + done;
                float *to = dst + done * RK_NR + g * RK_RL;
                rk_row r[RK_RL];
                if (done % RK_LINE(dtype) == 0) rk_rprefetch(src, dtype, from + ahead, stride_n);
                rk_rblock(r, src, dtype, from, stride_n);
                for (int i = 0; i < RK_RL; i++)
                    if (dtype == RK_F32) {
                        rk_rstore(to + i * RK_NR, r[i]);
                    } else {
                        rk_rstore(to + 2 * i * RK_NR, rk_rlow(r[i], dtype));
                        rk_rstore(to + (2 * i + 1) * RK_NR, rk_rhigh(r[i], dtype));
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

/* Terms of one row of the left matrix. */
RK_INLINE void pack_row(float *dst, const void *src, int dtype, int64_t at, int64_t kc, int64_t stride_k) {
    int64_t k = 0;
    if (stride_k == 1)
        for (; k + RK_VL <= kc; k += RK_VL) rk_vstore(dst + k, rk_vload_any(src, dtype, at + k));
    for (; k < kc; k++) dst[k] = rk_load(src, dtype, at + k * stride_k);
}

#define BY_DTYPE(dtype, call)       \
    switch (dtype) {                \
    case RK_BF16: call(RK_BF16); break; \
    case RK_F16: call(RK_F16); break;   \
    default: call(RK_F32);          \
    }

static void pack_panel_any(float *dst, const void *src, int dtype, int64_t at, int64_t count, int64_t kc,
                           int64_t stride_n, int64_t stride_k, int64_t ahead) {
#define CALL(d) pack_panel(dst, src, d, at, count, kc, stride_n, stride_k, ahead)
    BY_DTYPE(dtype, CALL)
#undef CALL
}

static void lean_any(const float *a, const void *src, int dtype, int64_t at, int64_t first_length, int64_t K,
                     int64_t stride, float *sums) {
#define CALL(d) lean(a, src, d, at, first_length, K, stride, sums)
    BY_DTYPE(dtype, CALL)
#undef CALL
}

static void pack_row_any(float *dst, const void *src, int dtype, int64_t at, int64_t kc, int64_t stride_k) {
#define CALL(d) pack_row(dst, src, d, at, kc, stride_k)
    BY_DTYPE(dtype, CALL)
#undef CALL
}

/* ---- the tile: `rows` x `wide` panels over one segment; acc = RN(acc + p), from +0 in the first segment ---- */

typedef void tile_fn(const float *a, const float *b, int64_t kc, float *acc, int64_t width, int first);

RK_INLINE void tile(const int rows, const int wide, const float *a, const float *b, int64_t kc, float *acc,
                    int64_t width, int first) {
    rk_vec p[RK_MR][2 * RK_NV];
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < wide * RK_NV; v++) __builtin_prefetch(acc + m * width + v * RK_VL, 1, 3);
#pragma GCC unroll 16
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 8
        for (int v = 0; v < wide * RK_NV; v++) p[m][v] = rk_vset(0.0f);
    for (int64_t k = 0; k < kc; k++) {
        rk_vec w[2 * RK_NV];
        __builtin_prefetch(a + rows * (RK_SEGMENT + k), 0, 3); /* the rows of the next tile, a little at each step */
#pragma GCC unroll 8
        for (int v = 0; v < wide * RK_NV; v++)
            w[v] = rk_vload(b + (v / RK_NV) * (RK_SEGMENT * RK_NR) + k * RK_NR + v % RK_NV * RK_VL);
#pragma GCC unroll 16
        for (int m = 0; m < rows; m++) {
            rk_vec x = rk_vset(a[m * RK_SEGMENT + k]);
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

/* ---- one block of columns ---- */

typedef struct {
    const void *a, *b, *bias;
    void *c;
    const int64_t *a_off, *b_off, *bias_off; /* of batch entries, in elements; NULL: one entry, at 0 */
    int64_t M, N, K, first_length;           /* first_length: of the first segment */
    int64_t am, ak, bn, bk, im, in;          /* strides in elements of a, b and bias (in the end: i) */
    int adt, bdt, cdt, idt;
    float alpha, beta;
    int64_t columns; /* of a block */
    int64_t chunk;   /* neighbouring blocks that one thread takes at a time */
} problem;

static int64_t segments_of(const problem *q) {
    return q->K ? (q->K + (RK_SEGMENT - q->first_length) + RK_SEGMENT - 1) / RK_SEGMENT : 0;
}

static int64_t entry(const int64_t *offsets, int64_t z) { return offsets ? offsets[z] : 0; }

/* Rows of batch entry z from row m, terms k .. k + kc, packed at `to`, [row][RK_SEGMENT]. */
static void pack_left(const problem *q, int64_t z, int64_t m, int64_t rows, int64_t k, int64_t kc, float *to) {
    for (int64_t i = 0; i < rows; i++)
        pack_row_any(to + i * RK_SEGMENT, q->a, q->adt, entry(q->a_off, z) + (m + i) * q->am + k * q->ak, kc, q->ak);
}

/* Scale, add the bias, round once to the result's type; at most 2 * RK_NR columns. */
static void finish(const problem *q, int64_t z, int64_t m, int64_t rows, int64_t n, int64_t count, const float *acc,
                   int64_t width) {
    const float alpha = q->alpha, beta = q->beta;
    void *restrict c = q->c;
    float added[2 * RK_NR];
    if (!q->bias && q->cdt == RK_F32 && count % RK_VL == 0) { /* the common case, in vectors */
        float *row = (float *)c + (z * q->M + m) * q->N + n;
        for (int64_t i = 0; i < rows; i++, row += q->N, acc += width)
            for (int64_t j = 0; j < count; j += RK_VL)
                rk_vstore(row + j, rk_vcanonical(rk_vset(alpha) * rk_vload(acc + j)));
        return;
    }
    for (int64_t i = 0; i < rows; i++, acc += width) {
        if (q->bias && (i == 0 || q->im != 0))
            for (int64_t j = 0; j < count; j++)
                added[j] = beta * rk_load(q->bias, q->idt, entry(q->bias_off, z) + (m + i) * q->im + (n + j) * q->in);
        const int64_t to = (z * q->M + m + i) * q->N + n;
#define CALL(d)                                                                             \
    if (q->bias)                                                                            \
        for (int64_t j = 0; j < count; j++) rk_store(c, d, to + j, added[j] + alpha * acc[j]); \
    else                                                                                    \
        for (int64_t j = 0; j < count; j++) rk_store(c, d, to + j, alpha * acc[j])
        BY_DTYPE(q->cdt, CALL)
#undef CALL
    }
}

/* Rows [m, m + rows) of batch entry z, columns [n, n + count). The left matrix's rows are in `packed`,
 * [segment][row][RK_SEGMENT], or else packed here, segment by segment, into `left`. */
static void block(const problem *q, int64_t z, int64_t m, int64_t rows, int64_t n, int64_t count, const float *packed,
                  float *left, float *right, float *acc) {
    const int64_t panels = (count + RK_NR - 1) / RK_NR, width = panels * RK_NR;
    const int64_t heights = (rows + RK_MR - 1) / RK_MR, wide = heights == 1 ? tiles[rows - 1].wide : 1;
    if (q->K == 0) {
        memset(acc, 0, RK_NR * sizeof *acc);
        for (int64_t j = 0; j < count; j += RK_NR)
            finish(q, z, m, rows, n + j, count - j < RK_NR ? count - j : RK_NR, acc, 0);
    }
    if (rows == 1 && packed && q->bk == 1 && count % RK_LEAN == 0 && lean_fits(q->bdt, q->first_length, q->K)) {
        for (int64_t j = 0; j < count; j += RK_LEAN) {
            lean_any(packed, q->b, q->bdt, entry(q->b_off, z) + (n + j) * q->bn, q->first_length, q->K, q->bn, acc);
            finish(q, z, m, 1, n + j, RK_LEAN, acc, 0);
        }
        return;
    }
    for (int64_t k = 0, kc = q->first_length; k < q->K; k += kc, kc = RK_SEGMENT) {
        if (kc > q->K - k) kc = q->K - k;
        const int last = k + kc == q->K;
        const float *terms = packed;
        if (packed)
            packed += rows * RK_SEGMENT;
        else
            pack_left(q, z, m, rows, k, kc, left), terms = left;
        for (int64_t j = 0; j < count; j += RK_NR)
            pack_panel_any(right + j * RK_SEGMENT, q->b, q->bdt, entry(q->b_off, z) + (n + j) * q->bn + k * q->bk,
                           count - j < RK_NR ? count - j : RK_NR, kc, q->bn, q->bk,
                           last ? q->columns * q->bn - k : kc);
        for (int64_t j = 0, step; j < panels; j += step) {
            step = panels - j < wide ? 1 : wide;
            const int64_t left_over = count - j * RK_NR;
            for (int64_t i = 0; i < heights; i++) {
                const int64_t top = i * rows / heights, height = (i + 1) * rows / heights - top;
                float *sums = acc + top * width + j * RK_NR;
                (step == 1 ? tiles[height - 1].one : tiles[height - 1].many)(
                    terms + top * RK_SEGMENT, right + j * RK_NR * RK_SEGMENT, kc, sums, width, k == 0);
                if (last)
                    finish(q, z, m + top, height, n + j * RK_NR, left_over < step * RK_NR ? left_over : step * RK_NR,
                           sums, width);
            }
        }
    }
}

/* ---- the whole ---- */

static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* Rows [m, end), `rows` at a time, of batch entries [z0, z0 + zs). left_size: of the shared packed rows; then all of them
 * are one lot of rows. */
static void run(const problem *q, int64_t z0, int64_t zs, int64_t m, int64_t end, int64_t rows, float *memory,
                int64_t left_size, int64_t thread_size) {
    const int64_t blocks = (q->N + q->columns - 1) / q->columns, segments = segments_of(q);
    const int64_t lots = (end - m + rows - 1) / rows;
    const int shared = left_size != 0;
#pragma omp parallel if (zs * (end - m) * q->N * (q->K + 16) > MIN_PARALLEL)
    {
        RK_FP_ENTER;
        float *right = memory + left_size + omp_get_thread_num() * thread_size;
        float *acc = right + MAX_COLUMNS * RK_SEGMENT, *left = acc + rows * MAX_COLUMNS;
        if (shared) {
#pragma omp for schedule(static)
            for (int64_t t = 0; t < zs * segments; t++) {
                const int64_t z = t / segments, s = t % segments, k = s ? q->first_length + (s - 1) * RK_SEGMENT : 0;
                const int64_t kc = s ? RK_SEGMENT : q->first_length;
                pack_left(q, z0 + z, m, end - m, k, kc < q->K - k ? kc : q->K - k,
                          memory + t * (end - m) * RK_SEGMENT);
            }
        }
#pragma omp for schedule(dynamic, q->chunk) nowait
        for (int64_t t = 0; t < zs * lots * blocks; t++) {
            const int64_t z = t / (lots * blocks), from = m + t / blocks % lots * rows, n = t % blocks * q->columns;
            block(q, z0 + z, from, end - from < rows ? end - from : rows, n,
                  q->N - n < q->columns ? q->N - n : q->columns,
                  shared ? memory + z * segments * rows * RK_SEGMENT : NULL, left, right, acc);
        }
        RK_FP_LEAVE;
    }
}

/* c[z, m, n] = RN_c(RN(beta * bias) + RN(alpha * sum_k a[z, m, k] * b[z, n, k])), c contiguous.
 *
 * shape: batch, M, N, K, k_start (position of the first term, modulo 128), then strides in elements: a's of m and k,
 * b's of n and k, bias's of m and n; then the dtypes of a, b, c, bias. a_off, b_off, bias_off: where each batch entry
 * starts, in elements; NULL for 0. Without bias (NULL): RN_c(RN(alpha * sum)). Returns 0, or 1 when memory ran out. */
RK_EXPORT int RK_NAME(gemm)(const int64_t *shape, const void *a, const void *b, void *c, const void *bias,
                            const int64_t *a_off, const int64_t *b_off, const int64_t *bias_off, float alpha,
                            float beta) {
    const int64_t batch = shape[0], threads = omp_get_max_threads();
    problem q = {.a = a, .b = b, .bias = bias, .c = c, .a_off = a_off, .b_off = b_off, .bias_off = bias_off,
                 .M = shape[1], .N = shape[2], .K = shape[3], .first_length = RK_SEGMENT - shape[4],
                 .am = shape[5], .ak = shape[6], .bn = shape[7], .bk = shape[8], .im = shape[9], .in = shape[10],
                 .adt = (int)shape[11], .bdt = (int)shape[12], .cdt = (int)shape[13], .idt = (int)shape[14],
                 .alpha = alpha, .beta = beta};

    /* Few rows: narrow blocks, so that a segment of them stays in the first-level cache. About four tasks a thread. */
    const int64_t most = q.M <= 4 * RK_MR ? MAX_COLUMNS / 2 : MAX_COLUMNS;
    q.columns = clamp((batch * q.N / (4 * threads) + RK_NR - 1) / RK_NR * RK_NR, RK_NR, most);
    q.chunk = clamp(batch * q.N / (q.columns * 4 * threads), 1, INT64_MAX);

    /* The packed left matrix is shared by the blocks of columns, as many rows at a time as fit; with one block only, each
     * thread packs the rows it needs. */
    const int shared = q.N > q.columns;
    const int64_t row = segments_of(&q) * RK_SEGMENT;
    int64_t rows, together = batch;
    if (shared) {
        const int64_t fit = clamp(SHARED / (row + 1), MIN_ROWS, MAX_ROWS), lots = (q.M + fit - 1) / fit;
        rows = (q.M + lots - 1) / lots;
        together = clamp(4 * SHARED / (rows * row + 1), 1, batch);
    } else {
        rows = clamp((batch * q.M / (4 * threads) + RK_MR - 1) / RK_MR * RK_MR, RK_MR, MAX_ROWS);
        rows = rows < q.M ? rows : q.M;
    }
    const int64_t left_size = shared ? together * rows * row : 0, lot = shared ? rows : q.M;
    const int64_t thread_size = MAX_COLUMNS * RK_SEGMENT + rows * MAX_COLUMNS + (shared ? 0 : rows * RK_SEGMENT);
    float *memory = aligned_alloc(64, (size_t)(left_size + threads * thread_size) * sizeof *memory);
    if (!memory) return 1;
    for (int64_t z = 0; z < batch; z += together)
        for (int64_t m = 0; m < q.M; m += lot)
            run(&q, z, batch - z < together ? batch - z : together, m, q.M - m < lot ? q.M : m + lot, rows, memory,
                left_size, thread_size);
    free(memory);
    return 0;
}
