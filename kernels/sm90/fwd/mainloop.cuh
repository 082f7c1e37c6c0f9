/* The main loop of the sm_90 forward: what a consumer warpgroup does for one block of keys. */
#pragma once

#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/device/wgmma.cuh"
#include "kernels/sm90/fwd/rounding.cuh"
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
    if constexpr (Traits<Tile>::FINDS_NEXT_LATE)
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

/* The scores of block n that a row does not see become -inf. `diagonal` is the first key that this thread's row g does
 * not see in a causal problem. */
template <typename Tile>
__device__ __forceinline__ void mask_block(float (&s)[Traits<Tile>::SCORES], const Params &params, int first_column,
                                           int diagonal)
{
    const int limit[2] = {(params.causal ? min(params.kv_len, diagonal) : params.kv_len) - first_column,
                          (params.causal ? min(params.kv_len, diagonal + 8) : params.kv_len) - first_column};
    mask_scores(s, limit);
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

/* Issues S = Q K_n^T and O += P V_{n+1}, and waits for S; between() is called between the two, beside S. Where it
 * writes O it has to end with a fence. */
template <typename T, typename Tile, typename Operand, typename Other, typename Between>
__device__ __forceinline__ void issue_products(float (&s)[Traits<Tile>::SCORES], float (&o)[Traits<Tile>::ACCUMULATORS],
                                               uint32_t (&p)[Traits<Tile>::SCORES / 2],
                                               uint32_t (&q_fragments)[Traits<Tile>::Q_FRAGMENTS][4], uint32_t q,
                                               const Operand &k_operand, const Other &v_operand, const Between &between)
{
    wgmma_hold(o);
    wgmma_hold(p);
    hold_q<Tile>(q_fragments);
    wgmma_fence();
    start_scores<T, Tile>(s, q_fragments, q, k_operand());
    between();
    start_output<T, Tile>(o, p, v_operand());
    wgmma_wait<1>();
    wgmma_hold(s);
}

/* The first block of keys of a tile: S = Q K_n^T and P. No row sees a key of the block from number `seen` on; where
 * that leaves no more than half of them, as with the first rows of a causal tile, only this half of S is computed. */
template <typename T, typename Tile, bool PING_PONG, typename Operand, typename Mask>
__device__ __forceinline__ void
first_block(SharedStorage<Tile> &smem, const Params &params, int consumer, PipelineState<Tile::STAGES> &k,
            const PipelineState<Tile::STAGES> &v, float (&s)[Traits<Tile>::SCORES],
            uint32_t (&p)[Traits<Tile>::SCORES / 2], uint32_t (&q_fragments)[Traits<Tile>::Q_FRAGMENTS][4],
            RowState &rows, float (&alpha)[2], const uint64_t *unreleased_q, uint32_t query, const Operand &k_operand,
            const Mask &mask, int first_masked, int n, int seen)
{
    using S = Traits<Tile>;
    constexpr int HALF = S::HALVES_FIRST_BLOCK ? S::SCORES / 2 : S::SCORES;
    const auto after_issue = [&] {
        if (unreleased_q != NULL)
            release_stored_q(unreleased_q);
        else if (PING_PONG)
            ping_pong_pass<Tile>(consumer);
        wgmma_wait<0>();
    };
    mbarrier_wait(shared_address(&smem.k_full[k.stage]), k.phase);
    if (PING_PONG && unreleased_q == NULL) /* first products of the block: issued together, all would end late */
        ping_pong_wait<Tile>(consumer);
    hold_q<Tile>(q_fragments);
    if (S::HALVES_FIRST_BLOCK && seen <= S::KEYS / 2) {
        float(&first_half)[HALF] = reinterpret_cast<float(&)[HALF]>(s);
#pragma unroll
        for (int i = HALF; i < S::SCORES; ++i)
            s[i] = -INFINITY;
        wgmma_fence();
        start_scores<T, Tile>(first_half, q_fragments, query, k_operand());
        after_issue();
    } else {
        wgmma_fence();
        start_scores<T, Tile>(s, q_fragments, query, k_operand());
        after_issue();
    }
    wgmma_hold(s);
    release_and_advance(smem.k_empty, k);
    if (n >= first_masked)
        mask(s, n);
    if constexpr (Tile::CHECKS_AFTER_EXP)
        first_row_max(s, rows, params.scale_log2);
    else
        start_row_max<CORRECTS_LARGEST<T, Tile>>(s, rows, alpha, params.scale_log2);
    exponentiate<T>(p, rows.sum, s, rows, params.scale_log2);
    if constexpr (Tile::CHECKS_AFTER_EXP)
        mbarrier_wait(shared_address(&smem.v_full[v.stage]), v.phase);
}

/* Block n of the main loop: S = Q K_n^T beside O += P V_{n+1}, then P of block n. `moved`: whether the warp has moved
 * its row max in the block before, on return in this one; then O still refers to the one before. Where errors of the
 * largest weights are corrected it says that a score was above its limit, whether the row max has moved or not; then
 * `weight` has the largest weights. `sum`: AFTER_EXP, the row sums with the block before, on return with this one,
 * which those of `rows` are then without. */
template <typename T, typename Tile, bool PING_PONG, typename Operand, typename Other, typename Mask>
__device__ __forceinline__ void
next_block(SharedStorage<Tile> &smem, const Params &params, int consumer, PipelineState<Tile::STAGES> &k,
           PipelineState<Tile::STAGES> &v, float (&s)[Traits<Tile>::SCORES], float (&o)[Traits<Tile>::ACCUMULATORS],
           uint32_t (&p)[Traits<Tile>::SCORES / 2], uint32_t (&q_fragments)[Traits<Tile>::Q_FRAGMENTS][4],
           RowState &rows, float (&alpha)[2], uint32_t query, const Operand &k_operand, const Other &v_operand,
           const Mask &mask, int first_masked, int n, bool &moved, float (&weight)[2], float (&sum)[2])
{
    using S = Traits<Tile>;
    constexpr bool CORRECTS = CORRECTS_LARGEST<T, Tile>;

    if constexpr (Tile::CHECKS_AFTER_EXP) {
        rows.sum[0] = sum[0];
        rows.sum[1] = sum[1];
    }
    if constexpr (PING_PONG)
        ping_pong_wait<Tile>(consumer);
    if constexpr (S::WAITS_FOR_V_FIRST)
        mbarrier_wait(shared_address(&smem.v_full[v.stage]), v.phase);
    mbarrier_wait(shared_address(&smem.k_full[k.stage]), k.phase);
    if constexpr (!Tile::CHECKS_AFTER_EXP && !S::WAITS_FOR_V_FIRST)
        mbarrier_wait(shared_address(&smem.v_full[v.stage]), v.phase);
    issue_products<T, Tile>(s, o, p, q_fragments, query, k_operand, v_operand, [&] {
        if constexpr (!Tile::CHECKS_AFTER_EXP) {
            if (moved && CORRECTS) {
                const bool rescales = __any_sync(WHOLE_WARP, fminf(alpha[0], alpha[1]) < 1.0f);
                correct_largest<T, Tile>(rows, weight, smem, params.kv_len);
                if (rescales) {
                    rescale(o, alpha);
                    rescale_squares(smem, weight, alpha);
                }
            } else if (moved) {
                update_limits<T>(rows, alpha);
                rescale(o, alpha);
            }
            wgmma_hold(o);
            wgmma_fence();
        }
    });
    if constexpr (PING_PONG)
        ping_pong_pass<Tile>(consumer);
    if constexpr (!S::RELEASES_K_LATE)
        release_and_advance(smem.k_empty, k);
    if constexpr (Tile::CHECKS_AFTER_EXP) {
        if (n >= first_masked)
            mask(s, n);
        if constexpr (S::template SHARPENS_EARLY<PING_PONG>) {
            if (n < 1) { /* of all warps, as a wait for wgmma has to be */
                wgmma_wait<0>();
                wgmma_hold(o);
                if (rows.last_headroom == headroom<T>(0)) /* the exponentials would have to be repeated */
                    catch_up<T>(o, s, rows, params.scale_log2);
            }
        }
    } else if (static_cast<unsigned>(n - 1) >= static_cast<unsigned>(max(first_masked - 1, 0))) {
        /* One comparison for both: masked blocks and the last one, 0, for which n - 1 is the largest unsigned
         * number. */
        if (n >= first_masked) {
            mask(s, n);
            if constexpr (CORRECTS)
                start_late_rows(s, rows, params.scale_log2);
        }
        if (n < 1)
            sharpen_limits<T>(rows);
    }
    if constexpr (S::RELEASES_K_LATE)
        release_and_advance(smem.k_empty, k);
    if constexpr (!Tile::CHECKS_AFTER_EXP)
        moved = move_row_max<CORRECTS>(s, rows, alpha, params.scale_log2);
    const PipelineState<Tile::STAGES> done = v;
    v.advance();
    wait_for_next_v(smem, v, params);
    wgmma_wait<0>();
    wgmma_hold(o);
    wgmma_hold(p);
    constexpr bool RELEASES_LATE = S::template RELEASES_V_LATE<PING_PONG>;
    if constexpr (!RELEASES_LATE)
        release(&smem.v_empty[done.stage]);
    if constexpr (Tile::CHECKS_AFTER_EXP)
        exponentiate_and_check<T>(p, o, s, rows, sum, params.scale_log2, n);
    else
        exponentiate<T>(p, rows.sum, s, rows, params.scale_log2);
    if constexpr (CORRECTS)
        weigh_largest(weight, rows, moved);
    if constexpr (RELEASES_LATE)
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

/* The lowest block of keys that has to be masked for the 64 rows from `first_row` on: one of them does not see all of
 * it. `shift` is kv_len - q_len, `first_key` that of the key split in a block. */
template <typename Tile>
__device__ __forceinline__ int first_masked_block(const Params &params, int first_row, int first_key, int shift)
{
    return ((params.causal ? max(min(params.kv_len, first_row + 1 + shift), 0) : params.kv_len) + Tile::BLOCK_N -
            Traits<Tile>::KEYS - first_key) /
           Tile::BLOCK_N;
}

/* All keys that one of these rows sees are ahead of this one. */
__device__ __forceinline__ int seen_end(const Params &params, int first_row, int shift)
{
    return params.causal ? min(params.kv_len, first_row + 64 + shift) : params.kv_len;
}

/* The highest block of keys that one of these rows sees, or 0. */
template <typename Tile>
__device__ __forceinline__ int last_seen_block(const Params &params, int first_row, int first_key, int shift)
{
    const int sees = first_row >= params.q_len ? 0 : params.causal ? first_row + 64 + shift : params.kv_len;
    return max(sees - 1 - first_key, 0) / Tile::BLOCK_N;
}

/* Issues the last O += P V of a tile. */
template <typename T, typename Tile, typename Operand>
__device__ __forceinline__ void start_last_output(SharedStorage<Tile> &smem, const PipelineState<Tile::STAGES> &v,
                                                  float (&o)[Traits<Tile>::ACCUMULATORS],
                                                  uint32_t (&p)[Traits<Tile>::SCORES / 2], const Operand &v_operand)
{
    if constexpr (!Tile::CHECKS_AFTER_EXP)
        mbarrier_wait(shared_address(&smem.v_full[v.stage]), v.phase);
    wgmma_hold(o);
    wgmma_hold(p);
    wgmma_fence();
    start_output<T, Tile>(o, p, v_operand());
}

} // namespace sm90_fwd
