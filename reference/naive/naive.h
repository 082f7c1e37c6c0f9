/* naive: three passes with S and P in memory. That on CUDA has a plan_bytes that works without a plan (NULL), so that
 * memory can be estimated before prepare. */
#ifndef FABENCH_NAIVE_H
#define FABENCH_NAIVE_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct attn_impl attn_naive_cpu;
extern const struct attn_impl attn_naive_cuda; /* in a build with CUDA */

#ifdef __cplusplus
}
#endif

#endif
