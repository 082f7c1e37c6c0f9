/* Steps of an online softmax over accumulators in registers. */
#pragma once
#include <climits>
#include <cstdint>

namespace device {

constexpr float LN_2 = 0.6931471805599453f; /* LSE is ln 2 times what is computed to the base 2 */
constexpr float LOG2_E = 1.4426950408889634f;

/* ---- accumulators of mma.m16n8k16 ---- */

/* Steps of an online softmax over the accumulator fragments of mma.m16n8k16 (see warp_matrix.cuh), sm_80 and newer.
 * A row of the score tile lies in the four lanes of a quad: lane / 4 is the row, lane % 4 picks the columns. */

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

/* ---- accumulators of wgmma ---- */

/* Steps of an online softmax over the accumulator of a wgmma (wgmma.cuh), sm_90: register i is column 8 (i / 4) + i % 2
 * from the thread's first on, of the thread's row i / 2 % 2 ("half"); the four threads of a quad share a row. */

/* Scores at and right of limit[half] become -inf; limits are relative to this thread's first column. */
template <int SCORES> __device__ __forceinline__ void mask_scores(float (&s)[SCORES], const int (&limit)[2])
{
#pragma unroll
    for (int i = 0; i < SCORES; ++i)
        if (8 * (i / 4) + i % 2 >= limit[i / 2 % 2])
            s[i] = -INFINITY;
}

/* The same, and those left of first[half]. */
template <int SCORES>
__device__ __forceinline__ void mask_scores(float (&s)[SCORES], const int (&first)[2], const int (&limit)[2])
{
#pragma unroll
    for (int i = 0; i < SCORES; ++i) {
        const int column = 8 * (i / 4) + i % 2, half = i / 2 % 2;
        if (column >= limit[half] || column < first[half])
            s[i] = -INFINITY;
    }
}

/* The row max over the four threads that share a row. */
template <int SCORES> __device__ __forceinline__ void float_row_max(float (&top)[2], const float (&s)[SCORES])
{
    float most[2][2]; /* two chains a row, for their latency */
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int chain = 0; chain < 2; ++chain)
            most[half][chain] = fmaxf(s[4 * chain + 2 * half], s[4 * chain + 2 * half + 1]);
#pragma unroll
    for (int i = 2; i < SCORES / 4; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            most[half][i % 2] = fmaxf(most[half][i % 2], fmaxf(s[4 * i + 2 * half], s[4 * i + 2 * half + 1]));
    top[0] = quad_max(fmaxf(most[0][0], most[0][1]));
    top[1] = quad_max(fmaxf(most[1][0], most[1][1]));
}

/* The same, faster where all rows of the warp have a score of 0 or more: floats at or above 0 have the same order as
 * their bits taken as integers, for which there is an instruction with three operands. */
template <int SCORES> __device__ __forceinline__ void row_max(float (&top)[2], const float (&s)[SCORES])
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
    if (__any_sync(WHOLE_WARP, min(most[0][0], most[1][0]) < 0))
        float_row_max(top, s);
}

/* Whether an element of P sets its sign bit when that half of `headroom` is added to its bits. P is pairs of 16-bit
 * floats at or above 0, which have the same order as their bits; for pairs of integers, too, there is a maximum with
 * three operands. */
template <int PAIRS> __device__ __forceinline__ bool any_exceeds(const uint32_t (&p)[PAIRS], uint32_t headroom)
{
    static_assert(PAIRS % 4 == 0, "two chains, of two pairs a step");
    uint32_t most[2] = {p[0], p[1]};
#pragma unroll
    for (int i = 2; i + 3 < PAIRS; i += 4) {
        most[0] = __vimax3_u16x2(most[0], p[i], p[i + 1]);
        most[1] = __vimax3_u16x2(most[1], p[i + 2], p[i + 3]);
    }
    most[0] = __vimax3_u16x2(most[0], p[PAIRS - 2], p[PAIRS - 1]);
    return ((__vmaxu2(most[0], most[1]) + headroom) & 0x80008000u) != 0;
}

} // namespace device
