/* Softcap: a policy for scores of the sm_90 forward (policies.cuh). S = softcap tanh(x) with x = scale / softcap Q K^T:
 * apply() makes scores the tanh, and params.scale_log2 is softcap * log2(e).
 *
 * tanh from exponentials, 1 - 2 / (1 + e^2x), takes two more operations of the unit that computes the softmax's, which
 * has none to spare. Where all scores of a warp have a small |x| a polynomial takes none: one of three terms
 * (kernels/family/softcap_near.h: up to a logit of about 10 with a softcap of 30), or up to |x| = 0.75 one of five,
 * whose relative error is below 6e-7.
 *
 * BEFORE_EXP there are registers to leave small scores what they are: the row max, which is computed anyway, says
 * whether they are small, and the exponents are computed from them with the polynomial (exponentiate_small). */
#pragma once

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/sm90/fwd/policies.cuh"
#include "kernels/sm90/fwd/softmax.cuh"

namespace sm90_fwd {

struct Softcap {
    static constexpr bool KEEPS_MINUS_INFINITY = false, IS_PLAIN = false;

    template <int SCORES> __device__ __forceinline__ static void apply(float (&s)[SCORES], const Params &params)
    {
        const sm90_fwd_softcap &softcap = params.softcap;
        float largest = 0.0f;
#pragma unroll
        for (int i = 0; i < SCORES; ++i)
            largest = fmaxf(largest, fabsf(s[i]));
        if (!__any_sync(WHOLE_WARP, !(largest <= softcap.near.largest))) {
            multiply(s, softcap.near.odd);
        } else if (!__any_sync(WHOLE_WARP, !(largest <= softcap.largest))) {
            multiply(s, softcap.odd);
        } else {
#pragma unroll
            for (int i = 0; i < SCORES; ++i)
                s[i] = 1.0f - __fdividef(2.0f, 1.0f + exp2_approx(softcap.inner * s[i])); /* error 2^-22 */
        }
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

/* Ahead of move_row_max: the row max as a logit times log2(e), of scores that are left as they are
 * or not; where one is not small they are not. */
template <int SCORES>
__device__ __forceinline__ void score_row_max(float (&top)[2], float (&s)[SCORES], bool &is_left, const Params &params)
{
    row_max(top, s);
    if (is_left) {
        /* Of floats below 0 the lowest has the largest bits, which are above those of all others. */
        unsigned lowest[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < SCORES / 4; ++i)
#pragma unroll
            for (int chain = 0; chain < 2; ++chain)
                lowest[chain] = __vimax3_u32(lowest[chain], __float_as_uint(s[4 * i + 2 * chain]),
                                             __float_as_uint(s[4 * i + 2 * chain + 1]));
        const float most = fabsf(__uint_as_float(max(lowest[0], lowest[1])));
        if (__any_sync(WHOLE_WARP, !(fmaxf(fmaxf(top[0], top[1]), most) <= params.softcap.near.largest))) {
            Softcap::apply(s, params);
            is_left = false;
            row_max(top, s);
        }
    }
    const float factor[2] = {is_left ? small_factor(top[0] * top[0], params) : params.scale_log2,
                             is_left ? small_factor(top[1] * top[1], params) : params.scale_log2};
    top[0] *= factor[0];
    top[1] *= factor[1];
}

} // namespace sm90_fwd
