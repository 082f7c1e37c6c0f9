/* Shared by the GPU tests in C: counting of checks, the device, and tensors that exist on host and device.
 * A test is a program: exit 0 = passed, 1 = failed, 77 = no CUDA device. */
#ifndef FABENCH_TESTS_GPU_CHECK_H
#define FABENCH_TESTS_GPU_CHECK_H

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/harness/fill.h"
#include "kernels/attention.h"

enum { CHECK_EXIT_SKIPPED = 77 };

struct check_counts {
    int passed, failed;
};
static struct check_counts check_counts;

/* Prints one line for a check and counts it; returns `passed`. */
__attribute__((format(printf, 2, 3))) static inline bool check(bool passed, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s ", passed ? "pass" : "FAIL");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    if (passed)
        check_counts.passed++;
    else
        check_counts.failed++;
    return passed;
}

static inline int check_finish(void)
{
    printf("%d passed, %d failed\n", check_counts.passed, check_counts.failed);
    return check_counts.failed == 0 && check_counts.passed > 0 ? 0 : 1;
}

/* For calls of CUDA or libc that the test itself needs: ends the program when one fails. */
static inline void need(bool ok, const char *what)
{
    if (!ok) {
        printf("FAIL %s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
        check_counts.failed++;
        exit(check_finish());
    }
}
static inline void need_cuda(cudaError_t error, const char *what) { need(error == cudaSuccess, what); }

static inline void *device_alloc(size_t bytes)
{
    void *pointer = NULL;
    need_cuda(cudaMalloc(&pointer, bytes ? bytes : 1), "cudaMalloc");
    return pointer;
}

static inline void *host_alloc(size_t bytes)
{
    void *pointer = calloc(bytes ? bytes : 1, 1);
    need(pointer != NULL, "calloc");
    return pointer;
}

/* A buffer with the same bytes on host and device, and its strides as a tensor. Gaps between rows are part of the
 * buffer. */
struct mirror {
    struct attn_tensor host, device;
    enum attn_dtype dtype;
    int64_t batch, heads, len, head_dim;
    size_t bytes;
};

static inline struct mirror mirror_strided(enum attn_dtype dtype, int64_t batch, int64_t heads, int64_t len,
                                           int64_t head_dim, int64_t stride_batch, int64_t stride_head,
                                           int64_t stride_row)
{
    struct mirror m = {.dtype = dtype, .batch = batch, .heads = heads, .len = len, .head_dim = head_dim};
    const int64_t last = (batch - 1) * stride_batch + (heads - 1) * stride_head + (len - 1) * stride_row;
    m.bytes = (size_t)(last + head_dim) * attn_dtype_bytes(dtype);
    m.host = (struct attn_tensor){host_alloc(m.bytes), stride_batch, stride_head, stride_row};
    m.device = m.host;
    m.device.data = device_alloc(m.bytes);
    return m;
}

static inline struct mirror mirror_create(enum attn_layout layout, enum attn_dtype dtype, int64_t batch, int64_t heads,
                                          int64_t len, int64_t head_dim)
{
    const int64_t all = heads * len * head_dim;
    return layout == ATTN_BSHD ? mirror_strided(dtype, batch, heads, len, head_dim, all, head_dim, heads * head_dim)
                               : mirror_strided(dtype, batch, heads, len, head_dim, all, len * head_dim, head_dim);
}

static inline void mirror_upload(const struct mirror *m)
{
    need_cuda(cudaMemcpy(m->device.data, m->host.data, m->bytes, cudaMemcpyHostToDevice), "upload");
}

static inline void mirror_download(const struct mirror *m)
{
    need_cuda(cudaMemcpy(m->host.data, m->device.data, m->bytes, cudaMemcpyDeviceToHost), "download");
}

static inline void mirror_free(struct mirror *m)
{
    free(m->host.data);
    need_cuda(cudaFree(m->device.data), "cudaFree");
    m->host.data = m->device.data = NULL;
}

/* The value that element (b, h, row, col) has on the host. */
static inline float mirror_at(const struct mirror *m, int64_t b, int64_t h, int64_t row, int64_t col)
{
    return fill_load(m->host.data, m->dtype,
                     b * m->host.stride_batch + h * m->host.stride_head + row * m->host.stride_row + col);
}

/* The description of the current device for implementations; exits with 77 without a device. */
static inline struct attn_device check_device(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        printf("skip: no CUDA device\n");
        exit(CHECK_EXIT_SKIPPED);
    }
    struct cudaDeviceProp properties;
    need_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    need_cuda(cudaSetDevice(0), "cudaSetDevice");
    return (struct attn_device){.platform = ATTN_CUDA,
                                .sm = properties.major * 10 + properties.minor,
                                .multiprocessors = properties.multiProcessorCount,
                                .smem_per_block_bytes = properties.sharedMemPerBlockOptin,
                                .l2_bytes = (size_t)properties.l2CacheSize,
                                .memory_bytes = properties.totalGlobalMem};
}

static inline const char *dtype_text(enum attn_dtype dtype)
{
    return dtype == ATTN_FP16 ? "fp16" : dtype == ATTN_BF16 ? "bf16" : "fp32";
}

#endif
