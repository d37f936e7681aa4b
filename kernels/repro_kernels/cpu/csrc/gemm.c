/* The dot rule of profile fp32, for matrices. */
#include "common.h"

RK_EXPORT void RK_NAME(gemm)(const int64_t *q, const void *a, const void *b, void *c, const void *bias,
                             const int64_t *a_off, const int64_t *b_off, const int64_t *bias_off, float alpha,
                             float beta) {
    const int64_t batch = q[0], M = q[1], N = q[2], K = q[3], k_start = q[4];
    const int64_t as_m = q[5], as_k = q[6], bs_n = q[7], bs_k = q[8], is_m = q[9], is_n = q[10];
    const int adt = (int)q[11], bdt = (int)q[12], cdt = (int)q[13], idt = (int)q[14];
#pragma omp parallel if (batch * M * N * K > 32768)
    {
        RK_FP_ENTER;
#pragma omp for schedule(static)
        for (int64_t r = 0; r < batch * M; r++) {
            int64_t z = r / M, m = r % M;
            for (int64_t n = 0; n < N; n++) {
                float acc = 0.0f;
                for (int64_t k = 0; k < K;) {
                    int64_t end = ((k_start + k) / RK_SEGMENT + 1) * RK_SEGMENT - k_start;
                    if (end > K) end = K;
                    float p = 0.0f;
                    for (; k < end; k++)
                        p = rk_fmaf(rk_load(a, adt, a_off[z] + m * as_m + k * as_k),
                                    rk_load(b, bdt, b_off[z] + n * bs_n + k * bs_k), p);
                    acc += p;
                }
                if (bias) {
                    float scaled = alpha * acc;
                    acc = beta * rk_load(bias, idt, bias_off[z] + m * is_m + n * is_n) + scaled;
                } else
                    acc = alpha * acc;
                rk_store(c, cdt, r * N + n, acc);
            }
        }
        RK_FP_LEAVE;
    }
}
