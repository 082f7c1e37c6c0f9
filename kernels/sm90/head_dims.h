/* The head dims that fused_sm90 has kernels for, for tables of these. C and CUDA C++; needs no CUDA header. */
#ifndef FABENCH_SM90_HEAD_DIMS_H
#define FABENCH_SM90_HEAD_DIMS_H

#include <stdint.h>

enum sm90_head_dim { SM90_D64, SM90_D128, SM90_HEAD_DIMS };

/* Of a request that has been accepted. */
static inline enum sm90_head_dim sm90_head_dim_of(int64_t head_dim) { return head_dim == 64 ? SM90_D64 : SM90_D128; }

#endif
