/* Steps of an online softmax over the accumulator of a wgmma (wgmma.cuh), sm_90: register i is column 8 (i / 4) + i % 2
 * from the thread's first on, of the thread's row i / 2 % 2 ("half"); the four threads of a quad share a row. */
#pragma once
#include <climits>

#include "kernels/device/softmax_sm80.cuh"

namespace device {

/* Scores at and right of limit[half] become -inf; limits are relative to this thread's first column. */
template <int SCORES> __device__ __forceinline__ void mask_scores(float (&s)[SCORES], const int (&limit)[2])
{
#pragma unroll
    for (int i = 0; i < SCORES; ++i)
        if (8 * (i / 4) + i % 2 >= limit[i / 2 % 2])
            s[i] = -INFINITY;
}

/* The largest score of a row over the four threads that share it. Numbers at or above 0 are ordered like their bits
 * taken as integers, for which there is a maximum of three. Only where a row of the warp has no such score the floats
 * themselves are compared. */
template <int SCORES> __device__ __forceinline__ void row_maxima(float (&top)[2], const float (&s)[SCORES])
{
    int most[2][2]; /* two chains a row, for their latency */
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int chain = 0; chain < 2; ++chain)
            most[half][chain] = __vimax3_s32(__float_as_int(s[4 * chain + 2 * half]),
                                             __float_as_int(s[4 * chain + 2 * half + 1]), INT_MIN);
#pragma unroll
    for (int i = 2; i < SCORES / 4; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            most[half][i % 2] = __vimax3_s32(most[half][i % 2], __float_as_int(s[4 * i + 2 * half]),
                                             __float_as_int(s[4 * i + 2 * half + 1]));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int x = max(most[half][0], most[half][1]);
        const int y = max(x, __shfl_xor_sync(WHOLE_WARP, x, 1));
        most[half][0] = max(y, __shfl_xor_sync(WHOLE_WARP, y, 2));
        top[half] = __int_as_float(most[half][0]);
    }
    if (__any_sync(WHOLE_WARP, min(most[0][0], most[1][0]) < 0)) {
        top[0] = top[1] = -INFINITY;
#pragma unroll
        for (int i = 0; i < SCORES; ++i)
            top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
        top[0] = quad_max(top[0]);
        top[1] = quad_max(top[1]);
    }
}

} // namespace device
