/* Steps of transformer modules in one pass each, with the bits and the casts of the modules' own sequences of steps. */
#include "elementary.h"
#include "reduce.h"

#define PIECE 256 /* elements at a time */

static void round_to(float *x, int64_t n, int dtype) {
    if (dtype == RK_BF16) for (int64_t i = 0; i < n; ++i) x[i] = rk_from_bf16(rk_to_bf16(x[i]));
    else if (dtype == RK_F16) for (int64_t i = 0; i < n; ++i) x[i] = rk_from_f16(rk_to_f16(x[i]));
}

/* r = rsqrt(RN(mean(RN(x * x)) + eps)).
 * plain: out = RN_a(w * RN_a(RN(x * r))).   one_plus: out = RN_a(RN(RN(x * r) * RN(1 + w))).
 * x: rows of n elements, `stride` apart; w: n; out: rows contiguous, of x's type. Returns 0, or -1 without memory. */
RK_EXPORT int RK_NAME(rms_norm_module)(const void *x, int x_type, int64_t stride, const void *w, int w_type, void *out,
                                       int64_t rows, int64_t n, float eps, int one_plus) {
    const int64_t group = rk_group(rows, n), width = rk_stride(n);
    int failed = 0;
    if (n == 0) return 0;
#pragma omp parallel if (rows > group && rows * n > RK_SERIAL) reduction(| : failed)
    {
        RK_FP_ENTER;
        float *t = aligned_alloc(64, (size_t)(2 * group + 1) * (size_t)width * sizeof(float));
        float *squares = t + group * width, *weight = squares + group * width, sums[RK_CHAINS];
        failed |= !t;
        if (t) {
            rk_row_load(weight, w, w_type, n);
            if (one_plus) for (int64_t i = 0; i < n; ++i) weight[i] = 1.0f + weight[i];
        }
#pragma omp for schedule(static)
        for (int64_t first = 0; first < rows; first += group) {
            const int64_t count = rk_min64(group, rows - first);
            if (!t) continue;
            for (int64_t r = 0; r < count; ++r) {
                float *row = t + r * width, *square = squares + r * width;
                rk_row_load(row, rk_at(x, x_type, (first + r) * stride), x_type, n);
                for (int64_t i = 0; i < n; ++i) square[i] = row[i] * row[i];
                rk_row_pad(square, n);
            }
            rk_sums(squares, count, n, sums);
            for (int64_t r = 0; r < count; ++r) {
                float *row = t + r * width;
                const float mean = sums[r] / (float)n, scale = rk_rsqrtf(mean + eps);
                for (int64_t i = 0; i < n; ++i) row[i] *= scale;
                if (!one_plus) round_to(row, n, x_type);
                for (int64_t i = 0; i < n; ++i) row[i] *= weight[i];
                rk_row_store((void *)(uintptr_t)rk_at(out, x_type, (first + r) * n), x_type, row, n);
            }
        }
        free(t);
        RK_FP_LEAVE;
    }
    return failed ? -1 : 0;
}

/* out = RN_a(RN_a(silu(gate)) * up), silu(x) = RN(x / RN(1 + exp(-x))); rows of n, strides in elements, out contiguous. */
RK_EXPORT void RK_NAME(swiglu)(const void *gate, int64_t gate_stride, const void *up, int64_t up_stride, void *out,
                               int type, int64_t rows, int64_t n) {
    const int64_t pieces = (n + PIECE - 1) / PIECE;
#pragma omp parallel if (rows * n > RK_SERIAL)
    {
        RK_FP_ENTER;
#pragma omp for schedule(static)
        for (int64_t u = 0; u < rows * pieces; ++u) {
            const int64_t row = u / pieces, at = u % pieces * PIECE, count = rk_min64(PIECE, n - at);
            float x[PIECE], e[PIECE];
            rk_row_load(x, rk_at(gate, type, row * gate_stride + at), type, count);
            for (int64_t i = 0; i < count; ++i) e[i] = -x[i];
            rk_exp_array(e, e, count);
            for (int64_t i = 0; i < count; ++i) x[i] = x[i] / (1.0f + e[i]);
            round_to(x, count, type);
            rk_row_load(e, rk_at(up, type, row * up_stride + at), type, count);
            for (int64_t i = 0; i < count; ++i) x[i] *= e[i];
            rk_row_store((void *)(uintptr_t)rk_at(out, type, row * n + at), type, x, count);
        }
        RK_FP_LEAVE;
    }
}

/* out = RN_a(RN_a(x * cos) + RN_a(rotated * sin)), rotated = (-second half, first half) of the first R elements of each
 * row; elements from R on are copied. strides: x's and out's batch, head, position; cos's and sin's batch, position. */
RK_EXPORT void RK_NAME(rotary)(const void *x, void *out, const void *cosine, const void *sine, int type,
                               const int64_t *sizes, const int64_t *strides) {
    const int64_t heads = sizes[1], positions = sizes[2], D = sizes[3], R = sizes[4], half = R / 2;
    const int64_t rows = sizes[0] * heads * positions;
#pragma omp parallel if (rows * D > RK_SERIAL)
    {
        RK_FP_ENTER;
#pragma omp for schedule(static)
        for (int64_t u = 0; u < rows; ++u) {
            const int64_t b = u / (heads * positions), h = u / positions % heads, s = u % positions;
            const void *from = rk_at(x, type, b * strides[0] + h * strides[1] + s * strides[2]);
            void *to = (void *)(uintptr_t)rk_at(out, type, b * strides[3] + h * strides[4] + s * strides[5]);
            const void *c = rk_at(cosine, type, b * strides[6] + s * strides[7]);
            const void *d = rk_at(sine, type, b * strides[8] + s * strides[9]);
            for (int64_t at = 0; at < half; at += PIECE) {
                const int64_t n = rk_min64(PIECE, half - at);
                float x1[PIECE], x2[PIECE], cs[PIECE], sn[PIECE];
                rk_row_load(x1, rk_at(from, type, at), type, n);
                rk_row_load(x2, rk_at(from, type, half + at), type, n);
                for (int side = 0; side < 2; ++side) {
                    const float *own = side ? x2 : x1, *other = side ? x1 : x2, sign = side ? 1.0f : -1.0f;
                    rk_row_load(cs, rk_at(c, type, side * half + at), type, n);
                    rk_row_load(sn, rk_at(d, type, side * half + at), type, n);
                    for (int64_t i = 0; i < n; ++i) {
                        cs[i] = own[i] * cs[i];
                        sn[i] = sign * other[i] * sn[i];
                    }
                    round_to(cs, n, type);
                    round_to(sn, n, type);
                    for (int64_t i = 0; i < n; ++i) cs[i] += sn[i];
                    rk_row_store((void *)(uintptr_t)rk_at(to, type, side * half + at), type, cs, n);
                }
            }
            memcpy((void *)(uintptr_t)rk_at(to, type, R), rk_at(from, type, R), (size_t)((D - R) * rk_itemsize(type)));
        }
        RK_FP_LEAVE;
    }
}
