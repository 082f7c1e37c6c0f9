/* The `null` implementation: the harness' own overhead. */
#ifndef FABENCH_NULL_IMPL_H
#define FABENCH_NULL_IMPL_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct attn_impl attn_null_cpu;
extern const struct attn_impl attn_null_cuda; /* only in builds with CUDA */

#ifdef __cplusplus
}
#endif
#endif
