/* A KV warpgroup of the sm_90 backward: owns 64 keys, goes through the tiles of queries, keeps dK and dV in
 * registers, and hands dS to the dQ warpgroup. S, P and dP of a step share registers. kv_short_steps.cuh has
 * another order of work, for steps of half the size. What must not be reordered: docs/kernels/sm90_bwd.md. */
#pragma once

#include "kernels/sm90/bwd/kv_steps.cuh"

namespace sm90_bwd {

template <typename T, int SCORES>
__device__ __forceinline__ void p_to_ds(uint32_t (&p_ds)[SCORES / 2], const float (&difference)[SCORES])
{
#pragma unroll
    for (int n = 0; n < SCORES / 4; ++n)
        p_to_ds<T>(p_ds, n, difference);
}

/* dP - D, and where TO_DS dS = P * (dP - D) as well, which replaces P. `difference` may be `dp`. */
template <typename Tile, bool TO_DS>
__device__ __forceinline__ void
compute_ds(uint32_t (&p_ds)[Traits<Tile>::SCORES / 2], float (&difference)[Traits<Tile>::SCORES],
           const float (&dp)[Traits<Tile>::SCORES], uint32_t neg_delta, const FirstStats<Tile> &prefetched)
{
    using S = Traits<Tile>;
#pragma unroll
    for (int n = 0; n < S::SCORES / 4; ++n) {
        subtract_delta(difference, dp, n, neg_delta, prefetched);
        if (TO_DS && !Tile::SCHEDULE.ds_in_two_loops)
            p_to_ds<typename Tile::Element>(p_ds, n, difference);
    }
    if (TO_DS && Tile::SCHEDULE.ds_in_two_loops)
        p_to_ds<typename Tile::Element>(p_ds, difference);
}

/* One of two arrays of different lengths. */
template <bool FIRST, typename Value, int COUNT, int OTHER_COUNT>
__device__ __forceinline__ auto &choose(Value (&first)[COUNT], Value (&second)[OTHER_COUNT])
{
    if constexpr (FIRST)
        return first;
    else
        return second;
}

/* Waits for dV, whose operand P then is free. */
template <int GRADIENTS, int PAIRS>
__device__ __forceinline__ void finish_dv(float (&dv)[GRADIENTS], uint32_t (&p)[PAIRS])
{
    wgmma_wait<0>();
    wgmma_hold(dv);
    wgmma_hold(p);
}

/* A work tile. */
template <typename T, typename Tile>
__device__ __forceinline__ void compute_work(Smem<Tile> &smem, const Params &params, Walk<Tile> &at)
{
    using S = Traits<Tile>;
    constexpr uint32_t STAGE_STEP = S::Q_BYTES / 16;
    const Operands &operand = at.operand;
    float dk[S::GRADIENTS], dv[S::GRADIENTS], first_s[S::SCORES]; /* s: S, then P, then dP of a step */
    uint32_t p_ds[S::SCORES / 2];                                 /* P in fp16, then dS */
    uint32_t kept_p[S::KEEPS_P ? S::SCORES / 2 : 1], next_p[S::HAS_SLOPE ? S::SCORES / 2 : 1];
    auto &p = choose<S::KEEPS_P>(kept_p, p_ds); /* the operand of dV */
    uint32_t v_operand[operand_registers(Tile::V_STEPS)], k_operand[operand_registers(Tile::K_STEPS)];

    clear(dk, dv);
    load_operand<Tile, Tile::K_STEPS>(k_operand, smem.keys[k_area<Tile>(work_slot(smem, at))], at.warp_row, at.lane);
    const int first = at.step;
    at.wait_next_visible(smem, params);
    if (at.step < at.end) {
        auto &s = first_s;
        start_scores<T, Tile, Tile::K_STEPS>(s, k_operand, at.k, operand.q + at.pipeline.stage * STAGE_STEP);
        wait_first_stats(smem);
        const auto lse2 = prefetch_stats<Tile>(stats_address(smem, at.pipeline.stage, 0, at.lane));
        wgmma_wait<0>();
        wgmma_hold(s);
        compute_both_p<T>(s, kept_p, next_p, smem, params, at, lse2);
        if constexpr (S::KEEPS_P && Tile::SCHEDULE.packs_p_last)
            pack<T>(kept_p, s);
        take_p<Tile>(p_ds, s, next_p);
    }
    mbarrier_wait(shared_address(&smem.v_full[work_slot(smem, at)]), work_phase(smem, at));
    load_operand<Tile, Tile::V_STEPS>(v_operand, smem.keys[v_area<Tile>(work_slot(smem, at))], at.warp_row, at.lane);
    __syncwarp();
    if (S::TAKES_MORE && !S::CROSSES_WORK && at.lane == 0)
        mbarrier_arrive(shared_address(&smem.operands_full));
    if (S::CROSSES_WORK)
        wait_stores();
    else if (S::TAKES_MORE)
        finish_stores(smem, at);
    skip_steps(smem, at, first, at.step);
    bool dout_ready = !S::IS_PAIR; /* dO of the step; asked for early, where that helps (TESTS_DOUT) */
#pragma unroll 1
    while (at.step < at.end) { /* P of this step is in p_ds and kept_p, and no product is under way */
        const int stage = at.pipeline.stage, now = at.step, of_dout = dout_stage<Tile>(now, stage);
        float
            own_s[S::HAS_SLOPE ? S::SCORES : 1]; /* as P is not in fp32 then, it keeps no registers from step to step */
        auto &s = choose<S::HAS_SLOPE>(own_s, first_s);
        if (!dout_ready)
            wait_dout(smem, now);
        start_scores<T, Tile, Tile::V_STEPS>(s, v_operand, at.v(), operand.dout + of_dout * STAGE_STEP);
        FirstStats<Tile> neg_delta;
        if (Tile::SCHEDULE.loads_delta == BEFORE_DV_START)
            neg_delta = prefetch_stats<Tile>(stats_address(smem, of_dout, 1, at.lane));
        start_gradient<T, Tile>(dv, p, operand.dout_transposed + of_dout * STAGE_STEP);
        if (Tile::SCHEDULE.loads_delta == BEHIND_DV_START)
            neg_delta = prefetch_stats<Tile>(stats_address(smem, of_dout, 1, at.lane));
        at.advance(params);
        at.wait_next_visible(smem, params);
        bool crosses = false;
        if constexpr (S::CROSSES_WORK) {
            crosses = at.cross(smem, params);
            if (crosses)
                at.wait_next_visible(smem, params);
        }
        uint32_t to = Tile::SCHEDULE.waits_late ? 0 : wait_ds_empty(smem, now, at.warp_row);
        if (Tile::SCHEDULE.loads_delta == WITH_NEXT_Q)
            neg_delta = prefetch_stats<Tile>(stats_address(smem, of_dout, 1, at.lane));
        if (Tile::SCHEDULE.ds_beside_dv)
            wgmma_wait<1>();
        else
            finish_dv(dv, p);
        wgmma_hold(s);
        /* dP - D. Beside dV it replaces dP, as no registers are left. Otherwise it has registers of its own, which
         * leaves the assembler more freedom in the order of instructions. */
        float own[S::SCORES];
        float(&difference)[S::SCORES] = Tile::SCHEDULE.ds_beside_dv ? s : own;
        constexpr bool TO_DS = S::KEEPS_P || !Tile::SCHEDULE.ds_beside_dv; /* fp16: dV reads P from p_ds */
        compute_ds<Tile, TO_DS>(p_ds, difference, s, stats_address(smem, of_dout, 1, at.lane), neg_delta);
        if (Tile::SCHEDULE.waits_late)
            to = wait_ds_empty(smem, now, at.warp_row);
        if (Tile::SCHEDULE.ds_beside_dv)
            finish_dv(dv, p);
        if (!TO_DS)
            p_to_ds<T>(p_ds, difference);
        if (S::CROSSES_WORK)
            wait_stores();
        store_ds<Tile>(to, p_ds, at.lane);
        FirstStats<Tile> lse2;
        if (Tile::SCHEDULE.announces_first)
            announce_ds(smem, at, now);
        /* After the last step this reads a stage that holds another one, or that is being loaded, and K where the next
         * V may be arriving; the result is not used. */
        start_scores<T, Tile, Tile::K_STEPS>(s, k_operand, at.k, operand.q + at.pipeline.stage * STAGE_STEP);
        if (!Tile::SCHEDULE.announces_first)
            announce_ds(smem, at, now);
        if (Tile::SCHEDULE.loads_lse_early)
            lse2 = prefetch_stats<Tile>(stats_address(smem, at.pipeline.stage, 0, at.lane));
        start_gradient<T, Tile>(dk, p_ds, operand.q_transposed + stage * STAGE_STEP);
        if (!S::IS_PAIR)
            skip_steps(smem, at, now + 1, at.step);
        if (Tile::SCHEDULE.tests_dout == TESTS_EARLY)
            dout_ready = test_dout(smem, at.step);
        if (!Tile::SCHEDULE.loads_lse_early)
            lse2 = prefetch_stats<Tile>(stats_address(smem, at.pipeline.stage, 0, at.lane));
        if (Tile::SCHEDULE.tests_dout == TESTS_LATE)
            dout_ready = test_dout(smem, at.step);
        wgmma_wait<1>();
        wgmma_hold(s);
        compute_both_p<T>(s, kept_p, next_p, smem, params, at, lse2);
        wgmma_wait<0>();
        wgmma_hold(dk);
        wgmma_hold(p_ds);
        if (!Tile::SCHEDULE.releases_last)
            release_stage(smem, stage, at.lane);
        /* In a pair a warp passes over up to three steps, as many as Q has stages: the stage of this one is needed. */
        if (S::IS_PAIR)
            skip_steps(smem, at, now + 1, at.step);
        take_p<Tile>(p_ds, s, next_p);
        if constexpr (Tile::SCHEDULE.packs_p_last)
            pack<T>(kept_p, s);
        if (Tile::SCHEDULE.releases_last)
            release_stage(smem, stage, at.lane);
        if constexpr (S::CROSSES_WORK) {
            if (crosses) {
                store_results<T>(smem, params, dk, dv, at);
                clear(dk, dv);
                mbarrier_wait(shared_address(&smem.v_full[work_slot(smem, at)]), work_phase(smem, at));
            }
        }
    }

    store_results<T>(smem, params, dk, dv, at);
}

/* `group`: which of the KV warpgroups. The registers of a work tile are those of compute_work: a product that starts
 * with nothing would otherwise keep those of the work tile before alive. */
template <typename T, typename Tile>
__device__ __forceinline__ void kv_warpgroup(Smem<Tile> &smem, const Params &params, int group)
{
    Walk<Tile> at(smem, group);

    if constexpr (Traits<Tile>::TAKES_MORE) {
#pragma unroll 1
        while (at.begin_work(smem, params))
            compute_work<T>(smem, params, at);
        finish_stores(smem, at);
    } else {
        at.begin_work(smem, params);
        compute_work<T>(smem, params, at);
    }
}

} // namespace sm90_bwd
