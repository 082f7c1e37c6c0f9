/* Sums and maxima over the threads of a block, for the fp32 reference. */
#pragma once
#include <math.h>

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
