/* The main loop of the sm_90 forward: what a consumer warpgroup does for one block of keys. */
#pragma once

#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/device/wgmma.cuh"
#include "kernels/sm90/fwd/policies.cuh"
#include "kernels/sm90/fwd/rounding.cuh"
#include "kernels/sm90/fwd/softcap.cuh"
#include "kernels/sm90/fwd/softmax.cuh"
#include "kernels/sm90/fwd/tiles.cuh"

namespace sm90_fwd {

/* Issues S = Q K^T of the first 2 SCORES keys of a block. The caller has executed wgmma_fence after the last access to
 * the registers. Q_REGISTER_STEPS steps of Q come from registers: with 64 keys a product is limited by what it reads
 * from shared memory. */
template <typename T, typename Tile, int SCORES>
__device__ __forceinline__ void start_scores(float (&s)[SCORES], uint32_t (&q_fragments)[Traits<Tile>::Q_FRAGMENTS][4],
                                             uint32_t q, uint32_t k)
{
    using S = Traits<Tile>;
#pragma unroll
    for (int step = 0; step < Tile::HEAD_DIM / 16; ++step) {
        const int panel = step / 4, within = step % 4 * 32, of_k = (panel * S::KV_PANEL_BYTES + within) / 16;
        if (step < Tile::Q_REGISTER_STEPS)
            wgmma<T, 2 * SCORES>::template registers<WGMMA_K_MAJOR>(s, q_fragments[step], k + of_k, step > 0);
        else
            wgmma<T, 2 * SCORES>::template shared<WGMMA_K_MAJOR, WGMMA_K_MAJOR>(
                s, q + (panel * S::Q_PANEL_BYTES + within) / 16, k + of_k, step > 0);
    }
    wgmma_commit();
}

/* What an operand for V is moved by to begin `bytes` later in V. The panel of ones stays where it is, so that it comes
 * nearer by as much. */
template <typename Tile> __device__ constexpr uint32_t further_in_v(uint32_t bytes)
{
    return Traits<Tile>::HAS_SUM_COLUMN ? bytes / 16 - (bytes / 16 << 16) : bytes / 16;
}

/* Issues O += P V; the caller has executed wgmma_fence here, too. */
template <typename T, typename Tile>
__device__ __forceinline__ void start_output(float (&o)[Traits<Tile>::ACCUMULATORS],
                                             uint32_t (&p)[Traits<Tile>::SCORES / 2], uint32_t v)
{
#pragma unroll
    for (int step = 0; step < Traits<Tile>::KEYS / 16; ++step)
        wgmma<T, Traits<Tile>::V_COLUMNS>::template registers<WGMMA_MN_MAJOR>(
            o, &p[4 * step], v + step * further_in_v<Tile>(16 * ROW_BYTES), true);
    wgmma_commit();
}

/* Ping-pong: a warpgroup waits for the one before it, issues its products, and lets the next one issue when it has its
 * scores (or, in its first tile's first block, when the product has been issued). A named barrier for each warpgroup:
 * 128 threads wait, the 128 of the warpgroup before arrive. */
template <typename Tile> __device__ __forceinline__ void ping_pong_wait(int consumer)
{
    bar_sync(1 + Traits<Tile>::ROW_GROUPS + consumer, 2 * WARPGROUP);
}

template <typename Tile> __device__ __forceinline__ void ping_pong_pass(int consumer)
{
    if constexpr (Tile::SCHEDULE.finds_next_late)
        asm volatile("" : "+r"(consumer));
    const int next = consumer + 1 == Traits<Tile>::CONSUMERS ? 0 : consumer + 1;
    bar_arrive(1 + Traits<Tile>::ROW_GROUPS + next, 2 * WARPGROUP);
}

/* One lane of each warp says that the warp has finished with a stage. */
__device__ __forceinline__ void release(const uint64_t *empty)
{
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(shared_address(empty));
}

/* wgmma_hold (wgmma.cuh) for what is in registers of Q. */
template <typename Tile> __device__ __forceinline__ void hold_q(uint32_t (&q_fragments)[Traits<Tile>::Q_FRAGMENTS][4])
{
#pragma unroll
    for (int step = 0; step < Tile::Q_REGISTER_STEPS; ++step)
        wgmma_hold(q_fragments[step]);
}

/* The steps of Q that stay in registers, for 64 rows of a stage. */
template <typename Tile>
__device__ __forceinline__ void load_q_fragments(uint32_t (&q_fragments)[Traits<Tile>::Q_FRAGMENTS][4],
                                                 const uint16_t *q_stage, int row_group, int lane)
{
    const uint32_t warp_rows = shared_address(q_stage) + (row_group * 64 + threadIdx.x / 32 % 4 * 16) * ROW_BYTES;
#pragma unroll
    for (int step = 0; step < Tile::Q_REGISTER_STEPS; ++step)
        ldmatrix_x4(q_fragments[step], warp_rows + step / 4 * Traits<Tile>::Q_PANEL_BYTES +
                                           swizzle_128b(lane % 16, step % 4 * 2 + lane / 16));
}

/* Lets the producer have a stage of Q again once the store of O has read it. */
__device__ __forceinline__ void release_stored_q(const uint64_t *q_empty)
{
    if (elect_one())
        tma_store_wait_read<0>();
    __syncwarp(); /* the thread that arrives may be another one */
    release(q_empty);
}

/* Releases the stage of `state` (see release) and goes on to the next one. */
template <int STAGES>
__device__ __forceinline__ void release_and_advance(const uint64_t (&empty)[STAGES], PipelineState<STAGES> &state)
{
    release(&empty[state.stage]);
    state.advance();
}

/* A branch between the products of a block and the wait for O. The assembler moves a wait for wgmma up to the start of
 * its basic block, which would be too early (see the head of kernel.cuh).
 * AFTER_EXP waits here for the V of the next block. BEFORE_EXP never waits here: params.tiles is at least 1, but the
 * assembler cannot know that and keeps the branch. */
template <typename Tile>
__device__ __forceinline__ void wait_for_next_v(SharedStorage<Tile> &smem, const PipelineState<Tile::STAGES> &v,
                                                const Params &params)
{
    if constexpr (Tile::CHECKS_AFTER_EXP) {
        const bool is_next_v_here = mbarrier_try(shared_address(&smem.v_full[v.stage]), v.phase);
        if (!is_next_v_here)
            mbarrier_wait(shared_address(&smem.v_full[v.stage]), v.phase);
    } else if (params.tiles == 0) {
        mbarrier_wait(shared_address(&smem.v_full[v.stage]), v.phase);
    }
}

/* A consumer warpgroup within a work tile: what the steps of the main loop read and write, by reference. The variables
 * themselves are those of consume (consumer.cuh): a struct that owned them would keep them in other registers. */
template <typename KernelElement, typename KernelTile, bool TAKES_TURNS> struct Consumer {
    using T = KernelElement;
    using Tile = KernelTile;
    using Work = typename Tile::Work;
    using Score = typename Tile::Score;
    using S = Traits<Tile>;
    static constexpr bool PING_PONG = TAKES_TURNS;
    static constexpr bool CORRECTS = CORRECTS_LARGEST<T, Tile>;
    /* Scores of a softcap stay what they are where they are small (softcap.cuh). */
    static constexpr bool LEAVES_SCORES = !Score::IS_PLAIN;
    static constexpr uint32_t STAGE_STEP = S::PANELS * S::KV_PANEL_BYTES / 16; /* of an operand, to the next stage */

    SharedStorage<Tile> &smem;
    const Params &params;
    const int &number; /* which consumer */
    const WorkTileOf<Tile> &tile;
    PipelineState<Tile::STAGES> &k, &v;
    /* Operands of wgmma: the warpgroup's rows of Q, and its keys in stage 0 of K and of V. */
    const uint32_t &query, &first_k, &first_v;
    uint32_t (&q_fragments)[S::Q_FRAGMENTS][4]; /* the steps of Q that stay in registers */
    float (&s)[S::SCORES], (&o)[S::ACCUMULATORS];
    uint32_t (&p)[S::SCORES / 2];
    RowState &rows;
    float (&alpha)[2];  /* what O is to be multiplied with where the row max has moved */
    float (&weight)[2]; /* for correct_largest */
    float (&sum)[2];    /* AFTER_EXP: the row sums with the newest block, which those of rows are without */
    /* Whether the warp has moved its row max in the newest block; then O still refers to the one before. With
     * correct_largest: a score was above its limit, whether the row max has moved or not; then `weight` is set. */
    bool &were_large; /* scores of a softcap in the newest block */
    bool &moved;
    /* Blocks of keys are counted from the first one of this part of the work tile. */
    const int &part_begin;
    const typename Work::Edges &edges;
    const int &first_key, &thread_row, &shift, &lane; /* as in RowGroup; thread_row: row g, counted from the tile's */

    __device__ __forceinline__ uint32_t k_operand() const { return first_k + k.stage * STAGE_STEP; }
    __device__ __forceinline__ uint32_t v_operand() const
    {
        return first_v + v.stage * further_in_v<Tile>(STAGE_STEP * 16);
    }

    /* Of block `block` of the sequence, or of the work tile's list. */
    __device__ __forceinline__ void mask_block(int block) const
    {
        if constexpr (Work::HAS_LISTS)
            block = Work::block_number(tile, block);
        const int first_column = block * Tile::BLOCK_N + first_key + lane % 4 * 2;
        int diagonal_end = tile.first_row + thread_row + shift + 1;
        if constexpr (S::CANCELS_ROUNDING) /* computed here, not ahead of the loop, which needs the registers */
            asm volatile("" : "+r"(diagonal_end));
        Work::mask(s, params, tile, first_column, diagonal_end);
    }
};

/* Issues S = Q K_n^T and O += P V_{n+1}, and waits for S; between() is called between the two, beside S. Where it
 * writes O it has to end with a fence. */
template <typename Consumer, typename Between>
__device__ __forceinline__ void issue_products(Consumer &c, const Between &between)
{
    using Tile = typename Consumer::Tile;
    using T = typename Consumer::T;
    wgmma_hold(c.o);
    wgmma_hold(c.p);
    hold_q<Tile>(c.q_fragments);
    wgmma_fence();
    start_scores<T, Tile>(c.s, c.q_fragments, c.query, c.k_operand());
    between();
    start_output<T, Tile>(c.o, c.p, c.v_operand());
    wgmma_wait<1>();
    wgmma_hold(c.s);
    if constexpr (!Consumer::LEAVES_SCORES)
        Consumer::Score::apply(c.s, c.params);
}

/* The first block of keys of a tile: S = Q K_n^T and P. No row sees a key of the block from number `seen` on; where
 * that leaves no more than half of them, as with the first rows of a causal tile, only this half of S is computed. */
template <typename Consumer>
__device__ __forceinline__ void first_block(Consumer &c, const uint64_t *unreleased_q, int n, int seen)
{
    using S = typename Consumer::S;
    using Tile = typename Consumer::Tile;
    using T = typename Consumer::T;
    constexpr bool PING_PONG = Consumer::PING_PONG, HALVES = Tile::SCHEDULE.halves_first_block;
    constexpr int HALF = HALVES ? S::SCORES / 2 : S::SCORES;
    static_assert(!HALVES || Consumer::Score::KEEPS_MINUS_INFINITY, "the other half is hidden before apply()");
    const auto after_issue = [&] {
        if (unreleased_q != NULL)
            release_stored_q(unreleased_q);
        else if (PING_PONG)
            ping_pong_pass<Tile>(c.number);
        wgmma_wait<0>();
    };
    mbarrier_wait(shared_address(&c.smem.k_full[c.k.stage]), c.k.phase);
    if (PING_PONG && unreleased_q == NULL) /* first products of the block: issued together, all would end late */
        ping_pong_wait<Tile>(c.number);
    hold_q<Tile>(c.q_fragments);
    if (HALVES && seen <= S::KEYS / 2) {
        float(&first_half)[HALF] = reinterpret_cast<float(&)[HALF]>(c.s);
#pragma unroll
        for (int i = HALF; i < S::SCORES; ++i)
            c.s[i] = -INFINITY;
        wgmma_fence();
        start_scores<T, Tile>(first_half, c.q_fragments, c.query, c.k_operand());
        after_issue();
    } else {
        wgmma_fence();
        start_scores<T, Tile>(c.s, c.q_fragments, c.query, c.k_operand());
        after_issue();
    }
    wgmma_hold(c.s);
    Consumer::Score::apply(c.s, c.params);
    release_and_advance(c.smem.k_empty, c.k);
    /* Of the blocks of a part only the first one that is computed, that of the last keys, may have keys to mask at the
     * end; the main loop's mask is for whole work tiles. */
    if (c.edges.has(n))
        c.mask_block(c.part_begin + n);
    if constexpr (Tile::CHECKS_AFTER_EXP)
        first_row_max(c.s, c.rows, c.params.scale_log2);
    else
        start_row_max<T, Consumer::CORRECTS>(c.s, c.rows, c.alpha, c.params.scale_log2);
    exponentiate<T>(c.p, c.rows.sum, c.s, c.rows, c.params.scale_log2);
    if constexpr (Tile::CHECKS_AFTER_EXP)
        mbarrier_wait(shared_address(&c.smem.v_full[c.v.stage]), c.v.phase);
}

/* Block n of the main loop: S = Q K_n^T beside O += P V_{n+1}, then P of block n. */
template <typename Consumer> __device__ __forceinline__ void next_block(Consumer &c, int n)
{
    using S = typename Consumer::S;
    using Tile = typename Consumer::Tile;
    using T = typename Consumer::T;
    constexpr bool PING_PONG = Consumer::PING_PONG, CORRECTS = Consumer::CORRECTS;
    constexpr Schedule SCHEDULE = Tile::SCHEDULE;
    constexpr bool RELEASES_V_LATE = PING_PONG && SCHEDULE.releases_v_late;
    constexpr bool LEAVES_SCORES = Consumer::LEAVES_SCORES;
    SharedStorage<Tile> &smem = c.smem;
    const Params &params = c.params;
    RowState &rows = c.rows;
    /* Dense attention has no mask in the main loop of a part. */
    const int first = !Consumer::Work::IS_DENSE ? c.part_begin : 0;

    if constexpr (Tile::CHECKS_AFTER_EXP) {
        rows.sum[0] = c.sum[0];
        rows.sum[1] = c.sum[1];
    }
    if constexpr (PING_PONG)
        ping_pong_wait<Tile>(c.number);
    if constexpr (SCHEDULE.waits_for_v_first)
        mbarrier_wait(shared_address(&smem.v_full[c.v.stage]), c.v.phase);
    mbarrier_wait(shared_address(&smem.k_full[c.k.stage]), c.k.phase);
    if constexpr (!Tile::CHECKS_AFTER_EXP && !SCHEDULE.waits_for_v_first)
        mbarrier_wait(shared_address(&smem.v_full[c.v.stage]), c.v.phase);
    issue_products(c, [&] {
        if constexpr (!Tile::CHECKS_AFTER_EXP) {
            if (c.moved && CORRECTS) {
                const bool rescales = __any_sync(WHOLE_WARP, fminf(c.alpha[0], c.alpha[1]) < 1.0f);
                correct_largest<T, Tile>(rows, c.weight, smem, params.kv_len);
                if (rescales) {
                    rescale(c.o, c.alpha);
                    rescale_squares(smem, c.weight, c.alpha);
                }
            } else if (c.moved) {
                update_limits<T>(rows, c.alpha);
                rescale(c.o, c.alpha);
            }
            wgmma_hold(c.o);
            wgmma_fence();
        }
    });
    if constexpr (PING_PONG)
        ping_pong_pass<Tile>(c.number);
    if constexpr (!SCHEDULE.releases_k_late)
        release_and_advance(smem.k_empty, c.k);
    [[maybe_unused]] bool is_left = LEAVES_SCORES; /* scores are those of Q K^T */
    if constexpr (Tile::CHECKS_AFTER_EXP) {
        if (c.edges.has(n))
            c.mask_block(first + n);
        if constexpr (!PING_PONG && SCHEDULE.sharpens_early) {
            if (n < 1) { /* of all warps, as a wait for wgmma has to be */
                wgmma_wait<0>();
                wgmma_hold(c.o);
                if (has_last_headroom<T>(rows, LAG_RISING)) /* the exponentials would have to be repeated */
                    catch_up<T>(c.o, c.s, rows, params.scale_log2);
            }
        }
    } else if (c.edges.has_or_is_last(n)) {
        if (c.edges.has(n)) {
            if constexpr (LEAVES_SCORES) {
                Consumer::Score::apply(c.s, params);
                is_left = false;
            }
            c.mask_block(first + n);
            if constexpr (CORRECTS)
                start_late_rows(c.s, rows, params.scale_log2);
        }
        if (n < 1)
            sharpen_limits<T>(rows);
    }
    if constexpr (SCHEDULE.releases_k_late)
        release_and_advance(smem.k_empty, c.k);
    if constexpr (LEAVES_SCORES && !Tile::CHECKS_AFTER_EXP) {
        float top_log2[2];
        scale_to_log2(top_log2, c.s, is_left, params);
        c.moved = move_to_row_max<CORRECTS>(top_log2, rows, c.alpha);
    } else if constexpr (!Tile::CHECKS_AFTER_EXP) {
        c.moved = move_row_max<CORRECTS>(c.s, rows, c.alpha, params.scale_log2);
    }
    const PipelineState<Tile::STAGES> done = c.v;
    c.v.advance();
    wait_for_next_v(smem, c.v, params);
    wgmma_wait<0>();
    wgmma_hold(c.o);
    wgmma_hold(c.p);
    if constexpr (!RELEASES_V_LATE)
        release(&smem.v_empty[done.stage]);
    if constexpr (Tile::CHECKS_AFTER_EXP && LEAVES_SCORES)
        exponentiate_scores_and_check<T>(c.p, c.o, c.s, rows, c.sum, params, n, c.were_large);
    else if constexpr (Tile::CHECKS_AFTER_EXP)
        exponentiate_and_check<T>(c.p, c.o, c.s, rows, c.sum, params.scale_log2, n);
    else
        exponentiate<T>(c.p, rows.sum, c.s, rows, LEAVES_SCORES ? 1.0f : params.scale_log2);
    if constexpr (CORRECTS)
        weigh_largest(c.weight, rows, c.moved);
    if constexpr (RELEASES_V_LATE)
        release(&smem.v_empty[done.stage]);
}

/* Waits for a stage and releases it unread. */
template <int STAGES>
__device__ __forceinline__ void skip_stage(const uint64_t (&full)[STAGES], const uint64_t (&empty)[STAGES],
                                           PipelineState<STAGES> &state)
{
    mbarrier_wait(shared_address(&full[state.stage]), state.phase);
    __syncwarp(); /* all lanes have seen the phase end: after the release another one may end */
    release_and_advance(empty, state);
}

/* Issues the last O += P V of a tile. */
template <typename Consumer> __device__ __forceinline__ void start_last_output(Consumer &c)
{
    using Tile = typename Consumer::Tile;
    if constexpr (!Tile::CHECKS_AFTER_EXP)
        mbarrier_wait(shared_address(&c.smem.v_full[c.v.stage]), c.v.phase);
    wgmma_hold(c.o);
    wgmma_hold(c.p);
    wgmma_fence();
    start_output<typename Consumer::T, Tile>(c.o, c.p, c.v_operand());
}

} // namespace sm90_fwd
