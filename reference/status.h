/* Status and sentence of a failed CUDA call, for the files of reference/. */
#ifndef FABENCH_REFERENCE_CUDA_STATUS_H
#define FABENCH_REFERENCE_CUDA_STATUS_H

#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stdio.h>

#include "kernels/attention.h"

/* Fills the message like printf and returns `status`, so that a check ends with `return status_fail(...)`. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static inline enum attn_status
status_fail(struct attn_message *why, enum attn_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return status;
}

/* ATTN_OK for cudaSuccess; otherwise names the call and clears the error so that the next check does not see it. */
static inline enum attn_status status_cuda(cudaError_t error, const char *call, struct attn_message *why)
{
    if (error == cudaSuccess)
        return ATTN_OK;
    (void)cudaGetLastError();
    return status_fail(why, error == cudaErrorMemoryAllocation ? ATTN_NO_MEMORY : ATTN_ERROR, "%s: %s (%s)", call,
                       cudaGetErrorString(error), cudaGetErrorName(error));
}

/* cudaMalloc whose failure names what the bytes were for. */
static inline enum attn_status status_malloc(void **pointer, size_t bytes, const char *purpose,
                                             struct attn_message *why)
{
    const cudaError_t error = cudaMalloc(pointer, bytes);
    if (error == cudaSuccess)
        return ATTN_OK;
    *pointer = NULL;
    (void)cudaGetLastError();
    if (error != cudaErrorMemoryAllocation)
        return status_cuda(error, "cudaMalloc", why);
    return status_fail(why, ATTN_NO_MEMORY, "%s needs %zu bytes of device memory, which are not free", purpose, bytes);
}

/* Rounded up to 256 bytes, the alignment of cudaMalloc's memory, for the parts of a workspace. */
static inline size_t align_bytes(size_t bytes) { return (bytes + 255) / 256 * 256; }

#endif
