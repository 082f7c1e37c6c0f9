/* Rounding errors of P that are taken out of O during the main loop of the sm_90 forward. Where scores are spread
 * widely few weights of a row count, and their rounding errors are most of the error of O. With weights w_j and
 * relative rounding errors e_j, O is off by the sum of w_j e_j v_j. If the v_j are independent, the multiple of O
 * nearest to that is r O with
 *
 *   r = (sum of w_j^2 e_j) / (sum of w_j^2)
 *
 * At the end O can be divided by 1 + r once. During the main loop what is in O so far can be corrected as often as one
 * likes, as m can stand for the division: O / (1 + r) is O that refers to a smaller m. A weight that was the largest
 * until it was overtaken has lost most of its error by then, as in a kernel that moves m with each new largest score,
 * where such weights are 1 and exact. docs/kernels/sm90_fwd.md, "The row max lags".
 *
 *   AFTER_EXP    cancel_rounding, every 384 to 1024 keys, from sums of P and of the rounded P: the keys from one
 *                correction to the next count as one weight.
 *   BEFORE_EXP   correct_largest, where a largest score has risen: the largest weight since the last correction stands
 *                for all keys since. */
#pragma once
#include <type_traits>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/sm90/fwd/softmax.cuh"
#include "kernels/sm90/fwd/tiles.cuh"

namespace sm90_fwd {

/* ---- by sums, AFTER_EXP ---- */

/* Whether start_history has found the scores of the warp's rows to be spread widely. */
template <typename T, typename Tile> __device__ __forceinline__ bool cancels_rounding(const RowState &rows)
{
    return Traits<Tile>::CANCELS_ROUNDING && has_headroom<T>(rows, LAG_CANCELLING);
}

/* Behind the first block of a tile, P of which refers to its row max: chooses whether its rows are corrected, and where
 * they are not whether the last block has a lag of its own. */
template <typename T, typename Tile> __device__ __forceinline__ void start_history(RowState &rows, RowHistory *history)
{
    constexpr float UNITS = 1024.0f; /* of a sum, in integers, for which there is an addition over the warp */
    /* The sum of a row that has seen a key is at least 1, in integers a little less; that of others is 0. */
    constexpr float BEGUN_SUM = 0.98f;
    const float sum = rows.sum[0] + rows.sum[1];
    /* No two rows' sums may take the mean of all 16 above its bound; with this the integers are small enough, too. */
    if (!__any_sync(WHOLE_WARP, fmaxf(rows.max_log2[0], rows.max_log2[1]) > WIDE_MAX_LOG2) ||
        !__all_sync(WHOLE_WARP, sum < 16 * WIDE_MOST_SUM))
        return;
    const int sums = __reduce_add_sync(WHOLE_WARP, int(sum * UNITS));
    if (sums > int(16 * WIDE_MOST_SUM * UNITS))
        return;
    if (sums < int(16 * WIDE_LEAST_SUM * UNITS)) { /* a few weights are nearly all, in whichever block they are */
        if (sums > int(16 * BEGUN_SUM * UNITS))    /* not few because rows have seen no key yet */
            rows.last_headroom = last_headroom_of<T>(LAG_WIDE);
        return;
    }
    __syncwarp(); /* the epilogue of the tile before has read it */
    history[consumer_thread<Tile>(threadIdx.x)] = {0.0f, 0.0f, 0.0f, NO_MAXIMUM};
    rows.headroom = headroom_of<T>(LAG_CANCELLING);
    rows.last_headroom = last_headroom_of<T>(LAG_CANCELLING);
}

/* The history of a row whose row max has moved since. */
__device__ __forceinline__ RowHistory refer_to(float max_log2, const RowHistory &then)
{
    const float alpha = exp2_approx(then.max_log2 - max_log2);
    return {then.sum * alpha, then.added * alpha, then.squares * alpha * alpha, max_log2}; /* alpha * alpha may be 0 */
}

/* 1 / x within 5.1 %, without the unit of the exponentials, for x up to 2^125; something finite for 0. The bits of x,
 * taken as an integer, are nearly linear in log2(x): this is their negative. */
__device__ __forceinline__ float guess_inverse(float x) { return __int_as_float(0x7ef311c7 - __float_as_int(x)); }

/* How much more than r is taken out: the keys since the last correction are more than one weight. By a model the error
 * of O is least with 1.1. */
constexpr float OVER_CORRECTION = 1.1f;

/* Adds the keys since the last correction, whose sum of P is `sum` and was changed by `error` in rounding, to the row's
 * squares, and returns what is to be taken out for them, OVER_CORRECTION r. */
__device__ __forceinline__ float rounding_share(RowHistory &row, float sum, float error)
{
    constexpr float SCALE = 1.0f / (1 << 16); /* the sum is up to 2^71 */
    const float size = sum * SCALE;
    row.squares = fminf(row.squares + size * size, 0x1p120f); /* within what guess_inverse takes */
    return size * (error * (SCALE * OVER_CORRECTION)) * guess_inverse(row.squares);
}

/* 2^x for the x by which a correction lowers m: sums of exact weights become larger by that. */
__device__ __forceinline__ float small_exp2(float x) { return 1.0f + x * (LN_2 + x * (LN_2 * LN_2 / 2)); }

/* A correction, between two blocks of keys, of the keys that are in O and in the sums of `rows`. Those of the newest
 * block, which are in P and not in O yet, belong to the next one; `latest` are the sums with them, on return of them
 * alone. Of the four threads of a quad two have row g and the others row g + 8, for half the instructions; each has a
 * history of its own. */
template <typename T, typename Tile>
__device__ __forceinline__ void cancel_rounding(const float (&o)[Traits<Tile>::ACCUMULATORS], RowState &rows,
                                                float (&latest)[2], RowHistory *history)
{
    constexpr int COLUMN = Traits<Tile>::OUTPUTS; /* the sum of the rounded P */
    RowHistory &own = history[consumer_thread<Tile>(threadIdx.x)];
    const bool second = threadIdx.x % 2 == 1;
    float sum = second ? rows.sum[1] : rows.sum[0];
    sum += __shfl_xor_sync(WHOLE_WARP, second ? rows.sum[0] : rows.sum[1], 1);
    sum += __shfl_xor_sync(WHOLE_WARP, sum, 2);
    const float max_log2 = second ? rows.max_log2[1] : rows.max_log2[0];
    const float added = second ? o[COLUMN + 2] : o[COLUMN];
    const RowHistory then = own;
    RowHistory row = refer_to(max_log2, then);
    const float share = rounding_share(row, sum, added - row.added - sum);
    row.max_log2 = max_log2 - LOG2_E * share; /* log2(1 + r) is nearly that */
    const float max_of_other = __shfl_xor_sync(WHOLE_WARP, row.max_log2, 1);
    row.sum = (row.sum + sum) * small_exp2(max_log2 - row.max_log2); /* by what m is really lower */
    row.added = added;
    own = row;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float lower = second == (half == 1) ? row.max_log2 : max_of_other;
        latest[half] = (latest[half] - rows.sum[half]) * small_exp2(rows.max_log2[half] - lower);
        rows.max_log2[half] = lower;
    }
}

/* How many blocks of keys are done until the next correction, if n are left. */
template <typename Tile> __device__ __forceinline__ int blocks_until_cancelled(int n)
{
    const int keys = n * Tile::BLOCK_N;
    return (keys > 4096 ? 1024 : keys > 1024 ? 512 : 384) / Tile::BLOCK_N;
}

/* ---- by largest weights, BEFORE_EXP ---- */

/* Not in fp16, whose range does not have room for the margin. */
template <typename T, typename Tile>
constexpr bool CORRECTS_LARGEST = std::is_same<T, __nv_bfloat16>::value && (Traits<Tile>::CORRECTS_LARGEST_IN_BF16);

/* Of this thread's two rows: the sum of squares of the weights that have been corrected, which refer to m. Only what
 * the thread itself has written is read. */
template <typename Tile> __device__ __forceinline__ float2 &own_squares(SharedStorage<Tile> &smem)
{
    return smem.squares[consumer_thread<Tile>(threadIdx.x)];
}

/* What correct_largest needs of a block in which a score is above its limit (`rises`): the largest weights since the
 * last correction. Elsewhere nothing is done, without a branch, which would cost more. */
__device__ __forceinline__ void weigh_largest(float (&weight)[2], const RowState &rows, bool rises)
{
    exp2_approx_if(weight[0], rows.top_log2[0] - rows.max_log2[0], rises);
    exp2_approx_if(weight[1], rows.top_log2[1] - rows.max_log2[1], rises);
}

/* The limits behind a correction. `high`: the largest score since the last one plus the lag. The first time the scores
 * choose the lag, as in update_limits. Few weights count where a row has risen by more than 2^17 since the first block;
 * otherwise scores grow where all rows have risen, and few weights count where a largest score times c is above 34,
 * which a constant added to all scores changes, although it changes nothing else. A row whose first key is in a block
 * that is not masked, at most one of a warpgroup, has risen by more than any number (start_late_rows). */
template <typename T> __device__ __forceinline__ void raise_limits(RowState &rows, const float (&high)[2], int kv_len)
{
    constexpr float LEAST = 1.0f, WIDE = 17.0f, HIGH = 34.0f, NO_KEY = 1e30f;
    if (has_lag<T>(rows, LAG_FIRST)) {
        const float rise[2] = {high[0] - rows.limit_log2[0], high[1] - rows.limit_log2[1]};
        const bool all_rise = __all_sync(WHOLE_WARP, rise[0] > LEAST && rise[1] > LEAST);
        const bool is_wide =
            __any_sync(WHOLE_WARP, (rise[0] > WIDE && rise[0] < NO_KEY) || (rise[1] > WIDE && rise[1] < NO_KEY));
        const bool is_high = __any_sync(WHOLE_WARP, fmaxf(high[0], high[1]) > HIGH + FIRST_RISE_LOG2);
        const float rise_log2 = kv_len > MANY_KEYS ? RISE_OF_MANY_KEYS_LOG2 : RISE_LOG2;
        rows.lag_log2 = is_wide || (is_high && !all_rise) ? lag_log2_of<T>(LAG_WIDE)
                        : all_rise                        ? lag_log2_of<T>(LAG_RISING)
                                                          : rise_log2;
        const float more = rows.lag_log2 - FIRST_RISE_LOG2;
        rows.limit_log2[0] = fmaxf(rows.limit_log2[0], high[0]) + more;
        rows.limit_log2[1] = fmaxf(rows.limit_log2[1], high[1]) + more;
    } else {
        rows.limit_log2[0] = fmaxf(rows.limit_log2[0], high[0]);
        rows.limit_log2[1] = fmaxf(rows.limit_log2[1], high[1]);
    }
}

/* A correction, behind a block in which a score was above its limit, and ahead of O += P V of it: O, P and the row sum
 * refer to m. r is that of the largest weight since the last time. */
template <typename T, typename Tile>
__device__ __forceinline__ void correct_largest(RowState &rows, const float (&weight)[2], SharedStorage<Tile> &smem,
                                                int kv_len)
{
    const float2 squares = own_squares(smem);
    const bool is_first = has_lag<T>(rows, LAG_FIRST); /* then they are those of the tile before */
    float sum[2] = {is_first ? 0.0f : squares.x, is_first ? 0.0f : squares.y};
    const float2 rounded = unpack2<T>(pack2<T>(weight[0], weight[1]));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float error = (half == 0 ? rounded.x : rounded.y) - weight[half];
        sum[half] += weight[half] * weight[half];
        const float share = error * (weight[half] * guess_inverse(sum[half]));
        const float max_log2 = rows.max_log2[half] - LOG2_E * share;  /* log2(1 + r) is nearly LOG2_E r */
        rows.sum[half] *= small_exp2(rows.max_log2[half] - max_log2); /* by what m is really lower */
        rows.max_log2[half] = max_log2;
    }
    own_squares(smem) = make_float2(sum[0], sum[1]);
    const float high[2] = {rows.top_log2[0] + rows.lag_log2, rows.top_log2[1] + rows.lag_log2};
    raise_limits<T>(rows, high, kv_len);
    rows.top_log2[0] = rows.top_log2[1] = NO_MAXIMUM;
}

/* Where m has moved: of the squares, those of the weights before refer to the one before. */
template <typename Tile>
__device__ __forceinline__ void rescale_squares(SharedStorage<Tile> &smem, const float (&weight)[2],
                                                const float (&alpha)[2])
{
    float2 &own = own_squares(smem);
    const float last[2] = {weight[0] * weight[0], weight[1] * weight[1]};
    own = make_float2((own.x - last[0]) * (alpha[0] * alpha[0]) + last[0],
                      (own.y - last[1]) * (alpha[1] * alpha[1]) + last[1]);
}

} // namespace sm90_fwd
