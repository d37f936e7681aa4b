/* Greatest and least elements, and integer keys to sort floats by. No arithmetic, so no floating-point state. */
#include "reduce.h"

/* In the order of interest the best key is the greatest; a NaN is best either way. */
static inline int32_t best_key(float f, int least) {
    const int32_t key = rk_key(f);
    return least && key != INT32_MAX ? ~key : key;
}

/* Blocks, so that only the one that holds the winner is looked at again. */
#define RK_BEST_BLOCK 512
#define RK_SCAN(type, get)                                                                \
    do {                                                                                  \
        const type *row = (const type *)x + r * n;                                        \
        int32_t best = INT32_MIN;                                                         \
        int64_t i = 0;                                                                    \
        for (int64_t start = 0; start < n; start += RK_BEST_BLOCK) {                      \
            const int64_t end = rk_min64(n, start + RK_BEST_BLOCK);                       \
            int32_t block = INT32_MIN;                                                    \
            for (int64_t j = start; j < end; ++j) {                                       \
                const int32_t key = best_key(get(row[j]), least);                         \
                block = key > block ? key : block;                                        \
            }                                                                             \
            if (block > best) best = block, i = start;                                    \
        }                                                                                 \
        while (best_key(get(row[i]), least) != best) ++i;                                 \
        index[r] = i;                                                                     \
    } while (0)
#define RK_SAME(f) (f)

/* index[r] = the lowest index of the greatest (least) element of row r of x [rows, n], n >= 1. */
RK_EXPORT void RK_NAME(extreme)(const void *x, int dtype, int64_t rows, int64_t n, int least, int64_t *index) {
#pragma omp parallel for schedule(static) if (rows > 1 && rows * n > RK_SERIAL)
    for (int64_t r = 0; r < rows; ++r) {
        if (dtype == RK_F32) RK_SCAN(float, RK_SAME);
        else if (dtype == RK_BF16) RK_SCAN(uint16_t, rk_from_bf16);
        else RK_SCAN(uint16_t, rk_from_f16);
    }
}

/* out = the greater (lesser) of x and y, x if they compare equal; y_step 0: one y for all. */
RK_EXPORT void RK_NAME(choose)(const void *x, const void *y, int dtype, int64_t n, int64_t y_step, int least,
                               void *out) {
#pragma omp parallel for schedule(static) if (n > RK_SERIAL)
    for (int64_t i = 0; i < n; ++i) {
        const float a = rk_load(x, dtype, i), b = rk_load(y, dtype, i * y_step);
        rk_store(out, dtype, i, best_key(a, least) >= best_key(b, least) ? a : b);
    }
}

/* keys[r, i]: the order of x[r, i] above, the index below, so that no two of a row are equal and a descending (or
 * ascending) sort of integers puts equal elements by ascending index. n < 2^31. */
RK_EXPORT void RK_NAME(sort_keys)(const void *x, int dtype, int64_t rows, int64_t n, int descending, int64_t *keys) {
#pragma omp parallel for schedule(static) if (rows > 1 && rows * n > RK_SERIAL)
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < n; ++i) {
            const uint64_t high = (uint64_t)(int64_t)rk_key(rk_load(x, dtype, r * n + i)) << 32;
            keys[r * n + i] = (int64_t)(high | (uint64_t)(descending ? 0x7fffffff - i : i));
        }
}
