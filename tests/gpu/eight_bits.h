/* Products of 8-bit numbers (kernels/device/eight_bits.cuh), and weights that are rounded to them, each launched alone:
 * eight_bits.cu, for test_eight_bits.c. */
#ifndef FABENCH_TESTS_GPU_EIGHT_BITS_H
#define FABENCH_TESTS_GPU_EIGHT_BITS_H

#include <cuda_runtime_api.h>

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EIGHT_BITS_M = 64 }; /* rows of A */

/* c[64 x n] = a b, plus what c held where `accumulate`; a[64][k] is m by k, b[n][k] is n by k, c[64][n], row after row,
 * on the device. dtype is e4m3 or e5m2, n and k 64 or 128; k is the width of rows in shared memory. from_registers: A
 * comes from registers. Returns cudaErrorInvalidValue for what there is no instruction of. */
cudaError_t eight_bits_multiply(bool from_registers, enum attn_dtype, int n, int k, const uint8_t *a, const uint8_t *b,
                                float *c, bool accumulate);

/* packed[i]: four floats as pack4 stores them. */
cudaError_t eight_bits_pack(enum attn_dtype, const float *from, uint32_t *packed, int count);

/* y[i] = 2^x[i] as exp2_polynomial computes it. */
cudaError_t eight_bits_exp2(const float *x, float *y, int count);

#ifdef __cplusplus
}
#endif
#endif
