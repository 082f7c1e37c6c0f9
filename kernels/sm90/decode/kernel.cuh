/* fused_sm90, decode: a few new rows of each sequence against the keys of its cache, limited by the speed of the memory
 * (split-KV of FlashDecoding, Dao et al. 2023), with TMA, mma.sync and wgmma, for compute capability 9.0.
 *
 * A persistent thread block on each multiprocessor has an equal share of all key tiles of all sequences and heads
 * (kernels/family/decode_work.h). Its producer warps, one for Q and K and one for V, find the share from the lengths of
 * the caches and have tiles brought to a circular buffer of some 200 KB, which they keep full across parts. The query
 * rows of a tile are the query heads of a group, times the new tokens.
 *   16 rows or fewer   eight warps have keys of their own and are added up at the end of a part (few_rows.cuh). With a
 *                      cache of 8 bits they widen in registers. Where there is little to read a cluster of blocks
 *                      has each item, and nothing goes through the workspace.
 *   up to 64 rows      a warpgroup computes one tile after the other with wgmma. With a cache of 8 bits eight more
 *                      warps widen tiles to 16 bits, and the scores of the next tile are computed during the softmax.
 *
 *   producers                                        consumers
 *     for each part                                    for each part
 *       its rows of Q                                    for each tile: S = Q K^T, P = exp(S), O += P V
 *       for each tile: pages, K, V                       whole item: O and LSE
 *                                                        else: O to the workspace; the last block adds up
 *
 * What must not arrive: NaN behind a cache's end. Scores of these keys are replaced by -inf and rows of V by zeros.
 * Pages without a key of the sequence are neither looked up nor read.
 *
 * Files: kernels/family/decode_work.h (shares of blocks), ragged.h (the same of packed rows and in the invariant mode),
 * walk.cuh (finding them), rows.cuh (rows of a tile), producer.cuh, few_rows.cuh, consumer.cuh (64 rows), widen.cuh (8
 * bits), combine.cuh, leaves.cuh (the invariant mode), tiles.cuh (sizes, shared memory), instances/ (what is compiled),
 * host.c, chunk.h (chunks of a prefill, by the forward). Measurements: docs/kernels/sm90_decode.md. */
#pragma once
#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/sm90/decode/consumer.cuh"
#include "kernels/sm90/decode/few_rows.cuh"
#include "kernels/sm90/decode/leaves.cuh"
#include "kernels/sm90/decode/producer.cuh"
#include "kernels/sm90/decode/widen.cuh"

namespace sm90_decode {

/* The barriers of Q and of the tiles that the products read. */
template <typename Tile>
__device__ __forceinline__ void init_barriers(SharedStorage<Tile> &smem, const Params &params, int q_readers,
                                              int kv_writers, int kv_readers = CONSUMER_WARPS)
{
    for (int i = 0; i < Q_STAGES; ++i) {
        mbarrier_init(shared_address(&smem.q_full[i]), 1);
        mbarrier_init(shared_address(&smem.q_empty[i]), q_readers);
    }
    for (int i = 0; i < Tile::SLOTS; ++i) {
        mbarrier_init(shared_address(&smem.kv_full[i]), kv_writers);
        mbarrier_init(shared_address(&smem.kv_empty[i]), kv_readers);
    }
    mbarrier_init_fence();
    tma_prefetch_map(&params.q);
    tma_prefetch_map(&params.k);
    tma_prefetch_map(&params.v);
}

template <typename T, typename Tile>
__device__ __forceinline__ void consume_all(SharedStorage<Tile> &smem, const Params &params)
{
    if constexpr (Tile::IS_INVARIANT)
        consume_leaves<T>(smem, params);
    else
        consume<T>(smem, params);
}

template <typename T, typename Tile>
__global__ void __launch_bounds__(THREADS, 1) fused_decode_kernel(const __grid_constant__ Params params)
{
    extern __shared__ char shared[];
    SharedStorage<Tile> &smem = *reinterpret_cast<SharedStorage<Tile> *>(shared);
    const int warp = keep_uniform(threadIdx.x / 32), first_used = used_of(params, threadIdx.x % 32);

    if (warp == CONSUMER_WARPS && elect_one())
        init_barriers(smem, params, CONSUMER_WARPS, 1);
    __syncthreads();
    if (warp >= CONSUMER_WARPS)
        produce<Tile>(smem, smem, params, warp > CONSUMER_WARPS, threadIdx.x % 32, first_used);
    else
        consume_all<T>(smem, params);
}

/* Of few query rows, and a cache of 16 or of 8 bits. */
template <typename Tile> constexpr int FEW_ROWS_THREADS = 32 * Tile::WARPS + 128; /* the last ones: the producers */
constexpr int FEW_ROWS_REGISTERS = 224;
constexpr int FEW_ROWS_PRODUCER_REGISTERS = 56; /* 512 or fewer in all */

template <typename T, typename Tile>
__global__ void __launch_bounds__(FEW_ROWS_THREADS<Tile>, 1)
    fused_decode_few_rows_kernel(const __grid_constant__ Params params)
{
    extern __shared__ char shared[];
    FewRowsStorage<Tile> &smem = *reinterpret_cast<FewRowsStorage<Tile> *>(shared);
    const int warp = keep_uniform(threadIdx.x / 32),
              first_used = used_of(params, Tile::IS_CLUSTER ? cluster_item(params).sequence : int(threadIdx.x % 32));

    if (warp == Tile::WARPS && elect_one())
        init_barriers(smem.tiles, params, Tile::WARPS, 1, Tile::GROUP_WARPS);
    if constexpr (Tile::IS_CLUSTER)
        if (warp == Tile::WARPS + PRODUCER_WARPS && elect_one()) {
            expect_parts(smem, params);
            prefetch_keys<Tile>(params);
        }
    clear_query(smem.tiles);
    __syncthreads();
    if (Tile::IS_CLUSTER)
        cluster_arrive();
    if (warp >= Tile::WARPS) {
        registers_decrease<FEW_ROWS_PRODUCER_REGISTERS>();
        if (warp < Tile::WARPS + PRODUCER_WARPS)
            produce<Tile>(smem.tiles, smem.tiles, params, warp > Tile::WARPS, threadIdx.x % 32, first_used);
        if (Tile::IS_CLUSTER)
            cluster_wait();
        return;
    }
    registers_increase<FEW_ROWS_REGISTERS>();
    if (Tile::IS_8_BIT && params.cache_is_e5m2)
        consume_few<T, __nv_fp8_e5m2>(smem, params);
    else
        consume_few<T, __nv_fp8_e4m3>(smem, params); /* or 16 bits */
}

/* Of a cache with 8 bits. */
template <typename T, typename Tile>
__global__ void __launch_bounds__(THREADS_8_BIT, 1) fused_decode_8_bit_kernel(const __grid_constant__ Params params)
{
    extern __shared__ char shared[];
    SharedStorage8Bit<Tile> &smem = *reinterpret_cast<SharedStorage8Bit<Tile> *>(shared);
    const int warp = keep_uniform(threadIdx.x / 32), first_used = used_of(params, threadIdx.x % 32);

    if (warp == CONSUMER_WARPS && elect_one()) {
        for (int i = 0; i < Tile::LOAD_SLOTS; ++i) {
            mbarrier_init(shared_address(&smem.loaded.kv_full[i]), 1);
            mbarrier_init(shared_address(&smem.loaded.kv_empty[i]), WIDENING_WARPS);
        }
        init_barriers(smem.wide, params, CONSUMER_WARPS + 2 * WIDENING_WARPS, WIDENING_WARPS);
    }
    __syncthreads();
    if (warp < CONSUMER_WARPS) {
        registers_increase<CONSUMER_REGISTERS>();
        consume_all<T>(smem.wide, params);
    } else if (warp < FIRST_WIDENING_WARP) {
        registers_decrease<PRODUCER_REGISTERS>();
        if (warp < CONSUMER_WARPS + PRODUCER_WARPS)
            produce<Tile>(smem.wide, smem.loaded, params, warp > CONSUMER_WARPS, threadIdx.x % 32, first_used);
    } else {
        const int widening = warp - FIRST_WIDENING_WARP;
        registers_decrease<WIDENING_REGISTERS>();
        widen<T>(smem, params.cache_is_e5m2, widening >= WIDENING_WARPS, widening % WIDENING_WARPS, threadIdx.x % 32);
    }
}

} // namespace sm90_decode
