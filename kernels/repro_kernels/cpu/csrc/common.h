/* Shared by every kernel source: export macros, dtypes, exact conversions, fused multiply-add, floating-point state.
 *
 * A source that holds kernels is compiled once per instruction set with -DRK_SUFFIX=_avx512, _avx2, _base or _neon;
 * its exported functions are named RK_NAME(x), everything else in it is static. */
#ifndef RK_COMMON_H
#define RK_COMMON_H

#if defined(__clang__) || !defined(__GNUC__)
#error "repro_kernels is compiled with GCC: its OpenMP calls must reach the libgomp that PyTorch uses; set CC=gcc"
#endif
#if defined(__FAST_MATH__) || defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "repro_kernels cannot be compiled with -ffast-math or -Ofast"
#endif

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#else
#error "repro_kernels knows x86-64 and aarch64"
#endif

#define RK_CAT2(a, b) a##b
#define RK_CAT(a, b) RK_CAT2(a, b)
#ifdef RK_SUFFIX
#define RK_NAME(name) RK_CAT(rk_##name, RK_SUFFIX)
#endif
#define RK_EXPORT __attribute__((visibility("default")))
#define RK_INLINE static inline __attribute__((always_inline, unused))

/* The numbers are shared with repro_kernels.cpu.native.DTYPES. */
enum { RK_F32 = 0, RK_BF16 = 1, RK_F16 = 2 };

/* Length of a segment of the profile's dot product and sums; frozen with the first golden manifest. */
#define RK_SEGMENT 128

RK_INLINE uint32_t rk_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

RK_INLINE float rk_float(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

RK_INLINE uint64_t rk_bits64(double d) {
    uint64_t u;
    memcpy(&u, &d, 8);
    return u;
}

RK_INLINE double rk_double(uint64_t u) {
    double d;
    memcpy(&d, &u, 8);
    return d;
}

/* ---- fused multiply-add: RN(a * b + c) ---- */

/* In binary64 the product of two floats is exact. The sum is rounded to odd (if it is inexact and its last bit is 0,
 * step to the neighbour on the side of the error), so that the last rounding, to binary32, is the only one that
 * counts: 53 bits hold two more than 24. Never libm's fmaf: some are wrong, some ask the CPU. */
RK_INLINE float rk_fmaf_soft(float a, float b, float c) {
    double p = (double)a * (double)b, z = (double)c;
    double s = p + z, t = s - p;
    double err = (p - (s - t)) + (z - t);
    uint64_t u = rk_bits64(s);
    /* err is NaN when s is not finite: both comparisons are then false, and s stands. */
    uint64_t inexact_even = (uint64_t)((err > 0.0) | (err < 0.0)) & ~u & 1;
    uint64_t away = 1 - 2 * ((rk_bits64(err) ^ u) >> 63);
    return (float)rk_double(u + (inexact_even ? away : 0));
}

RK_INLINE float rk_fmaf(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    return rk_fmaf_soft(a, b, c);
#endif
}

/* ---- 16-bit types: loads are exact, stores round to nearest even and write the canonical NaN ---- */

RK_INLINE float rk_from_bf16(uint16_t h) { return rk_float((uint32_t)h << 16); }

RK_INLINE float rk_from_f16(uint16_t h) {
    uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13, exponent = magnitude & 0x0f800000u;
    uint32_t u = magnitude + (112u << 23);
    if (exponent == 0x0f800000u) u += 112u << 23;               /* infinity, NaN */
    float f = rk_float(u);
    if (exponent == 0) f = rk_float(u + (1u << 23)) - 0x1p-14f; /* zero, subnormal: an exact difference */
    return rk_float(rk_bits(f) | (uint32_t)(h & 0x8000) << 16);
}

RK_INLINE uint16_t rk_to_bf16(float f) {
    uint32_t u = rk_bits(f);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

RK_INLINE uint16_t rk_to_f16(float f) {
    uint32_t u = rk_bits(f), sign = (u >> 16) & 0x8000u, h;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return 0x7e00;
    if (u >= 0x47800000u) h = 0x7c00;                                        /* at least 65536 */
    else if (u < 0x38800000u) h = rk_bits(rk_float(u) + 0.5f) - 0x3f000000u; /* unit 2^-24: the sum rounds */
    else h = (u - (112u << 23) + 0xfffu + ((u >> 13) & 1)) >> 13;
    return (uint16_t)(sign | h);
}

RK_INLINE float rk_canonical(float f) {
    uint32_t u = rk_bits(f);
    return rk_float((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : u);
}

/* Element i of a buffer of dtype RK_*. */
RK_INLINE float rk_load(const void *p, int dtype, int64_t i) {
    if (dtype == RK_BF16) return rk_from_bf16(((const uint16_t *)p)[i]);
    if (dtype == RK_F16) return rk_from_f16(((const uint16_t *)p)[i]);
    return ((const float *)p)[i];
}

RK_INLINE void rk_store(void *p, int dtype, int64_t i, float f) {
    if (dtype == RK_BF16) ((uint16_t *)p)[i] = rk_to_bf16(f);
    else if (dtype == RK_F16) ((uint16_t *)p)[i] = rk_to_f16(f);
    else ((float *)p)[i] = rk_canonical(f);
}

RK_INLINE int64_t rk_itemsize(int dtype) { return dtype == RK_F32 ? 4 : 2; }

/* ---- floating-point state: round to nearest, no FTZ, no DAZ, whatever the caller or the thread had ----
 * RK_FP_ENTER declares a variable, so each pair stands in a block of its own: in the exported function, and again
 * inside every parallel region, where each thread has a state of its own. The barriers keep loads and stores, and so
 * the arithmetic between them, inside the pair. */
#if defined(__x86_64__)
#define RK_FP_ENTER                         \
    unsigned rk_fp_saved_ = _mm_getcsr();   \
    _mm_setcsr(0x1f80);                     \
    __asm__ volatile("" ::: "memory")
#define RK_FP_LEAVE                         \
    __asm__ volatile("" ::: "memory");      \
    _mm_setcsr(rk_fp_saved_)
#else
#define RK_FP_ENTER                                                        \
    uint64_t rk_fp_saved_;                                                 \
    __asm__ volatile("mrs %0, fpcr" : "=r"(rk_fp_saved_)::"memory");       \
    __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)0) : "memory")
#define RK_FP_LEAVE __asm__ volatile("msr fpcr, %0" ::"r"(rk_fp_saved_) : "memory")
#endif

#endif
