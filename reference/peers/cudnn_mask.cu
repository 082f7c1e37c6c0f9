/* See cudnn_mask.h. */
#include "reference/peers/cudnn_mask.h"

#include "reference/rows.cuh"
#include "reference/status.h"

enum { MASK_THREADS = 256, MASK_BLOCKS = 8192 };

struct mask_job {
    struct attn_problem problem;
    int64_t count;
    const int32_t *number;
    uint16_t *mask;
    uint16_t one; /* 1.0 in the problem's dtype */
};

__global__ void __launch_bounds__(MASK_THREADS) mask_kernel(const __grid_constant__ struct mask_job job)
{
    const struct attn_problem &p = job.problem;
    const int64_t elements = job.count * p.q_heads * p.q_len * p.kv_len;
    const int64_t step = (int64_t)gridDim.x * MASK_THREADS;
    for (int64_t n = blockIdx.x * (int64_t)MASK_THREADS + threadIdx.x; n < elements; n += step) {
        const int64_t row_of_all = quotient(n, p.kv_len), key = n - row_of_all * p.kv_len;
        const int64_t plane = quotient(row_of_all, p.q_len), row = row_of_all - plane * p.q_len;
        const int64_t sequence = quotient(plane, p.q_heads), head = plane - sequence * p.q_heads;
        const int64_t number = job.number ? job.number[sequence] : sequence;
        job.mask[n] = attn_dropout_factor(&p, number, head, row, key) != 0.0f ? job.one : (uint16_t)0;
    }
}

size_t cudnn_mask_bytes(const struct attn_problem *p, int64_t count)
{
    return (size_t)(count * p->q_heads * p->q_len * p->kv_len) * sizeof(uint16_t);
}

enum attn_status cudnn_mask_fill(const struct attn_problem *p, int64_t count, const int32_t *number, void *mask,
                                 struct attn_message *why)
{
    const uint16_t one = p->dtype == ATTN_BF16 ? 0x3F80 : 0x3C00;
    const struct mask_job job = {*p, count, number, static_cast<uint16_t *>(mask), one};
    mask_kernel<<<MASK_BLOCKS, MASK_THREADS>>>(job);
    const enum attn_status status = status_cuda(cudaGetLastError(), "the kernel of dropout's mask", why);
    if (status != ATTN_OK)
        return status;
    return status_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize", why);
}
