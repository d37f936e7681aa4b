/* Additions through an index: i ascending, the destination's value first, one rounding to its type each time. */
#include "reduce.h"

#define RK_COLUMNS 64

static inline void add_to(void *self, int dtype, int64_t at, const void *source, int64_t from, float alpha) {
    const float term = alpha * rk_load(source, dtype, from); /* alpha 1 leaves the element as it is */
    rk_store(self, dtype, at, rk_load(self, dtype, at) + term);
}

/* self [outer, m, inner] += alpha * source [outer, n, inner] at rows index [n], each in 0 .. m-1. */
RK_EXPORT void RK_NAME(index_add)(void *self, int dtype, const int64_t *index, const void *source, int64_t outer,
                                  int64_t m, int64_t n, int64_t inner, float alpha) {
    const int64_t blocks = (inner + RK_COLUMNS - 1) / RK_COLUMNS;
#pragma omp parallel for schedule(static) if (outer * n * inner > RK_SERIAL)
    for (int64_t job = 0; job < outer * blocks; ++job) {
        RK_FP_ENTER;
        const int64_t o = job / blocks, begin = job % blocks * RK_COLUMNS, end = rk_min64(inner, begin + RK_COLUMNS);
        for (int64_t i = 0; i < n; ++i)
            for (int64_t j = begin; j < end; ++j)
                add_to(self, dtype, (o * m + index[i]) * inner + j, source, (o * n + i) * inner + j, alpha);
        RK_FP_LEAVE;
    }
}

/* self [outer, m, inner] += source [outer, n, inner], element by element at index [outer, n, inner] along the middle. */
RK_EXPORT void RK_NAME(scatter_add)(void *self, int dtype, const int64_t *index, const void *source, int64_t outer,
                                    int64_t m, int64_t n, int64_t inner) {
#pragma omp parallel for schedule(static) if (outer * n * inner > RK_SERIAL)
    for (int64_t o = 0; o < outer; ++o) {
        RK_FP_ENTER;
        for (int64_t i = o * n * inner; i < (o + 1) * n * inner; ++i)
            add_to(self, dtype, (o * m + index[i]) * inner + i % inner, source, i, 1.0f);
        RK_FP_LEAVE;
    }
}
