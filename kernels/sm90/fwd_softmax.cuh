/* The online softmax of the sm_90 forward, on the accumulators of wgmma. With c = scale * log2(e):
 *
 *   m' = max(m, c rowmax(S)) in all rows of a warp if that is more than the lag above m in one of them, else m' = m
 *   P  = 2^(c S - m')            one FFMA and one ex2 for each element
 *   l  = 2^(m - m') l + rowsum(P), and O likewise, only where the warp has moved its m
 *
 * A row max that is too low by up to the lag keeps P at or below 2^lag, which 16 bits hold, and cancels at the end: O
 * and l refer to the same m. How large the lag is depends on when the row max is checked (fwd_tiles.cuh):
 *
 *   BEFORE_EXP   LAG_LOG2; the first block leaves m above its row max (FIRST_MARGIN_LOG2). With m = row max the
 *                largest weight p of a row would be 1, which 16 bits hold exactly. With a lower m its relative
 *                rounding error e is one of O, the larger, the more of its row's weight that key has. O is therefore
 *                divided by l (1 + sqrt(p / l) e) at the end: where that key dominates this takes its error away and
 *                gives the others, which are small, one of the same size; where it does not it changes little. The
 *                more rarely m moves, the more weights beside the largest are inexact, which this does not see. Where
 *                another row has made m move since the largest weight was rounded, e is that of another number; this
 *                costs little, as most rows have a new largest weight then. The lag grows where the scores allow it
 *                (update_limits). docs/kernels/sm90_fwd.md, steps 28, 35, 36 and 38.
 *   AFTER_EXP    FIRST_LAG_LOG2, from the first move on about LARGEST_LAG_LOG2, because moving m costs all of P once
 *                more. O is divided by the sum of the rounded P, so that the rounding error of a weight that dominates
 *                cancels. That sum is a column of O += P V, for a column of ones beside V. LSE takes l, the sum before
 *                rounding. Where scores are spread widely, rounding errors are taken out of O on the way
 *                (cancel_rounding).
 *
 * Where scores grow from block to block the last block has the largest weights: there m moves to the row max once more,
 * which makes them exact (RISING_LAG_LOG2; steps 36 and 37). */
#pragma once
#include <cfloat>
#include <type_traits>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/sm90/fwd_tiles.cuh"

namespace sm90_fwd {

using namespace device;

/* In log2, as all of these: BEFORE_EXP, until the scores allow a larger one. */
constexpr float LAG_LOG2 = 3.0f;
/* BEFORE_EXP, how far m is above the row max of the first block. Then normally distributed logits with a standard
 * deviation of 1 do not move it. A whole number: 2^-3, the largest weight, is as exact as 1. In fp16 weights below
 * 2^-11 of it are denormal then, and those below 2^-22 are lost in O. */
constexpr float FIRST_MARGIN_LOG2 = 3.0f;
/* The largest that P's range allows. With m too low by 64 P is up to 2^64: the sum of 2^20 of them with values up to
 * 2^40 is below 2^124. Values of 2^63 and more may overflow it, although O itself is finite. fp16 holds weights up to
 * 2^16. */
template <typename T> constexpr int LARGEST_LAG_LOG2 = 64;
template <> constexpr int LARGEST_LAG_LOG2<__half> = 14;
/* Where scores grow from block to block. Another number than the largest lag, so that it says which case it is. */
template <typename T> constexpr int RISING_LAG_LOG2 = LARGEST_LAG_LOG2<T> - 1;
/* AFTER_EXP, until the first move: seldom exceeded by normally distributed logits with a standard deviation of 4. */
template <typename T> constexpr int FIRST_LAG_LOG2 = 20;
template <> constexpr int FIRST_LAG_LOG2<__half> = 12;
/* Where rounding errors are taken out of O: nearly as large as P's range allows. It says so, too, and is therefore
 * another number than the others. */
template <typename T> constexpr int CANCELLING_LAG_LOG2 = LARGEST_LAG_LOG2<T> - 3;
static_assert(CANCELLING_LAG_LOG2<__half> != FIRST_LAG_LOG2<__half> &&
                  CANCELLING_LAG_LOG2<__nv_bfloat16> != FIRST_LAG_LOG2<__nv_bfloat16>,
              "a lag says which case it is");
/* Scores are taken to grow where all rows of a warp move m by more than 0.2, with an alpha below this. */
constexpr float RISING_ALPHA = 0.87f;
/* Scores are taken to be spread widely where in the first block a row max of the warp is above 8, which normally
 * distributed logits with a standard deviation of 1 do not reach, and the mean of the row sums is between these two:
 * with that standard deviation it is 3 for rows with 1 to 16 keys and 11 or 17 for 64 or 128; with one of 4 it is 2.0
 * or 2.2, with one of 16 1.2, where the largest weight is nearly all of its row and its error cancels at the end. */
constexpr float WIDE_MAX_LOG2 = 8.0f, WIDE_LEAST_SUM = 1.25f, WIDE_MOST_SUM = 2.75f;
/* The row max of a row that has seen no key: finite, so that a masked score minus it is -inf and not NaN. */
constexpr float NO_MAXIMUM = -FLT_MAX;

/* This thread's rows g and g + 8 of the accumulator; the sums are over its own columns. */
struct RowState {
    float max_log2[2], sum[2];
    /* BEFORE_EXP: the largest score so far, times c; max_log2 moves where a score times c is above the limit, which is
     * max_log2 and the lag. */
    float top_log2[2], limit_log2[2], lag_log2;
    /* AFTER_EXP: of the lag, and of that of the last block (headroom()). Both are kept, as to derive the second
     * from the first in every block costs speed (docs/kernels/sm90_fwd.md, step 37). */
    uint32_t headroom, last_headroom;
};

/* What sets the sign bit of an element of P, a pair of them in 32 bits, when it is added to the bits of one that is
 * above 2^lag (any_exceeds). */
template <typename T> __device__ __forceinline__ constexpr uint32_t headroom(int lag_log2)
{
    return (0x7fffu - (std::is_same<T, __half>::value ? (15u + lag_log2) << 10 : (127u + lag_log2) << 7)) * 0x10001u;
}

/* BEFORE_EXP, the first block of a tile: takes its row max and the margin. Row sums are 0 before and after; without the
 * code for them the assembler orders the main loop otherwise, which costs 0.7 % (docs/kernels/sm90_fwd.md, step 35). */
template <int SCORES>
__device__ __forceinline__ void start_row_max(const float (&s)[SCORES], RowState &rows, float (&alpha)[2],
                                              float scale_log2)
{
    bool any_moves = false;
    float top[2];
    row_max(top, s);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float old = rows.max_log2[half], now = top[half] * scale_log2;
        rows.top_log2[half] = fmaxf(rows.top_log2[half], now);
        const bool moves = now - rows.limit_log2[half] > 0.0f;
        rows.max_log2[half] = moves ? now + FIRST_MARGIN_LOG2 : old;
        alpha[half] = moves ? exp2_approx(old - now - FIRST_MARGIN_LOG2) : 1.0f;
        any_moves = any_moves | moves;
    }
    if (__any_sync(WHOLE_WARP, any_moves)) {
        rows.sum[0] *= alpha[0];
        rows.sum[1] *= alpha[1];
    }
    rows.limit_log2[0] = rows.max_log2[0] + LAG_LOG2;
    rows.limit_log2[1] = rows.max_log2[1] + LAG_LOG2;
}

/* BEFORE_EXP: moves the row max of all rows of the warp where that of one is above its limit, and rescales the row
 * sums. Returns whether it has; then O has to be multiplied with `alpha`, and update_limits called. alpha is computed
 * ahead of the vote, whose latency it hides (docs/kernels/sm90_fwd.md, step 35). */
template <int SCORES>
__device__ __forceinline__ bool move_row_max(const float (&s)[SCORES], RowState &rows, float (&alpha)[2],
                                             float scale_log2)
{
    float top[2], high[2];
    bool moves[2];
    row_max(top, s);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float now = top[half] * scale_log2;
        high[half] = fmaxf(rows.max_log2[half], now);
        rows.top_log2[half] = fmaxf(rows.top_log2[half], now);
        moves[half] = now - rows.limit_log2[half] > 0.0f;
        alpha[half] = exp2_approx(rows.max_log2[half] - high[half]);
    }
    const bool any_moves = __any_sync(WHOLE_WARP, moves[0] | moves[1]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        rows.max_log2[half] = any_moves ? high[half] : rows.max_log2[half];
        if (any_moves)
            rows.sum[half] *= alpha[half];
    }
    return any_moves;
}

/* The limits behind a move by 1 / alpha. A row that rises by more than 2^12 over one block has scores that are
 * spread so widely that few weights count: the factor at the end takes the error of the largest one away, and the
 * lag may be as large as P's range allows. Where all rows of the warp rise, scores grow with each block: then the
 * lag may be nearly as large (RISING_LAG_LOG2) if m moves once more in the last block (sharpen_limits), which has
 * the largest weights. alpha = 0: the row had seen no key, which says nothing. */
template <typename T> __device__ __forceinline__ void update_limits(RowState &rows, const float (&alpha)[2])
{
    constexpr float WIDE = 1.0f / (1 << 12);
    const float first = alpha[0] > 0.0f ? alpha[0] : 1.0f, second = alpha[1] > 0.0f ? alpha[1] : 1.0f;
    const bool rises = __all_sync(WHOLE_WARP, fmaxf(first, second) < RISING_ALPHA),
               is_wide = __any_sync(WHOLE_WARP, fminf(first, second) < WIDE);
    if (rows.lag_log2 == LAG_LOG2)
        rows.lag_log2 = is_wide ? LARGEST_LAG_LOG2<T> : rises ? RISING_LAG_LOG2<T> : LAG_LOG2;
    rows.limit_log2[0] = rows.max_log2[0] + rows.lag_log2;
    rows.limit_log2[1] = rows.max_log2[1] + rows.lag_log2;
}

/* BEFORE_EXP, ahead of the last block: where scores grow, m moves with any new largest score, so that its weight is 1
 * and exact. The largest score is not below m there: with that lag m has moved, in all rows, to a largest score. */
template <typename T> __device__ __forceinline__ void sharpen_limits(RowState &rows)
{
    if (rows.lag_log2 == RISING_LAG_LOG2<T>) {
        rows.limit_log2[0] = fminf(rows.limit_log2[0], rows.top_log2[0]);
        rows.limit_log2[1] = fminf(rows.limit_log2[1], rows.top_log2[1]);
    }
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

/* AFTER_EXP, the first block of a tile: takes its row max. By floats, because rows of a causal tile that see few keys
 * often have negative scores only, for which row_max would compute it twice. */
template <int SCORES>
__device__ __forceinline__ void first_row_max(const float (&s)[SCORES], RowState &rows, float scale_log2)
{
    float top[2];
    float_row_max(top, s);
    rows.max_log2[0] = fmaxf(rows.max_log2[0], top[0] * scale_log2);
    rows.max_log2[1] = fmaxf(rows.max_log2[1], top[1] * scale_log2);
}

/* AFTER_EXP, where an element of P is above 2^lag: moves m of all rows of the warp to the largest score so far,
 * rescales row sums and O, and chooses the lag from then on. A row that had seen no key counts as one that does not
 * rise: in causal problems where 64 rows begin inside a block of keys such a warp does not take the row max of the
 * last block. */
template <typename T, int SCORES, int COLUMNS>
__device__ __forceinline__ void catch_up(float (&o)[COLUMNS], const float (&s)[SCORES], RowState &rows,
                                         float scale_log2)
{
    float top[2], alpha[2];
    bool rises[2];
    row_max(top, s);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float now = fmaxf(rows.max_log2[half], top[half] * scale_log2);
        alpha[half] = exp2_approx(rows.max_log2[half] - now);
        rises[half] = alpha[half] > 0.0f && alpha[half] < RISING_ALPHA; /* 0: it had seen no key */
        rows.max_log2[half] = now;
        rows.sum[half] *= alpha[half];
    }
    const bool all_rise = __all_sync(WHOLE_WARP, rises[0] && rises[1]);
    if (rows.headroom == headroom<T>(FIRST_LAG_LOG2<T>)) {
        rows.headroom = headroom<T>(all_rise ? RISING_LAG_LOG2<T> : LARGEST_LAG_LOG2<T>);
        rows.last_headroom = all_rise ? headroom<T>(0) : rows.headroom;
    }
    rescale(o, alpha);
}

/* The same for AFTER_EXP, of block n: where an element of P is above 2^lag, catch_up, and all of P once more. */
template <typename T, int SCORES, int COLUMNS>
__device__ __forceinline__ void exponentiate_and_check(uint32_t (&p)[SCORES / 2], float (&o)[COLUMNS],
                                                       const float (&s)[SCORES], RowState &rows, float scale_log2,
                                                       int n)
{
    uint32_t room = n < 1 ? rows.last_headroom : rows.headroom;
    float sum[2];
    int again;
    /* A loop, so that the assembler does not move the exponentials up across the wait for O. The empty asm statements
     * keep the additions inside it, and its condition in one predicate. */
#pragma unroll 1
    do {
        exponentiate<T>(p, sum, s, rows, scale_log2);
        again = __any_sync(WHOLE_WARP, any_exceeds(p, room));
        asm volatile("" : "+r"(again), "+f"(sum[0]), "+f"(sum[1]));
        if (again) {
            catch_up<T>(o, s, rows, scale_log2);
            room = 0; /* nothing exceeds the bound now: the loop ends even where there are NaN */
        }
        asm volatile("" : "+r"(again));
    } while (again);
    rows.sum[0] = sum[0];
    rows.sum[1] = sum[1];
}

/* ---- rounding of widely spread weights ---- */

/* AFTER_EXP. Where scores are spread widely few weights of a row count, and their rounding errors are most of the error
 * of O. With weights w_j and relative rounding errors e_j, O is off by the sum of w_j e_j v_j. If the v_j are
 * independent, the multiple of O nearest to that is r O with
 *
 *   r = (sum of w_j^2 e_j) / (sum of w_j^2)
 *
 * At the end O can be divided by 1 + r once. During the main loop what is in O so far can be corrected as often as one
 * likes, as m can stand for the division: O / (1 + r) is O that refers to a smaller m. A weight that was the largest
 * until it was overtaken has lost most of its error by then, as in a kernel that moves m with each new largest score,
 * where such weights are 1 and exact. Of the weights the kernel knows sums only, of P and of the rounded P (the column
 * of O += P V): the keys from one correction to the next count as one weight. docs/kernels/sm90_fwd.md, step 39. */

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

/* 1 / x within 1 %, without the unit of the exponentials, for x up to 2^125; something finite for 0. The bits of x,
 * taken as an integer, are nearly linear in log2(x): their negative is a first guess, which Newton's step improves. */
__device__ __forceinline__ float rough_inverse(float x)
{
    const float guess = __int_as_float(0x7ef311c7 - __float_as_int(x));
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

} // namespace sm90_fwd
