/* The CPU tiles with what every processor of the architecture has. */
#include "kernels/cpu/cpu_kernels.h"

#if defined(__aarch64__)
#include "kernels/cpu/vector_neon.h"
#else
#include "kernels/cpu/vector_portable.h"
#endif

#include "kernels/cpu/tiles.h"

const struct cpu_kernels *cpu_kernels_baseline(void) { return &kernels; }
