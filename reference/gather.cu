/* See gather.cuh. */
#include "reference/gather.cuh"

#include "kernels/common/small_floats.h"
#include "reference/rows.cuh"
#include "reference/status.h"

enum { GATHER_THREADS = 256 };

struct gather_job {
    struct attn_problem problem;
    struct attn_tensors tensors;
    struct gather_rows rows;
    struct attn_tensor from;
    enum attn_dtype dtype;
    const float *scales;
    struct gather_output to;
};

__device__ float load_element(const void *data, enum attn_dtype dtype, int64_t at)
{
    switch (dtype) {
    case ATTN_FP16: return to_float(static_cast<const __half *>(data)[at]);
    case ATTN_BF16: return to_float(static_cast<const __nv_bfloat16 *>(data)[at]);
    case ATTN_E4M3: return attn_from_e4m3(static_cast<const uint8_t *>(data)[at]);
    case ATTN_E5M2: return attn_from_e5m2(static_cast<const uint8_t *>(data)[at]);
    default: return static_cast<const float *>(data)[at];
    }
}

__device__ void store_element(void *data, enum attn_dtype dtype, int64_t at, float value)
{
    if (dtype == ATTN_FP16)
        static_cast<__half *>(data)[at] = from_float<__half>(value);
    else if (dtype == ATTN_BF16)
        static_cast<__nv_bfloat16 *>(data)[at] = from_float<__nv_bfloat16>(value);
    else
        static_cast<float *>(data)[at] = value;
}

/* Where a row begins in the tensor, and its scale. */
__device__ int64_t source_of(const struct gather_job &job, int64_t b, int64_t head, int64_t row, float *scale)
{
    const struct attn_problem &p = job.problem;
    const struct attn_tensors &t = job.tensors;
    const bool is_kv = job.rows.is_kv;
    *scale = 1.0f;
    if (job.scales)
        *scale =
            job.scales[is_kv ? attn_scale_index(&p, t.cu_seqlens_k, p.total_k, p.kv_heads, p.kv_len, 1, b, head, row)
                             : attn_scale_index(&p, t.cu_seqlens_q, p.total_q, p.q_heads, p.q_len,
                                                p.q_heads / p.kv_heads, b, head, row + job.rows.first_row)];
    return is_kv ? attn_key_offset(&p, &t, job.from, b, head, row) : attn_row_offset(&p, &t, job.from, b, head, row);
}

/* A warp copies a row. */
__global__ void __launch_bounds__(GATHER_THREADS) gather_kernel(const __grid_constant__ struct gather_job job)
{
    const int64_t rows = job.rows.batch * job.rows.heads * job.rows.rows;
    const int64_t warps = (int64_t)gridDim.x * (GATHER_THREADS / 32);
    for (int64_t n = blockIdx.x * (int64_t)(GATHER_THREADS / 32) + threadIdx.x / 32; n < rows; n += warps) {
        const int64_t plane = quotient(n, job.rows.rows), row = n - plane * job.rows.rows;
        const int64_t i = quotient(plane, job.rows.heads), head = plane - i * job.rows.heads;
        float scale;
        const int64_t from = source_of(job, job.rows.b + i, job.rows.head + head, job.rows.first + row, &scale);
        const int64_t to = i * job.to.stride_batch + head * job.to.stride_head + row * job.to.stride_row;
        for (int64_t c = threadIdx.x % 32; c < job.rows.columns; c += 32) {
            const float x = load_element(job.from.data, job.dtype, from + c) * scale;
            store_element(job.to.data, job.to.dtype, to + c, job.to.absolute ? fabsf(x) : x);
        }
    }
}

enum attn_status gather(const struct attn_problem *p, const struct attn_tensors *t, const struct gather_rows *rows,
                        struct attn_tensor from, enum attn_dtype dtype, const float *scales,
                        const struct gather_output *to, void *stream, struct attn_message *why)
{
    const int64_t count = rows->batch * rows->heads * rows->rows;
    if (count == 0)
        return ATTN_OK;
    const struct gather_job job = {*p, *t, *rows, from, dtype, scales, *to};
    const int64_t blocks = (count + GATHER_THREADS / 32 - 1) / (GATHER_THREADS / 32);
    const unsigned grid = (unsigned)(blocks < 8192 ? blocks : 8192);
    gather_kernel<<<grid, GATHER_THREADS, 0, (cudaStream_t)stream>>>(job);
    return status_cuda(cudaGetLastError(), "gather_kernel", why);
}
