/* Softcap: a policy for scores of the sm_90 forward (policies.cuh). S = softcap tanh(x) with x = scale / softcap Q K^T:
 * apply() makes scores the tanh, and params.scale_log2 is softcap * log2(e).
 *
 * tanh from exponentials, 1 - 2 / (1 + e^2x), takes two more operations of the unit that computes the softmax's, which
 * has none to spare. Where all scores of a warp have a small |x| a polynomial takes none: one of three terms
 * (kernels/family/softcap_near.h: up to a logit of about 10 with a softcap of 30), or up to |x| = 0.75 one of five,
 * whose relative error is below 6e-7.
 *
 * Scores that are small stay what they are in the main loop until it is known from the largest that they are: AFTER_EXP
 * from P, as the polynomial rises everywhere, and the exponents are computed with the polynomial of three terms
 * (exponentiate_small); BEFORE_EXP from the row max, and they are multiplied with the polynomial beside O += P V, for
 * which the warpgroup waits anyway (scale_to_log2). Where a row max is 0 or more the polynomial may be wrong for
 * large negative scores, whose weights are below e^-9 of the largest (LEAST_NEAR_LOGIT in host.c: with a small softcap
 * they would not be); up to e^-16 it is off by less than 2^-10. */
#pragma once

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/sm90/fwd/policies.cuh"
#include "kernels/sm90/fwd/softmax.cuh"

namespace sm90_fwd {

struct Softcap {
    static constexpr bool KEEPS_MINUS_INFINITY = true, IS_PLAIN = false;

    /* Returns whether all scores of the warp were small. */
    template <int SCORES> __device__ __forceinline__ static bool apply(float (&s)[SCORES], const Params &params)
    {
        const sm90_fwd_softcap &softcap = params.softcap;
        float largest = 0.0f;
#pragma unroll
        for (int i = 0; i < SCORES; ++i)
            largest = fmaxf(largest, fabsf(s[i]));
        if (!__any_sync(WHOLE_WARP, !(largest <= softcap.near.largest))) {
            multiply(s, softcap.near.odd);
            return true;
        } else if (!__any_sync(WHOLE_WARP, !(largest <= softcap.largest))) {
            multiply(s, softcap.odd);
        } else {
#pragma unroll
            for (int i = 0; i < SCORES; ++i)
                s[i] = s[i] == -INFINITY
                           ? s[i]
                           : 1.0f - __fdividef(2.0f, 1.0f + exp2_approx(softcap.inner * s[i])); /* error 2^-22 */
        }
        return false;
    }

  private:
    /* Multiplies scores with a polynomial in their squares. */
    template <int SCORES, int TERMS>
    __device__ __forceinline__ static void multiply(float (&s)[SCORES], const float (&term)[TERMS])
    {
#pragma unroll
        for (int i = 0; i < SCORES; ++i) {
            const float square = s[i] * s[i];
            float y = term[TERMS - 1];
#pragma unroll
            for (int k = TERMS - 2; k >= 0; --k)
                y = fmaf(y, square, term[k]);
            s[i] *= y;
        }
    }
};

/* What a small score is multiplied with to be a logit times log2(e). */
__device__ __forceinline__ float small_factor(float square, const Params &params)
{
    const float(&log2)[3] = params.softcap.near_log2;
    return fmaf(fmaf(log2[2], square, log2[1]), square, log2[0]);
}

/* exponentiate of small scores. */
template <typename T, int SCORES>
__device__ __forceinline__ void exponentiate_small(uint32_t (&p)[SCORES / 2], float (&sum)[2], const float (&s)[SCORES],
                                                   const RowState &rows, const Params &params)
{
    sum[0] = rows.sum[0];
    sum[1] = rows.sum[1];
#pragma unroll
    for (int i = 0; i < SCORES / 2; ++i) {
        const int half = i % 2;
        const float x = s[2 * i], y = s[2 * i + 1];
        const float p_x = exp2_approx(fmaf(x, small_factor(x * x, params), -rows.max_log2[half]));
        const float p_y = exp2_approx(fmaf(y, small_factor(y * y, params), -rows.max_log2[half]));
        sum[half] += p_x + p_y;
        p[i] = pack2<T>(p_x, p_y);
    }
}

/* What is to be added to bits of P (any_exceeds) to find those of logits above the largest small one. */
template <typename T> __device__ __forceinline__ uint32_t room_of_small(const RowState &rows, const Params &params)
{
    constexpr int LEAST = -15; /* smaller weights are exact enough */
    const int lag = static_cast<int>(params.softcap.near_limit_log2 - fmaxf(rows.max_log2[0], rows.max_log2[1]));
    return headroom<T>(0) - min(max(lag, LEAST), LARGEST_LAG_LOG2<T>) * (headroom<T>(0) - headroom<T>(1));
}

/* As exponentiate_and_check, of Q K^T. Where a logit may be large, and where an element of P is, apply() comes first;
 * in a block behind such a one at once (`were_large`). */
template <typename T, int SCORES, int COLUMNS>
__device__ __forceinline__ void exponentiate_scores_and_check(uint32_t (&p)[SCORES / 2], float (&o)[COLUMNS],
                                                              float (&s)[SCORES], RowState &rows, float (&sum)[2],
                                                              const Params &params, int n, bool &were_large)
{
    uint32_t room = n < 1 ? rows.last_headroom : rows.headroom;
    bool is_left = true, is_large = were_large;
    int again;
#pragma unroll 1
    do {
        if (is_large) {
            were_large =
                !Softcap::apply(s, params) || __any_sync(WHOLE_WARP, fminf(rows.max_log2[0], rows.max_log2[1]) < 0.0f);
            is_left = is_large = false;
        }
        bool exceeds;
        if (is_left) {
            exponentiate_small<T>(p, sum, s, rows, params);
            exceeds = any_exceeds(p, max(room, room_of_small<T>(rows, params))) ||
                      fminf(rows.max_log2[0], rows.max_log2[1]) < 0.0f;
        } else {
            exponentiate<T>(p, sum, s, rows, params.scale_log2);
            exceeds = any_exceeds(p, room);
        }
        again = __any_sync(WHOLE_WARP, exceeds);
        asm volatile("" : "+r"(again), "+f"(sum[0]), "+f"(sum[1]));
        if (again && !is_left) {
            catch_up<T>(o, s, rows, params.scale_log2);
            room = 0; /* nothing exceeds the bound now: the loop ends even where there are NaN */
        }
        is_large = is_left;
        asm volatile("" : "+r"(again));
    } while (again);
}

/* Ahead of move_to_row_max, beside O += P V: scores become logits times log2(e), and `top` their row max. Scores that
 * apply() has not replaced are multiplied with the polynomial, if they are small. */
template <int SCORES>
__device__ __forceinline__ void scale_to_log2(float (&top)[2], float (&s)[SCORES], bool is_left, const Params &params)
{
    row_max(top, s);
    if (is_left && !__any_sync(WHOLE_WARP, !(fminf(top[0], top[1]) >= 0.0f &&
                                             fmaxf(top[0], top[1]) <= params.softcap.near.largest))) {
#pragma unroll
        for (int i = 0; i < SCORES; ++i)
            s[i] *= small_factor(s[i] * s[i], params);
        top[0] *= small_factor(top[0] * top[0], params);
        top[1] *= small_factor(top[1] * top[1], params);
    } else {
        if (is_left) {
            Softcap::apply(s, params);
            row_max(top, s);
        }
#pragma unroll
        for (int i = 0; i < SCORES; ++i)
            s[i] *= params.scale_log2;
        top[0] *= params.scale_log2;
        top[1] *= params.scale_log2;
    }
#pragma unroll
    for (int i = 0; i < SCORES; ++i) /* not behind the wait for O */
        asm volatile("" : "+f"(s[i]));
}

} // namespace sm90_fwd
