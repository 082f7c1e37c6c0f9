/* The online softmax of the sm_90 forward, on the accumulators of wgmma. With c = scale * log2(e):
 *
 *   m' = max(m, c rowmax(S)) if that is more than STALE_LOG2 above m, else m' = m
 *   P  = 2^(c S - m')            one FFMA and one ex2 for each element
 *   l  = 2^(m - m') l + rowsum(P), and O likewise, only where a row of the warp has moved its m
 *
 * A row max that is too low by up to STALE_LOG2 keeps P at or below 2^STALE_LOG2, which 16 bits hold, and cancels at
 * the end: O and l refer to the same m. How large STALE_LOG2 is depends on when the row max is checked (fwd_tiles.cuh):
 *
 *   BEFORE_EXP   3. With m = row max the largest weight p of a row would be 1, which 16 bits hold exactly. With a lower
 *                m its relative rounding error e is one of O, the larger, the more of its row's weight that key has. O
 *                is therefore divided by l (1 + sqrt(p / l) e) at the end: where that key dominates this takes its
 *                error away and gives the others, which are small, one of the same size; where it does not it changes
 *                little. The more rarely m moves, the more weights beside the largest are inexact, which this does not
 *                see. docs/kernels/sm90_fwd.md, step 28.
 *   AFTER_EXP    as large as the range of P's type allows, because moving m costs all of P once more; where one row of
 *                a warp moves, the others move with it, which costs nothing then. O is divided by the sum of the
 *                rounded P, so that the rounding error of a weight that dominates cancels. That sum is a column of
 *                O += P V, for a column of ones beside V. LSE takes l, the sum before rounding. */
#pragma once
#include <cfloat>
#include <type_traits>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/softmax.cuh"

namespace sm90_fwd {

using namespace device;

constexpr float STALE_LOG2_BEFORE_EXP = 3.0f;
/* With m too low by 64 P is up to 2^64: the sum of 2^20 of them with values up to 2^40 is below 2^124. Values of 2^63
 * and more may overflow it, although O itself is finite. fp16 holds weights up to 2^16. */
template <typename T> constexpr int STALE_LOG2_AFTER_EXP = 64;
template <> constexpr int STALE_LOG2_AFTER_EXP<__half> = 14;
/* The row max of a row that has seen no key: finite, so that a masked score minus it is -inf and not NaN. */
constexpr float NO_MAXIMUM = -FLT_MAX;

/* This thread's rows g and g + 8 of the accumulator; the sums are over its own columns. */
struct RowState {
    float max_log2[2], sum[2];
    float top_log2[2]; /* BEFORE_EXP: the largest score so far, times c */
};

/* Moves the row max where it is more than `stale_log2` too low and rescales the row sums; O has to be multiplied with
 * `alpha`. Returns whether a row of the warp has moved. WHOLE_WARP_MOVES: where one has, all rows of the warp take what
 * their row max is. O is rescaled once then, and not for one row after the other, but the vote is waited for. */
template <bool WHOLE_WARP_MOVES, int SCORES>
__device__ __forceinline__ bool update_row_max(const float (&s)[SCORES], RowState &rows, float (&alpha)[2],
                                               float scale_log2, float stale_log2)
{
    bool any_moves = false;
    float top[2], now[2];
    row_max(top, s);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float old = rows.max_log2[half];
        now[half] = top[half] * scale_log2;
        const bool moves = now[half] > old + stale_log2;
        if constexpr (!WHOLE_WARP_MOVES) {
            rows.max_log2[half] = moves ? now[half] : old;
            alpha[half] = moves ? exp2_approx(old - now[half]) : 1.0f;
        }
        rows.top_log2[half] = fmaxf(rows.top_log2[half], now[half]);
        any_moves = any_moves || moves;
    }
    any_moves = __any_sync(WHOLE_WARP, any_moves);
    if constexpr (WHOLE_WARP_MOVES) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float old = rows.max_log2[half];
            rows.max_log2[half] = any_moves ? fmaxf(old, now[half]) : old;
            alpha[half] = exp2_approx(old - rows.max_log2[half]);
        }
    }
    if (any_moves) {
        rows.sum[0] *= alpha[0];
        rows.sum[1] *= alpha[1];
    }
    return any_moves;
}

template <int OUTPUTS> __device__ __forceinline__ void rescale(float (&o)[OUTPUTS], const float (&factor)[2])
{
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i)
        o[i] *= factor[i / 2 % 2];
}

/* P = 2^(c S - m), rounded to T, two elements in a register. `sum` is the row sum so far plus that of this P, which is
 * added up before it is rounded. */
template <typename T, int SCORES>
__device__ __forceinline__ void exponentiate(uint32_t (&p)[SCORES / 2], float (&sum)[2], const float (&s)[SCORES],
                                             const RowState &rows, float scale_log2)
{
    sum[0] = rows.sum[0];
    sum[1] = rows.sum[1];
#pragma unroll
    for (int i = 0; i < SCORES / 2; ++i) {
        const int half = i % 2;
        const float x = exp2_approx(fmaf(s[2 * i], scale_log2, -rows.max_log2[half]));
        const float y = exp2_approx(fmaf(s[2 * i + 1], scale_log2, -rows.max_log2[half]));
        sum[half] += x + y;
        p[i] = pack2<T>(x, y);
    }
}

/* The same for AFTER_EXP: where an element of P is above 2^STALE_LOG2 the row max is moved, O with its column of sums
 * rescaled, and all of P computed once more. */
template <typename T, int SCORES, int COLUMNS>
__device__ __forceinline__ void exponentiate_and_check(uint32_t (&p)[SCORES / 2], float (&o)[COLUMNS],
                                                       const float (&s)[SCORES], RowState &rows, float scale_log2)
{
    constexpr uint32_t EXPONENT = STALE_LOG2_AFTER_EXP<T>,
                       LARGEST = /* the bits of 2^STALE_LOG2 */
                       std::is_same<T, __half>::value ? (15 + EXPONENT) << 10 : (127 + EXPONENT) << 7;
    uint32_t headroom = (0x7fff - LARGEST) * 0x10001u;
    float sum[2], alpha[2];
    int again;
    /* A loop, so that the assembler does not move the exponentials up across the wait for O. The empty asm statements
     * keep the additions inside it, and its condition in one predicate. */
#pragma unroll 1
    do {
        exponentiate<T>(p, sum, s, rows, scale_log2);
        again = __any_sync(WHOLE_WARP, any_exceeds(p, headroom));
        asm volatile("" : "+r"(again), "+f"(sum[0]), "+f"(sum[1]));
        if (again) {
            update_row_max<true>(s, rows, alpha, scale_log2, float(STALE_LOG2_AFTER_EXP<T>));
            rescale(o, alpha);
            headroom = 0; /* nothing exceeds the bound now: the loop ends even where there are NaN */
        }
        asm volatile("" : "+r"(again));
    } while (again);
    rows.sum[0] = sum[0];
    rows.sum[1] = sum[1];
}

} // namespace sm90_fwd
