/* Softcap: a policy for scores of the sm_90 backward (policies.cuh). S = softcap tanh(x), x = scale / softcap Q K^T:
 * scores become the tanh, params.scale_log2 is softcap log2(e), and dS has the derivative 1 - tanh^2 as another factor.
 * tanh comes from x: that of P and LSE would be wrong where it is near 1.
 *
 * P of a step has no register beside it for that factor. P for dS is therefore rounded with it, and P for dV, without
 * it, has registers of its own (KEEPS_P), in fp16, too. Both are made in code without branches: where branches meet the
 * assembler has no registers for them (C7512).
 *
 * Where all scores of a warp have |x| up to params.softcap.largest, tanh is a polynomial, without a further operation
 * of the unit that computes exponentials (kernels/family/softcap_near.h). */
#pragma once

#include "kernels/device/arithmetic.cuh"
#include "kernels/sm90/bwd/kv_math.cuh"

namespace sm90_bwd {

struct Softcap {
    static constexpr bool HAS_SLOPE = true;
};

/* Of an element that is not visible: P is 0 with any softcap from 1e-12 on, and the derivative is finite. */
constexpr float HIDDEN_TANH = -1e19f;

/* S to tanh(x) in place. */
template <int SCORES> __device__ __forceinline__ void scores_to_tanh(float (&s)[SCORES], const Params &params)
{
    const family_softcap_near &near = params.softcap;
    float largest[2] = {0.0f, 0.0f}; /* two chains, for their latency */
#pragma unroll
    for (int i = 0; i < SCORES; i += 2) {
        largest[0] = fmaxf(largest[0], fabsf(s[i]));
        largest[1] = fmaxf(largest[1], fabsf(s[i + 1]));
    }
    if (__any_sync(0xffffffffu, fmaxf(largest[0], largest[1]) > near.largest)) {
#pragma unroll
        for (int i = 0; i < SCORES; ++i) /* tanh |x| = (1 - e) / (1 + e), e = e^-2|x| */
        {
            const float e = exp2_approx(-fabsf(params.softcap_inner * s[i]));
            s[i] = copysignf(__fdividef(1.0f - e, 1.0f + e), s[i]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < SCORES; ++i) {
            const float square = s[i] * s[i];
            s[i] *= fmaf(fmaf(near.odd[2], square, near.odd[1]), square, near.odd[0]);
        }
    }
}

/* S to P, rounded to T, and to P times the derivative, in fp16; s is used up. As scores_to_visible_p. */
template <typename T, typename Tile>
__device__ __forceinline__ void
scores_to_visible_capped_p(uint32_t (&p)[Traits<Tile>::SCORES / 2], uint32_t (&p_of_ds)[Traits<Tile>::SCORES / 2],
                           float (&s)[Traits<Tile>::SCORES], uint32_t lse2, const FirstStats<Tile> &prefetched,
                           const Params &params, const typename Tile::Work::Bounds &bounds, int first_key, int tile,
                           int warp, int lane)
{
    using Work = typename Tile::Work;
    const int diagonal = Work::diagonal(params, bounds, first_key, tile, Tile::Q_TILE);

    scores_to_tanh(s, params);
    if (Work::is_cut(params, bounds, first_key, Traits<Tile>::GROUP_KEYS, diagonal)) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const typename Work::Columns visible =
                Work::visible(params, bounds, first_key, warp * 16 + lane / 4 + 8 * row, diagonal, lane % 4 * 2);
#pragma unroll
            for (int i = row * 2; i < Traits<Tile>::SCORES; i += i % 2 ? 3 : 1)
                if (!visible.has(8 * (i / 4) + i % 2))
                    s[i] = HIDDEN_TANH;
        }
    }
#pragma unroll
    for (int n = 0; n < Traits<Tile>::SCORES / 4; ++n) {
        const float2 lse = n < Tile::SCHEDULE.prefetched ? prefetched.at[n < Tile::SCHEDULE.prefetched ? n : 0]
                                                         : load_shared_float2(lse2 + n * 8 * sizeof(float));
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const float x = s[4 * n + 2 * row], y = s[4 * n + 2 * row + 1];
            const float p_x = exp2_approx(fmaf(x, params.scale_log2, -lse.x));
            const float p_y = exp2_approx(fmaf(y, params.scale_log2, -lse.y));
            p[2 * n + row] = pack2<T>(p_x, p_y);
            p_of_ds[2 * n + row] = pack2<__half>(p_x * fmaf(-x, x, 1.0f), p_y * fmaf(-y, y, 1.0f));
        }
    }
}

} // namespace sm90_bwd
