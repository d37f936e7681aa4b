/* The floating-point environment of every thread of the OpenMP pool, not only of the caller's.
 *
 * The kernels set their own on entry. PyTorch's elementwise kernels do not: a thread of the pool that was started
 * while the caller had flush-to-zero on keeps it. The engine sets the default environment around a run. */
#include "common.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#if defined(__x86_64__)
#define RK_FP_DEFAULT 0x1f80
static uint64_t fp_get(void) { return _mm_getcsr(); }
static void fp_set(uint64_t state) { _mm_setcsr((unsigned)state); }
#else
#define RK_FP_DEFAULT 0
static uint64_t fp_get(void) {
    uint64_t state;
    __asm__ volatile("mrs %0, fpcr" : "=r"(state)::"memory");
    return state;
}
static void fp_set(uint64_t state) { __asm__ volatile("msr fpcr, %0" ::"r"(state) : "memory"); }
#endif

static int fp_index(void) {
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* Number of states that rk_fpenv_* read or write: the threads of the next parallel region. */
RK_EXPORT int RK_NAME(fpenv_threads)(void) {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

/* Save each thread's state (saved[thread], threads of them) and set the default: nearest even, subnormals kept. */
RK_EXPORT void RK_NAME(fpenv_default)(uint64_t *saved, int threads) {
#pragma omp parallel num_threads(threads)
    {
        saved[fp_index()] = fp_get();
        fp_set(RK_FP_DEFAULT);
    }
}

/* Put each thread's saved state back. */
RK_EXPORT void RK_NAME(fpenv_restore)(const uint64_t *saved, int threads) {
#pragma omp parallel num_threads(threads)
    fp_set(saved[fp_index()]);
}
