/* fused_sm90, forward: FlashAttention (Dao 2023, algorithm 1) with wgmma and TMA, for compute capability 9.0.
 *
 * O = softmax(scale Q K^T, masked) V, and LSE. A persistent thread block on each multiprocessor takes work tiles of
 * BLOCK_M rows of one head. Two threads of its first warpgroup are producers (TMA); two to four warpgroups are
 * consumers of 64 rows each, with S, P and O in registers. Where two consumers have the same rows (KEY_SPLITS 2) each
 * takes half of every block of keys. Keys are read from the highest block to block 0, so that masked ones come first.
 *
 *   producers, ahead of the consumers              consumer (64 rows, n = number of the block of keys)
 *   by the stages that are free                      S = Q K_high^T; P = exp(S)
 *     Q K_high .. K_1 K_0 Q' K'_high ..              for n = high - 1 .. 0
 *       (next tile taken before K_1)                   wait for the ping-pong; issue S' = Q K_n^T
 *     V_high .. V_1 V_0 V'_high ..                     BEFORE_EXP: rescale O if its row max moved a block ago, and take
 *                                                      rounding errors of largest weights out (correct_largest)
 *                                                      issue O += P V_{n+1}
 *                                                      wait for S'; pass the ping-pong on; mask S'
 *                                                      BEFORE_EXP: row max of S' while O += P V still runs
 *                                                      wait for O; P = 2^(c S' - m)
 *                                                      AFTER_EXP: where P is too large, row max of S', rescale O, P
 *                                                      once more; V has a column of ones for the sum of the rounded P
 *                                                      every 384 to 1024 keys: rounding errors taken out of O, where
 *                                                      scores are spread widely (cancel_rounding)
 *                                                    BEFORE_EXP: rescale O if its row max moved in block 0
 *                                                    O += P V_0; epilogue: O / row sum, LSE
 *
 * Ping-pong: consumers issue their products one after the other, so that the products of one run beside the
 * exponentials of another. There is none in causal tiles whose consumers skip different blocks (ROTATES_ROWS).
 *
 * What must not be reordered, and why: docs/kernels/sm90_fwd.md.
 *
 * Parts: without a mask the keys of the last work tiles may be shared out to several thread blocks, so that all
 * multiprocessors finish at about the same time. A part is a work tile of fewer blocks of keys, whose O, row max and
 * row sum go to the workspace; combine.cu puts the parts together.
 *
 * Pairs: in long launches two thread blocks of adjacent rows load keys for each other (pair.cuh), which costs less
 * energy.
 *
 * Halves: for block masks at head_dim 64 a thread block has two work tiles at a time (HALVES in tiles.cuh). Warps 0 and
 * 1 produce for the first, 2 and 3 for the second, whose consumers come behind those of the first.
 *
 * Files: policies.cuh (which rows and keys there are, which pairs are visible), ranges.cuh (windows, lengths),
 * lists.cuh (block masks), softcap.cuh, tiles.cuh (tiles, the order of the main loop, shared memory), work.cuh (order
 * of work tiles), tail.c (parts of the last ones), pair.cuh, producer.cuh, consumer.cuh, mainloop.cuh, softmax.cuh,
 * rounding.cuh, epilogue.cuh, combine.cu, instances/ (what is compiled), host.c (choice of the tile, launches). With
 * pictures, sizes and measurements: docs/kernels/sm90_fwd.md. */
#pragma once
#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/sm90/fused_sm90.h"
#include "kernels/sm90/fwd/consumer.cuh"
#include "kernels/sm90/fwd/producer.cuh"

namespace sm90_fwd {

template <typename T, typename Tile, bool PING_PONG>
__global__ void __launch_bounds__(Traits<Tile>::THREADS, 1) fused_fwd_kernel(const __grid_constant__ Params params)
{
    using S = Traits<Tile>;
    extern __shared__ char shared[];
    constexpr bool HAS_PARTS = TAKES_PARTS<Tile, PING_PONG>, HAS_HALVES = Tile::HALVES == 2;
    const int warp = keep_uniform(threadIdx.x / 32), warpgroup = warp / 4;
    const int half = !HAS_HALVES ? 0 : warpgroup == 0 ? warp / 2 : (warpgroup - 1) / S::CONSUMERS;
    SharedStorage<Tile> &smem = reinterpret_cast<SharedStorage<Tile> *>(shared)[half];
    static_assert(!HAS_HALVES || (!PING_PONG && !Tile::Work::IS_DENSE), "named barriers, numbers of work tiles");
    static_assert(!S::HAS_SUM_COLUMN || offsetof(SharedStorage<Tile>, ones) % 1024 == 0, "panels begin on 1024 bytes");

    if (warp == 2 * half && elect_one()) {
        constexpr int CONSUMER_WARPS = S::CONSUMERS * 4;
        /* First the barriers of the prologue's loads, then these loads, then the other barriers. */
        mbarrier_init(shared_address(&smem.q_full[0]), 1);
        mbarrier_init(shared_address(&smem.k_full[0]), 1);
        mbarrier_init(shared_address(&smem.v_full[0]), 1);
        mbarrier_init_fence();
        WorkTileOf<Tile> first_tile;
        if constexpr (Tile::Work::IS_DENSE)
            first_tile = load_prologue<Tile>(smem, params);
        for (int i = 0; i < Q_STAGES; ++i) {
            if (i > 0)
                mbarrier_init(shared_address(&smem.q_full[i]), 1);
            mbarrier_init(shared_address(&smem.work_tile_full[i]), 1);
            mbarrier_init(shared_address(&smem.q_empty[i]), CONSUMER_WARPS + 1); /* produce_v */
        }
        for (int i = 0; i < Tile::STAGES; ++i) {
            if (i > 0) {
                mbarrier_init(shared_address(&smem.k_full[i]), 1);
                mbarrier_init(shared_address(&smem.v_full[i]), 1);
            }
            mbarrier_init(shared_address(&smem.k_empty[i]), CONSUMER_WARPS);
            mbarrier_init(shared_address(&smem.v_empty[i]), CONSUMER_WARPS);
        }
        if constexpr (S::IS_PAIR)
            init_pair(smem);
        mbarrier_init_fence();
        if constexpr (Tile::Work::IS_DENSE)
            publish_work_tile<Tile, HAS_PARTS>(smem, 0, first_tile, {0, -1});
        tma_prefetch_map(&params.o);
    }
    if (S::HAS_SUM_COLUMN && warpgroup == 1 + half * S::CONSUMERS)
        write_ones<T>(smem.ones, threadIdx.x % WARPGROUP);
    __syncthreads();
    if constexpr (S::IS_PAIR)
        cluster_sync();
    if (warpgroup == 0) {
        registers_decrease<S::PRODUCER_REGISTERS>();
        if (warp < 2 * Tile::HALVES && elect_one()) {
            if (warp != 2 * half)
                produce_v<Tile, HAS_PARTS>(smem, params);
            else if constexpr (!Tile::Work::IS_DENSE)
                produce_qk_of_ranges<Tile>(smem, params);
            else
                produce_qk<Tile, HAS_PARTS>(smem, params);
            if constexpr (S::IS_PAIR)
                leave_pair();
        }
    } else {
        registers_increase<S::CONSUMER_REGISTERS>();
        consume<T, Tile, PING_PONG>(smem, params, warpgroup - 1 - half * S::CONSUMERS);
        if constexpr (S::IS_PAIR)
            leave_pair();
    }
}

} // namespace sm90_fwd
