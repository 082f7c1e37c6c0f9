/* The dQ warpgroup of a block of a pair (pair.cuh): half of dQ of each step for the keys of both blocks, one pass
 * of 64 x 64, which is added to dq_sum from registers. Its first warp is the producer as well. */
#pragma once

#include "kernels/sm90/bwd/dq_warpgroup.cuh"
#include "kernels/sm90/bwd/pair.cuh"
#include "kernels/sm90/bwd/zeros.cuh"

namespace sm90_bwd {

template <typename T, typename Tile, int RANK>
__device__ __forceinline__ void dq_warpgroup_of_pair(Smem<Tile> &smem, const Params &params)
{
    using S = Traits<Tile>;
    const int warp = keep_uniform(threadIdx.x / LANES), lane = threadIdx.x % LANES;
    /* Operands of wgmma: the panels of the first K and dS that belong to this half, and those of the other block. */
    constexpr int K_PANEL = S::Q_PANELS == 1 ? RANK : 0, DS_PANEL = S::Q_PANELS == 1 ? 0 : RANK;
    const uint32_t first_k =
        keep_uniform(wgmma_mn_major(shared_address(smem.keys[0]) + K_PANEL * S::KV_PANEL_BYTES, S::KV_PANEL_BYTES));
    const uint32_t first_ds =
        keep_uniform(wgmma_mn_major(shared_address(smem.ds[0]) + DS_PANEL * S::KV_PANEL_BYTES, S::KV_PANEL_BYTES));
    const uint32_t other_k = keep_uniform(wgmma_mn_major(shared_address(smem.dq.other_k), S::KV_PANEL_BYTES));
    const uint32_t first_other_ds =
        keep_uniform(wgmma_mn_major(shared_address(smem.dq.other_ds[0]), S::KV_PANEL_BYTES));
    const auto slot_of = [](uint32_t work) -> PipelineState<S::WORK_SLOTS> {
        return {int(work % S::WORK_SLOTS), work / S::WORK_SLOTS % 2};
    };
    uint32_t works = 0; /* how many work tiles the block has had; a count takes fewer registers than a PipelineState */
    Producer<Tile, RANK, false> producer;
    int step = 0; /* of all work tiles */

    if (threadIdx.x == 0) { /* dS of the first two steps from the other block */
        for (int i = 0; i < 2; ++i)
            mbarrier_arrive_expect(shared_address(&smem.pair.ds_received[i]), S::KV_PANEL_BYTES);
    }
    if (warp == 0)
        producer.begin(smem, params);
    else
        grid_wait_for_last(); /* for the zeros in dq_sum */
#pragma unroll 1
    for (;;) {
        if (warp == 0)
            producer.finish_work(smem, params, slot_of(works - 1), step);
        const PipelineState<S::WORK_SLOTS> slot = slot_of(works++);
        mbarrier_wait_together(shared_address(&smem.k_full[slot.stage]), slot.phase);
        const WorkTile &work = smem.work[slot.stage];
        const int steps = keep_uniform(work.steps), end = step + steps;
        if (steps == NO_WORK)
            break;
        if (warp > 0)
            write_zeros<Tile>(params, work, warp, lane);
        int in_head = keep_uniform(work.begin_tile - work.first_tile[0]); /* steps of the same head after this one */
        int tile = keep_uniform(
            tile_index<Tile>(params, work.batch, work.kv_head * params.group + work.first_head, work.begin_tile));
        const uint32_t k = keep_uniform(first_k + k_area<Tile>(slot.stage) * (S::KV_BYTES / 16));
        mbarrier_wait_together(shared_address(&smem.v_full[slot.stage]), slot.phase); /* the other block's K */
#pragma unroll 1
        for (; step < end; ++step) {
            if (warp == 0)
                producer.look_ahead(smem, params, slot);
            const int buffer = step % 2;
            mbarrier_wait_together(shared_address(&smem.ds_full[buffer]), step / 2 % 2);
            if (!S::V_IN_REGISTERS && warp == 0 && step == end - 1)
                producer.load_next_k(smem, params, slot);
            float dq[32];
            start_dq<T>(dq, first_ds + buffer * (S::DS_BYTES / 16), forget(k), false);
            if (warp == 0 && RANK == DOUT_LOADER)
                producer.load_next(smem, params, step + producer.STAGES + 1);
            __syncwarp();
            mbarrier_wait_together(shared_address(&smem.pair.ds_received[buffer]), step / 2 % 2);
            start_dq<T>(dq, first_other_ds + buffer * (S::KV_PANEL_BYTES / 16), forget(other_k), true);
            if (warp == 0 && RANK == Q_LOADER)
                producer.load_next(smem, params, step + producer.STAGES + 1, false);
            __syncwarp();
            wgmma_wait<0>();
            wgmma_hold(dq);
            if (lane == 0) { /* dS of both blocks */
                const uint32_t empty = shared_address(&smem.ds_empty[buffer]);
                mbarrier_arrive(empty);
                mbarrier_arrive_in_cluster(address_in_block(empty, 1 - RANK));
            }
            if (warp == 0 && elect_one())
                mbarrier_arrive_expect(shared_address(&smem.pair.ds_received[buffer]), S::KV_PANEL_BYTES);
            add_dq<Tile>(dq, params, tile, RANK, warp, forget(lane)); /* a kept address would take registers */
            if (warp == 0 && RANK == Q_LOADER) {
                producer.load_next(smem, params, step + producer.STAGES + 1);
                __syncwarp();
            }
            --tile;
            if (--in_head < 0) { /* the next head */
                in_head = Tile::Work::last_tile(params, work.begin_tile) - keep_uniform(work.first_tile[0]);
                tile += head_tiles<Tile>(params) + in_head + 1;
            }
        }
        __syncwarp();
        if (lane == 0)
            release_work(smem, slot.stage);
    }
}

} // namespace sm90_bwd
