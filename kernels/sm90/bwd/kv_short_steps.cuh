/* A KV warpgroup of the sm_90 backward with short steps: tiles of 64 queries at head_dim 64, half the size of those of
 * kv_warpgroup.cuh. S of two steps and dP of one have registers of their own, so that P stays in fp32 until dS is
 * made from it, and two products are under way beside each piece of arithmetic:
 *   P = exp2(scale_log2 S - lse2)   beside dK of the step before and dP
 *   dS = P * (dP - D)               beside dV and S of the next step
 * A short step takes more than half the time of a long one, because it reads more shared memory for each query; but a
 * block begins and ends sooner. docs/kernels/sm90_bwd.md, "How it works". */
#pragma once

#include "kernels/sm90/bwd/kv_steps.cuh"

namespace sm90_bwd {

/* dS = P * (dP - D): replaces dP. */
template <int SCORES, int COUNT>
__device__ __forceinline__ void compute_ds(float (&dp_ds)[SCORES], const float (&p)[SCORES], uint32_t neg_delta,
                                           const PrefetchedStats<COUNT> &prefetched)
{
#pragma unroll
    for (int n = 0; n < SCORES / 4; ++n)
        subtract_delta(dp_ds, dp_ds, n, neg_delta, prefetched);
#pragma unroll
    for (int i = 0; i < SCORES; ++i)
        dp_ds[i] *= p[i];
}

/* A work tile. Its registers are those of a function: a product that starts with nothing would otherwise keep those of
 * the work tile before alive. */
template <typename T, typename Tile>
__device__ __forceinline__ void compute_work_short_steps(Smem<Tile> &smem, const Params &params, Walk<Tile> &at)
{
    using S = Traits<Tile>;
    constexpr uint32_t STAGE_STEP = S::Q_BYTES / 16;
    const Operands &operand = at.operand;
    int used = -1; /* the stage of the step before, which its dK may still read; -1 at first */
    float dk[S::GRADIENTS], dv[S::GRADIENTS];
    float s0[S::SCORES], s1[S::SCORES], dp[S::SCORES]; /* s0, s1: S, then P, of steps in turns; dp: dP, then dS */
    uint32_t p_ds[S::SCORES / 2];                      /* P, then dS, in 16 bits */
    uint32_t v_operand[operand_registers(Tile::V_STEPS)], k_operand[operand_registers(Tile::K_STEPS)];

    /* One step. Under way when it begins, in this order: S in `s`, dK of the step before, dP. When it ends: S of the
     * next step in `next_s`, dK, dP of the next step. After the last one these read a stage that holds an earlier
     * step; the results are not used. */
    const auto compute_step = [&](float(&s)[S::SCORES], float(&next_s)[S::SCORES]) {
        const int stage = at.pipeline.stage, now = at.step;
        const auto lse2 = prefetch_stats<Tile>(stats_address(smem, stage, 0, at.lane));
        wgmma_wait<2>();
        wgmma_hold(s);
        compute_p(s, smem, params, at, lse2);
        wgmma_wait<1>();
        wgmma_hold(dk);
        wgmma_hold(p_ds);
        if (used >= 0)
            release_stage(smem, used, at.lane);
        used = stage;
        pack<T>(p_ds, s);
        start_gradient<T, Tile>(dv, p_ds, operand.dout_transposed + stage * STAGE_STEP);
        at.advance(params);
        at.wait_next_visible(smem, params);
        start_scores<T, Tile, Tile::K_STEPS>(next_s, k_operand, at.k, operand.q + at.pipeline.stage * STAGE_STEP);
        const auto neg_delta = prefetch_stats<Tile>(stats_address(smem, stage, 1, at.lane));
        wgmma_wait<2>();
        wgmma_hold(dp);
        compute_ds(dp, s, stats_address(smem, stage, 1, at.lane), neg_delta);
        /* The assembler moves a wait for products to the start of its basic block, which the wait for the buffer of dS
         * begins: dS is computed before that, so that it does not wait for dV. */
        wgmma_hold(dp);
        const uint32_t to = wait_ds_empty(smem, now, at.warp_row);
        wgmma_wait<1>();
        wgmma_hold(dv);
        wgmma_hold(p_ds);
        pack<T>(p_ds, dp);
        store_ds<Tile>(to, p_ds, at.lane);
        arrive_ds_full(smem, now, at.lane);
        start_gradient<T, Tile>(dk, p_ds, operand.q_transposed + stage * STAGE_STEP);
        start_scores<T, Tile, Tile::V_STEPS>(dp, v_operand, at.v(), operand.dout + at.pipeline.stage * STAGE_STEP);
        skip_steps(smem, at, now + 1, at.step);
    };
    const auto finish_products = [&] {
        wgmma_wait<0>();
        wgmma_hold(dk);
        wgmma_hold(dp);
        wgmma_hold(s0);
        wgmma_hold(s1);
    };

    clear(dk, dv);
    load_operand<Tile, Tile::K_STEPS>(k_operand, smem.keys[k_area<Tile>(work_slot(smem, at))], at.warp_row, at.lane);
    mbarrier_wait(shared_address(&smem.v_full[work_slot(smem, at)]), work_phase(smem, at));
    load_operand<Tile, Tile::V_STEPS>(v_operand, smem.keys[v_area<Tile>(work_slot(smem, at))], at.warp_row, at.lane);
    const int first = at.step;
    at.wait_next_visible(smem, params);
    skip_steps(smem, at, first, at.step);
    if (at.step < at.end) {
        start_scores<T, Tile, Tile::K_STEPS>(s0, k_operand, at.k, operand.q + at.pipeline.stage * STAGE_STEP);
        wgmma_commit(); /* in place of dK */
        start_scores<T, Tile, Tile::V_STEPS>(dp, v_operand, at.v(), operand.dout + at.pipeline.stage * STAGE_STEP);
        wait_first_stats(smem);
        /* Each exit waits for what is under way inside its own branch: the assembler makes all products wait for each
         * other where some are under way at a place that two branches lead to (messages C7514 and C7515). */
#pragma unroll 1
        for (;;) {
            compute_step(s0, s1);
            if (at.step >= at.end) {
                finish_products();
                break;
            }
            compute_step(s1, s0);
            if (at.step >= at.end) {
                finish_products();
                break;
            }
        }
        release_stage(smem, used, at.lane);
    }
    store_results<T>(smem, params, dk, dv, at);
}

/* `group`: which of the KV warpgroups. */
template <typename T, typename Tile>
__device__ __forceinline__ void kv_warpgroup_short_steps(Smem<Tile> &smem, const Params &params, int group)
{
    Walk<Tile> at(smem, group);

    at.begin_work(smem, params);
    compute_work_short_steps<T>(smem, params, at);
}

} // namespace sm90_bwd
