/* A consumer warpgroup of the sm_90 forward: its way through the work tiles of the thread block. */
#pragma once
#include <type_traits>

#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/wgmma.cuh"
#include "kernels/sm90/fwd/epilogue.cuh"
#include "kernels/sm90/fwd/mainloop.cuh"
#include "kernels/sm90/fwd/pair.cuh"
#include "kernels/sm90/fwd/policies.cuh"
#include "kernels/sm90/fwd/rounding.cuh"

namespace sm90_fwd {

/* Whether a kernel has code for parts of work tiles. Causal problems have no parts: kernels for these alone, which are
 * those without ping-pong, have none. */
template <typename Tile, bool PING_PONG>
constexpr bool TAKES_PARTS = PING_PONG && (Traits<Tile>::HAS_PARTS) && Tile::Work::IS_DENSE;

/* A consumer warpgroup: all work tiles of the block. Its branches and the order of its statements decide how the
 * assembler schedules the main loop (docs/kernels/sm90_fwd.md): compare the machine code after a change. */
template <typename T, typename Tile, bool PING_PONG>
__device__ __forceinline__ void consume(SharedStorage<Tile> &smem, const Params &params, int consumer)
{
    using S = Traits<Tile>;
    using Work = typename Tile::Work;
    constexpr bool HAS_PARTS = TAKES_PARTS<Tile, PING_PONG>;
    const int split = Tile::KEY_SPLITS == 1 ? 0 : consumer / S::ROW_GROUPS; /* a constant where keys are not split */
    const int team = consumer - split * S::ROW_GROUPS, first_key = split * S::KEYS;
    const int lane = threadIdx.x % 32, row_in_group = threadIdx.x / 32 % 4 * 16 + lane / 4;
    int row_group = team; /* which 64 rows of the tile */
    const typename Work::Common common = Work::common(params);
    /* `q_empty` of the last tile's stage of Q, not released yet, as the store of O may still read it. */
    const uint64_t *unreleased_q = NULL;
    PipelineState<Q_STAGES> q;
    PipelineState<Tile::STAGES> k, v;
    /* Operands of wgmma: those of stage 0 of K and of V, and the distance to the next stage. */
    const uint32_t first_k = keep_uniform(wgmma_k_major(shared_address(smem.k[0]) + first_key * ROW_BYTES));
    const uint32_t v_address = shared_address(smem.v[0]) + first_key * ROW_BYTES;
    const uint32_t first_v = keep_uniform(
        wgmma_mn_major(v_address, S::HAS_SUM_COLUMN ? shared_address(smem.ones) - v_address : S::KV_PANEL_BYTES));

    if (PING_PONG && consumer == S::CONSUMERS - 1)
        ping_pong_pass<Tile>(consumer); /* warpgroup 0 begins */
    for (;; q.advance()) {
        mbarrier_wait(shared_address(&smem.work_tile_full[q.stage]), q.phase); /* Q may still be on its way */
        /* That of ranges is large: it is read from shared memory where it is needed. */
        using Copy = std::conditional_t<!Work::IS_DENSE, const WorkTileOf<Tile> &, const WorkTileOf<Tile>>;
        Copy tile = smem.work_tile[q.stage];
        if (tile.key_blocks == 0)
            break;
        if constexpr (S::ROTATES_ROWS) /* the last rows of a causal tile have the most keys: rotate */
            row_group = row_group + 1 == S::ROW_GROUPS ? 0 : row_group + 1;
        const int thread_row = row_group * 64 + row_in_group;
        const int shift = Work::shift(common, tile);
        const RowGroup group = {tile.first_row + row_group * 64, first_key, shift};
        /* Blocks of keys are counted from the first one of this part, or that these rows see. */
        int part_begin = HAS_PARTS ? smem.key_part[q.stage].lowest_block : 0;
        int n = tile.key_blocks - 1, unseen_low = 0, unseen_high = 0; /* of the tile, at both its ends */
        if constexpr (!Work::IS_DENSE)
            part_begin = Work::template seen_blocks<Tile>(n, unseen_low, unseen_high, params, tile, group);
        const typename Work::Edges edges = Work::template edges<Tile>(params, tile, group, part_begin);
        const uint32_t query =
            keep_uniform(wgmma_k_major(shared_address(smem.q[q.stage]) + row_group * 64 * ROW_BYTES));
        uint32_t q_fragments[S::Q_FRAGMENTS][4];
        RowState rows = {{NO_MAXIMUM, NO_MAXIMUM},       {0.0f, 0.0f}, {NO_MAXIMUM, NO_MAXIMUM},
                         {NO_MAXIMUM, NO_MAXIMUM},       0.0f,         headroom_of<T>(LAG_NORMAL),
                         last_headroom_of<T>(LAG_NORMAL)};
        float s[S::SCORES], o[S::ACCUMULATORS], alpha[2], weight[2], sum[2];
        uint32_t p[S::SCORES / 2];
        bool moved, were_large = false;
        Consumer<T, Tile, PING_PONG> c = {
            smem, params, consumer, tile, k,          v,     query,      first_k, first_v,   q_fragments, s,     o,   p,
            rows, alpha,  weight,   sum,  were_large, moved, part_begin, edges,   first_key, thread_row,  shift, lane};

        if constexpr (!Work::IS_DENSE) {
#pragma unroll 1
            for (; unseen_high > 0; --unseen_high) {
                if constexpr (PING_PONG) {
                    ping_pong_wait<Tile>(consumer);
                    ping_pong_pass<Tile>(consumer);
                }
                skip_stage(smem.k_full, smem.k_empty, k);
                skip_stage(smem.v_full, smem.v_empty, v);
            }
        } else if constexpr (S::SKIPS_BLOCKS) { /* blocks that none of these rows sees */
            const int seen = Work::template highest_seen_block<Tile>(params, group);
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
        first_block(c, unreleased_q, n, Work::seen_end(params, tile, group) - (part_begin + n) * Tile::BLOCK_N);
        moved = false;
        weight[0] = weight[1] = 0.0f;
        sum[0] = rows.sum[0];
        sum[1] = rows.sum[1];
        if constexpr (S::CANCELS_ROUNDING)
            start_history<T, Tile>(rows, smem.history);
        --n;
        for (;;) {
            const int stop = cancels_rounding<T, Tile>(rows) ? max(n + 1 - blocks_until_cancelled<Tile>(n + 1), 0) : 0;
#pragma unroll 1
            for (; n >= stop; --n)
                next_block(c, n);
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
        start_last_output(c);
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
        if constexpr (!Work::IS_DENSE) {
#pragma unroll 1
            for (; unseen_low > 0; --unseen_low) {
                if constexpr (PING_PONG) {
                    ping_pong_wait<Tile>(consumer);
                    ping_pong_pass<Tile>(consumer);
                }
                skip_stage(smem.k_full, smem.k_empty, k);
                skip_stage(smem.v_full, smem.v_empty, v);
            }
        }
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

} // namespace sm90_fwd
