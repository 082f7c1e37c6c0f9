/* What quantising is measured beside: a kernel that reads and writes as many bytes and computes nothing. copy.cu. */
#ifndef FABENCH_TESTS_GPU_COPY_H
#define FABENCH_TESTS_GPU_COPY_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads `elements` 16-bit numbers and writes as many bytes; is_twice: a kernel before it only reads them. A multiple of
 * 16 elements. */
cudaError_t copy_half(const void *from, void *to, int64_t elements, bool is_twice, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
