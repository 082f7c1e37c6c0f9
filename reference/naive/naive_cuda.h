/* naive on CUDA: three passes with S and P in device memory. Its plan_bytes works without a plan (NULL), so that memory
 * can be estimated before prepare. */
#ifndef FABENCH_REFERENCE_CUDA_NAIVE_H
#define FABENCH_REFERENCE_CUDA_NAIVE_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct attn_impl attn_naive_cuda;

#ifdef __cplusplus
}
#endif
#endif
