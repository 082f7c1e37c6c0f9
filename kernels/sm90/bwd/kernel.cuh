/* fused_sm90, backward: FlashAttention-2's backward (Dao 2023, algorithm 2) on wgmma and TMA, compute capability 9.0.
 * Three kernels, each of which starts while the one before it ends; ahead of them, with packed lengths or a block mask,
 * those of kernels/family/schedule.cu:
 *   preprocess  lse2 = LSE * log2 e (bf16: minus 12, so that P is 2^12 times as large) and -D = -rowsum(dO * O) of
 *               every query; zeros in dq_sum, the fp32 sums of dQ (of later heads: zeros.cuh); the
 *               list of work tiles
 *   backward    a block has 128 keys of a kv head and goes through the tiles of queries of all query heads of its
 *               group, the last tile first: recomputes P, keeps dK and dV in registers, adds its part to dq_sum
 *   convert     dQ = dqk_scale * dq_sum, rounded
 * This file has the set-up of the second one; tiles.cuh has the table of tiles. A block's first warpgroup loads
 * (producer.cuh) and computes dQ (dq_warpgroup.cuh; of a pair of blocks dq_pair.cuh). Where few queries see
 * many keys another kernel may be chosen (few_queries.cuh). The order of the steps, what is in shared memory, what
 * must not be reordered: docs/kernels/sm90_bwd.md. */
#pragma once
#include "kernels/sm90/bwd/params.h"

#include "kernels/device/barriers.cuh"
#include "kernels/device/grid_order.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/sm90/bwd/dq_pair.cuh"
#include "kernels/sm90/bwd/dq_warpgroup.cuh"
#include "kernels/sm90/bwd/few_queries.cuh"
#include "kernels/sm90/bwd/kv_short_steps.cuh"
#include "kernels/sm90/bwd/kv_warpgroup.cuh"

namespace sm90_bwd {

template <typename Tile, bool DETERMINISTIC>
__global__ void __launch_bounds__(Traits<Tile>::THREADS, 1) backward(const __grid_constant__ Params params)
{
    using S = Traits<Tile>;
    using T = typename Tile::Element;
    extern __shared__ __align__(1024) unsigned char s_bytes[];
    Smem<Tile> &smem = *keep_shared_uniform<Smem<Tile>>(s_bytes);
    constexpr unsigned CLUSTER = S::CLUSTER;
    const int warpgroup = keep_uniform(threadIdx.x / WARPGROUP);

    grid_let_next_start();
    const WorkPlace at = work_place<DETERMINISTIC>(params, blockIdx.x / CLUSTER);
    KvPart first = {at.place, 0}; /* of the block; in a loop the first tiles have no parts */
    if constexpr (!S::TAKES_MORE && Tile::Work::IS_DENSE) {
        static_assert(sizeof(smem.dq) >= (SM90_BWD_MOST_SEARCHED_TILES + 2) * sizeof(int), "of find_part");
        if (!DETERMINISTIC && params.part_kind == SM90_BWD_WHOLE_PARTS)
            first = find_part<Tile::Q_TILE>(reinterpret_cast<int *>(&smem.dq), params, at.place);
        else if (threadIdx.x == 0)
            first = equal_part<Tile::Q_TILE>(params, at.place);
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::WORK_SLOTS; ++i) {
            mbarrier_init(shared_address(&smem.k_full[i]), 1);
            mbarrier_init(shared_address(&smem.v_full[i]), 1);
        }
        for (int i = 0; i < S::STAGES; ++i) {
            mbarrier_init(shared_address(&smem.full[i]), 1);
            mbarrier_init(shared_address(&smem.empty[i]), CLUSTER * S::KV_WARPS);
        }
        mbarrier_init(shared_address(&smem.first_stats_full), 1);
        for (int i = 0; i < 2; ++i) {
            mbarrier_init(shared_address(&smem.ds_full[i]), S::KV_WARPS);
            mbarrier_init(shared_address(&smem.ds_empty[i]), CLUSTER * S::DQ_WARPS);
        }
        if constexpr (S::IS_PAIR) {
            for (int i = 0; i < S::DOUT_STAGES; ++i) {
                mbarrier_init(shared_address(&smem.pair.dout_full[i]), 1);
                mbarrier_init(shared_address(&smem.pair.dout_empty[i]), CLUSTER * S::KV_WARPS);
                mbarrier_init(shared_address(&smem.pair.ds_received[i]), 1);
            }
        }
        if (S::TAKES_MORE) {
            mbarrier_init(shared_address(&smem.work_full), 1);
            mbarrier_init(shared_address(&smem.operands_full), S::KV_WARPS);
            for (int i = 0; i < S::WORK_SLOTS; ++i)
                mbarrier_init(shared_address(&smem.work_empty[i]),
                              (blockIdx.x % CLUSTER == 0 ? CLUSTER : 1) * (S::KV_WARPS + S::DQ_WARPS));
            for (int i = 0; i < S::KV_WARPS; ++i)
                smem.kv_work[i] = 0;
        }
        mbarrier_init_fence();
        if constexpr (!Tile::Work::IS_DENSE)
            smem.work[0] = Tile::Work::template work_tile<Tile>(params, blockIdx.x);
        else
            smem.work[0] = work_tile<Tile::Q_TILE>(params, at.head, first, blockIdx.x / CLUSTER);
        if (S::TAKES_MORE && !DETERMINISTIC)
            smem.work[0].section = at.head / params.section_heads;
    }
    __syncthreads();
    if (S::IS_PAIR)
        cluster_sync();
    /* Packed sequences may have fewer work tiles than there are blocks: then none is left for this one. */
    if ((!S::TAKES_MORE || !Tile::Work::IS_DENSE) && smem.work[0].steps == SKIPPED)
        return;
    if (warpgroup == 0) {
        registers_decrease<S::DQ_REGISTERS>();
        if constexpr (!S::IS_PAIR)
            dq_warpgroup<T, Tile, DETERMINISTIC>(smem, params);
        else if (pair_rank() == 0)
            dq_warpgroup_of_pair<T, Tile, 0>(smem, params);
        else
            dq_warpgroup_of_pair<T, Tile, 1>(smem, params);
    } else {
        registers_increase<S::KV_REGISTERS>();
        if constexpr (S::HAS_SHORT_STEPS) {
            kv_warpgroup_short_steps<T>(smem, params, warpgroup - 1);
        } else {
            kv_warpgroup<T>(smem, params, warpgroup - 1);
        }
    }
    if (S::IS_PAIR)
        cluster_sync(); /* until then the other block may arrive at barriers of this one */
}

} // namespace sm90_bwd
