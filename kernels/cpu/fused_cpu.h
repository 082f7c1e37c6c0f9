/* FlashAttention-2's algorithm on the CPU, over threads. */
#ifndef FABENCH_FUSED_CPU_H
#define FABENCH_FUSED_CPU_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct attn_impl attn_fused_cpu;

#ifdef __cplusplus
}
#endif
#endif
