/* Softcap: a policy for scores of the sm_90 forward (policies.cuh). S = softcap tanh(scale / softcap Q K^T): scores
 * become the tanh, and params.scale_log2 is softcap * log2(e).
 *
 * tanh from exponentials, 1 - 2 / (1 + e^2x), takes two more operations of the unit that computes the softmax's, which
 * has none to spare. Where all scores of a warp have |x| <= 0.75, as with logits up to three quarters of the softcap, a
 * polynomial of degree 9 takes none; its relative error is below 6e-7. */
#pragma once

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/sm90/fwd/policies.cuh"

namespace sm90_fwd {

struct Softcap {
    static constexpr bool KEEPS_MINUS_INFINITY = false;

    template <int SCORES> __device__ __forceinline__ static void apply(float (&s)[SCORES], const Params &params)
    {
        const sm90_fwd_softcap &softcap = params.softcap;
        float largest = 0.0f;
#pragma unroll
        for (int i = 0; i < SCORES; ++i)
            largest = fmaxf(largest, fabsf(s[i]));
        if (__any_sync(WHOLE_WARP, !(largest <= softcap.largest))) {
#pragma unroll
            for (int i = 0; i < SCORES; ++i)
                s[i] = 1.0f - __fdividef(2.0f, 1.0f + exp2_approx(softcap.inner * s[i])); /* error 2^-22 */
        } else {
#pragma unroll
            for (int i = 0; i < SCORES; ++i) {
                const float square = s[i] * s[i];
                float y = softcap.odd[4];
#pragma unroll
                for (int k = 3; k >= 0; --k)
                    y = fmaf(y, square, softcap.odd[k]);
                s[i] *= y;
            }
        }
    }
};

} // namespace sm90_fwd
