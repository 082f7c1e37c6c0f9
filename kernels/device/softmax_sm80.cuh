/* Steps of an online softmax over the accumulator fragments of mma.m16n8k16 (see mma_sm80.cuh), sm_80 and newer.
 * A row of the score tile lies in the four lanes of a quad: lane / 4 is the row, lane % 4 picks the columns. */
#pragma once
#include <cstdint>

namespace device {

constexpr unsigned WHOLE_WARP = 0xffffffffu;

/* The largest of the four lanes' values, in all four. */
__device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(WHOLE_WARP, x, 1));
    return fmaxf(x, __shfl_xor_sync(WHOLE_WARP, x, 2));
}

/* The sum of the four lanes' values, in all four, always added in the same order. */
__device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(WHOLE_WARP, x, 1);
    return x + __shfl_xor_sync(WHOLE_WARP, x, 2);
}

/* Row maximum of a 16 x (8 TILES) score tile over this lane's columns: `half` 0 is row lane / 4, 1 is row + 8. */
template <int TILES> __device__ __forceinline__ float lane_max(const float (&s)[TILES][4], int half)
{
    float x = fmaxf(s[0][2 * half], s[0][2 * half + 1]);
#pragma unroll
    for (int tile = 1; tile < TILES; ++tile)
        x = fmaxf(x, fmaxf(s[tile][2 * half], s[tile][2 * half + 1]));
    return x;
}

/* Sets the scores of columns >= limit[half] to -inf; first_column is the column of s[0][0] in this lane. */
template <int TILES>
__device__ __forceinline__ void mask_columns(float (&s)[TILES][4], int first_column, const int (&limit)[2])
{
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (first_column + 8 * tile + i % 2 >= limit[i / 2])
                s[tile][i] = -INFINITY;
}

} // namespace device
