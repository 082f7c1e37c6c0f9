/* The implementations that the kernels are measured against: naive ones, peers and `null`. */
#ifndef FABENCH_REFERENCE_REGISTRY_H
#define FABENCH_REFERENCE_REGISTRY_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ended by NULL. */
const struct attn_impl *const *reference_registry(void);

/* naive: three passes with S and P in memory. That on CUDA has a plan_bytes that works without a plan (NULL), so that
 * memory can be estimated before prepare. */

extern const struct attn_impl attn_naive_cpu;
extern const struct attn_impl attn_naive_cuda; /* in a build with CUDA */

/* The `null` implementation: the harness' own overhead. */

extern const struct attn_impl attn_null_cpu;
extern const struct attn_impl attn_null_cuda; /* only in builds with CUDA */

#ifdef __cplusplus
}
#endif
#endif
