/* The timed three-pass competitor on CUDA. Its plan_bytes needs no plan, so that memory can be reckoned beforehand. */
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
