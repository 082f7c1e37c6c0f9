/* The three-pass competitor on the CPU. */
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
