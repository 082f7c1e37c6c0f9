/* The online softmax of the 8-bit sm_90 forward, on the accumulators of wgmma. With c = scale * log2(e) times the
 * scales of Q and K:
 *
 *   m' = max(m, c rowmax(S))
 *   P  = 2^(c S - m' + 8)        rounded to 8 bits for the second product
 *   l  = 2^(m - m') l + rowsum(P) before it is rounded, and O likewise
 *
 * The largest weight of a row is 2^8, which both types hold exactly. e4m3 has 2^-9 as its smallest number and 448 as
 * its largest: with a lower offset small weights, which many keys may have, would be lost, and with a row max that lags
 * behind, as in 16 bits, large ones would be cut off. */
#pragma once
#include <cfloat>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/eight_bits.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/sm90/fwd/fp8/tiles.cuh"

namespace sm90_fp8 {

constexpr float OFFSET_LOG2 = 8.0f;
/* The row max of a row that has seen no key: finite, so that a masked score minus it is -inf and not NaN. */
constexpr float NO_MAXIMUM = -FLT_MAX;
/* The row sum of a row that has seen no key is less, that of another one at least 2^OFFSET_LOG2. */
constexpr float NO_WEIGHT = 0x1p-80f;

/* This thread's rows g and g + 8 of the accumulator; the sums are over its own columns. */
struct RowState {
    float max_log2[2], sum[2];
    bool is_above_zero; /* the max of all rows of the warp */
};

/* The larger one of 0 and the row max over the four threads that share a row: floats at or above 0 have the same order
 * as their bits taken as integers, for which there is an instruction with three operands. */
template <int SCORES> __device__ __forceinline__ void row_max_or_zero(float (&top)[2], const float (&s)[SCORES])
{
    int most[2][2] = {}; /* two chains a row, for their latency */
#pragma unroll
    for (int i = 0; i < SCORES / 4; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            most[half][i % 2] = __vimax3_s32(most[half][i % 2], __float_as_int(s[4 * i + 2 * half]),
                                             __float_as_int(s[4 * i + 2 * half + 1]));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int x = max(most[half][0], most[half][1]);
        const int y = max(x, __shfl_xor_sync(WHOLE_WARP, x, 1));
        top[half] = __int_as_float(max(y, __shfl_xor_sync(WHOLE_WARP, y, 2)));
    }
}

/* Moves the row max to the largest score. `alpha`: what sums that refer to the last one are to be multiplied with;
 * those of the weights are. Where all rows of the warp have a row max of 0 or more, as they have after a few keys, a
 * smaller one does not count; that is known ahead of the scores. */
template <int SCORES>
__device__ __forceinline__ void move_row_max(const float (&s)[SCORES], RowState &rows, float (&alpha)[2],
                                             float scale_log2)
{
    float top[2];
    if (rows.is_above_zero)
        row_max_or_zero(top, s);
    else
        float_row_max(top, s);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float now = fmaxf(rows.max_log2[half], top[half] * scale_log2);
        alpha[half] = exp2_approx(rows.max_log2[half] - now);
        rows.max_log2[half] = now;
        rows.sum[half] *= alpha[half];
    }
    rows.is_above_zero = __all_sync(WHOLE_WARP, fminf(rows.max_log2[0], rows.max_log2[1]) >= 0.0f);
}

/* P, four elements in a register in the order of A of the second product (transpose.cuh), and its row sums. One weight
 * of EVERY is a polynomial, which fills cycles that the others leave; none with 0. */
template <typename T, int EVERY, int SCORES>
__device__ __forceinline__ void pack_weights(uint32_t (&p)[SCORES / 4], const float (&s)[SCORES], RowState &rows,
                                             float scale_log2)
{
    const float offset[2] = {OFFSET_LOG2 - rows.max_log2[0], OFFSET_LOG2 - rows.max_log2[1]};
    float sums[2][2] = {{rows.sum[0], 0.0f}, {rows.sum[1], 0.0f}}; /* two chains a row, for their latency */
#pragma unroll
    for (int i = 0; i < SCORES / 4; ++i) {
        const int half = i % 2, first = i / 2 * 8 + 2 * half;
        float x[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float exponent = fmaf(s[first + j / 2 * 4 + j % 2], scale_log2, offset[half]);
            const bool is_polynomial = EVERY > 0 && (4 * i + j + 1) % (EVERY > 0 ? EVERY : 1) == 0;
            x[j] = is_polynomial ? exp2_polynomial(exponent) : exp2_approx(exponent);
        }
        sums[half][0] += x[0] + x[1];
        sums[half][1] += x[2] + x[3];
        p[i] = pack4<T>(x[0], x[1], x[2], x[3]);
    }
    rows.sum[0] = sums[0][0] + sums[0][1];
    rows.sum[1] = sums[1][0] + sums[1][1];
}

} // namespace sm90_fp8
