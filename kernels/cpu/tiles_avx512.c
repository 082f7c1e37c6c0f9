/* The CPU tiles in AVX-512F. */
#include "kernels/cpu/cpu_kernels.h"

#if defined(__x86_64__)

#include "kernels/cpu/vector_avx512.h"

#include "kernels/cpu/tiles.h"

const struct cpu_kernels *cpu_kernels_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
               ? &kernels
               : NULL;
}

#else

const struct cpu_kernels *cpu_kernels_avx512(void) { return NULL; }

#endif
