/* The sm_90 backward of few queries for many keys, head_dim 64: all queries of a head are one tile, and a key head has
 * one query head. A block keeps Q, dO and the sums of dQ while it goes over its tiles of keys, one head after the
 * other: K and V of the next two tiles are on their way meanwhile, and dQ is added to dq_sum once for each head. Device
 * memory is read and written once, which is what such a problem is bound by; the other tiles of the backward load Q and
 * dO, and add dQ, for every tile of keys.
 *
 * Each block has a range of tiles of keys, about as long as those of the others, of one head or of several
 * (sm90_bwd_first_key_tile). Two warpgroups have 64 keys of a tile each, as in kv_warpgroup.cuh; the block's first
 * warpgroup computes dQ, in registers, and its warp 0 loads. */
#pragma once
#include <cstddef>

#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/grid_order.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/wgmma.cuh"
#include "kernels/sm90/bwd/dq_warpgroup.cuh"
#include "kernels/sm90/bwd/kv_steps.cuh"

namespace sm90_bwd {

using namespace device;

constexpr int KEY_STAGES = 3; /* tiles of K and V in shared memory */

template <typename Tile> struct alignas(1024) FewQueriesSmem {
    using S = Traits<Tile>;
    unsigned char k[KEY_STAGES][S::KV_BYTES], v[KEY_STAGES][S::KV_BYTES];
    unsigned char q[S::Q_BYTES], dout[S::Q_BYTES];  /* of the head */
    unsigned char ds[2][S::DS_BYTES];               /* panels of [keys][64 queries] */
    unsigned char dv[S::KV_BYTES], dk[S::KV_BYTES]; /* of a tile of keys, on their way to device memory */
    float stats[2 * Tile::Q_TILE];                  /* lse2, then -D, of the head */
    uint64_t k_full[KEY_STAGES], v_full[KEY_STAGES], keys_empty[KEY_STAGES];
    uint64_t q_full, stats_full, q_empty; /* q: Q and dO; q_empty: all KV warps have finished with the head */
    uint64_t ds_full[2], ds_empty[2];
};

/* A tile of keys. */
struct KeyTile {
    int batch, kv_head, kv_tile;

    /* number: over all heads. */
    __device__ __forceinline__ KeyTile(const Params &params, int number)
    {
        const int head = number / params.kv_tiles;
        kv_tile = keep_uniform(number - head * params.kv_tiles);
        batch = keep_uniform(head / params.kv_heads);
        kv_head = keep_uniform(head - batch * params.kv_heads);
    }

    __device__ __forceinline__ WorkTile work() const { return {.batch = batch, .kv_head = kv_head}; }

    __device__ __forceinline__ bool is_last_of_head(const Params &params) const
    {
        return kv_tile == params.kv_tiles - 1;
    }

    __device__ __forceinline__ void advance(const Params &params)
    {
        if (++kv_tile == params.kv_tiles) {
            kv_tile = 0;
            if (++kv_head == params.kv_heads) {
                kv_head = 0;
                ++batch;
            }
        }
    }
};

/* Loads for the block: a warp, one thread of which issues the copies. */
template <typename Tile> struct FewQueriesProducer {
    using S = Traits<Tile>;
    KeyTile next; /* the tile of keys that is loaded next */
    int number, end;
    PipelineState<KEY_STAGES> stage;

    __device__ __forceinline__ FewQueriesProducer(const Params &params, int begin, int end)
        : next(params, begin), number(begin), end(end)
    {
    }

    /* Loads tiles of keys up to this number, which is not loaded. */
    __device__ __forceinline__ void load_keys_until(FewQueriesSmem<Tile> &smem, const Params &params, int most)
    {
#pragma unroll 1
        for (; number < min(most, end); ++number) {
            mbarrier_wait_together(shared_address(&smem.keys_empty[stage.stage]), stage.phase ^ 1);
            if (elect_one()) {
                load(smem.k[stage.stage], &params.k, &smem.k_full[stage.stage]);
                load(smem.v[stage.stage], &params.v, &smem.v_full[stage.stage]);
            }
            next.advance(params);
            stage.advance();
        }
    }

    /* Q and dO of a head. */
    __device__ __forceinline__ void load_queries(FewQueriesSmem<Tile> &smem, const Params &params, const KeyTile &of)
    {
        if (elect_one()) {
            const uint32_t full = shared_address(&smem.q_full);
            mbarrier_arrive_expect(full, 2 * S::Q_BYTES);
            tma_load(shared_address(smem.q), &params.q, full, L2_EVICT_NORMAL, 0, 0, of.kv_head, of.batch);
            tma_load(shared_address(smem.dout), &params.dout, full, L2_EVICT_NORMAL, 0, 0, of.kv_head, of.batch);
        }
    }

    /* Their statistics, which the kernel before computes. */
    __device__ __forceinline__ void load_stats(FewQueriesSmem<Tile> &smem, const Params &params, const KeyTile &of)
    {
        if (elect_one()) {
            const uint32_t full = shared_address(&smem.stats_full);
            const int64_t tile = tile_index<Tile>(params, of.batch, of.kv_head, 0);
            mbarrier_arrive_expect(full, S::STATS_BYTES);
            bulk_load(shared_address(smem.stats), params.stats + tile * (2 * Tile::Q_TILE), S::STATS_BYTES, full);
        }
    }

  private:
    __device__ __forceinline__ void load(const unsigned char *to, const CUtensorMap *map, const uint64_t *full) const
    {
        mbarrier_arrive_expect(shared_address(full), S::KV_BYTES);
        tma_load(shared_address(to), map, shared_address(full), L2_EVICT_FIRST, 0, next.kv_tile * KV_TILE, next.kv_head,
                 next.batch);
    }
};

/* The third warpgroup, over the tiles of keys from `begin` to before `end`. */
template <typename T, typename Tile>
__device__ __forceinline__ void dq_warpgroup_few_queries(FewQueriesSmem<Tile> &smem, const Params &params, int begin,
                                                         int end)
{
    using S = Traits<Tile>;
    const int warp = keep_uniform(threadIdx.x / LANES), lane = threadIdx.x % LANES;
    const uint32_t first_k = keep_uniform(wgmma_mn_major(shared_address(smem.k[0]), S::KV_PANEL_BYTES));
    const uint32_t first_ds = keep_uniform(wgmma_mn_major(shared_address(smem.ds[0]), S::KV_PANEL_BYTES));
    FewQueriesProducer<Tile> producer(params, begin, end);
    KeyTile at(params, begin);
    PipelineState<KEY_STAGES> stage;
    float dq[S::PASSES][32]; /* sums of the head; a pass has 64 queries */
    bool adds = false;       /* to what is in dq */
    uint32_t heads = 0;      /* that have been finished */

    if (warp == 0) {
        producer.load_queries(smem, params, at);
        producer.load_keys_until(smem, params, begin + KEY_STAGES);
    }
    grid_wait_for_last(); /* for the statistics, and the zeros in dq_sum */
    if (warp == 0)
        producer.load_stats(smem, params, at);
#pragma unroll 1
    for (int number = begin; number < end; ++number) {
        const uint32_t count = number - begin, buffer = count % 2;
        mbarrier_wait_together(shared_address(&smem.ds_full[buffer]), count / 2 % 2);
#pragma unroll
        for (int pass = 0; pass < S::PASSES; ++pass)
            start_dq<T>(dq[pass], first_ds + buffer * (S::DS_BYTES / 16) + pass * (S::KV_PANEL_BYTES / 16),
                        first_k + stage.stage * (S::KV_BYTES / 16), adds);
        if (warp == 0 && count > 0) /* the stage of the tile before */
            producer.load_keys_until(smem, params, number + KEY_STAGES);
        __syncwarp();
        wgmma_wait<0>();
#pragma unroll
        for (int pass = 0; pass < S::PASSES; ++pass)
            wgmma_hold(dq[pass]);
        if (lane == 0) {
            mbarrier_arrive(shared_address(&smem.ds_empty[buffer]));
            mbarrier_arrive(shared_address(&smem.keys_empty[stage.stage]));
        }
        adds = true;
        stage.advance();
        if (at.is_last_of_head(params) || number + 1 == end) {
            const int tile = tile_index<Tile>(params, at.batch, at.kv_head, 0);
#pragma unroll
            for (int pass = 0; pass < S::PASSES; ++pass)
                add_dq<Tile>(dq[pass], params, tile, pass, warp, lane);
            adds = false;
        }
        const bool begins_head = at.is_last_of_head(params) && number + 1 < end;
        at.advance(params);
        if (begins_head && warp == 0) {
            mbarrier_wait_together(shared_address(&smem.q_empty), heads++ % 2);
            producer.load_queries(smem, params, at);
            producer.load_stats(smem, params, at);
        }
        __syncwarp();
    }
}

/* A KV warpgroup, over the same tiles of keys. `group`: which of both. */
template <typename T, typename Tile>
__device__ __forceinline__ void kv_warpgroup_few_queries(FewQueriesSmem<Tile> &smem, const Params &params, int group,
                                                         int begin, int end)
{
    using S = Traits<Tile>;
    const int warp = keep_uniform(threadIdx.x / LANES % 4), lane = forget(threadIdx.x % LANES);
    const int warp_row = group * S::GROUP_KEYS + warp * 16; /* the warp's first key, counted from the tile's first */
    const uint32_t first_k = keep_uniform(wgmma_k_major(shared_address(smem.k[0]) + group * S::GROUP_KEYS * ROW_BYTES));
    const uint32_t q = keep_uniform(wgmma_k_major(shared_address(smem.q)));
    const uint32_t q_transposed = keep_uniform(wgmma_mn_major(shared_address(smem.q), S::Q_PANEL_BYTES));
    using Shared = FewQueriesSmem<Tile>; /* the same way from a stage of K to that of V, and from Q to dO */
    constexpr uint32_t V_AFTER_K = (offsetof(Shared, v) - offsetof(Shared, k)) / 16;
    constexpr uint32_t DOUT_AFTER_Q = (offsetof(Shared, dout) - offsetof(Shared, q)) / 16;
    const uint32_t stats = shared_address(smem.stats) + lane % 4 * 2 * sizeof(float);
    KeyTile at(params, begin), before = at;
    PipelineState<KEY_STAGES> stage;
    uint32_t heads = 0;                   /* that have been finished */
    uint32_t packed_dk[S::GRADIENTS / 2]; /* of the tile before */

    const auto store_dk = [&] {
        store_packed_gradient<Tile>(packed_dk, shared_address(smem.dk) + warp_row * ROW_BYTES, &params.dk,
                                    before.kv_tile * KV_TILE + warp_row, before.work(), lane);
    };

    mbarrier_wait(shared_address(&smem.q_full), 0);
#pragma unroll 1
    for (int number = begin; number < end; ++number) {
        const uint32_t count = number - begin, buffer = count % 2;
        const uint32_t k = first_k + stage.stage * (S::KV_BYTES / 16);
        const uint32_t none[1] = {};                            /* of K and V in registers */
        float s[S::SCORES], dv[S::GRADIENTS], dk[S::GRADIENTS]; /* s: S, then P, then dP */
        uint32_t p[S::SCORES / 2], p_ds[S::SCORES / 2];         /* P, the operand of dV; P in fp16, then dS */

        mbarrier_wait(shared_address(&smem.k_full[stage.stage]), stage.phase);
        start_scores<T, Tile, 0>(s, none, k, q);
        if (count > 0) /* of the tile before, beside S */
            store_dk();
        mbarrier_wait(shared_address(&smem.stats_full), heads % 2);
        const auto lse2 = prefetch_stats<Tile>(stats);
        wgmma_wait<0>();
        wgmma_hold(s);
        scores_to_visible_p<Tile>(s, stats, lse2, params, {}, at.kv_tile * KV_TILE + group * S::GROUP_KEYS, 0, warp,
                                  lane);
        pack<T>(p, s);
        pack<__half>(p_ds, s);
        mbarrier_wait(shared_address(&smem.v_full[stage.stage]), stage.phase);
        start_scores<T, Tile, 0>(s, none, k + V_AFTER_K, q + DOUT_AFTER_Q);
        start_gradient<T, Tile>(dv, p, q_transposed + DOUT_AFTER_Q, false);
        const auto neg_delta = prefetch_stats<Tile>(stats + Tile::Q_TILE * sizeof(float));
        wgmma_wait<1>();
        wgmma_hold(s);
        __syncwarp();
        if (lane == 0)
            mbarrier_arrive(shared_address(&smem.keys_empty[stage.stage]));
#pragma unroll
        for (int n = 0; n < S::SCORES / 4; ++n) {
            subtract_delta(s, s, n, stats + Tile::Q_TILE * sizeof(float), neg_delta);
            p_to_ds<T>(p_ds, n, s);
        }
        mbarrier_wait(shared_address(&smem.ds_empty[buffer]), count / 2 % 2 ^ 1);
        store_ds<Tile>(shared_address(smem.ds[buffer]) + warp_row * ROW_BYTES, p_ds, lane);
        async_proxy_fence();
        __syncwarp();
        if (lane == 0) {
            mbarrier_arrive(shared_address(&smem.ds_full[buffer]));
            tma_store_wait_read<0>(); /* dV and dK of the tile before */
        }
        start_gradient<T, Tile>(dk, p_ds, q_transposed, false);
        __syncwarp();
        wgmma_wait<1>();
        wgmma_hold(dv);
        wgmma_hold(p);
        store_gradient<T, Tile>(dv, params.dv_scale, shared_address(smem.dv) + warp_row * ROW_BYTES, &params.dv,
                                at.kv_tile * KV_TILE + warp_row, at.work(), lane);
        wgmma_wait<0>();
        wgmma_hold(dk);
        wgmma_hold(p_ds);
        pack_gradient<T>(packed_dk, dk, params.dqk_scale);
        const bool begins_head = at.is_last_of_head(params) && number + 1 < end;
        before = at;
        at.advance(params);
        stage.advance();
        if (begins_head) {
            __syncwarp(); /* all lanes have read the statistics, and then executed a proxy fence */
            if (lane == 0)
                mbarrier_arrive(shared_address(&smem.q_empty));
            mbarrier_wait(shared_address(&smem.q_full), ++heads % 2);
        }
    }
    store_dk();
    if (lane == 0)
        tma_store_wait_read<0>(); /* shared memory must outlive the stores */
}

template <typename Tile>
__global__ void __launch_bounds__(SM90_BWD_THREADS, 1) backward_few_queries(const __grid_constant__ Params params)
{
    using S = Traits<Tile>;
    using T = typename Tile::Element;
    extern __shared__ __align__(1024) unsigned char s_bytes[];
    FewQueriesSmem<Tile> &smem = *keep_shared_uniform<FewQueriesSmem<Tile>>(s_bytes);
    const int warpgroup = keep_uniform(threadIdx.x / WARPGROUP);
    const int heads = params.kv_heads_total, blocks = gridDim.x, block = blockIdx.x;
    const int begin = sm90_bwd_first_key_tile(heads, params.kv_tiles, blocks, block);
    const int end = sm90_bwd_first_key_tile(heads, params.kv_tiles, blocks, block + 1);

    grid_let_next_start();
    if (threadIdx.x == 0) {
        for (int i = 0; i < KEY_STAGES; ++i) {
            mbarrier_init(shared_address(&smem.k_full[i]), 1);
            mbarrier_init(shared_address(&smem.v_full[i]), 1);
            mbarrier_init(shared_address(&smem.keys_empty[i]), S::KV_WARPS + S::DQ_WARPS);
        }
        for (int i = 0; i < 2; ++i) {
            mbarrier_init(shared_address(&smem.ds_full[i]), S::KV_WARPS);
            mbarrier_init(shared_address(&smem.ds_empty[i]), S::DQ_WARPS);
        }
        mbarrier_init(shared_address(&smem.q_full), 1);
        mbarrier_init(shared_address(&smem.stats_full), 1);
        mbarrier_init(shared_address(&smem.q_empty), S::KV_WARPS);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (warpgroup == 0) {
        registers_decrease<S::DQ_REGISTERS>();
        dq_warpgroup_few_queries<T>(smem, params, begin, end);
    } else {
        registers_increase<S::KV_REGISTERS>();
        kv_warpgroup_few_queries<T>(smem, params, warpgroup - 1, begin, end);
    }
}

} // namespace sm90_bwd
