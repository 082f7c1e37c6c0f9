/* One product of row-major matrices over up to three batch dimensions, through cuBLAS.
 *
 * Attention's tensors have two strides over heads (batch and head, neither a multiple of the other in bshd) and a third
 * with grouped heads, while a cuBLAS call takes one. cublas_multiply merges dimensions whose strides allow it. If at
 * most one is left, one strided call does. Otherwise a small kernel writes the pointers of all batches for one
 * pointer-array call, because many short calls would leave multiprocessors idle at the end of each. */
#ifndef FABENCH_REFERENCE_CUDA_CUBLAS_H
#define FABENCH_REFERENCE_CUDA_CUBLAS_H

#include <cublas_v2.h>
#include <stdbool.h>

#include "kernels/attention.h"

enum { CUBLAS_BATCH_DIMENSIONS = 3 };

/* Row r, column c of batch (i, j, k) lies at r * row_stride + c + i * stride[0] + j * stride[1] + k * stride[2],
 * in elements. `transposed` says that the product uses its transpose. */
struct cublas_matrix {
    const void *data;
    int64_t row_stride, stride[CUBLAS_BATCH_DIMENSIONS];
    bool transposed;
};

/* c[rows, cols] = alpha * a[rows, depth] * b[depth, cols] + beta * c, for every batch. fp32 accumulation. */
struct cublas_product {
    enum attn_dtype in, out; /* out is in, or fp32 */
    int64_t rows, cols, depth, count[CUBLAS_BATCH_DIMENSIONS];
    int64_t depth_step; /* > 0: the depth is summed in pieces of this length, which keeps fp32 sums short */
    /* Scratch on the device for the pointer-array call, cublas_pointer_bytes(count) large, in use until the stream has
     * finished the product. NULL = a loop of strided calls. The loop also serves products with a depth_step, and
     * matrices not aligned to 16 bytes: cuBLAS assumes that alignment of pointers in device memory. */
    void *pointers;
    float alpha, beta;
    struct cublas_matrix a, b, c; /* c is written; never transposed, no stride of 0 in a dimension longer than 1 */
};

/* A handle on the current device. fp32 products use neither TF32 nor emulation, 16-bit ones reduce in fp32. Allocates.
 * ATTN_ERROR, with cublas_library's sentence, where there is no cuBLAS. */
enum attn_status cublas_create(cublasHandle_t *handle, struct attn_message *why);
void cublas_destroy(cublasHandle_t handle);

/* Bytes of workspace that cuBLAS recommends for the current device. With it calls allocate nothing and can be
 * captured into a CUDA graph. */
size_t cublas_workspace_bytes(void);

/* Bytes of scratch for the pointers of this many batches. */
size_t cublas_pointer_bytes(int64_t batches);

/* Sets stream and workspace together, because setting the stream resets the workspace. */
enum attn_status cublas_bind(cublasHandle_t handle, void *stream, void *workspace, struct attn_message *why);

enum attn_status cublas_multiply(cublasHandle_t handle, const struct cublas_product *product, struct attn_message *why);

/* ATTN_OK for CUBLAS_STATUS_SUCCESS; otherwise names the call. */
enum attn_status cublas_status(cublasStatus_t status, const char *call, struct attn_message *why);

cudaDataType_t cublas_type(enum attn_dtype dtype);

#endif
