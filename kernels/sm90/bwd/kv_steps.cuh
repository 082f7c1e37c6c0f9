/* What both orders of work of a KV warpgroup of the sm_90 backward share (kv_warpgroup.cuh,
 * kv_short_steps.cuh): the way through the steps, P, handing over dS and stages, storing dK and dV. */
#pragma once

#include "kernels/device/barriers.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/sm90/bwd/kv_math.cuh"
#include "kernels/sm90/bwd/pair.cuh"
#include "kernels/sm90/bwd/softcap.cuh"

namespace sm90_bwd {

using namespace device;

/* wgmma operands: the warpgroup's keys in the first area; Q and dO of stage 0, as they are and transposed. */
struct Operands {
    uint32_t keys, q, dout, q_transposed, dout_transposed;
};

template <typename Tile> __device__ __forceinline__ Operands operands_of(Smem<Tile> &smem, int group_row)
{
    constexpr int Q_PANEL_BYTES = Traits<Tile>::Q_PANEL_BYTES;
    Operands operand;
    operand.keys = keep_uniform(wgmma_k_major(shared_address(smem.keys[0]) + group_row * ROW_BYTES));
    operand.q = keep_uniform(wgmma_k_major(shared_address(smem.q[0])));
    operand.dout = keep_uniform(wgmma_k_major(shared_address(smem.dout[0])));
    operand.q_transposed = keep_uniform(wgmma_mn_major(shared_address(smem.q[0]), Q_PANEL_BYTES));
    operand.dout_transposed = keep_uniform(wgmma_mn_major(shared_address(smem.dout[0]), Q_PANEL_BYTES));
    return operand;
}

template <typename Tile> struct Walk;

/* Of the warp's work tile: how many the block has had before; its slot; the parity of k_full and v_full. The count is
 * in shared memory, as registers are few. */
template <typename Tile> __device__ __forceinline__ int &work_count(Smem<Tile> &smem, const Walk<Tile> &at)
{
    return smem.kv_work[at.warp_row / 16];
}

template <typename Tile> __device__ __forceinline__ int work_slot(Smem<Tile> &smem, const Walk<Tile> &at)
{
    return Traits<Tile>::TAKES_MORE ? keep_uniform(work_count(smem, at)) % Traits<Tile>::WORK_SLOTS : 0;
}

template <typename Tile> __device__ __forceinline__ uint32_t work_phase(Smem<Tile> &smem, const Walk<Tile> &at)
{
    return Traits<Tile>::TAKES_MORE ? keep_uniform(work_count(smem, at)) / Traits<Tile>::WORK_SLOTS % 2 : 0;
}

/* Where a KV warpgroup is in the steps of its block: at one whose queries see any of its keys, or behind the last of a
 * work tile. Steps are counted over all work tiles. */
template <typename Tile> struct Walk {
    int group, warp, lane;
    int other;    /* a pair: the rank of the other block */
    int warp_row; /* the warp's first key, counted from the work tile's first */
    Operands operand;
    uint32_t k;    /* operand: the warpgroup's keys */
    int first_key; /* the warpgroup's, in its head */
    typename Tile::Work::Bounds bounds;
    int end, first_tile; /* behind the last step; the first tile of queries that the steps go through */
    int pass_limit;      /* which tiles see none of the warpgroup's keys (Work::passes_over) */
    PipelineState<Traits<Tile>::STAGES> pipeline;
    int tile, begin_tile; /* of queries; the work tile's first one */
    int step = 0;

    /* `group`: which of the KV warpgroups. */
    __device__ __forceinline__ Walk(Smem<Tile> &smem, int group) : group(group)
    {
        const int group_row = group * Traits<Tile>::GROUP_KEYS;
        warp = keep_uniform(threadIdx.x / LANES % 4);
        lane = threadIdx.x % LANES;
        if (Traits<Tile>::TAKES_MORE)
            lane = forget(lane); /* not computed again at every use */
        warp_row = group_row + warp * 16;
        if (Traits<Tile>::IS_PAIR)
            other = keep_uniform(1 - pair_rank());
        operand = operands_of(smem, group_row);
    }

    /* V as an operand, where it is one: in the other area. */
    __device__ __forceinline__ uint32_t v() const
    {
        constexpr uint32_t AREA = Traits<Tile>::KV_BYTES / 16;
        if (Traits<Tile>::CROSSES_WORK)
            return operand.keys + AREA;
        return Traits<Tile>::TAKES_MORE ? 2 * operand.keys + AREA - k : k + AREA;
    }

    /* Waits for the work tile and its K. False: there is no more work. */
    __device__ __forceinline__ bool begin_work(Smem<Tile> &smem, const Params &params)
    {
        const int slot = work_slot(smem, *this);
        const WorkTileOf<Tile> &tile_of_keys = smem.work[slot];

        mbarrier_wait(shared_address(&smem.k_full[slot]), work_phase(smem, *this));
        const int steps = keep_uniform(tile_of_keys.steps);
        end = step + steps;
        first_key = own_kv_tile<Tile>(tile_of_keys) * KV_TILE + group * Traits<Tile>::GROUP_KEYS;
        first_tile = keep_uniform(tile_of_keys.first_tile[0]);
        if constexpr (Traits<Tile>::IS_PAIR) {
            pass_limit = keep_uniform(Tile::Work::first_tile(params, first_key, Tile::Q_TILE));
            /* With another head behind it not more than one step is passed over: the next one that is visible must be
             * in shared memory beside the last. Others have weights of 0. */
            if (params.group > 1)
                pass_limit = min(pass_limit, first_tile + 1);
        } else {
            pass_limit = keep_uniform(Tile::Work::pass_limit(tile_of_keys, group));
        }
        tile = begin_tile = keep_uniform(tile_of_keys.begin_tile);
        bounds = Tile::Work::bounds(tile_of_keys, first_key);
        k = keep_uniform(operand.keys + k_area<Tile>(slot) * (Traits<Tile>::KV_BYTES / 16));
        return steps != NO_WORK;
    }

    /* Behind the last step of a work tile: goes on to the next one where it will be there without this step's dS, and
     * the warpgroup sees any of its queries. All warps of the warpgroup find the same. */
    __device__ __forceinline__ bool cross(Smem<Tile> &smem, const Params &params)
    {
        constexpr int SLOTS = Traits<Tile>::WORK_SLOTS;
        /* The next work tile has been found, and its first step asked for, behind dS of the last step but two. */
        constexpr int LEAST_STEPS = 3;
        if (step < end)
            return false;
        const int count = keep_uniform(work_count(smem, *this)), slot = (count + 1) % SLOTS;
        const WorkTileOf<Tile> &now = smem.work[count % SLOTS], &next = smem.work[slot];

        if (keep_uniform(now.number) >= params.early_tiles || keep_uniform(now.steps) < LEAST_STEPS)
            return false;
        mbarrier_wait(shared_address(&smem.k_full[slot]), (count + 1) / SLOTS % 2);
        const int steps = keep_uniform(next.steps), limit = keep_uniform(Tile::Work::pass_limit(next, group));
        if (steps <= 0 || Tile::Work::sees_none(group, limit))
            return false;
        end = step + steps;
        first_key = own_kv_tile<Tile>(next) * KV_TILE + group * Traits<Tile>::GROUP_KEYS;
        first_tile = keep_uniform(next.first_tile[0]);
        pass_limit = limit;
        tile = begin_tile = keep_uniform(next.begin_tile);
        bounds = Tile::Work::bounds(next, first_key);
        k = keep_uniform(operand.keys + k_area<Tile>(slot) * (Traits<Tile>::KV_BYTES / 16));
        return true;
    }

    __device__ __forceinline__ void advance(const Params &params)
    {
        ++step;
        pipeline.advance();
        if constexpr (Traits<Tile>::KV_READS_NOTES)
            return;
        if (--tile < first_tile)
            tile = Tile::Work::last_tile(params, begin_tile);
    }

    /* Goes on to the first step, the current one included, whose queries see any of the warpgroup's keys, and waits for
     * its data. The steps that it passes over are given their zeros by skip_steps later. */
    __device__ __forceinline__ void wait_next_visible(Smem<Tile> &smem, const Params &params)
    {
        if constexpr (Traits<Tile>::KV_READS_NOTES && !Tile::Work::HAS_LISTS) {
            /* The tile is noted once its data is there; for steps that are all passed over nobody waits here, as their
             * stages would have to be released in between. */
            const bool sees_none = Tile::Work::sees_none(group, pass_limit);
            while (step < end) {
                if (sees_none) {
                    advance(params);
                    continue;
                }
                mbarrier_wait(shared_address(&smem.full[pipeline.stage]), pipeline.phase);
                tile = keep_uniform(smem.work[0].noted[step % NOTED_STEPS].tile);
                if (!Tile::Work::passes_over(group, tile, pass_limit))
                    return;
                advance(params);
            }
        } else {
            while (step < end && Tile::Work::passes_over(group, tile, pass_limit))
                advance(params);
            if (step < end)
                mbarrier_wait(shared_address(&smem.full[pipeline.stage]), pipeline.phase);
        }
    }
};

/* Waits for the statistics of the block's first step, which come after Q and dO: the kernel before computes them. Has
 * to be called before the first statistics are read; later it does not wait. In a pair they come with Q and dO. */
template <typename Tile> __device__ __forceinline__ void wait_first_stats(Smem<Tile> &smem)
{
    if (!Traits<Tile>::IS_PAIR)
        mbarrier_wait(shared_address(&smem.first_stats_full), 0);
}

/* The address of a thread's row statistics in a stage: lse2 (row 0) or -D (row 1) of its first column. In a pair -D is
 * in a stage of dO. */
template <typename Tile>
__device__ __forceinline__ uint32_t stats_address(Smem<Tile> &smem, int stage, int row, int lane)
{
    if constexpr (Traits<Tile>::IS_PAIR)
        return shared_address(row == 0 ? smem.stats[stage] : smem.pair.neg_delta[stage]) + lane % 4 * 2 * sizeof(float);
    return shared_address(&smem.stats[stage][row * Tile::Q_TILE]) + lane % 4 * 2 * sizeof(float);
}

/* The stage of dO of a step, which is in `stage` of Q. */
template <typename Tile> __device__ __forceinline__ int dout_stage(int step, int stage)
{
    return Traits<Tile>::IS_PAIR ? step % 2 : stage;
}

/* A pair: waits for dO and -D of a step, or tells whether they are there. Others have them with Q. */
template <typename Tile> __device__ __forceinline__ void wait_dout(Smem<Tile> &smem, uint32_t step)
{
    if constexpr (Traits<Tile>::IS_PAIR)
        mbarrier_wait(shared_address(&smem.pair.dout_full[step % 2]), step / 2 % 2);
}

template <typename Tile> __device__ __forceinline__ bool test_dout(Smem<Tile> &smem, uint32_t step)
{
    if constexpr (Traits<Tile>::IS_PAIR)
        return mbarrier_test(shared_address(&smem.pair.dout_full[step % 2]), step / 2 % 2);
    return true;
}

/* Waits until the buffer for dS of `step` has been read, which was filled two steps ago. Returns the address of the
 * warp's rows in it. */
template <typename Tile> __device__ __forceinline__ uint32_t wait_ds_empty(Smem<Tile> &smem, int step, int warp_row)
{
    mbarrier_wait(shared_address(&smem.ds_empty[step % 2]), step / 2 % 2 ^ 1);
    return shared_address(smem.ds[step % 2]) + warp_row * ROW_BYTES;
}

/* dS of the warp's rows is stored. */
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

/* A pair, behind arrive_ds_full: sends the warp's rows of dS to the other block. */
template <typename Tile> __device__ __forceinline__ void send_ds(Smem<Tile> &smem, const Walk<Tile> &at, int step)
{
    if constexpr (Traits<Tile>::IS_PAIR) {
        if (elect_one())
            send_warp_ds(smem, step, at.warp_row, at.other);
    }
}

/* dS of the warp's rows is stored: announces it, and in a pair sends it. */
template <typename Tile> __device__ __forceinline__ void announce_ds(Smem<Tile> &smem, const Walk<Tile> &at, int step)
{
    arrive_ds_full(smem, step, at.lane);
    send_ds(smem, at, step);
}

/* Zeros as dS of a step whose queries see none of the warpgroup's keys. */
template <typename Tile> __device__ __forceinline__ void store_zero_ds(Smem<Tile> &smem, const Walk<Tile> &at, int step)
{
    const uint32_t ds = wait_ds_empty(smem, step, at.warp_row) + at.lane * 16;
    const float zeros[4] = {};
#pragma unroll
    for (int i = 0; i < Traits<Tile>::SCORES / 8; ++i)
        store_shared_float4(ds + i / 4 * Traits<Tile>::KV_PANEL_BYTES + i % 4 * (16 * ROW_BYTES / 4), zeros);
    announce_ds(smem, at, step);
}

template <typename Tile> __device__ __forceinline__ void release_stage(Smem<Tile> &smem, int stage, int lane)
{
    __syncwarp(); /* all lanes have read the statistics, and then executed the proxy fence of arrive_ds_full */
    if (Traits<Tile>::IS_PAIR && lane == 0)
        mbarrier_arrive_in_cluster(address_in_block(shared_address(&smem.empty[stage]), Q_LOADER));
    else if (!Traits<Tile>::IS_PAIR && lane == 0)
        mbarrier_arrive(shared_address(&smem.empty[stage]));
}

/* Steps whose queries see none of the warpgroup's keys. */
template <typename Tile>
__device__ __forceinline__ void skip_steps(Smem<Tile> &smem, const Walk<Tile> &at, int from, int to)
{
    for (; from < to; ++from) {
        mbarrier_wait(shared_address(&smem.full[from % Traits<Tile>::STAGES]), from / Traits<Tile>::STAGES % 2);
        wait_dout(smem, from);
        store_zero_ds(smem, at, from);
        release_stage(smem, from % Traits<Tile>::STAGES, at.lane);
    }
}

/* The tile of queries of the current step, for its masks. */
template <typename Tile>
__device__ __forceinline__ int masked_tile(Smem<Tile> &smem, const Params &params, const Walk<Tile> &at)
{
    if constexpr (Tile::Work::HAS_LISTS) /* for the diagonal alone */
        return params.causal ? keep_uniform(smem.work[0].noted[at.step % NOTED_STEPS].tile) : 0;
    return at.tile;
}

/* S of the current step to P in place. */
template <typename Tile>
__device__ __forceinline__ void compute_p(float (&s)[Traits<Tile>::SCORES], Smem<Tile> &smem, const Params &params,
                                          const Walk<Tile> &at, const FirstStats<Tile> &prefetched)
{
    scores_to_visible_p<Tile>(s, stats_address(smem, at.pipeline.stage, 0, at.lane), prefetched, params, at.bounds,
                              at.first_key, masked_tile(smem, params, at), at.warp, at.lane);
}

/* S to P: for dV rounded to T, if it has registers of its own (KEEPS_P); for dS in place, or with a slope in `next`, in
 * fp16, for which take_p has to be called when p_ds is free. */
template <typename T, typename Tile, int PAIRS, int NEXT>
__device__ __forceinline__ void compute_both_p(float (&s)[Traits<Tile>::SCORES], uint32_t (&p)[PAIRS],
                                               uint32_t (&next)[NEXT], Smem<Tile> &smem, const Params &params,
                                               const Walk<Tile> &at, const FirstStats<Tile> &prefetched)
{
    if constexpr (Traits<Tile>::HAS_SLOPE) {
        scores_to_visible_capped_p<T, Tile>(p, next, s, stats_address(smem, at.pipeline.stage, 0, at.lane), prefetched,
                                            params, at.bounds, at.first_key, masked_tile(smem, params, at), at.warp,
                                            at.lane);
    } else {
        compute_p(s, smem, params, at, prefetched);
        if constexpr (Traits<Tile>::KEEPS_P && !Tile::SCHEDULE.packs_p_last)
            pack<T>(p, s);
    }
}

template <typename Tile, int NEXT>
__device__ __forceinline__ void take_p(uint32_t (&p_ds)[Traits<Tile>::SCORES / 2],
                                       const float (&s)[Traits<Tile>::SCORES], const uint32_t (&next)[NEXT])
{
    if constexpr (!Traits<Tile>::HAS_SLOPE) {
        pack<__half>(p_ds, s);
    } else {
#pragma unroll
        for (int i = 0; i < NEXT; ++i)
            p_ds[i] = next[i];
    }
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
                                            const float (&dv)[Traits<Tile>::GRADIENTS], int slot, int slab, int lane)
{
    const WorkTileOf<Tile> &work = smem.work[slot];
    float *sums = params.kv_sums + kv_sums_offset<Tile::HEAD_DIM>(params, work.part, summed_tile<Tile>(params, work));
    store_part<Tile>(sums, dv, slab, lane);
    store_part<Tile>(sums + KV_TILE * Tile::HEAD_DIM, dk, slab, lane);
}

/* Stores a warp's rows of dK and dV by way of shared memory. */
template <typename T, typename Tile>
__device__ __forceinline__ void store_gradients(Smem<Tile> &smem, const Params &params,
                                                const float (&dk)[Traits<Tile>::GRADIENTS],
                                                const float (&dv)[Traits<Tile>::GRADIENTS], const Walk<Tile> &at)
{
    using S = Traits<Tile>;
    const int slot = work_slot(smem, at);
    const WorkTileOf<Tile> &work = smem.work[slot];
    int key = at.first_key + at.warp * 16;
    if constexpr (!Tile::Work::IS_DENSE) /* not kept in a register over the steps */
        key = own_kv_tile<Tile>(work) * KV_TILE + at.warp_row;

    if (S::TAKES_MORE) { /* where the next step's dS will be */
        const uint32_t rows = wait_ds_empty(smem, at.step, at.warp_row);
        if (S::Q_PANELS == 1) { /* dS has one panel, dV and dK have two each */
            store_gradient_slabs<T, Tile>(dv, params.dv_scale, rows, params.dv_rows, key, params, work, at.lane);
            store_gradient_slabs<T, Tile>(dk, params.dqk_scale, rows, params.dk_rows, key, params, work, at.lane);
            return;
        }
        store_gradient<T, Tile>(dv, params.dv_scale, rows, &params.dv, key, work, at.lane);
        store_gradient<T, Tile>(dk, params.dqk_scale, rows + S::KV_PANEL_BYTES, &params.dk, key, work, at.lane);
        return;
    }
    /* Where V and K are. The warpgroup's last products have read them: a wait is for the warp's own part of a
     * product. */
    bar_sync(1 + at.group, WARPGROUP);
    store_gradient<T, Tile>(dv, params.dv_scale,
                            shared_address(smem.keys[v_area<Tile>(slot)]) + at.warp_row * ROW_BYTES, &params.dv, key,
                            work, at.lane);
    if (at.step > 0) /* dQ of the last step has read K */
        mbarrier_wait(shared_address(&smem.ds_empty[(at.step - 1) % 2]), (at.step - 1) / 2 % 2);
    store_gradient<T, Tile>(dk, params.dqk_scale,
                            shared_address(smem.keys[k_area<Tile>(slot)]) + at.warp_row * ROW_BYTES, &params.dk, key,
                            work, at.lane);
}

template <int COUNT> __device__ __forceinline__ void clear(float (&dk)[COUNT], float (&dv)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        dk[i] = dv[i] = 0.0f;
}

/* At the end of a work tile: stores a part's sums, or dK and dV, and goes on to the next one. The stores may still be
 * reading shared memory (finish_stores) where the next K and V do not wait for that. */
template <typename T, typename Tile>
__device__ __forceinline__ void store_results(Smem<Tile> &smem, const Params &params,
                                              const float (&dk)[Traits<Tile>::GRADIENTS],
                                              const float (&dv)[Traits<Tile>::GRADIENTS], Walk<Tile> &at)
{
    const int slot = work_slot(smem, at);

    if (smem.work[slot].parts > 1)
        store_parts(smem, params, dk, dv, slot, at.warp_row / 16, at.lane);
    else
        store_gradients<T>(smem, params, dk, dv, at);
    if (Traits<Tile>::TAKES_MORE) {
        if (at.lane == 0) {
            int &count = work_count(smem, at);
            if (Traits<Tile>::CROSSES_WORK && count > 0) /* wait_stores has been called since then */
                release_work(smem, (count - 1) % Traits<Tile>::WORK_SLOTS);
            ++count;
        }
        __syncwarp();
    } else if (at.lane == 0) {
        tma_store_wait_read<0>(); /* shared memory must outlive the stores */
    }
}

/* Of blocks that cross to the next work tile, before each dS: waits as finish_stores does, mostly for nothing. All
 * lanes do, as a branch would keep registers. */
__device__ __forceinline__ void wait_stores()
{
    tma_store_wait_read<0>();
    __syncwarp();
}

/* Within the next work tile, or at the very end: waits until the warp's stores of dK and dV have read shared memory.
 * The warp then has finished with the last work tile. */
template <typename Tile> __device__ __forceinline__ void finish_stores(Smem<Tile> &smem, const Walk<Tile> &at)
{
    const int count = keep_uniform(work_count(smem, at));

    if (count > 0 && at.lane == 0) {
        tma_store_wait_read<0>();
        release_work(smem, (count - 1) % Traits<Tile>::WORK_SLOTS);
    }
    __syncwarp();
}

} // namespace sm90_bwd
