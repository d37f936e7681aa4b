/* Vectors of the instruction set this file is compiled for, by GCC vector extensions: one source serves
 * AVX-512 (16 lanes of 32 bits), AVX2 (8), SSE2 and NEON (4). Only operations that IEEE 754 and integer arithmetic define
 * exactly are used on them, so the number of lanes cannot show in a result.
 */
#ifndef RK_LANES_H
#define RK_LANES_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define RK_LANES 16
#elif defined(__AVX2__)
#define RK_LANES 8
#else
#define RK_LANES 4
#endif

typedef uint8_t rk_v8 __attribute__((vector_size(4 * RK_LANES)));
typedef uint16_t rk_v16 __attribute__((vector_size(4 * RK_LANES)));
typedef uint32_t rk_vu __attribute__((vector_size(4 * RK_LANES)));
typedef int32_t rk_vi __attribute__((vector_size(4 * RK_LANES)));
typedef float rk_vf __attribute__((vector_size(4 * RK_LANES)));
typedef uint32_t rk_vu_any __attribute__((vector_size(4 * RK_LANES), aligned(1), may_alias));
typedef float rk_vf_any __attribute__((vector_size(4 * RK_LANES), aligned(1), may_alias));

static inline rk_vu rk_loadu(const void *p) { return *(const rk_vu_any *)p; }
static inline void rk_storeu(void *p, rk_vu v) { *(rk_vu_any *)p = v; }
static inline rk_vf rk_loadf(const float *p) { return *(const rk_vf_any *)p; }
static inline void rk_storef(float *p, rk_vf v) { *(rk_vf_any *)p = v; }

/* One stage of a transpose in place of ROWS vectors: in rows i and i + S, exchange the blocks of S lanes off the
 * diagonal. With stages 4, 2 and 1 alone, eight vectors of 16 lanes are two 8 x 8 transposes side by side. */
#if RK_LANES == 16
#define RK_LOW(S) {(0 & S) ? 16 - S : 0, (1 & S) ? 17 - S : 1, (2 & S) ? 18 - S : 2, (3 & S) ? 19 - S : 3, \
                   (4 & S) ? 20 - S : 4, (5 & S) ? 21 - S : 5, (6 & S) ? 22 - S : 6, (7 & S) ? 23 - S : 7, \
                   (8 & S) ? 24 - S : 8, (9 & S) ? 25 - S : 9, (10 & S) ? 26 - S : 10, (11 & S) ? 27 - S : 11, \
                   (12 & S) ? 28 - S : 12, (13 & S) ? 29 - S : 13, (14 & S) ? 30 - S : 14, (15 & S) ? 31 - S : 15}
#elif RK_LANES == 8
#define RK_LOW(S) {(0 & S) ? 8 - S : 0, (1 & S) ? 9 - S : 1, (2 & S) ? 10 - S : 2, (3 & S) ? 11 - S : 3, \
                   (4 & S) ? 12 - S : 4, (5 & S) ? 13 - S : 5, (6 & S) ? 14 - S : 6, (7 & S) ? 15 - S : 7}
#else
#define RK_LOW(S) {(0 & S) ? 4 - S : 0, (1 & S) ? 5 - S : 1, (2 & S) ? 6 - S : 2, (3 & S) ? 7 - S : 3}
#endif

#define RK_EXCHANGE(r, ROWS, S)                                  \
    do {                                                         \
        const rk_vu low_ = RK_LOW(S);                            \
        const rk_vu high_ = low_ + S;                            \
        _Pragma("GCC unroll 16") for (int i_ = 0; i_ < ROWS; ++i_) { \
            if (i_ & S) continue;                                \
            const rk_vu a_ = (r)[i_], b_ = (r)[i_ + S];          \
            (r)[i_] = __builtin_shuffle(a_, b_, low_);           \
            (r)[i_ + S] = __builtin_shuffle(a_, b_, high_);      \
        }                                                        \
    } while (0)

/* Transposes RK_LANES vectors of RK_LANES words in place. */
static inline __attribute__((always_inline)) void rk_transpose(rk_vu r[RK_LANES]) {
#if RK_LANES >= 16
    RK_EXCHANGE(r, RK_LANES, 8);
#endif
#if RK_LANES >= 8
    RK_EXCHANGE(r, RK_LANES, 4);
#endif
    RK_EXCHANGE(r, RK_LANES, 2);
    RK_EXCHANGE(r, RK_LANES, 1);
}

#endif
