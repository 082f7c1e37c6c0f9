/* The online softmax of the sm_90 forward, on the accumulators of wgmma. With c = scale * log2(e):
 *
 *   m' = max(m, c rowmax(S)) in all rows of a warp if that is more than the lag above m in one of them, else m' = m
 *   P  = 2^(c S - m')            one FFMA and one ex2 for each element
 *   l  = 2^(m - m') l + rowsum(P), and O likewise, only where the warp has moved its m
 *
 * A row max that is too low by up to the lag keeps P at or below 2^lag, which 16 bits hold, and cancels at the end: O
 * and l refer to the same m. How large the lag is depends on when the row max is checked (tiles.cuh):
 *
 *   BEFORE_EXP   LAG_LOG2; the first block leaves m above its row max (FIRST_MARGIN_LOG2). With m = row max the
 *                largest weight p of a row would be 1, which 16 bits hold exactly. With a lower m its relative
 *                rounding error e is one of O, the larger, the more of its row's weight that key has. O is therefore
 *                divided by l (1 + sqrt(p / l) e) at the end: where that key dominates this takes its error away and
 *                gives the others, which are small, one of the same size; where it does not it changes little. The
 *                more rarely m moves, the more weights beside the largest are inexact, which this does not see. Where
 *                another row has made m move since the largest weight was rounded, e is that of another number; this
 *                costs little, as most rows have a new largest weight then. The lag grows where the scores allow it
 *                (update_limits). docs/kernels/sm90_fwd.md, "The row max lags". In bf16, whose range is that of
 *                fp32, m is so high that it seldom moves (CORRECTED_MARGIN_LOG2): where the largest score has risen
 *                enough its error is taken out of O instead (correct_largest, rounding.cuh).
 *   AFTER_EXP    LARGEST_LAG_LOG2, because moving m costs all of P once more; in the last block LAST_LAG_LOG2. O is
 *                divided by the sum of the rounded P, so that the rounding error of a weight that dominates cancels.
 *                That sum is a column of O += P V, for a column of ones beside V. LSE takes l, the sum before
 *                rounding. Where scores are spread widely, rounding errors are taken out of O on the way
 *                (cancel_rounding).
 *
 * Where scores grow from block to block the last block has the largest weights: there m moves to the row max once more,
 * which makes them exact (RISING_LAG_LOG2, LAST_LAG_LOG2). */
#pragma once
#include <cfloat>
#include <type_traits>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/sm90/fwd/tiles.cuh"

namespace sm90_fwd {

using namespace device;

/* In log2, as all of these: BEFORE_EXP, until the scores allow a larger one. */
constexpr float LAG_LOG2 = 3.0f;
/* BEFORE_EXP, how far m is above the row max of the first block. Then normally distributed logits with a standard
 * deviation of 1 do not move it. A whole number: 2^-3, the largest weight, is as exact as 1. In fp16 weights below
 * 2^-11 of it are denormal then, and those below 2^-22 are lost in O. */
constexpr float FIRST_MARGIN_LOG2 = 3.0f;
/* The same where correct_largest (rounding.cuh) stands in for moves: higher than largest scores usually rise, and a
 * whole number, too. bf16 holds weights down to 2^-96 of the largest then. */
constexpr float CORRECTED_MARGIN_LOG2 = 30.0f;
/* correct_largest: errors are taken out where a largest score is FIRST_RISE_LOG2 above that of the first block, then
 * where one is RISE_LOG2 above that of the last correction, RISE_OF_MANY_KEYS_LOG2 with more than MANY_KEYS keys. */
constexpr float FIRST_RISE_LOG2 = 6.0f, RISE_LOG2 = 4.5f, RISE_OF_MANY_KEYS_LOG2 = 4.0f;
constexpr int MANY_KEYS = 4096;
/* The largest that P's range allows. With m too low by 64 P is up to 2^64: the sum of 2^20 of them with values up to
 * 2^40 is below 2^124. Values of 2^63 and more may overflow it, although O itself is finite. fp16 holds weights up to
 * 2^16. */
template <typename T> constexpr int LARGEST_LAG_LOG2 = 64;
template <> constexpr int LARGEST_LAG_LOG2<__half> = 14;
/* BEFORE_EXP, where scores grow from block to block. */
template <typename T> constexpr int RISING_LAG_LOG2 = LARGEST_LAG_LOG2<T> - 1;
/* AFTER_EXP, in the last block, unless a move has shown whether scores grow: seldom exceeded by normally distributed
 * logits with a standard deviation of 4. */
template <typename T> constexpr int LAST_LAG_LOG2 = 20;
template <> constexpr int LAST_LAG_LOG2<__half> = 12;
/* AFTER_EXP, where rounding errors are taken out of O: nearly as large as P's range allows. */
template <typename T> constexpr int CANCELLING_LAG_LOG2 = LARGEST_LAG_LOG2<T> - 3;
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
     * max_log2 and the lag. With correct_largest, the largest score since the last correction, and the limit is the
     * lag above the largest one at that time. */
    float top_log2[2], limit_log2[2], lag_log2;
    /* AFTER_EXP: of the lag, and of that of the last block (headroom()). */
    uint32_t headroom, last_headroom;
};

/* What sets the sign bit of an element of P, a pair of them in 32 bits, when it is added to the bits of one that is
 * above 2^lag (any_exceeds). */
template <typename T> __device__ __forceinline__ constexpr uint32_t headroom(int lag_log2)
{
    return (0x7fffu - (std::is_same<T, __half>::value ? (15u + lag_log2) << 10 : (127u + lag_log2) << 7)) * 0x10001u;
}

/* What is known of a warp's scores, which decides the lag. It is not stored: the lag itself says which case it is, in
 * RowState::lag_log2 (BEFORE_EXP) or in `headroom` and, for the last block, `last_headroom` (AFTER_EXP). */
enum LagCase {
    LAG_FIRST,  /* BEFORE_EXP with correct_largest: no correction yet */
    LAG_NORMAL, /* nothing: LAG_LOG2; with correct_largest RISE_LOG2; AFTER_EXP the largest, and LAST_LAG_LOG2 in the
                       last block */
    LAG_RISING, /* scores grow from block to block: the last block has the largest weights; m moves once more there */
    LAG_WIDE,   /* few weights count, and the error of the largest cancels at the end: the largest */
    LAG_CANCELLING, /* AFTER_EXP: scores are spread widely, rounding errors are taken out of O (cancel_rounding) */
};

/* BEFORE_EXP. LAG_NORMAL of correct_largest depends on the length (raise_limits) and is none of these. */
template <typename T> __device__ __forceinline__ constexpr float lag_log2_of(LagCase which)
{
    return which == LAG_FIRST    ? FIRST_RISE_LOG2
           : which == LAG_NORMAL ? LAG_LOG2
           : which == LAG_RISING ? float(RISING_LAG_LOG2<T>)
                                 : float(LARGEST_LAG_LOG2<T>);
}

template <typename T> __device__ __forceinline__ bool has_lag(const RowState &rows, LagCase which)
{
    return rows.lag_log2 == lag_log2_of<T>(which);
}

/* AFTER_EXP: of all blocks but the last one, and of that. */
template <typename T> __device__ __forceinline__ constexpr uint32_t headroom_of(LagCase which)
{
    return headroom<T>(which == LAG_CANCELLING ? CANCELLING_LAG_LOG2<T> : LARGEST_LAG_LOG2<T>);
}

template <typename T> __device__ __forceinline__ constexpr uint32_t last_headroom_of(LagCase which)
{
    return which == LAG_NORMAL   ? headroom<T>(LAST_LAG_LOG2<T>)
           : which == LAG_RISING ? headroom<T>(0)
                                 : headroom_of<T>(which);
}

template <typename T> __device__ __forceinline__ bool has_headroom(const RowState &rows, LagCase which)
{
    return rows.headroom == headroom_of<T>(which);
}

template <typename T> __device__ __forceinline__ bool has_last_headroom(const RowState &rows, LagCase which)
{
    return rows.last_headroom == last_headroom_of<T>(which);
}

/* No two cases have one lag. */
template <typename T>
constexpr bool LAGS_DIFFER =
    FIRST_RISE_LOG2 != LAG_LOG2 &&FIRST_RISE_LOG2 != RISE_LOG2 &&FIRST_RISE_LOG2 !=
    RISE_OF_MANY_KEYS_LOG2 &&FIRST_RISE_LOG2 < RISING_LAG_LOG2<T> &&RISE_LOG2 < RISING_LAG_LOG2<T> &&LAG_LOG2 <
        RISING_LAG_LOG2<T> &&RISING_LAG_LOG2<T> !=
    LARGEST_LAG_LOG2<T> &&CANCELLING_LAG_LOG2<T> != LAST_LAG_LOG2<T> &&CANCELLING_LAG_LOG2<T> !=
    LARGEST_LAG_LOG2<T> &&LARGEST_LAG_LOG2<T> != LAST_LAG_LOG2<T>;
static_assert(LAGS_DIFFER<__half> && LAGS_DIFFER<__nv_bfloat16>, "a lag says which case it is");

/* BEFORE_EXP, the first block of a tile: takes its row max and a margin. CORRECTS: for correct_largest. Row sums are 0
 * before and after; without the code for them the assembler orders the main loop otherwise, which costs 0.7 %. */
template <typename T, bool CORRECTS, int SCORES>
__device__ __forceinline__ void start_row_max(const float (&s)[SCORES], RowState &rows, float (&alpha)[2],
                                              float scale_log2)
{
    constexpr float MARGIN = CORRECTS ? CORRECTED_MARGIN_LOG2 : FIRST_MARGIN_LOG2;
    constexpr float LAG = CORRECTS ? FIRST_RISE_LOG2 - MARGIN : LAG_LOG2; /* of the limit over m */
    bool any_moves = false;
    float top[2];
    row_max(top, s);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float old = rows.max_log2[half], now = top[half] * scale_log2;
        rows.top_log2[half] = fmaxf(rows.top_log2[half], now);
        const bool moves = now - rows.limit_log2[half] > 0.0f;
        rows.max_log2[half] = moves ? now + MARGIN : old;
        alpha[half] = moves ? exp2_approx(old - now - MARGIN) : 1.0f;
        any_moves = any_moves | moves;
    }
    if (__any_sync(WHOLE_WARP, any_moves)) {
        rows.sum[0] *= alpha[0];
        rows.sum[1] *= alpha[1];
    }
    rows.limit_log2[0] = rows.max_log2[0] + LAG;
    rows.limit_log2[1] = rows.max_log2[1] + LAG;
    rows.lag_log2 = lag_log2_of<T>(CORRECTS ? LAG_FIRST : LAG_NORMAL);
}

/* The same in a masked block of the main loop, for correct_largest. Such a block may be the first one of which a row
 * sees a key, as in causal problems where kv_len - q_len is not a multiple of a block. What is in O and in the row sum
 * is 0, and the warp has not corrected anything yet. */
template <int SCORES>
__device__ __forceinline__ void start_late_rows(const float (&s)[SCORES], RowState &rows, float scale_log2)
{
    if (__any_sync(WHOLE_WARP, rows.max_log2[0] == NO_MAXIMUM || rows.max_log2[1] == NO_MAXIMUM)) {
        float top[2];
        row_max(top, s);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float now = top[half] * scale_log2;
            if (rows.max_log2[half] == NO_MAXIMUM && now > NO_MAXIMUM) {
                rows.top_log2[half] = now;
                rows.max_log2[half] = now + CORRECTED_MARGIN_LOG2;
                rows.limit_log2[half] = now + FIRST_RISE_LOG2;
            }
        }
    }
}

/* BEFORE_EXP: moves the row max of all rows of the warp where that of one is above its limit, and rescales the row
 * sums. Returns whether it has; then O has to be multiplied with `alpha`, and update_limits called. alpha is computed
 * ahead of the vote, whose latency it hides. CORRECTS: m moves only where it is
 * below the largest score since the last correction, and correct_largest has to be called. */
template <bool CORRECTS>
__device__ __forceinline__ bool move_to_row_max(const float (&top_log2)[2], RowState &rows, float (&alpha)[2])
{
    float high[2];
    bool moves[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float now = top_log2[half];
        const float highest = fmaxf(rows.top_log2[half], now);
        high[half] = fmaxf(rows.max_log2[half], CORRECTS ? highest : now);
        rows.top_log2[half] = highest;
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

template <bool CORRECTS, int SCORES>
__device__ __forceinline__ bool move_row_max(const float (&s)[SCORES], RowState &rows, float (&alpha)[2],
                                             float scale_log2)
{
    float top[2];
    row_max(top, s);
    const float top_log2[2] = {top[0] * scale_log2, top[1] * scale_log2};
    return move_to_row_max<CORRECTS>(top_log2, rows, alpha);
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
    if (has_lag<T>(rows, LAG_NORMAL))
        rows.lag_log2 = is_wide ? lag_log2_of<T>(LAG_WIDE)
                        : rises ? lag_log2_of<T>(LAG_RISING)
                                : lag_log2_of<T>(LAG_NORMAL);
    rows.limit_log2[0] = rows.max_log2[0] + rows.lag_log2;
    rows.limit_log2[1] = rows.max_log2[1] + rows.lag_log2;
}

/* BEFORE_EXP, ahead of the last block: where scores grow, m moves with any new largest score, so that its weight is 1
 * and exact. The largest score is not below m there: with that lag m has moved, in all rows, to a largest score. Where
 * errors of largest weights are corrected it may be; then the epilogue corrects that of the last block. */
template <typename T> __device__ __forceinline__ void sharpen_limits(RowState &rows)
{
    if (has_lag<T>(rows, LAG_RISING)) {
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

/* AFTER_EXP, where an element of P is above 2^lag: moves m of all rows of the warp to the largest score of this block,
 * where that is higher, rescales row sums and O, and chooses the lag of the last block: none where scores grow. It is
 * not chosen yet where a row had seen no key, as in causal problems where 64 rows begin inside a block of keys. */
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
        rises[half] = alpha[half] < RISING_ALPHA;
        rows.max_log2[half] = now;
        rows.sum[half] *= alpha[half];
    }
    const bool all_rise = __all_sync(WHOLE_WARP, rises[0] && rises[1]);
    const bool any_begins = __any_sync(WHOLE_WARP, fminf(alpha[0], alpha[1]) == 0.0f); /* or has risen by 2^126 */
    if (has_last_headroom<T>(rows, LAG_NORMAL) && !any_begins)
        rows.last_headroom = all_rise ? last_headroom_of<T>(LAG_RISING) : last_headroom_of<T>(LAG_WIDE);
    rescale(o, alpha);
}

/* The same for AFTER_EXP, of block n: where an element of P is above 2^lag, catch_up, and all of P once more. `sum` is
 * the row sum with this block; that in `rows` stays without it. */
template <typename T, int SCORES, int COLUMNS>
__device__ __forceinline__ void exponentiate_and_check(uint32_t (&p)[SCORES / 2], float (&o)[COLUMNS],
                                                       const float (&s)[SCORES], RowState &rows, float (&sum)[2],
                                                       float scale_log2, int n)
{
    uint32_t room = n < 1 ? rows.last_headroom : rows.headroom;
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
}

} // namespace sm90_fwd
