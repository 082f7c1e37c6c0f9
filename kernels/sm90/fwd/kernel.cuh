/* fused_sm90, forward: FlashAttention (Dao 2023, algorithm 1) with wgmma and TMA, for compute capability 9.0.
 *
 * O = softmax(scale Q K^T, masked) V, and LSE. A persistent thread block on each multiprocessor takes work tiles of
 * BLOCK_M rows of one head. Two threads of its first warpgroup are producers (TMA); two to four warpgroups are
 * consumers of 64 rows each, with S, P and O in registers. Where two consumers have the same rows (KEY_SPLITS 2) each
 * takes half of every block of keys. Keys are read from the last block to the first, so that masked blocks come first.
 *
 *   producers, ahead of the consumers              consumer (64 rows, n = number of the block of keys)
 *   by the stages that are free                      S = Q K_last^T; P = exp(S)
 *     Q K_last .. K_1 K_0 Q' K'_last ..              for n = last - 1 .. 0
 *       (next tile taken before K_1)                   wait for the ping-pong; issue S' = Q K_n^T
 *     V_last .. V_1 V_0 V'_last ..                     BEFORE_EXP: rescale O if its row max moved a block ago, and take
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
 * exponentials of another. There is none in causal tiles whose consumers skip different blocks (SKIPS_BLOCKS).
 *
 * What must not be reordered:
 *   - The wait for O stays after the row max (BEFORE_EXP) and before the exponentials (AFTER_EXP). The assembler
 *     moves a wait for wgmma up to the start of its basic block: a branch (wait_for_next_v) and a loop
 *     (exponentiate_and_check) prevent that.
 *   - AFTER_EXP waits for the next V before the exponentials, although it is needed later: where there is no ping-pong
 *     this keeps the consumers from doing the same at the same time.
 *   - No accumulator is in flight over the end of a loop, and P is written only after the wait for O: otherwise the
 *     assembler serialises the products (its messages C7511, C7513, C7515).
 *   - A stage of Q is released one tile later, when the TMA store of O has read it (`unreleased_q`).
 *
 * Parts: without a mask the keys of the last work tiles may be shared out to several thread blocks, so that all
 * multiprocessors finish at about the same time. A part is a work tile of fewer blocks of keys, whose O, row max and
 * row sum go to the workspace; combine.cu puts the parts together.
 *
 * Pairs: in long launches two thread blocks of adjacent rows load keys for each other (pair.cuh), which costs less
 * energy.
 *
 * Files: work.cuh (order of work tiles), tail.c (parts of the last ones), tiles.cuh (tiles, shared
 * memory), pair.cuh, producer.cuh, mainloop.cuh, softmax.cuh, rounding.cuh, epilogue.cuh,
 * combine.cu, host.c (choice of the tile, launches).
 * Measurements: docs/kernels/sm90_fwd.md. */
#pragma once
#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/wgmma.cuh"
#include "kernels/sm90/fused_sm90.h"
#include "kernels/sm90/fwd/epilogue.cuh"
#include "kernels/sm90/fwd/mainloop.cuh"
#include "kernels/sm90/fwd/params.h"
#include "kernels/sm90/fwd/producer.cuh"
#include "kernels/sm90/fwd/rounding.cuh"
#include "kernels/sm90/fwd/softmax.cuh"
#include "kernels/sm90/fwd/tiles.cuh"

namespace sm90_fwd {

/* Whether a kernel has code for parts of work tiles. Causal problems have no parts: kernels for these alone, which are
 * those without ping-pong, have none. */
template <typename Tile, bool PING_PONG> constexpr bool TAKES_PARTS = PING_PONG && (Traits<Tile>::HAS_PARTS);

/* A consumer warpgroup: all work tiles of the block. Its branches and the order of its statements decide how the
 * assembler schedules the main loop (docs/kernels/sm90_fwd.md): compare the machine code after a change. */
template <typename T, typename Tile, bool PING_PONG>
__device__ __forceinline__ void consume(SharedStorage<Tile> &smem, const Params &params, int consumer)
{
    using S = Traits<Tile>;
    constexpr bool HAS_PARTS = TAKES_PARTS<Tile, PING_PONG>;
    const int split = Tile::KEY_SPLITS == 1 ? 0 : consumer / S::ROW_GROUPS; /* a constant where keys are not split */
    const int team = consumer - split * S::ROW_GROUPS, first_key = split * S::KEYS;
    const int lane = threadIdx.x % 32, row_in_group = threadIdx.x / 32 % 4 * 16 + lane / 4;
    int row_group = team; /* which 64 rows of the tile */
    const int shift = params.kv_len - params.q_len;
    /* `q_empty` of the last tile's stage of Q, not released yet, as the store of O may still read it. */
    const uint64_t *unreleased_q = NULL;
    PipelineState<Q_STAGES> q;
    PipelineState<Tile::STAGES> k, v;
    /* Operands of wgmma: those of stage 0 of K and of V, and the distance to the next stage. */
    const uint32_t first_k = keep_uniform(wgmma_k_major(shared_address(smem.k[0]) + first_key * ROW_BYTES));
    const uint32_t v_address = shared_address(smem.v[0]) + first_key * ROW_BYTES;
    const uint32_t first_v = keep_uniform(
        wgmma_mn_major(v_address, S::HAS_SUM_COLUMN ? shared_address(smem.ones) - v_address : S::KV_PANEL_BYTES));
    constexpr uint32_t STAGE_STEP = S::PANELS * S::KV_PANEL_BYTES / 16;

    if (PING_PONG && consumer == S::CONSUMERS - 1)
        ping_pong_pass<Tile>(consumer); /* warpgroup 0 begins */
    for (;; q.advance()) {
        mbarrier_wait(shared_address(&smem.work_tile_full[q.stage]), q.phase); /* Q may still be on its way */
        const WorkTile tile = smem.work_tile[q.stage];
        if (tile.key_blocks == 0)
            break;
        if constexpr (S::ROTATES_ROWS) /* the last rows of a causal tile have the most keys: rotate */
            row_group = row_group + 1 == S::ROW_GROUPS ? 0 : row_group + 1;
        const int thread_row = row_group * 64 + row_in_group;
        const int first_row = tile.first_row + row_group * 64;
        /* Blocks of keys are counted from the first one of this part. */
        const int part_begin = HAS_PARTS ? smem.key_part[q.stage].first_block : 0;
        const int first_masked = first_masked_block<Tile>(params, first_row, first_key, shift) - part_begin;
        const uint32_t query =
            keep_uniform(wgmma_k_major(shared_address(smem.q[q.stage]) + row_group * 64 * ROW_BYTES));
        const auto k_operand = [&] { return first_k + k.stage * STAGE_STEP; };
        const auto v_operand = [&] { return first_v + v.stage * further_in_v<Tile>(STAGE_STEP * 16); };
        const auto mask = [&](float(&s)[S::SCORES], int n) {
            const int first_column = n * Tile::BLOCK_N + first_key + lane % 4 * 2;
            int diagonal = tile.first_row + thread_row + shift + 1;
            if constexpr (S::CANCELS_ROUNDING) /* computed here, not ahead of the loop, which needs the registers */
                asm volatile("" : "+r"(diagonal));
            mask_block<Tile>(s, params, first_column, diagonal);
        };
        /* Of the blocks of a part only the first one that is computed may have keys to mask: that of the last keys. The
         * main loop's mask is for whole work tiles. */
        const auto mask_first = [&](float(&s)[S::SCORES], int n) { mask(s, part_begin + n); };
        uint32_t q_fragments[S::Q_FRAGMENTS][4];
        RowState rows = {{NO_MAXIMUM, NO_MAXIMUM},     {0.0f, 0.0f}, {NO_MAXIMUM, NO_MAXIMUM},
                         {NO_MAXIMUM, NO_MAXIMUM},     0.0f,         headroom<T>(LARGEST_LAG_LOG2<T>),
                         headroom<T>(LAST_LAG_LOG2<T>)};
        float s[S::SCORES], o[S::ACCUMULATORS], alpha[2];
        uint32_t p[S::SCORES / 2];
        int n = tile.key_blocks - 1;

        if constexpr (S::SKIPS_BLOCKS) { /* blocks that none of these rows sees */
            const int seen = last_seen_block<Tile>(params, first_row, first_key, shift);
            const int last = HAS_PARTS ? max(seen - part_begin, 0) : seen;
            /* With ping-pong the loop is not unrolled, to keep the code that is fetched at the start short. Without it,
             * and in pairs, it is unrolled because of what the assembler then does in the main loop
             * (docs/kernels/sm90_fwd.md). */
#pragma unroll(PING_PONG && !S::IS_PAIR ? 1 : 2)
            for (; n > last; --n) {
                if constexpr (PING_PONG) {
                    ping_pong_wait<Tile>(consumer);
                    ping_pong_pass<Tile>(consumer);
                }
                skip_stage(smem.k_full, smem.k_empty, k);
                skip_stage(smem.v_full, smem.v_empty, v);
            }
        }
        mbarrier_wait(shared_address(&smem.q_full[q.stage]), q.phase);
#pragma unroll
        for (int i = 0; i < S::ACCUMULATORS; ++i)
            o[i] = 0.0f;
        if constexpr (Tile::Q_REGISTER_STEPS > 0)
            load_q_fragments<Tile>(q_fragments, smem.q[q.stage], row_group, lane);
        first_block<T, Tile, PING_PONG>(smem, params, consumer, k, v, s, p, q_fragments, rows, alpha, unreleased_q,
                                        query, k_operand, mask_first, first_masked, n,
                                        seen_end(params, first_row, shift) - (part_begin + n) * Tile::BLOCK_N);
        bool moved = false;             /* see next_block */
        float weight[2] = {0.0f, 0.0f}; /* for correct_largest */
        /* AFTER_EXP: the row sums with the newest block, which those of rows are without (cancel_rounding). */
        float sum[2] = {rows.sum[0], rows.sum[1]};
        if constexpr (S::CANCELS_ROUNDING)
            start_history<T, Tile>(rows, smem.history);
        --n;
        for (;;) {
            const int stop = cancels_rounding<T, Tile>(rows) ? max(n + 1 - blocks_until_cancelled<Tile>(n + 1), 0) : 0;
#pragma unroll 1
            for (; n >= stop; --n)
                next_block<T, Tile, PING_PONG>(smem, params, consumer, k, v, s, o, p, q_fragments, rows, alpha, query,
                                               k_operand, v_operand, mask, first_masked, n, moved, weight, sum);
            if (!S::CANCELS_ROUNDING || n < 0)
                break;
            if constexpr (S::CANCELS_ROUNDING)
                cancel_rounding<T, Tile>(o, rows, sum, smem.history);
        }
        if constexpr (Tile::CHECKS_AFTER_EXP) {
            rows.sum[0] = sum[0];
            rows.sum[1] = sum[1];
        }
        if (!Tile::CHECKS_AFTER_EXP && moved)
            rescale(o, alpha);
        start_last_output<T, Tile>(smem, v, o, p, v_operand);
        const int warp_row = row_group * 64 + threadIdx.x / 32 % 4 * 16;
        float4 *const exchange = /* this thread's part of it */
            smem.exchange[q.stage % S::EXCHANGE_BUFFERS] + team * (S::SENT_FLOATS / 4) * WARPGROUP +
            threadIdx.x % WARPGROUP;
        float scale_own[2] = {1.0f, 1.0f}, scale_sent[2];
        if (S::FINALIZES_EARLY && split == S::LAST_SPLIT) /* while the last product runs */
            finalize_rows<T, Tile>(scale_own, scale_sent, o, rows, exchange, tile, params, team, warp_row, smem);
        wgmma_wait<0>();
        wgmma_hold(o);
        release_and_advance(smem.v_empty, v);
        if (split == S::LAST_SPLIT) {
            if (!S::FINALIZES_EARLY)
                finalize_rows<T, Tile>(scale_own, scale_sent, o, rows, exchange, tile, params, team, warp_row, smem);
            /* Read here and not before the main loop, which has no register for it. */
            const int slot = HAS_PARTS ? smem.key_part[q.stage].slot : -1;
            if (HAS_PARTS && slot >= 0)
                store_part<Tile>(o, scale_own, rows, slot, params,
                                 (S::IS_PAIR ? pair_rank() * Tile::BLOCK_M : 0) + warp_row);
            else
                write_output<T>(smem, q.stage, o, scale_own, scale_sent, rows, exchange, tile, params, team, warp_row);
        } else if constexpr (Tile::KEY_SPLITS == 2) {
            send_partial<Tile>(exchange, team, o, rows);
        }
        unreleased_q = &smem.q_empty[q.stage];
    }
    if (PING_PONG && consumer == 0)
        ping_pong_wait<Tile>(consumer); /* for the last pass, so that no barrier is left with arrivals */
    if (elect_one())
        tma_store_wait_read<0>(); /* shared memory must outlive the stores */
}

/* ---- kernel --------------------------------------------------------------------------------------------------- */

template <typename T, typename Tile, bool PING_PONG>
__global__ void __launch_bounds__(Traits<Tile>::THREADS, 1) fused_fwd_kernel(const __grid_constant__ Params params)
{
    using S = Traits<Tile>;
    extern __shared__ char shared[];
    SharedStorage<Tile> &smem = *reinterpret_cast<SharedStorage<Tile> *>(shared);
    constexpr bool HAS_PARTS = TAKES_PARTS<Tile, PING_PONG>;
    const int warp = keep_uniform(threadIdx.x / 32), warpgroup = warp / 4;
    static_assert(!S::HAS_SUM_COLUMN || offsetof(SharedStorage<Tile>, ones) % 1024 == 0, "panels begin on 1024 bytes");

    if (warp == 0 && elect_one()) {
        constexpr int CONSUMER_WARPS = S::CONSUMERS * 4;
        /* First the barriers of the prologue's loads, then these loads, then the other barriers. */
        mbarrier_init(shared_address(&smem.q_full[0]), 1);
        mbarrier_init(shared_address(&smem.k_full[0]), 1);
        mbarrier_init(shared_address(&smem.v_full[0]), 1);
        mbarrier_init_fence();
        const WorkTile tile = load_prologue<Tile>(smem, params);
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
        publish_work_tile<Tile, HAS_PARTS>(smem, 0, tile, {0, -1});
        tma_prefetch_map(&params.o);
    }
    if (S::HAS_SUM_COLUMN && warpgroup == 1)
        write_ones<T>(smem.ones, threadIdx.x % WARPGROUP);
    __syncthreads();
    if constexpr (S::IS_PAIR)
        cluster_sync();
    if (warpgroup == 0) {
        registers_decrease<S::PRODUCER_REGISTERS>();
        if (warp < 2 && elect_one()) {
            if (warp == 0)
                produce_qk<Tile, HAS_PARTS>(smem, params);
            else
                produce_v<Tile, HAS_PARTS>(smem, params);
            if constexpr (S::IS_PAIR)
                leave_pair();
        }
    } else {
        registers_increase<S::CONSUMER_REGISTERS>();
        consume<T, Tile, PING_PONG>(smem, params, warpgroup - 1);
        if constexpr (S::IS_PAIR)
            leave_pair();
    }
}

} // namespace sm90_fwd
