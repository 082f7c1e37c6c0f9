/* What the kernels of reference/ share: element conversion, which keys a row sees, where a row lies, sums over a
 * block. */
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/attention.h"

/* Conversions to and from fp32, to nearest even. */
__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ __half from_float<__half>(float x) { return __float2half_rn(x); }
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* Keys [first, end) that row i sees; empty when first >= end. attn_visible of kernels/attention.h for the device. */
struct key_mask {
    int64_t q_len, kv_len, window_left, window_right;
    bool causal;
};

static inline struct key_mask key_mask_of(const struct attn_problem *p)
{
    struct key_mask mask = {p->q_len, p->kv_len, p->window_left, p->window_right, p->causal};
    return mask;
}

__device__ __forceinline__ void visible_keys(const struct key_mask &mask, int64_t row, int64_t *first, int64_t *end)
{
    const int64_t diagonal = row + mask.kv_len - mask.q_len;
    int64_t from = 0, to = mask.kv_len;
    if (mask.causal && diagonal + 1 < to)
        to = diagonal + 1;
    if (mask.window_right >= 0 && diagonal + mask.window_right + 1 < to)
        to = diagonal + mask.window_right + 1;
    if (mask.window_left >= 0 && diagonal - mask.window_left > from)
        from = diagonal - mask.window_left;
    *first = from;
    *end = to;
}

/* n / divisor; where both fit into 32 bits by a 32-bit division, which is several times faster. */
__device__ __forceinline__ int64_t quotient(int64_t n, int64_t divisor)
{
    if (((n | divisor) >> 32) == 0)
        return (int64_t)((uint32_t)n / (uint32_t)divisor);
    return n / divisor;
}

/* Offset of row `row` of the rows of all heads of all batches, counted in the order [batch, heads, len]. */
__device__ __forceinline__ int64_t row_offset(const struct attn_tensor &tensor, int64_t heads, int64_t len, int64_t row)
{
    const int64_t head_row = quotient(row, len), b = quotient(head_row, heads);
    return b * tensor.stride_batch + (head_row - b * heads) * tensor.stride_head +
           (row - head_row * len) * tensor.stride_row;
}

/* A grid that covers `blocks` by striding when there are more than CUDA allows in x. */
static inline unsigned grid_size(int64_t blocks) { return (unsigned)(blocks < INT32_MAX ? blocks : INT32_MAX); }

/* Sums and maxima over the threads of a block. */

enum { REFERENCE_THREADS = 256 }; /* of every block */

/* The results are the same in every thread of the block. `shared` has a slot per warp. */
__device__ __forceinline__ double block_sum(double x, double *shared)
{
    for (int lane = 16; lane > 0; lane >>= 1)
        x += __shfl_xor_sync(0xffffffffu, x, lane);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int warp = 0; warp < REFERENCE_THREADS / 32; warp++)
        x += shared[warp];
    return x;
}

__device__ __forceinline__ float block_max(float x, float *shared)
{
    for (int lane = 16; lane > 0; lane >>= 1)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lane));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = x;
    __syncthreads();
    for (int warp = 0; warp < REFERENCE_THREADS / 32; warp++)
        x = fmaxf(x, shared[warp]);
    return x;
}
