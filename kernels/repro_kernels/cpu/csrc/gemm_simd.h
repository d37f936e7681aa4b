/* The vectors of gemm.c: RK_VL lanes of fp32, a fused multiply-add per lane, and the transpose of RK_VL of them.
 *
 * RK_MR x RK_NV vectors is the tile of partial sums that stays in registers. RK_WIDE(rows) is the number of column
 * panels that a tile of few rows covers at once: a chain of FMAs takes 4 cycles a step, two can start each cycle, so
 * about 8 chains keep the units busy. */
#ifndef RK_GEMM_SIMD_H
#define RK_GEMM_SIMD_H

#include "common.h"

#if defined(__AVX512F__)

#define RK_VL 16
#define RK_NV 2
#define RK_MR 14
#define RK_WIDE(rows) ((rows) <= 2 ? 4 : (rows) <= 6 ? 2 : 1)
typedef __m512 rk_vec;
RK_INLINE rk_vec rk_vload(const float *p) { return _mm512_loadu_ps(p); }
RK_INLINE void rk_vstore(float *p, rk_vec v) { _mm512_storeu_ps(p, v); }
RK_INLINE rk_vec rk_vset(float f) { return _mm512_set1_ps(f); }
RK_INLINE rk_vec rk_vfma(rk_vec a, rk_vec b, rk_vec c) { return _mm512_fmadd_ps(a, b, c); }
RK_INLINE rk_vec rk_vload_bf16(const uint16_t *p) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
RK_INLINE rk_vec rk_vload_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
RK_INLINE rk_vec rk_vlow_bf16(rk_vec v) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(v), 16)); }
RK_INLINE rk_vec rk_vhigh_bf16(rk_vec v) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32((int)0xffff0000u)));
}
RK_INLINE void rk_vtranspose(rk_vec *r) {
    rk_vec t[16];
    for (int i = 0; i < 16; i += 2) { /* 32-bit pairs of rows i, i + 1 */
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) { /* columns of four rows within each 128-bit lane */
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) { /* the 4 x 4 transpose of 128-bit lanes */
        rk_vec a = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x44), b = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x44);
        rk_vec c = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xee), d = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xee);
        t[i] = _mm512_shuffle_f32x4(a, b, 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(a, b, 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(c, d, 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(c, d, 0xdd);
    }
    for (int i = 0; i < 16; i++) r[i] = t[i];
}

#elif defined(__AVX2__)

#define RK_VL 8
#define RK_NV 2
#define RK_MR 6
#define RK_WIDE(rows) ((rows) == 1 ? 4 : (rows) == 2 ? 2 : 1)
typedef __m256 rk_vec;
RK_INLINE rk_vec rk_vload(const float *p) { return _mm256_loadu_ps(p); }
RK_INLINE void rk_vstore(float *p, rk_vec v) { _mm256_storeu_ps(p, v); }
RK_INLINE rk_vec rk_vset(float f) { return _mm256_set1_ps(f); }
RK_INLINE rk_vec rk_vfma(rk_vec a, rk_vec b, rk_vec c) { return _mm256_fmadd_ps(a, b, c); }
RK_INLINE rk_vec rk_vload_bf16(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
RK_INLINE rk_vec rk_vload_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
RK_INLINE rk_vec rk_vlow_bf16(rk_vec v) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(v), 16)); }
RK_INLINE rk_vec rk_vhigh_bf16(rk_vec v) {
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32((int)0xffff0000u)));
}
RK_INLINE void rk_vtranspose(rk_vec *r) {
    rk_vec t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++) r[i] = t[i];
}

#else /* four lanes: NEON with its FMA, or SSE2 with the software FMA, in GCC's vector types */

#define RK_VL 4
#define RK_NV 2
#if defined(__aarch64__)
#define RK_MR 8
#define RK_WIDE(rows) ((rows) == 1 ? 4 : (rows) == 2 ? 2 : 1)
#else
#define RK_MR 4
#define RK_WIDE(rows) 1
#endif
typedef float rk_vec __attribute__((vector_size(16)));
typedef uint32_t rk_uvec __attribute__((vector_size(16)));
typedef int32_t rk_ivec __attribute__((vector_size(16)));
RK_INLINE rk_vec rk_vload(const float *p) {
    rk_vec v;
    memcpy(&v, p, 16);
    return v;
}
RK_INLINE void rk_vstore(float *p, rk_vec v) { memcpy(p, &v, 16); }
RK_INLINE rk_vec rk_vset(float f) { return (rk_vec){f, f, f, f}; }
#if defined(__aarch64__)
RK_INLINE rk_vec rk_vfma(rk_vec a, rk_vec b, rk_vec c) { return (rk_vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
#else
typedef uint64_t rk_uvec64 __attribute__((vector_size(16)));
/* rk_fmaf_soft of common.h on two lanes. */
RK_INLINE __m128d rk_vfma_odd(__m128d a, __m128d b, __m128d c) {
    __m128d p = a * b, s = p + c, t = s - p, err = (p - (s - t)) + (c - t);
    rk_uvec64 u = (rk_uvec64)s, one = {1, 1};
    rk_uvec64 inexact = (rk_uvec64)_mm_or_pd(_mm_cmplt_pd(err, _mm_setzero_pd()), _mm_cmpgt_pd(err, _mm_setzero_pd()));
    rk_uvec64 away = one - (((rk_uvec64)err ^ u) >> 63 << 1);
    return (__m128d)(u + (away & inexact & ((u & one) - one)));
}
RK_INLINE rk_vec rk_vfma(rk_vec a, rk_vec b, rk_vec c) {
    __m128d low = rk_vfma_odd(_mm_cvtps_pd(a), _mm_cvtps_pd(b), _mm_cvtps_pd(c));
    __m128d high = rk_vfma_odd(_mm_cvtps_pd(_mm_movehl_ps(a, a)), _mm_cvtps_pd(_mm_movehl_ps(b, b)),
                               _mm_cvtps_pd(_mm_movehl_ps(c, c)));
    return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}
#endif
RK_INLINE rk_vec rk_vload_bf16(const uint16_t *p) {
    return (rk_vec)((rk_uvec){p[0], p[1], p[2], p[3]} << 16);
}
RK_INLINE rk_vec rk_vload_f16(const uint16_t *p) {
    return (rk_vec){rk_from_f16(p[0]), rk_from_f16(p[1]), rk_from_f16(p[2]), rk_from_f16(p[3])};
}
RK_INLINE rk_vec rk_vlow_bf16(rk_vec v) { return (rk_vec)((rk_uvec)v << 16); }
RK_INLINE rk_vec rk_vhigh_bf16(rk_vec v) { return (rk_vec)((rk_uvec)v & 0xffff0000u); }
RK_INLINE void rk_vtranspose(rk_vec *r) {
    const rk_ivec lo = {0, 4, 1, 5}, hi = {2, 6, 3, 7}, low = {0, 1, 4, 5}, high = {2, 3, 6, 7};
    rk_vec a = __builtin_shuffle(r[0], r[1], lo), b = __builtin_shuffle(r[0], r[1], hi);
    rk_vec c = __builtin_shuffle(r[2], r[3], lo), d = __builtin_shuffle(r[2], r[3], hi);
    r[0] = __builtin_shuffle(a, c, low);
    r[1] = __builtin_shuffle(a, c, high);
    r[2] = __builtin_shuffle(b, d, low);
    r[3] = __builtin_shuffle(b, d, high);
}

#endif

/* Columns of a panel of the packed right matrix. */
#define RK_NR (RK_VL * RK_NV)

/* RK_VL elements of dtype RK_* from p. */
RK_INLINE rk_vec rk_vload_any(const void *p, int dtype, int64_t i) {
    if (dtype == RK_BF16) return rk_vload_bf16((const uint16_t *)p + i);
    if (dtype == RK_F16) return rk_vload_f16((const uint16_t *)p + i);
    return rk_vload((const float *)p + i);
}

#endif
