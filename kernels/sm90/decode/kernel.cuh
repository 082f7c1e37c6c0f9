/* fused_sm90, decode: a few new rows of each sequence against the keys of its cache, limited by the speed of the memory
 * (split-KV of FlashDecoding, Dao et al. 2023), with wgmma and TMA, for compute capability 9.0.
 *
 * A persistent thread block on each multiprocessor has an equal share of all key tiles of all sequences and heads
 * (work.h). Its producer warp finds the share from the lengths of the caches and has tiles of K and V brought to a
 * circular buffer of some 200 KB, which it keeps full across parts. Its consumer warpgroup computes one tile after
 * the other, step behind step; a tile takes it about as long as its bytes need. The 64 rows of a product are the query
 * heads of a group, times the new tokens.
 *
 *   producer                                         consumer
 *     for each part                                    for each part
 *       its rows of Q                                    for each tile: S = Q K^T, P = exp(S), O += P V
 *       for each tile: pages, K, V                       whole item: O and LSE
 *                                                        else: O to the workspace; the last block adds up
 *
 * What must not arrive: NaN behind a cache's end. Scores of these keys are replaced by -inf and rows of V by zeros.
 * Pages without a key of the sequence are neither looked up nor read.
 *
 * Files: work.h (shares of blocks), walk.cuh (finding them), rows.cuh (rows of a tile), producer.cuh, consumer.cuh,
 * combine.cuh, tiles.cuh (sizes, shared memory), instances/ (what is compiled), host.c. Measurements:
 * docs/kernels/sm90_decode.md. */
#pragma once
#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/sm90/decode/consumer.cuh"
#include "kernels/sm90/decode/producer.cuh"

namespace sm90_decode {

template <typename T, typename Tile>
__global__ void __launch_bounds__(THREADS, 1) fused_decode_kernel(const __grid_constant__ Params params)
{
    extern __shared__ char shared[];
    SharedStorage<Tile> &smem = *reinterpret_cast<SharedStorage<Tile> *>(shared);
    const int warp = keep_uniform(threadIdx.x / 32);

    if (warp == CONSUMER_WARPS && elect_one()) {
        for (int i = 0; i < Q_STAGES; ++i) {
            mbarrier_init(shared_address(&smem.q_full[i]), 1);
            mbarrier_init(shared_address(&smem.q_empty[i]), CONSUMER_WARPS);
        }
        for (int i = 0; i < Tile::SLOTS; ++i) {
            mbarrier_init(shared_address(&smem.kv_full[i]), 1);
            mbarrier_init(shared_address(&smem.kv_empty[i]), CONSUMER_WARPS);
        }
        mbarrier_init_fence();
        tma_prefetch_map(&params.q);
        tma_prefetch_map(&params.k);
        tma_prefetch_map(&params.v);
    }
    __syncthreads();
    if (warp == CONSUMER_WARPS)
        produce(smem, params, threadIdx.x % 32);
    else
        consume<T>(smem, params);
}

} // namespace sm90_decode
