/* The CPU tiles in AVX2 with FMA. */
#include "kernels/cpu/cpu_kernels.h"

#if defined(__x86_64__)

#include "kernels/cpu/vector_avx2.h"

#include "kernels/cpu/tiles.h"

const struct cpu_kernels *cpu_kernels_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kernels : NULL;
}

#else

const struct cpu_kernels *cpu_kernels_avx2(void) { return NULL; }

#endif
