/* What does not depend on the instruction set: compiled once, without RK_SUFFIX. */
#include "common.h"

#define RK_STRING2(x) #x
#define RK_STRING(x) RK_STRING2(x)

/* The SHA-256 of sources and flags, given by the build; the loader compares it with the sources beside it. */
RK_EXPORT const char *rk_source_hash(void) { return RK_STRING(RK_SOURCE_HASH); }

/* Bit set of the variants that this CPU and operating system run: 1 base, 2 avx2, 4 avx512, 8 neon. */
RK_EXPORT int rk_supported(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
               __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return 1 | (avx2 ? 2 : 0) | (avx512 ? 4 : 0);
#else
    return 8;
#endif
}
