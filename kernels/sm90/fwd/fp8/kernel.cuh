/* fused_sm90, forward of 8-bit inputs: FlashAttention with wgmma and TMA, for compute capability 9.0.
 *
 * O = softmax(scale Q K^T, masked) V, and LSE, where elements of Q, K and V are e4m3 or e5m2 times their scales. As the
 * 16-bit forward (kernels/sm90/fwd/kernel.cuh), whose work tiles, order of tiles and masks it has: a persistent thread
 * block on each multiprocessor; keys from the highest block to block 0; consumer warpgroups of 64 rows each with S, P
 * and O in registers. What is different:
 *
 *   the first warpgroup   one thread loads Q, K and V (producer.cuh); three warps transpose V in shared memory, as both
 *                         operands of a product of 8-bit numbers have to be k-major (transpose.cuh)
 *   P                     is rounded to 8 bits, in registers, in the order of keys that V transposed has
 *   sums                  wgmma keeps sums of 8-bit products in fewer bits than fp32. By default the product of P and a
 *                         block of 128 keys begins at zero and is added to O in fp32, by the instruction that
 *                         multiplies O with 2^(m - m'); a request that is `fast` has O summed by wgmma. What either
 *                         costs: docs/kernels/sm90_fp8.md.
 *   scales                of Q and K are part of the softmax's, that of V of the division at the end. With scales of
 *                         blocks O is kept in units of the scale of its newest block of V. */
#pragma once
#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/sm90/fwd/fp8/consumer.cuh"
#include "kernels/sm90/fwd/fp8/producer.cuh"
#include "kernels/sm90/fwd/fp8/transpose.cuh"

namespace sm90_fp8 {

template <typename Tile> __device__ __forceinline__ void init_barriers(SharedStorage<Tile> &smem)
{
    constexpr int CONSUMER_WARPS = Traits<Tile>::CONSUMERS * 4;
    for (int i = 0; i < Q_STAGES; ++i) {
        mbarrier_init(shared_address(&smem.q_full[i]), 1);
        mbarrier_init(shared_address(&smem.work_tile_full[i]), 1);
        mbarrier_init(shared_address(&smem.q_empty[i]), CONSUMER_WARPS + TRANSPOSERS);
    }
    for (int i = 0; i < Tile::K_STAGES; ++i) {
        mbarrier_init(shared_address(&smem.k_full[i]), 1);
        mbarrier_init(shared_address(&smem.k_empty[i]), CONSUMER_WARPS);
    }
    for (int i = 0; i < Tile::RAW_STAGES; ++i) {
        mbarrier_init(shared_address(&smem.raw_full[i]), 1);
        mbarrier_init(shared_address(&smem.raw_empty[i]), TRANSPOSERS);
    }
    for (int i = 0; i < Tile::V_STAGES; ++i) {
        mbarrier_init(shared_address(&smem.v_full[i]), TRANSPOSERS);
        mbarrier_init(shared_address(&smem.v_empty[i]), CONSUMER_WARPS);
    }
    mbarrier_init_fence();
}

template <typename T, typename Tile>
__global__ void __launch_bounds__(Traits<Tile>::THREADS, 1) fused_fp8_kernel(const __grid_constant__ Params params)
{
    using S = Traits<Tile>;
    extern __shared__ char shared[];
    SharedStorage<Tile> &smem = *reinterpret_cast<SharedStorage<Tile> *>(shared);
    const int warp = keep_uniform(threadIdx.x / 32), warpgroup = warp / 4;

    if (warp == 0 && elect_one()) {
        init_barriers(smem);
        tma_prefetch_map(&params.dense.q);
        tma_prefetch_map(&params.dense.k);
        tma_prefetch_map(&params.dense.v);
        tma_prefetch_map(&params.dense.o);
    }
    __syncthreads();
    if (warpgroup == 0) {
        registers_decrease<S::PRODUCER_REGISTERS>();
        if (warp > 0)
            transpose(smem, warp - 1);
        else if (elect_one())
            produce(smem, params);
    } else {
        registers_increase<S::CONSUMER_REGISTERS>();
        consume<T, Tile>(smem, params, warpgroup - 1);
    }
}

} // namespace sm90_fp8
