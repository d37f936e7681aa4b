/* One row times RK_LEAN columns of the right matrix whose terms lie side by side (a weight): the dot rule of gemm.c.
 *
 * Nothing is packed: an element is used once, as it comes out of the transpose. The columns are read from end to end, few
 * enough of them for the hardware's prefetchers to follow (one stream a column); asking for lines ahead measured slower.
 * Segments start where they do in gemm.c; tests/kernels/test_gemm.py holds both to the specification. */
#ifndef RK_GEMM_ROW_H
#define RK_GEMM_ROW_H

#include "gemm_simd.h"

#define RK_LEAN 16
#define LEAN_GROUPS (RK_LEAN / RK_RL)

/* Whether the terms of every segment fill whole blocks of the transpose. */
RK_INLINE int lean_fits(int dtype, int64_t first_length, int64_t K) {
    return first_length % RK_STEP(dtype) == 0 && K % RK_STEP(dtype) == 0;
}

/* a: the row packed by segments, [segment][RK_SEGMENT]; src from element `at`: K terms a column, columns `stride`
 * elements apart. sums: RK_LEAN values. */
RK_INLINE void lean(const float *a, const void *src, int dtype, int64_t at, int64_t first_length, int64_t K,
                    int64_t stride, float *sums) {
    rk_row sum[LEAN_GROUPS];
    for (int g = 0; g < LEAN_GROUPS; g++) sum[g] = rk_rset(0.0f);
    for (int64_t done = 0, kc = first_length; done < K; done += kc, kc = RK_SEGMENT, a += RK_SEGMENT) {
        rk_row p[LEAN_GROUPS];
        if (kc > K - done) kc = K - done;
        for (int g = 0; g < LEAN_GROUPS; g++) p[g] = rk_rset(0.0f);
        for (int64_t k = 0; k < kc; k += RK_STEP(dtype)) {
#pragma GCC unroll 4
            for (int g = 0; g < LEAN_GROUPS; g++) {
                rk_row r[RK_RL];
                rk_rblock(r, src, dtype, at + g * RK_RL * stride + done + k, stride);
#pragma GCC unroll 8
                for (int i = 0; i < RK_RL; i++)
                    if (dtype == RK_F32) {
                        p[g] = rk_rfma(rk_rset(a[k + i]), r[i], p[g]);
                    } else {
                        p[g] = rk_rfma(rk_rset(a[k + 2 * i]), rk_rlow(r[i], dtype), p[g]);
                        p[g] = rk_rfma(rk_rset(a[k + 2 * i + 1]), rk_rhigh(r[i], dtype), p[g]);
                    }
            }
        }
        for (int g = 0; g < LEAN_GROUPS; g++) sum[g] += p[g];
    }
    for (int g = 0; g < LEAN_GROUPS; g++) rk_rstore(sums + g * RK_RL, sum[g]);
}

#endif
