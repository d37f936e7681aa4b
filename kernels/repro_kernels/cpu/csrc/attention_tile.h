/* Packing and the product of a tile for attention.c. */
#ifndef RK_ATTENTION_TILE_H
#define RK_ATTENTION_TILE_H

#include "attention.h"
#include "gemm_simd.h"
#include "lanes.h"
#include "reduce.h"

/* Query rows of a tile: their packed form [k][RK_VL] has a lane for each. */
#if RK_MR > RK_VL
#define TILE_ROWS RK_VL
#else
#define TILE_ROWS RK_MR
#endif

/* Keys and values of one key head. */
typedef struct {
    const float *keys;   /* panels [d][NR], the first of which is number first_panel */
    const float *values; /* rows, the first of which is position first_value */
    int64_t first_panel, first_value, value_stride;
} packed_head;

/* ---- packing ---- */

/* RK_VL elements of x from i on, upcast. */
RK_INLINE rk_vu upcast(const void *x, int dtype, int64_t i) {
    if (dtype == RK_F32) return rk_loadu((const float *)x + i);
    float wide[RK_VL];
    rk_row_load(wide, element(x, dtype, i), dtype, RK_VL);
    return rk_loadu(wide);
}

/* NR keys from j0, upcast, to [d][NR]; keys past `end` are zeros, whose scores nobody reads. */
RK_INLINE void pack_keys(float *dst, const problem *p, int dtype, int64_t b, int64_t g, int64_t j0, int64_t end) {
    const int64_t count = end - j0 < RK_NR ? end - j0 : RK_NR;
    int64_t d = 0;
    if (count == RK_NR)
        for (; d + RK_VL <= p->D; d += RK_VL)
            for (int v = 0; v < RK_NV; ++v) {
                rk_vu r[RK_VL];
                for (int i = 0; i < RK_VL; ++i) r[i] = upcast(key(p, b, g, j0 + v * RK_VL + i), dtype, d);
                rk_transpose(r);
                for (int i = 0; i < RK_VL; ++i) rk_storeu(dst + (d + i) * RK_NR + v * RK_VL, r[i]);
            }
    for (int64_t n = 0; n < RK_NR; ++n) {
        const void *from = n < count ? key(p, b, g, j0 + n) : NULL;
        for (int64_t k = d; k < p->D; ++k) dst[k * RK_NR + n] = from ? rk_load(from, dtype, k) : 0.0f;
    }
}

static void pack_keys_any(float *dst, const problem *p, int64_t b, int64_t g, int64_t j0, int64_t end) {
    if (p->k_type == RK_BF16) pack_keys(dst, p, RK_BF16, b, g, j0, end);
    else if (p->k_type == RK_F16) pack_keys(dst, p, RK_F16, b, g, j0, end);
    else pack_keys(dst, p, RK_F32, b, g, j0, end);
}

/* Values j0 .. j1, upcast, rows of `width` with zeros at the end. */
static void pack_values(float *dst, const problem *p, int64_t b, int64_t g, int64_t j0, int64_t j1, int64_t width) {
    for (int64_t j = j0; j < j1; ++j, dst += width) {
        rk_row_load(dst, value(p, b, g, j), (int)p->v_type, p->Dv);
        for (int64_t d = p->Dv; d < width; ++d) dst[d] = 0.0f;
    }
}

/* ---- the product of a tile: c[m][..] = acc over k of fma(a[k][m], b[k][..], p), segments of 128 ---- */

typedef void tile_fn(int64_t from, int64_t to, const float *a, const float *b, int64_t ldb, int64_t panel, float *c,
                     int64_t ldc);

RK_INLINE void tile(const int rows, const int vectors, int64_t from, int64_t to, const float *a, const float *b,
                    int64_t ldb, int64_t panel, float *c, int64_t ldc) {
    int first = 1;
    do {
        rk_vec p[TILE_ROWS][2 * RK_NV];
        int64_t stop = (from / RK_SEGMENT + 1) * RK_SEGMENT;
        if (stop > to) stop = to;
#pragma GCC unroll 16
        for (int m = 0; m < rows; ++m)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) p[m][v] = rk_vset(0.0f);
        for (int64_t k = from; k < stop; ++k) {
            rk_vec w[2 * RK_NV];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) w[v] = rk_vload(b + v / RK_NV * panel + k * ldb + v % RK_NV * RK_VL);
#pragma GCC unroll 16
            for (int m = 0; m < rows; ++m) {
                const rk_vec x = rk_vset(a[k * RK_VL + m]);
#pragma GCC unroll 4
                for (int v = 0; v < vectors; ++v) p[m][v] = rk_vfma(x, w[v], p[m][v]);
            }
        }
#pragma GCC unroll 16
        for (int m = 0; m < rows; ++m)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) {
                float *to_c = c + m * ldc + v * RK_VL;
                rk_vstore(to_c, (first ? rk_vset(0.0f) : rk_vload(to_c)) + p[m][v]);
            }
        first = 0;
        from = stop;
    } while (from < to);
}

#define WIDE(rows) ((rows)*RK_NV * 2 <= RK_MR * RK_NV ? 2 * RK_NV : RK_NV)
#define TILE(rows)                                                                                             \
    static void wide_##rows(int64_t from, int64_t to, const float *a, const float *b, int64_t ldb, int64_t panel, \
                            float *c, int64_t ldc) {                                                           \
        tile(rows, WIDE(rows), from, to, a, b, ldb, panel, c, ldc);                                            \
    }                                                                                                          \
    static void pair_##rows(int64_t from, int64_t to, const float *a, const float *b, int64_t ldb, int64_t panel, \
                            float *c, int64_t ldc) {                                                           \
        tile(rows, RK_NV, from, to, a, b, ldb, panel, c, ldc);                                                 \
    }                                                                                                          \
    static void one_##rows(int64_t from, int64_t to, const float *a, const float *b, int64_t ldb, int64_t panel, \
                           float *c, int64_t ldc) {                                                            \
        tile(rows, 1, from, to, a, b, ldb, panel, c, ldc);                                                     \
    }
#define EACH_4(X) X(1) X(2) X(3) X(4)
#define EACH_6(X) EACH_4(X) X(5) X(6)
#define EACH_8(X) EACH_6(X) X(7) X(8)
#define EACH_14(X) EACH_8(X) X(9) X(10) X(11) X(12) X(13) X(14)
#define EACH_(n, X) RK_CAT(EACH_, n)(X)
EACH_(TILE_ROWS, TILE)
#define TILE_ENTRY(rows) {wide_##rows, pair_##rows, one_##rows, WIDE(rows)},
static const struct {
    tile_fn *wide, *pair, *one;
    int vectors; /* of wide */
} tiles[] = {EACH_(TILE_ROWS, TILE_ENTRY)};

/* Columns 0 .. count * RK_VL of c; b's vector v lies at v / NV * panel + v % NV * VL. */
static void product(int rows, int64_t count, int64_t from, int64_t to, const float *a, const float *b, int64_t ldb,
                    int64_t panel, float *c, int64_t ldc) {
    const int wide = tiles[rows - 1].vectors;
    for (int64_t v = 0; v < count;) {
        const float *at = b + v / RK_NV * panel;
        const int64_t step = count - v >= wide ? wide : count - v >= RK_NV ? RK_NV : 1;
        (step == wide ? tiles[rows - 1].wide : step == RK_NV ? tiles[rows - 1].pair : tiles[rows - 1].one)(
            from, to, a, at + v % RK_NV * RK_VL, ldb, panel, c + v * RK_VL, ldc);
        v += step;
    }
}

#endif
