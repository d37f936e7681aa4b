/* The vectors of gemm.c.
 *
 * rk_vec, RK_VL lanes: the tile of RK_MR x RK_NV partial sums that stays in registers. RK_WIDE(rows) is the number of
 * column panels that a tile of few rows covers at once: a step of a chain of FMAs takes 4 cycles and two can start in
 * each, so about 8 chains keep the units busy.
 * rk_row, RK_RL lanes: transposes of rows. With AVX-512 too these have 8 lanes: two units shuffle
 * 256 bits, one 512. */
#ifndef RK_GEMM_SIMD_H
#define RK_GEMM_SIMD_H

#include "common.h"

#if defined(__AVX512F__)

#define RK_VL 16
#define RK_NV 2
#define RK_MR 14
#define RK_WIDE(rows) ((rows) <= 6 ? 2 : 1)
typedef __m512 rk_vec;
RK_INLINE rk_vec rk_vload(const float *p) { return _mm512_loadu_ps(p); }
RK_INLINE void rk_vstore(float *p, rk_vec v) { _mm512_storeu_ps(p, v); }
RK_INLINE rk_vec rk_vset(float f) { return _mm512_set1_ps(f); }
RK_INLINE rk_vec rk_vfma(rk_vec a, rk_vec b, rk_vec c) { return _mm512_fmadd_ps(a, b, c); }
RK_INLINE rk_vec rk_vload_bf16(const uint16_t *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
RK_INLINE rk_vec rk_vload_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }

#elif defined(__AVX2__)

#define RK_VL 8
#define RK_NV 2
#define RK_MR 6
#define RK_WIDE(rows) ((rows) <= 2 ? 2 : 1)
typedef __m256 rk_vec;
RK_INLINE rk_vec rk_vload(const float *p) { return _mm256_loadu_ps(p); }
RK_INLINE void rk_vstore(float *p, rk_vec v) { _mm256_storeu_ps(p, v); }
RK_INLINE rk_vec rk_vset(float f) { return _mm256_set1_ps(f); }
RK_INLINE rk_vec rk_vfma(rk_vec a, rk_vec b, rk_vec c) { return _mm256_fmadd_ps(a, b, c); }
RK_INLINE rk_vec rk_vload_bf16(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
RK_INLINE rk_vec rk_vload_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }

#endif

#if defined(__AVX2__)

#define RK_RL 8
typedef __m256 rk_row;
RK_INLINE void rk_rstore(float *p, rk_row v) { _mm256_storeu_ps(p, v); }
RK_INLINE rk_row rk_rset(float f) { return _mm256_set1_ps(f); }
RK_INLINE rk_row rk_rfma(rk_row a, rk_row b, rk_row c) { return _mm256_fmadd_ps(a, b, c); }
RK_INLINE rk_row rk_rlow_bf16(rk_row v) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(v), 16)); }
RK_INLINE rk_row rk_rhigh_bf16(rk_row v) {
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32((int)0xffff0000u)));
}
RK_INLINE rk_row rk_rlow_f16(rk_row v) {
    __m256i low = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0xffff));
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
}
RK_INLINE rk_row rk_rhigh_f16(rk_row v) {
    return rk_rlow_f16(_mm256_castsi256_ps(_mm256_srli_epi32(_mm256_castps_si256(v), 16)));
}
/* r[j] = element j of 8 rows of 32-bit elements, `stride` bytes apart; 128-bit pieces come from memory into the lane
 * where they belong, which leaves the shuffles within lanes. */
RK_INLINE void rk_rcolumns(rk_row *r, const char *p, int64_t stride) {
    for (int j = 0; j < 2; j++, r += 4, p += 16) {
        const char *low = p, *high = p + 4 * stride;
        rk_row q[4];
        for (int i = 0; i < 4; i++, low += stride, high += stride) {
            q[i] = _mm256_castps128_ps256(_mm_loadu_ps((const float *)low));
            q[i] = _mm256_insertf128_ps(q[i], _mm_loadu_ps((const float *)high), 1);
        }
        rk_row a = _mm256_unpacklo_ps(q[0], q[1]), b = _mm256_unpackhi_ps(q[0], q[1]);
        rk_row c = _mm256_unpacklo_ps(q[2], q[3]), d = _mm256_unpackhi_ps(q[2], q[3]);
        r[0] = _mm256_shuffle_ps(a, c, 0x44);
        r[1] = _mm256_shuffle_ps(a, c, 0xee);
        r[2] = _mm256_shuffle_ps(b, d, 0x44);
        r[3] = _mm256_shuffle_ps(b, d, 0xee);
    }
}

#else /* four lanes: NEON with its FMA, or SSE2 with the software FMA, in GCC's vector types */

#define RK_VL 4
#define RK_RL 4
#define RK_NV 2
#if defined(__aarch64__)
#define RK_MR 8
#define RK_WIDE(rows) ((rows) <= 2 ? 2 : 1)
#else
#define RK_MR 4
#define RK_WIDE(rows) 1
#endif
typedef float rk_row __attribute__((vector_size(16)));
typedef uint32_t rk_urow __attribute__((vector_size(16)));
typedef int32_t rk_irow __attribute__((vector_size(16)));
typedef rk_row rk_vec;
RK_INLINE rk_vec rk_vload(const float *p) {
    rk_vec v;
    memcpy(&v, p, 16);
    return v;
}
RK_INLINE void rk_vstore(float *p, rk_vec v) { memcpy(p, &v, 16); }
RK_INLINE void rk_rstore(float *p, rk_row v) { memcpy(p, &v, 16); }
RK_INLINE rk_vec rk_vset(float f) { return (rk_vec){f, f, f, f}; }
#if defined(__aarch64__)
RK_INLINE rk_vec rk_vfma(rk_vec a, rk_vec b, rk_vec c) {
    return (rk_vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
#else
typedef uint64_t rk_urow64 __attribute__((vector_size(16)));
/* The binary64 sum of rk_fmaf_soft (common.h), rounded to odd, on two lanes. */
RK_INLINE __m128d rk_vfma_odd(__m128d a, __m128d b, __m128d c) {
    __m128d p = a * b, s = p + c, t = s - p, err = (p - (s - t)) + (c - t), zero = _mm_setzero_pd();
    rk_urow64 u = (rk_urow64)s, one = {1, 1};
    rk_urow64 inexact = (rk_urow64)_mm_or_pd(_mm_cmplt_pd(err, zero), _mm_cmpgt_pd(err, zero));
    rk_urow64 away = one - (((rk_urow64)err ^ u) >> 63 << 1);
    return (__m128d)(u + (away & inexact & ((u & one) - one)));
}
RK_INLINE rk_vec rk_vfma(rk_vec a, rk_vec b, rk_vec c) {
    __m128d low = rk_vfma_odd(_mm_cvtps_pd(a), _mm_cvtps_pd(b), _mm_cvtps_pd(c));
    __m128d high = rk_vfma_odd(_mm_cvtps_pd(_mm_movehl_ps(a, a)), _mm_cvtps_pd(_mm_movehl_ps(b, b)),
                               _mm_cvtps_pd(_mm_movehl_ps(c, c)));
    return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}
#endif
RK_INLINE rk_row rk_rset(float f) { return rk_vset(f); }
RK_INLINE rk_row rk_rfma(rk_row a, rk_row b, rk_row c) { return rk_vfma(a, b, c); }
RK_INLINE rk_vec rk_vload_bf16(const uint16_t *p) { return (rk_vec)((rk_urow){p[0], p[1], p[2], p[3]} << 16); }
RK_INLINE rk_vec rk_vload_f16(const uint16_t *p) {
    return (rk_vec){rk_from_f16(p[0]), rk_from_f16(p[1]), rk_from_f16(p[2]), rk_from_f16(p[3])};
}
RK_INLINE rk_row rk_rlow_bf16(rk_row v) { return (rk_row)((rk_urow)v << 16); }
RK_INLINE rk_row rk_rhigh_bf16(rk_row v) { return (rk_row)((rk_urow)v & 0xffff0000u); }
RK_INLINE rk_row rk_rlow_f16(rk_row v) {
    rk_urow u = (rk_urow)v;
    return (rk_row){rk_from_f16((uint16_t)u[0]), rk_from_f16((uint16_t)u[1]), rk_from_f16((uint16_t)u[2]),
                    rk_from_f16((uint16_t)u[3])};
}
RK_INLINE rk_row rk_rhigh_f16(rk_row v) { return rk_rlow_f16((rk_row)((rk_urow)v >> 16)); }
/* r[j] = element j of 4 rows of 32-bit elements, `stride` bytes apart. */
RK_INLINE void rk_rcolumns(rk_row *r, const char *p, int64_t stride) {
    const rk_irow lo = {0, 4, 1, 5}, hi = {2, 6, 3, 7}, low = {0, 1, 4, 5}, high = {2, 3, 6, 7};
    rk_row q[4];
    for (int i = 0; i < 4; i++) q[i] = rk_vload((const float *)(p + i * stride));
    rk_row a = __builtin_shuffle(q[0], q[1], lo), b = __builtin_shuffle(q[0], q[1], hi);
    rk_row c = __builtin_shuffle(q[2], q[3], lo), d = __builtin_shuffle(q[2], q[3], hi);
    r[0] = __builtin_shuffle(a, c, low);
    r[1] = __builtin_shuffle(a, c, high);
    r[2] = __builtin_shuffle(b, d, low);
    r[3] = __builtin_shuffle(b, d, high);
}

#endif

/* The canonical NaN for every NaN. */
RK_INLINE rk_vec rk_vcanonical(rk_vec v) {
#if defined(__AVX512F__)
    const rk_vec nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), nan);
#elif defined(__AVX2__)
    const rk_vec nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
#else
    const rk_urow mask = (rk_urow)(v != v), nan = {0x7fc00000, 0x7fc00000, 0x7fc00000, 0x7fc00000};
    return (rk_vec)(((rk_urow)v & ~mask) | (nan & mask));
#endif
}

/* Columns of a panel of the packed right matrix, and how many rk_row that is. */
#define RK_NR (RK_VL * RK_NV)
#define RK_GROUPS (RK_NR / RK_RL)

/* RK_VL elements of dtype RK_* from element i of p, upcast. */
RK_INLINE rk_vec rk_vload_any(const void *p, int dtype, int64_t i) {
    if (dtype == RK_BF16) return rk_vload_bf16((const uint16_t *)p + i);
    if (dtype == RK_F16) return rk_vload_f16((const uint16_t *)p + i);
    return rk_vload((const float *)p + i);
}

/* A block: 32 or 16 bytes from each of RK_RL rows, RK_STEP(dtype) elements; 16-bit ones travel through the shuffles in
 * pairs, which rk_rlow and rk_rhigh part and upcast. `stride` in elements. */
#define RK_STEP(dtype) ((dtype) == RK_F32 ? RK_RL : 2 * RK_RL)
RK_INLINE void rk_rblock(rk_row *r, const void *src, int dtype, int64_t at, int64_t stride) {
    rk_rcolumns(r, (const char *)src + at * rk_itemsize(dtype), stride * rk_itemsize(dtype));
}
RK_INLINE rk_row rk_rlow(rk_row r, int dtype) { return dtype == RK_BF16 ? rk_rlow_bf16(r) : rk_rlow_f16(r); }
RK_INLINE rk_row rk_rhigh(rk_row r, int dtype) { return dtype == RK_BF16 ? rk_rhigh_bf16(r) : rk_rhigh_f16(r); }

/* Asks for a line of each of RK_RL rows: they are too many streams for the hardware to follow. */
RK_INLINE void rk_rprefetch(const void *src, int dtype, int64_t at, int64_t stride) {
    const char *p = (const char *)src + at * rk_itemsize(dtype);
    for (int i = 0; i < RK_RL; i++, p += stride * rk_itemsize(dtype)) __builtin_prefetch(p, 0, 2);
}
#define RK_LINE(dtype) (64 / rk_itemsize(dtype))

#endif
