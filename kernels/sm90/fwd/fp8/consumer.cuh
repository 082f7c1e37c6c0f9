/* A consumer warpgroup of the 8-bit sm_90 forward: its 64 rows of the thread block's work tiles. */
#pragma once

#include "kernels/device/barriers.cuh"
#include "kernels/device/eight_bits.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/sm90/fwd/fp8/epilogue.cuh"
#include "kernels/sm90/fwd/fp8/softmax.cuh"
#include "kernels/sm90/fwd/fp8/tiles.cuh"
#include "kernels/sm90/fwd/fp8/transpose.cuh"

namespace sm90_fp8 {

/* Ping-pong, where a tile has it: a warpgroup waits for the one before it, issues its products, and lets the next one
 * issue when it has its scores, so that the products of one run beside the exponentials of another. */
template <typename Tile> __device__ __forceinline__ void ping_pong_wait(int consumer)
{
    if constexpr (Tile::IN_TURN)
        bar_sync(1 + consumer, 2 * WARPGROUP);
}

template <typename Tile> __device__ __forceinline__ void ping_pong_pass(int consumer)
{
    if constexpr (Tile::IN_TURN)
        bar_arrive(1 + (consumer + 1 == Traits<Tile>::CONSUMERS ? 0 : consumer + 1), 2 * WARPGROUP);
}

/* One lane of each warp says that the warp has finished with a stage. */
__device__ __forceinline__ void release(const uint64_t *empty)
{
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(shared_address(empty));
}

/* Where the scales of a tile's keys begin, those of K as those of V. */
__device__ __forceinline__ int key_scales(const Params &params, const Dense::WorkTile &tile)
{
    return tile.batch * params.scale_kv.batch + quotient(tile.head, params.dense.group) * params.scale_kv.head;
}

/* scale * log2(e), and the scale of the 64 rows of Q from first_row on, which are in one block. Rows from q_len on have
 * no scale. */
template <typename Tile>
__device__ __forceinline__ float row_scale_log2(const Params &params, const Dense::WorkTile &tile, int first_row)
{
    int at = tile.batch * params.scale_q.batch;
    if constexpr (Tile::BLOCK_SCALES)
        at += tile.head * params.scale_q.head + quotient(min(first_row, params.dense.q_len - 1), params.scale_rows);
    else
        at += quotient(tile.head, params.dense.group) * params.scale_q.head;
    return params.dense.scale_log2 * params.scales_of_q[at];
}

/* What a consumer has of a work tile, by reference: the variables are those of consume. */
template <typename KernelElement, typename KernelTile> struct Consumer {
    using T = KernelElement;
    using Tile = KernelTile;
    using S = Traits<Tile>;

    SharedStorage<Tile> &smem;
    const Params &params;
    const int &number;
    const uint32_t &query, &first_k, &first_v; /* operands: the warpgroup's rows of Q, stage 0 of K and of V */
    PipelineState<Tile::K_STAGES> &k;
    PipelineState<Tile::V_STAGES> &v;
    uint32_t (&q_fragments)[S::Q_FRAGMENTS][4]; /* the steps of Q that stay in registers */
    float (&s)[S::SCORES], (&o)[S::OUTPUTS], (&product)[S::PRODUCTS];
    uint32_t (&p)[S::SCORES / 4];

    /* Issues S = Q K^T. */
    __device__ __forceinline__ void start_scores() const
    {
        const uint32_t of_k = first_k + k.stage * (S::KV_BYTES / 16);
#pragma unroll
        for (int step = 0; step < Tile::HEAD_DIM / 32; ++step)
            if (step < Tile::Q_REGISTER_STEPS)
                wgmma<T, Tile::BLOCK_N>::template registers<S::ROW_BYTES>(s, q_fragments[step], of_k + 2 * step,
                                                                          step > 0);
            else
                wgmma<T, Tile::BLOCK_N>::template shared<S::ROW_BYTES>(s, query + 2 * step, of_k + 2 * step, step > 0);
        wgmma_commit();
    }

    /* Issues the product of P and V: O += P V, or that of the block alone. */
    __device__ __forceinline__ void start_output() const
    {
        const uint32_t of_v = first_v + v.stage * (S::KV_BYTES / 16);
#pragma unroll
        for (int step = 0; step < Tile::BLOCK_N / 32; ++step)
            if constexpr (Tile::FAST)
                wgmma<T, Tile::HEAD_DIM>::template registers<V_ROW_BYTES>(o, &p[4 * step], of_v + 2 * step, true);
            else
                wgmma<T, Tile::HEAD_DIM>::template registers<V_ROW_BYTES>(product, &p[4 * step], of_v + 2 * step,
                                                                          step > 0);
        wgmma_commit();
    }

    __device__ __forceinline__ void hold_q() const
    {
#pragma unroll
        for (int step = 0; step < Tile::Q_REGISTER_STEPS; ++step)
            wgmma_hold(q_fragments[step]);
    }

    __device__ __forceinline__ void hold_output() const
    {
        if constexpr (Tile::FAST)
            wgmma_hold(o);
        else
            wgmma_hold(product);
    }

    /* Issues the second product of a block: O = factor O + P V, where `factor` takes O from the row max, and the scale
     * of V, of the block before to those of this one. */
    __device__ __forceinline__ void issue_output(const float (&factor)[2]) const
    {
        if (Tile::FAST && __any_sync(WHOLE_WARP, factor[0] != 1.0f || factor[1] != 1.0f)) {
            /* A product of wgmma's keeps 13 bits of O and cuts what is below toward zero: of an O that was multiplied
             * it takes 0.36 of the last one, in the mean. */
            constexpr float BEFORE_CUT = 1.0f + 0.36f / 8192;
            const float factors[2] = {factor[0] == 1.0f ? 1.0f : factor[0] * BEFORE_CUT,
                                      factor[1] == 1.0f ? 1.0f : factor[1] * BEFORE_CUT};
#pragma unroll
            for (int i = 0; i < S::OUTPUTS; ++i)
                o[i] *= factors[i / 2 % 2];
        }
        wgmma_hold(p);
        hold_output();
        wgmma_fence();
        start_output();
    }

    /* Waits for it. */
    __device__ __forceinline__ void finish_output(const float (&factor)[2]) const
    {
        wgmma_wait<0>();
        hold_output();
        wgmma_hold(p);
        release(&smem.v_empty[v.stage]);
        v.advance();
        if constexpr (!Tile::FAST) {
#pragma unroll
            for (int i = 0; i < S::OUTPUTS; ++i)
                o[i] = fmaf(o[i], factor[i / 2 % 2], product[i]);
        }
    }

    __device__ __forceinline__ void release_k() const
    {
        release(&smem.k_empty[k.stage]);
        k.advance();
    }
};

/* The steps of Q that stay in registers. */
template <typename Tile>
__device__ __forceinline__ void load_q_fragments(uint32_t (&q_fragments)[Traits<Tile>::Q_FRAGMENTS][4],
                                                 const uint8_t *q_stage, int consumer)
{
    const int lane = threadIdx.x % 32, row = consumer * 64 + threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
    for (int step = 0; step < Tile::Q_REGISTER_STEPS; ++step)
        ldmatrix_x4(q_fragments[step],
                    shared_address(q_stage) + swizzled<Traits<Tile>::ROW_BYTES>(row, 2 * step + lane / 16));
}

/* All work tiles of the thread block. */
template <typename T, typename Tile>
__device__ __forceinline__ void consume(SharedStorage<Tile> &smem, const Params &params, int consumer)
{
    using S = Traits<Tile>;
    /* Where registers are short, values that are the same in a warp are kept in uniform ones. */
    constexpr bool IS_TIGHT = S::CONSUMERS == 3 && Tile::BLOCK_SCALES;
    const int lane = threadIdx.x % 32, warp_row = consumer * 64 + threadIdx.x / 32 % 4 * 16;
    PipelineState<Tile::K_STAGES> k;
    PipelineState<Tile::V_STAGES> v;
    const uint32_t first_k = keep_uniform(wgmma_k_major(shared_address(smem.k[0]))),
                   first_v = keep_uniform(wgmma_k_major(shared_address(smem.v[0])));
    const int shift = params.dense.kv_len - params.dense.q_len;

    if (consumer == S::CONSUMERS - 1)
        ping_pong_pass<Tile>(consumer); /* warpgroup 0 begins */
#pragma unroll 1
    for (uint32_t turn = 0;; ++turn) {
        const uint32_t q_stage = IS_TIGHT ? keep_uniform(turn % Q_STAGES) : turn % Q_STAGES,
                       q_phase = turn / Q_STAGES % 2; /* in one register */
        mbarrier_wait(shared_address(&smem.work_tile_full[q_stage]), q_phase);
        const Dense::WorkTile &tile = smem.work_tile[q_stage]; /* read where it is needed */
        int n = keep_uniform(tile.key_blocks) - 1;
        if (n < 0)
            break;
        const int first_row = tile.first_row + consumer * 64;
        const int seen_by_all =
            params.dense.causal ? max(min(params.dense.kv_len, first_row + 1 + shift), 0) : params.dense.kv_len;
        const int first_masked =
            keep_uniform(seen_by_all / Tile::BLOCK_N); /* block, from which on some keys are masked */
        const uint32_t query =
            keep_uniform(wgmma_k_major(shared_address(smem.q[q_stage]) + consumer * 64 * S::ROW_BYTES));
        uint32_t q_fragments[S::Q_FRAGMENTS][4], p[S::SCORES / 4];
        float s[S::SCORES], o[S::OUTPUTS], product[S::PRODUCTS];
        RowState rows = {{NO_MAXIMUM, NO_MAXIMUM}, {0.0f, 0.0f}, false};
        float alpha[2], factor[2] = {1.0f, 1.0f}; /* factor: of O, ahead of its newest product */
        const int first_scale = keep_uniform(key_scales(params, tile));
        float of_rows = row_scale_log2<Tile>(params, tile, first_row);
        if constexpr (IS_TIGHT)
            of_rows = keep_uniform(of_rows);
        const int newest_scale = first_scale + (Tile::BLOCK_SCALES ? quotient(n, params.scale_blocks) : 0);
        float scale_log2 = of_rows * params.scales_of_k[newest_scale];
        float of_v = Tile::BLOCK_SCALES ? params.scales_of_v[newest_scale] : 1.0f; /* the scale of O */
        Consumer<T, Tile> c = {smem, params, consumer, query, first_k, first_v, k, v, q_fragments, s, o, product, p};
        const auto mask = [&](int block) {
            if (block >= first_masked) { /* computed here: the main loop has no registers for it */
                const int thread = forget(threadIdx.x) - WARPGROUP;
                Dense::mask(s, params.dense, {}, block * Tile::BLOCK_N + thread % 4 * 2,
                            tile.first_row + thread / 32 * 16 + thread % 32 / 4 + shift + 1);
            }
        };
        bool has_both = false; /* K of the next block and V of this one: asked for early, as an answer takes long */
        const auto ask = [&] {
            const bool has_k = mbarrier_test(shared_address(&smem.k_full[k.stage]), k.phase);
            has_both = has_k & mbarrier_test(shared_address(&smem.v_full[v.stage]), v.phase);
        };
        mbarrier_wait(shared_address(&smem.q_full[q_stage]), q_phase);
#pragma unroll
        for (int i = 0; i < S::OUTPUTS; ++i)
            o[i] = 0.0f;
        if constexpr (Tile::Q_REGISTER_STEPS > 0)
            load_q_fragments<Tile>(q_fragments, smem.q[q_stage], consumer);

        /* The first block: S and P. */
        mbarrier_wait(shared_address(&smem.k_full[k.stage]), k.phase);
        ping_pong_wait<Tile>(consumer);
        c.hold_q();
        wgmma_fence();
        c.start_scores();
        ping_pong_pass<Tile>(consumer);
        wgmma_wait<0>();
        wgmma_hold(s);
        c.release_k();
        mask(n);
        move_row_max(s, rows, alpha, scale_log2);
        ask();
        pack_weights<T, 0>(p, s, rows, scale_log2);

#pragma unroll 1
        for (--n; n >= 0; --n) {
            float next_k = 1.0f, next_v = 1.0f; /* asked for ahead of S */
            if constexpr (Tile::BLOCK_SCALES) {
                const int at = first_scale + quotient(n, params.scale_blocks);
                next_k = params.scales_of_k[at];
                next_v = params.scales_of_v[at];
            }
            if (!has_both) {
                mbarrier_wait(shared_address(&smem.k_full[k.stage]), k.phase);
                mbarrier_wait(shared_address(&smem.v_full[v.stage]), v.phase);
            }
            ping_pong_wait<Tile>(consumer);
            c.hold_q();
            wgmma_fence();
            c.start_scores();
            c.issue_output(factor); /* of the block before, beside S */
            wgmma_wait<1>();
            wgmma_hold(s);
            ping_pong_pass<Tile>(consumer);
            c.release_k();
            mask(n);
            if constexpr (Tile::BLOCK_SCALES)
                scale_log2 = of_rows * next_k;
            move_row_max(s, rows, alpha, scale_log2);
            c.finish_output(factor);
            factor[0] = alpha[0];
            factor[1] = alpha[1];
            if constexpr (Tile::BLOCK_SCALES) { /* O is in units of the scale of its newest block of V */
                const float ratio = __fdividef(of_v, next_v);
                of_v = next_v;
                factor[0] *= ratio;
                factor[1] *= ratio;
            }
            ask();
            pack_weights<T, Tile::POLYNOMIAL_EVERY>(p, s, rows, scale_log2);
        }

        mbarrier_wait(shared_address(&smem.v_full[v.stage]), v.phase);
        c.issue_output(factor);
        const Dense::WorkTile done = tile;
        __syncwarp(); /* all lanes have read it */
        release(&smem.q_empty[q_stage]);
        const float scale_v = Tile::BLOCK_SCALES ? of_v : params.scales_of_v[key_scales(params, done)];
        float inverse[2];
        finalize_rows(inverse, rows, scale_v, done, params, done.first_row + warp_row + lane / 4);
        c.finish_output(factor);
        write_output<Tile>(smem, consumer, o, inverse, done, params, done.first_row + warp_row);
    }
    if (consumer == 0)
        ping_pong_wait<Tile>(consumer); /* for the last pass, so that no barrier is left with arrivals */
    if (elect_one())
        tma_store_wait_read<0>(); /* shared memory must outlive the stores */
}

} // namespace sm90_fp8
