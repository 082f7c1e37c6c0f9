/* The implementations that the kernels are measured against: naive ones, peers and `null`. */
#ifndef FABENCH_REFERENCE_REGISTRY_H
#define FABENCH_REFERENCE_REGISTRY_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ended by NULL. */
const struct attn_impl *const *reference_registry(void);

/* The `null` implementation: the harness' own overhead. */

extern const struct attn_impl attn_null_cpu;
extern const struct attn_impl attn_null_cuda; /* only in builds with CUDA */

#ifdef __cplusplus
}
#endif
#endif
