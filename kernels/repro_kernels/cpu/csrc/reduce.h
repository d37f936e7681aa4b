/* Rows of floats and the segment rule on elements already rounded; shared by the reduce*.c sources.
 *
 * A row in scratch memory has the stride rk_stride(n), a whole number of segments, and is filled up with +0: adding +0
 * leaves every partial sum as it is but for -0, and acc, which starts at +0, cannot tell -0 from +0.
 *
 * The functions that decoding calls for every token take one record of 8-byte fields, packed by their caller: ctypes
 * needs longer to convert a dozen arguments than such a call computes. */
#ifndef RK_REDUCE_H
#define RK_REDUCE_H

#include "common.h"
#include "lanes.h"

#include <stdlib.h>

/* Elements below which a parallel region costs more than it saves. */
#define RK_SERIAL 32768
/* Pieces that a parallel region is cut into. */
#define RK_PIECES 64
/* Segments that are added side by side, to hide the latency of an addition. */
#define RK_CHAINS 32

static inline int64_t rk_min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t rk_segments(int64_t n) { return (n + RK_SEGMENT - 1) / RK_SEGMENT; }
static inline int64_t rk_stride(int64_t n) { return rk_segments(n) * RK_SEGMENT; }

/* Rows that share one pass over their segments: at most RK_CHAINS, and one if it has that many segments itself. */
static inline int64_t rk_group(int64_t rows, int64_t n) {
    const int64_t segments = rk_segments(n);
    return segments >= RK_CHAINS ? 1 : rk_min64(rows, segments ? RK_CHAINS / segments : RK_CHAINS);
}

static inline const void *rk_at(const void *p, int dtype, int64_t i) {
    return (const char *)p + i * rk_itemsize(dtype);
}

/* t[0..n) = the upcast elements of x. */
static inline void rk_row_load(float *restrict t, const void *x, int dtype, int64_t n) {
    if (dtype == RK_F32) memcpy(t, x, (size_t)n * 4);
    else if (dtype == RK_BF16) for (int64_t i = 0; i < n; ++i) t[i] = rk_from_bf16(((const uint16_t *)x)[i]);
    else for (int64_t i = 0; i < n; ++i) t[i] = rk_from_f16(((const uint16_t *)x)[i]);
}

static inline void rk_row_store(void *x, int dtype, const float *restrict t, int64_t n) {
    if (dtype == RK_F32) for (int64_t i = 0; i < n; ++i) ((float *)x)[i] = rk_canonical(t[i]);
    else if (dtype == RK_BF16) for (int64_t i = 0; i < n; ++i) ((uint16_t *)x)[i] = rk_to_bf16(t[i]);
    else for (int64_t i = 0; i < n; ++i) ((uint16_t *)x)[i] = rk_to_f16(t[i]);
}

static inline void rk_row_pad(float *t, int64_t n) {
    for (int64_t i = n, end = rk_stride(n); i < end; ++i) t[i] = 0.0f;
}

/* p of `vectors` * RK_LANES segments, one lane each, by transposing blocks. */
RK_INLINE void rk_lane_chains(const float *t, int64_t last, int64_t length, int vectors, float *parts) {
    rk_vf p[2] = {{0}, {0}};
    for (int64_t k = 0; k < length; k += RK_LANES)
        for (int v = 0; v < vectors; ++v) {
            rk_vu block[RK_LANES];
            for (int64_t i = 0; i < RK_LANES; ++i)
                block[i] = rk_loadu(t + rk_min64(v * RK_LANES + i, last) * RK_SEGMENT + k);
            rk_transpose(block);
            for (int i = 0; i < RK_LANES; ++i) p[v] += (rk_vf)block[i];
        }
    for (int v = 0; v < vectors; ++v) rk_storef(parts + v * RK_LANES, p[v]);
}

/* p of up to eight segments, in eight scalar chains. */
RK_INLINE void rk_scalar_chains(const float *t, int64_t last, int64_t length, float *parts) {
    const float *lane[8];
    for (int64_t j = 0; j < 8; ++j) lane[j] = t + rk_min64(j, last) * RK_SEGMENT;
    float p0 = 0, p1 = 0, p2 = 0, p3 = 0, p4 = 0, p5 = 0, p6 = 0, p7 = 0;
    for (int64_t k = 0; k < length; ++k) {
        p0 += lane[0][k];
        p1 += lane[1][k];
        p2 += lane[2][k];
        p3 += lane[3][k];
        p4 += lane[4][k];
        p5 += lane[5][k];
        p6 += lane[6][k];
        p7 += lane[7][k];
    }
    const float p[8] = {p0, p1, p2, p3, p4, p5, p6, p7};
    memcpy(parts, p, sizeof p);
}

/* p of each of `count` segments, RK_SEGMENT apart, of which the first `length` elements count; the rest is +0 where
 * length is less than a segment. parts has room for `count` rounded up to a multiple of RK_CHAINS. */
static inline void rk_chains(const float *t, int64_t count, int64_t length, float *parts) {
    const int64_t padded = (length + RK_LANES - 1) / RK_LANES * RK_LANES;
    for (int64_t s = 0; s < count;) {
        const int64_t left = count - s;
        const float *from = t + s * RK_SEGMENT;
        if (left > RK_LANES && left > 8) rk_lane_chains(from, left - 1, padded, 2, parts + s), s += 2 * RK_LANES;
        else if (left > 8 || left == RK_LANES) rk_lane_chains(from, left - 1, padded, 1, parts + s), s += RK_LANES;
        else rk_scalar_chains(from, left - 1, length, parts + s), s += 8;
    }
}

/* The segment sums of `rows` padded rows of n elements: rows <= rk_group(rows, n). */
static inline void rk_sums(const float *t, int64_t rows, int64_t n, float *sums) {
    const int64_t segments = rk_segments(n), length = rk_min64(n, RK_SEGMENT);
    float parts[RK_CHAINS];
    for (int64_t r = 0; r < rows; ++r) sums[r] = 0.0f;
    for (int64_t s = 0; s < rows * segments; s += RK_CHAINS) {
        const int64_t count = rk_min64(RK_CHAINS, rows * segments - s);
        rk_chains(t + s * RK_SEGMENT, count, length, parts);
        for (int64_t j = 0; j < count; ++j) sums[(s + j) / segments] += parts[j];
    }
}

/* Orders floats as integers: by value, -0 as +0, NaN above all. */
static inline int32_t rk_key(float f) {
    uint32_t u = rk_bits(f);
    u = u == 0x80000000u ? 0 : u;
    const int32_t key = (int32_t)(u ^ ((uint32_t)((int32_t)u >> 31) >> 1));
    return (u & 0x7fffffffu) > 0x7f800000u ? INT32_MAX : key;
}

#endif
