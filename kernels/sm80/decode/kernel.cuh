/* fused_sm80, decode: a few new rows of each sequence against the keys of its cache, limited by the speed of the memory
 * (split-KV of FlashDecoding, Dao et al. 2023), with mma.sync and cp.async, for compute capability 8.0 and newer.
 *
 * A persistent thread block on each multiprocessor has an equal share of all key tiles of all sequences and heads
 * (kernels/family/decode_work.h). Four warps find the share from the lengths of the caches and copy tiles of K and V to
 * a circular buffer of all the shared memory that is left, which they keep full across parts; four or eight warps
 * compute one tile after the other. The rows of a product are the query heads of a group, times the new tokens, 16 of
 * them to a warp: up to 16 rows the warps have different keys of a tile and are added up at the end of a part; up to 64
 * rows four warps have different rows.
 *
 *   producers                                        consumers
 *     for each part                                    for each part
 *       its rows of Q                                    for each tile: S = Q K^T, P = exp(S), O += P V
 *       for each tile: pages, K, V                       whole item: O and LSE
 *                                                        else: O to the workspace; the last block adds up
 *
 * What must not arrive: NaN behind a cache's end. Rows without a key of the sequence are not read; zeros stand in for
 * them, and their scores are replaced by -inf. Pages without such a key are not looked up.
 *
 * Files: rows.cuh (rows of a tile), walk.cuh (finding a block's share), producer.cuh, consumer.cuh, output.cuh,
 * combine.cuh, tiles.cuh (sizes, shared memory), instances/ (what is compiled), host.c. Measurements:
 * docs/kernels/sm80_decode.md. */
#pragma once
#include "kernels/device/barriers.cuh"
#include "kernels/sm80/decode/consumer.cuh"
#include "kernels/sm80/decode/producer.cuh"

namespace sm80_decode {

template <typename T, typename Tile>
__global__ void __launch_bounds__(Tile::THREADS, 1) fused_decode_kernel(const __grid_constant__ Params params)
{
    extern __shared__ char shared[];
    SharedStorage<Tile> &smem = *reinterpret_cast<SharedStorage<Tile> *>(shared);

    if (threadIdx.x == 0) {
        for (int i = 0; i < Q_STAGES; ++i) {
            mbarrier_init(shared_address(&smem.q_full[i]), PRODUCER_THREADS + 1); /* one more for smem.part */
            mbarrier_init(shared_address(&smem.q_empty[i]), Tile::CONSUMER_WARPS);
        }
        for (int i = 0; i < params.slots; ++i) {
            mbarrier_init(shared_address(&smem.kv_full[i]), PRODUCER_THREADS);
            mbarrier_init(shared_address(&smem.kv_empty[i]), Tile::CONSUMER_WARPS);
        }
    }
    __syncthreads();
    if (threadIdx.x >= Tile::CONSUMER_THREADS)
        produce<T>(smem, params, threadIdx.x - Tile::CONSUMER_THREADS);
    else
        consume<T>(smem, params);
}

} // namespace sm80_decode
