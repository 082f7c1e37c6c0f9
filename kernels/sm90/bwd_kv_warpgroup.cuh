/* A KV warpgroup of the sm_90 backward: owns 64 keys, goes through the tiles of queries, keeps dK and dV in
 * registers, and hands dS to the producer warpgroup. */
#pragma once
#include <climits>

#include "kernels/device/barriers.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/sm90/bwd_kv_math.cuh"

namespace sm90_bwd {

using namespace device;

/* The address of a thread's row statistics in a stage: lse2 (row 0) or -D (row 1) of its first column. */
template <typename Tile>
__device__ __forceinline__ uint32_t stats_address(Smem<Tile> &smem, int stage, int row, int lane)
{
    return shared_address(&smem.stats[stage][row * Tile::Q_TILE]) + lane % 4 * 2 * sizeof(float);
}

/* Waits until the buffer for dS of `step` has been read, which was filled two steps ago. Returns the address of the
 * warp's rows in it. */
template <typename Tile> __device__ __forceinline__ uint32_t wait_ds_empty(Smem<Tile> &smem, int step, int warp_row)
{
    mbarrier_wait(shared_address(&smem.ds_empty[step % 2]), step / 2 % 2 ^ 1);
    return shared_address(smem.ds[step % 2]) + warp_row * ROW_BYTES;
}

template <typename Tile> __device__ __forceinline__ void arrive_ds_full(Smem<Tile> &smem, int step, int lane)
{
    async_proxy_fence();
    __syncwarp();
    if (lane == 0)
        mbarrier_arrive(shared_address(&smem.ds_full[step % 2]));
}

template <typename Tile>
__device__ __forceinline__ void store_ds(uint32_t to, const uint32_t (&ds)[Traits<Tile>::SCORES / 2], int lane)
{
    const uint32_t l = forget(lane);
    const uint32_t row = swizzle_128b(l % 16, l / 16); /* computed at every step: kept addresses would take registers */
#pragma unroll
    for (int i = 0; i < Traits<Tile>::SCORES / 8; ++i) {
        const uint32_t chunk[4] = {ds[4 * i], ds[4 * i + 1], ds[4 * i + 2], ds[4 * i + 3]};
        stmatrix_x4(to + i / 4 * Traits<Tile>::KV_PANEL_BYTES + (row ^ i % 4 * 32), chunk);
    }
}

/* Zeros as dS of a step whose queries see none of the warpgroup's keys. */
template <typename Tile>
__device__ __forceinline__ void store_zero_ds(Smem<Tile> &smem, int step, int warp_row, int lane)
{
    const uint32_t ds = wait_ds_empty(smem, step, warp_row) + lane * 16;
    const float zeros[4] = {};
#pragma unroll
    for (int i = 0; i < Traits<Tile>::SCORES / 8; ++i)
        store_shared_float4(ds + i / 4 * Traits<Tile>::KV_PANEL_BYTES + i % 4 * (16 * ROW_BYTES / 4), zeros);
    arrive_ds_full(smem, step, lane);
}

template <typename Tile> __device__ __forceinline__ void release_stage(Smem<Tile> &smem, int stage, int lane)
{
    __syncwarp(); /* all lanes have read the statistics, and then executed the proxy fence of arrive_ds_full */
    if (lane == 0)
        mbarrier_arrive(shared_address(&smem.empty[stage]));
}

/* Steps whose queries see none of the warpgroup's keys. */
template <typename Tile>
__device__ __forceinline__ void skip_steps(Smem<Tile> &smem, int from, int to, int warp_row, int lane)
{
    for (; from < to; ++from) {
        mbarrier_wait(shared_address(&smem.full[from % STAGES]), from / STAGES % 2);
        store_zero_ds(smem, from, warp_row, lane);
        release_stage(smem, from % STAGES, lane);
    }
}

/* S to P in place. Only tiles at the diagonal and at the end of the keys need the mask. first_query: of the tile. */
template <typename Tile>
__device__ __forceinline__ void compute_p(float (&s)[Traits<Tile>::SCORES], const Params &params, int first_key,
                                          int warp, int lane, int first_query, uint32_t lse2,
                                          const PrefetchedStats &prefetched)
{
    constexpr int GROUP_KEYS = Traits<Tile>::GROUP_KEYS;
    /* The first query that sees this warpgroup's first key, counted from the tile's first. */
    const int diagonal = first_key - params.shift - first_query;
    int first_visible[2] = {0, 0};

    if ((params.causal && diagonal + GROUP_KEYS - 1 > 0) || first_key + GROUP_KEYS > params.kv_len) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = warp * 16 + lane / 4 + 8 * i;
            first_visible[i] = params.causal ? diagonal + row - lane % 4 * 2 : 0;
            if (first_key + row >= params.kv_len)
                first_visible[i] = INT_MAX;
        }
        scores_to_p<true>(s, lse2, prefetched, params.scale_log2, first_visible);
    } else {
        scores_to_p<false>(s, lse2, prefetched, params.scale_log2, first_visible);
    }
}

/* dP - D, and where TO_DS dS = P * (dP - D) as well. */
template <typename T, bool TO_DS, int SCORES>
__device__ __forceinline__ void
compute_ds(uint32_t (&p_ds)[SCORES / 2], float (&difference)[SCORES], const float (&dp)[SCORES], uint32_t neg_delta,
           const PrefetchedStats &prefetched, const uint32_t (&remainders)[REMAINDERS<T, SCORES>])
{
#pragma unroll
    for (int n = 0; n < SCORES / 4; ++n) {
        subtract_delta(difference, dp, n, neg_delta, prefetched);
        if (TO_DS)
            p_to_ds<T>(p_ds, n, difference, remainders);
    }
}

template <typename T, int SCORES>
__device__ __forceinline__ void p_to_ds(uint32_t (&p_ds)[SCORES / 2], const float (&difference)[SCORES],
                                        const uint32_t (&remainders)[REMAINDERS<T, SCORES>])
{
#pragma unroll
    for (int n = 0; n < SCORES / 4; ++n)
        p_to_ds<T>(p_ds, n, difference, remainders);
}

/* Stores a part's dV or dK of a warp's rows in fp32. `sums`: the tile's of one of them. */
template <typename Tile>
__device__ __forceinline__ void store_part(float *sums, const float (&c)[Traits<Tile>::GRADIENTS], int slab, int lane)
{
#pragma unroll
    for (int i = 0; i < Traits<Tile>::GRADIENTS / 4; ++i) {
        const float quad[4] = {c[4 * i], c[4 * i + 1], c[4 * i + 2], c[4 * i + 3]};
        const int panel = i / SLAB_QUADS;
        store_quad(sums + (panel * Traits<Tile>::KV_WARPS + slab) * SLAB_FLOATS + i % SLAB_QUADS * QUAD_FLOATS, lane,
                   quad);
    }
}

template <typename Tile>
__device__ __forceinline__ void store_parts(Smem<Tile> &smem, const Params &params,
                                            const float (&dk)[Traits<Tile>::GRADIENTS],
                                            const float (&dv)[Traits<Tile>::GRADIENTS], int slab, int lane)
{
    const WorkTile &work = smem.work;
    const int64_t tile = int64_t(work.batch * params.kv_heads + work.kv_head) * params.kv_tiles + work.kv_tile;
    float *sums = params.kv_sums + kv_sums_offset<Tile::HEAD_DIM>(params, work.part, tile);
    store_part<Tile>(sums, dv, slab, lane);
    store_part<Tile>(sums + KV_TILE * Tile::HEAD_DIM, dk, slab, lane);
}

/* Stores a warp's rows of dK and dV by way of the shared memory of K and V. key: its first. */
template <typename T, typename Tile>
__device__ __forceinline__ void
store_gradients(Smem<Tile> &smem, const Params &params, const float (&dk)[Traits<Tile>::GRADIENTS],
                const float (&dv)[Traits<Tile>::GRADIENTS], int steps, int key, int warp_row, int lane)
{
    /* The warpgroup's last products have read K and V, in whose place the gradients go: a wait is for the warp's own
     * part of a product. */
    bar_sync(1 + warp_row / Traits<Tile>::GROUP_KEYS, WARPGROUP);
    store_gradient<T, Tile>(dv, 1.0f, shared_address(smem.v) + warp_row * ROW_BYTES, &params.dv, key, smem.work, lane);
    if (steps > 0) /* dQ of the last step has read K, in whose place dK goes */
        mbarrier_wait(shared_address(&smem.ds_empty[(steps - 1) % 2]), (steps - 1) / 2 % 2);
    store_gradient<T, Tile>(dk, params.scale, shared_address(smem.k) + warp_row * ROW_BYTES, &params.dk, key, smem.work,
                            lane);
    if (lane == 0)
        tma_store_wait_read<0>(); /* shared memory must outlive the stores */
}

template <int COUNT> __device__ __forceinline__ void clear(float (&dk)[COUNT], float (&dv)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        dk[i] = dv[i] = 0.0f;
}

/* wgmma operands: the warpgroup's keys; Q and dO of stage 0, as they are and transposed. */
struct Operands {
    uint32_t k, v, q, dout, q_transposed, dout_transposed;
};

template <typename Tile> __device__ __forceinline__ Operands operands_of(Smem<Tile> &smem, int group_row)
{
    constexpr int Q_PANEL_BYTES = Traits<Tile>::Q_PANEL_BYTES;
    Operands operand;
    operand.k = keep_uniform(wgmma_k_major(shared_address(smem.k) + group_row * ROW_BYTES));
    operand.v = keep_uniform(wgmma_k_major(shared_address(smem.v) + group_row * ROW_BYTES));
    operand.q = keep_uniform(wgmma_k_major(shared_address(smem.q[0])));
    operand.dout = keep_uniform(wgmma_k_major(shared_address(smem.dout[0])));
    operand.q_transposed = keep_uniform(wgmma_mn_major(shared_address(smem.q[0]), Q_PANEL_BYTES));
    operand.dout_transposed = keep_uniform(wgmma_mn_major(shared_address(smem.dout[0]), Q_PANEL_BYTES));
    return operand;
}

/* Waits for dV, whose operand P then is free. */
template <int GRADIENTS, int PAIRS>
__device__ __forceinline__ void finish_dv(float (&dv)[GRADIENTS], uint32_t (&p_ds)[PAIRS])
{
    wgmma_wait<0>();
    wgmma_hold(dv);
    wgmma_hold(p_ds);
}

/* `group`: which of the KV warpgroups. V_STEPS: of the tile, or fewer. */
template <typename T, typename Tile, int V_STEPS>
__device__ __forceinline__ void kv_warpgroup(Smem<Tile> &smem, const Params &params, int group)
{
    using S = Traits<Tile>;
    const int warp = keep_uniform(threadIdx.x / LANES % 4), lane = threadIdx.x % LANES;
    const int group_row = group * S::GROUP_KEYS, warp_row = group_row + warp * 16;
    const WorkTile &work = smem.work;
    const int first_key = work.kv_tile * KV_TILE + group_row, steps = keep_uniform(work.steps);
    const int first_tile = keep_uniform(work.first_tile[0]);
    const int first_visible_tile = keep_uniform(work.first_tile[group]);
    const Operands operand = operands_of(smem, group_row);
    constexpr uint32_t STAGE_STEP = S::Q_BYTES / 16;
    PipelineState<STAGES> pipeline;
    int step = 0, tile = keep_uniform(work.begin.tile);
    float dk[S::GRADIENTS], dv[S::GRADIENTS], s[S::SCORES]; /* s: S, then P, then dP of a step */
    uint32_t p_ds[S::SCORES / 2];                           /* P, then dS, in 16 bits */
    uint32_t remainders[REMAINDERS<T, S::SCORES>];
    uint32_t v_operand[operand_registers(V_STEPS)], k_operand[operand_registers(Tile::K_STEPS)];

    clear(dk, dv);

    const auto advance = [&] {
        ++step;
        pipeline.advance();
        if (--tile < first_tile)
            tile = params.q_tiles - 1;
    };
    /* Goes on to the first step, the current one included, whose queries see any of the warpgroup's keys, and waits for
     * its data. The steps that it passes over are given their zeros by skip_steps later. */
    const auto wait_next_visible = [&] {
        while (step < steps && tile < first_visible_tile)
            advance();
        if (step < steps)
            mbarrier_wait(shared_address(&smem.full[pipeline.stage]), pipeline.phase);
    };
    const auto to_p = [&](const PrefetchedStats &prefetched) {
        compute_p<Tile>(s, params, first_key, warp, lane, tile * Tile::Q_TILE,
                        stats_address(smem, pipeline.stage, 0, lane), prefetched);
    };

    mbarrier_wait(shared_address(&smem.k_full), 0);
    load_operand<Tile, Tile::K_STEPS>(k_operand, smem.k, warp_row, lane);
    wait_next_visible();
    skip_steps(smem, 0, step, warp_row, lane);
    if (step < steps) {
        start_scores<T, Tile, Tile::K_STEPS>(s, k_operand, operand.k, operand.q + pipeline.stage * STAGE_STEP);
        const PrefetchedStats lse2 = prefetch_stats(stats_address(smem, pipeline.stage, 0, lane));
        wgmma_wait<0>();
        wgmma_hold(s);
        to_p(lse2);
        keep_remainders<T>(remainders, s);
        pack_p<T>(p_ds, s);
    }
    mbarrier_wait(shared_address(&smem.v_full), 0);
    load_operand<Tile, V_STEPS>(v_operand, smem.v, warp_row, lane);
#pragma unroll 1
    while (step < steps) { /* P of this step is in p_ds and no product is under way */
        const int stage = pipeline.stage, now = step;
        start_scores<T, Tile, V_STEPS>(s, v_operand, operand.v, operand.dout + stage * STAGE_STEP);
        start_gradient<T, Tile>(dv, p_ds, operand.dout_transposed + stage * STAGE_STEP);
        advance();
        wait_next_visible();
        uint32_t to = S::DS_FIRST ? 0 : wait_ds_empty(smem, now, warp_row);
        const PrefetchedStats neg_delta = prefetch_stats(stats_address(smem, stage, 1, lane));
        if (S::DS_FIRST)
            wgmma_wait<1>();
        else
            finish_dv(dv, p_ds);
        wgmma_hold(s);
        /* dP - D. DS_FIRST: it replaces dP, as dV still runs and needs P, and no registers are left. Otherwise it has
         * registers of its own, which leaves the assembler more freedom in the order of instructions. */
        float own[S::SCORES];
        float(&difference)[S::SCORES] = S::DS_FIRST ? s : own;
        compute_ds<T, !S::DS_FIRST>(p_ds, difference, s, stats_address(smem, stage, 1, lane), neg_delta, remainders);
        if (S::DS_FIRST) {
            finish_dv(dv, p_ds);
            p_to_ds<T>(p_ds, difference, remainders);
            to = wait_ds_empty(smem, now, warp_row);
        }
        store_ds<Tile>(to, p_ds, lane);
        if (S::DS_FIRST)
            arrive_ds_full(smem, now, lane);
        /* After the last step this reads a stage that holds an earlier one; the result is not used. */
        start_scores<T, Tile, Tile::K_STEPS>(s, k_operand, operand.k, operand.q + pipeline.stage * STAGE_STEP);
        if (!S::DS_FIRST)
            arrive_ds_full(smem, now, lane);
        start_gradient<T, Tile>(dk, p_ds, operand.q_transposed + stage * STAGE_STEP);
        skip_steps(smem, now + 1, step, warp_row, lane);
        const PrefetchedStats lse2 = prefetch_stats(stats_address(smem, pipeline.stage, 0, lane));
        wgmma_wait<1>();
        wgmma_hold(s);
        to_p(lse2);
        keep_remainders<T>(remainders, s);
        wgmma_wait<0>();
        wgmma_hold(dk);
        wgmma_hold(p_ds);
        release_stage(smem, stage, lane);
        pack_p<T>(p_ds, s);
    }

    if (work.parts > 1)
        store_parts(smem, params, dk, dv, warp_row / 16, lane);
    else
        store_gradients<T>(smem, params, dk, dv, steps, first_key + warp * 16, warp_row, lane);
}

} // namespace sm90_bwd
