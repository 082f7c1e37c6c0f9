/* naive on the CPU: three passes with S and P in memory. */
#ifndef FABENCH_NAIVE_CPU_H
#define FABENCH_NAIVE_CPU_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct attn_impl attn_naive_cpu;

#ifdef __cplusplus
}
#endif
#endif
