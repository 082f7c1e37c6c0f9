/* The CPU tiles of one instruction set. kernels/CMakeLists.txt compiles this file once for each: with CPU_TILES_AVX512,
 * with CPU_TILES_AVX2 (and FMA), and with neither for what every processor of the architecture has. */
#include "kernels/cpu/cpu_kernels.h"

#if defined(CPU_TILES_AVX512) && defined(__x86_64__)

#include "kernels/cpu/vector.h"

#include "kernels/cpu/tiles.h"

const struct cpu_kernels *cpu_kernels_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
               ? &kernels
               : NULL;
}

#elif defined(CPU_TILES_AVX512)

const struct cpu_kernels *cpu_kernels_avx512(void) { return NULL; }

#elif defined(CPU_TILES_AVX2) && defined(__x86_64__)

#include "kernels/cpu/vector.h"

#include "kernels/cpu/tiles.h"

const struct cpu_kernels *cpu_kernels_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kernels : NULL;
}

#elif defined(CPU_TILES_AVX2)

const struct cpu_kernels *cpu_kernels_avx2(void) { return NULL; }

#else

#include "kernels/cpu/vector.h"

#include "kernels/cpu/tiles.h"

const struct cpu_kernels *cpu_kernels_baseline(void) { return &kernels; }

#endif
