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
 * where such weights are 1 and exact. docs/kernels/sm90_fwd.md, steps 39 and 40.
 *
 *   AFTER_EXP    cancel_rounding, every 256 to 1024 keys, from sums of P and of the rounded P: the keys from one
 *                correction to the next count as one weight.
 *   BEFORE_EXP   correct_largest, where a largest score has risen: the largest weight since the last correction stands
 *                for all keys since. */
#pragma once
#include <type_traits>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/sm90/fwd_softmax.cuh"
#include "kernels/sm90/fwd_tiles.cuh"

namespace sm90_fwd {

/* ---- by sums, AFTER_EXP ---- */

/* Of this thread's row g; that of row g + 8 is 8 further. The four threads of a row read it, the first writes it. */
__device__ __forceinline__ RowHistory *own_history(RowHistory *history)
{
    return history + (threadIdx.x / 32 - WARPGROUP / 32) * 16 + threadIdx.x % 32 / 4;
}

/* Whether start_history has found the scores of the warp's rows to be spread widely. */
template <typename T, typename Tile> __device__ __forceinline__ bool cancels_rounding(const RowState &rows)
{
    return Traits<Tile>::CANCELS_ROUNDING && rows.headroom == headroom<T>(CANCELLING_LAG_LOG2<T>);
}

/* Behind the first block of a tile, P of which refers to its row max: chooses whether its rows are corrected. */
template <typename T, typename Tile> __device__ __forceinline__ void start_history(RowState &rows, RowHistory *history)
{
    constexpr float UNITS = 1024.0f; /* of a sum, in integers, for which there is an addition over the warp */
    const float sum = rows.sum[0] + rows.sum[1];
    /* No two rows' sums may take the mean of all 16 above its bound; with this the integers are small enough, too. */
    if (!__any_sync(WHOLE_WARP, fmaxf(rows.max_log2[0], rows.max_log2[1]) > WIDE_MAX_LOG2) ||
        !__all_sync(WHOLE_WARP, sum < 16 * WIDE_MOST_SUM))
        return;
    const int sums = __reduce_add_sync(WHOLE_WARP, int(sum * UNITS));
    if (sums < int(16 * WIDE_LEAST_SUM * UNITS) || sums > int(16 * WIDE_MOST_SUM * UNITS))
        return;
    if (threadIdx.x % 4 == 0)
        own_history(history)[0] = own_history(history)[8] = {0.0f, 0.0f, 0.0f, NO_MAXIMUM};
    __syncwarp();
    rows.headroom = rows.last_headroom = headroom<T>(CANCELLING_LAG_LOG2<T>);
}

/* The history of a row whose row max has moved since. */
__device__ __forceinline__ RowHistory refer_to(float max_log2, const RowHistory &then)
{
    const float alpha = exp2_approx(then.max_log2 - max_log2);
    return {then.sum * alpha, then.added * alpha, then.squares * (alpha * alpha), max_log2};
}

/* 1 / x within 12 %, without the unit of the exponentials, for x up to 2^125; something finite for 0. The bits of x,
 * taken as an integer, are nearly linear in log2(x): this is their negative. */
__device__ __forceinline__ float guess_inverse(float x) { return __int_as_float(0x7ef311c7 - __float_as_int(x)); }

/* Within 1 %: after a step of Newton's. */
__device__ __forceinline__ float rough_inverse(float x)
{
    const float guess = guess_inverse(x);
    return guess * (2.0f - x * guess);
}

/* r of the keys since the last correction, whose sum of P is `sum` and was changed by `error` in rounding. */
__device__ __forceinline__ float rounding_share(RowHistory &row, float sum, float error)
{
    constexpr float SCALE = 1.0f / (1 << 16); /* the sum is up to 2^71 */
    const float size = sum * SCALE;
    row.squares = fminf(row.squares + size * size, 0x1p120f); /* within what rough_inverse takes */
    return size * (error * SCALE) * rough_inverse(row.squares);
}

/* A correction, between two blocks of keys. P of the last one is in p and not in O yet; both refer to rows.max_log2. */
template <typename T, typename Tile>
__device__ __forceinline__ void cancel_rounding(const float (&o)[Traits<Tile>::ACCUMULATORS],
                                                uint32_t (&p)[Traits<Tile>::SCORES / 2], RowState &rows,
                                                RowHistory *history)
{
    constexpr int COLUMN = Traits<Tile>::OUTPUTS; /* the sum of the rounded P, in the quad's first thread */
    RowHistory *const own = own_history(history);
    /* Two sums of the rounded P, for the latency of the products; the first begins with that of O. */
    float added[2][4] = {{o[COLUMN], 0.0f, o[COLUMN + 2], 0.0f}, {}};
    const uint32_t ones = pack2<T>(1.0f, 1.0f);
#pragma unroll
    for (int step = 0; step < Traits<Tile>::KEYS / 16; ++step)
        mma_m16n8k16<T>(added[step % 2], reinterpret_cast<const uint32_t(&)[4]>(p[4 * step]), ones, ones);
    RowHistory row[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        row[half] = refer_to(rows.max_log2[half], own[8 * half]);
        const float sum = quad_sum(rows.sum[half]);
        const float of_row = __shfl_sync(WHOLE_WARP, added[0][2 * half] + added[1][2 * half], threadIdx.x % 32 & ~3);
        const float share = rounding_share(row[half], sum, of_row - row[half].added - sum);
        row[half].max_log2 = rows.max_log2[half] - LOG2_E * share; /* log2(1 + r) is nearly that */
        /* By what m is really lower: sums of exact weights become larger by 2 to the power of it. */
        const float shift = rows.max_log2[half] - row[half].max_log2;
        row[half].sum = (row[half].sum + sum) * (1.0f + shift * (LN_2 + shift * (LN_2 * LN_2 / 2)));
        row[half].added = of_row;
        rows.max_log2[half] = row[half].max_log2;
        rows.sum[half] = 0.0f;
    }
    __syncwarp(); /* all have read it */
    if (threadIdx.x % 4 == 0) {
        own[0] = row[0];
        own[8] = row[1];
    }
    __syncwarp();
}

/* How many blocks of keys are done until the next correction, if n are left. */
template <typename Tile> __device__ __forceinline__ int blocks_until_cancelled(int n)
{
    const int keys = n * Tile::BLOCK_N;
    return (keys > 4096 ? 1024 : keys > 1024 ? 512 : 256) / Tile::BLOCK_N;
}

/* ---- by largest weights, BEFORE_EXP ---- */

/* Not in fp16, whose range does not have room for the margin. */
template <typename T, typename Tile>
constexpr bool CORRECTS_LARGEST = std::is_same<T, __nv_bfloat16>::value && (Traits<Tile>::CORRECTS_LARGEST_IN_BF16);

/* Of this thread's two rows: the sum of squares of the weights that have been corrected, which refer to m. Only what
 * the thread itself has written is read. */
template <typename Tile> __device__ __forceinline__ float2 &own_squares(SharedStorage<Tile> &smem)
{
    return smem.squares[threadIdx.x - WARPGROUP];
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
 * which a constant added to all scores changes, although it changes nothing else. A row that had seen no key has risen
 * by more than any number. docs/kernels/sm90_fwd.md, "Not tried yet", has what is less exact with such rows. */
template <typename T> __device__ __forceinline__ void raise_limits(RowState &rows, const float (&high)[2], int kv_len)
{
    constexpr float LEAST = 1.0f, WIDE = 17.0f, HIGH = 34.0f, NO_KEY = 1e30f;
    if (rows.lag_log2 == FIRST_RISE_LOG2) {
        const float rise[2] = {high[0] - rows.limit_log2[0], high[1] - rows.limit_log2[1]};
        const bool all_rise = __all_sync(WHOLE_WARP, rise[0] > LEAST && rise[1] > LEAST);
        const bool is_wide =
            __any_sync(WHOLE_WARP, (rise[0] > WIDE && rise[0] < NO_KEY) || (rise[1] > WIDE && rise[1] < NO_KEY));
        const bool is_high = __any_sync(WHOLE_WARP, fmaxf(high[0], high[1]) > HIGH + FIRST_RISE_LOG2);
        const float rise_log2 = kv_len > MANY_KEYS ? RISE_OF_MANY_KEYS_LOG2 : RISE_LOG2;
        rows.lag_log2 = is_wide || (is_high && !all_rise) ? LARGEST_LAG_LOG2<T>
                        : all_rise                        ? RISING_LAG_LOG2<T>
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
    const bool is_first = rows.lag_log2 == FIRST_RISE_LOG2; /* then they are those of the tile before */
    float sum[2] = {is_first ? 0.0f : squares.x, is_first ? 0.0f : squares.y};
    const float2 rounded = unpack2<T>(pack2<T>(weight[0], weight[1]));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float error = (half == 0 ? rounded.x : rounded.y) - weight[half];
        sum[half] += weight[half] * weight[half];
        const float share = error * (weight[half] * guess_inverse(sum[half]));
        const float max_log2 = rows.max_log2[half] - LOG2_E * share;      /* log2(1 + r) is nearly LOG2_E r */
        rows.sum[half] *= 1.0f + (rows.max_log2[half] - max_log2) * LN_2; /* by what m is really lower */
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
