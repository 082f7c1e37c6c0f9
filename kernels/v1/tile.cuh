/* What both directions of fused_v1 have in common on the device. */
#pragma once
#include "kernels/device/softmax.cuh"
#include "kernels/device/tile_io_sm80.cuh"
#include "kernels/v1/params.h"

namespace v1 {

using namespace device;

using Params = fused_v1_params;
constexpr int WARP = 32, ROWS = V1_ROWS;

template <typename T>
__device__ __forceinline__ T *head_pointer(const struct attn_tensor &tensor, int64_t batch, int64_t head)
{
    return static_cast<T *>(tensor.data) + batch * tensor.stride_batch + head * tensor.stride_head;
}

/* How many keys, from key 0 on, row `row` sees. */
__device__ __forceinline__ int visible_keys(const Params &params, int row)
{
    return params.causal ? max(0, min(params.kv_len, row + params.shift + 1)) : params.kv_len;
}

/* The first step of rows that meets the keys from `key` on. The first keys meet all rows: those that see nothing get
 * their result there. */
__device__ __forceinline__ int first_step(const Params &params, int key)
{
    return params.causal && key > 0 ? max(0, key - params.shift) / ROWS : 0;
}

/* Where the 32 bytes `group` (8 floats) of a row of a partial result of HEAD_DIM columns begin in shared memory: in an
 * order in which the 8-byte stores of a warp's accumulators and the 16-byte loads of rows have no bank conflicts. */
template <int HEAD_DIM> __device__ __forceinline__ int partial_offset(int row, int group)
{
    return row * HEAD_DIM + (group ^ row % 4) * 8;
}

/* Writes the warp's 16 x (8 N8) sums to its partial result, from column 8 first_group on. */
template <int HEAD_DIM, int N8>
__device__ __forceinline__ void store_partial(float *partial, const float (&sums)[N8][4], int first_group)
{
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < N8; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float *to = partial + partial_offset<HEAD_DIM>(lane / 4 + 8 * half, first_group + n) + lane % 4 * 2;
            *reinterpret_cast<float2 *>(to) = make_float2(sums[n][2 * half], sums[n][2 * half + 1]);
        }
}

/* Four columns of a row, from 4 * quarter on, summed over the partial results of WARPS warps, always in one order. */
template <int HEAD_DIM, int WARPS>
__device__ __forceinline__ float4 sum_partials(const float *partials, int row, int quarter)
{
    const float *from = partials + partial_offset<HEAD_DIM>(row, quarter / 2) + quarter % 2 * 4;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) {
        const float4 x = *reinterpret_cast<const float4 *>(from + warp * (ROWS * HEAD_DIM));
        sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
    }
    return sum;
}

/* Scores of keys that a row does not see become -inf; `key` is the first of the warp's keys, `row` the lane's first. */
template <int N8> __device__ __forceinline__ void mask(const Params &params, float (&s)[N8][4], int key, int row)
{
    const int column = key + threadIdx.x % 4 * 2;
    const int limit[2] = {visible_keys(params, row), visible_keys(params, row + 8)};
    mask_columns(s, column, limit);
}

} // namespace v1
