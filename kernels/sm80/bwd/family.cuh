/* fused_sm80, backward: the family's way over the tiles of queries. The kernel and its description:
 * kernel.cuh. */
#pragma once
#include <type_traits>

#include "kernels/device/barriers.cuh"
#include "kernels/sm80/bwd/step.cuh"

namespace sm80_bwd {

using namespace device;

/* ---- The family -------------------------------------------------------------------------------------------------- */

/* work_tile_of_block by divisors that the host has prepared. Not of the dense kernels: that of head_dim 64 was slower
 * (docs/kernels/sm80.md). */
__device__ __forceinline__ WorkTile ordered_work_tile(const Params &params, int block)
{
    const fused_sm80_bwd_order &order = params.order;
    const int section = quotient(block, order.section_blocks);
    const int rest = block - section * order.section_blocks.value, first_head = section * params.section_heads;
    const bool is_last = params.kv_head_count - first_head <= params.section_heads;
    const divisor &heads = is_last ? order.last_heads : order.section_heads;
    const int tile = quotient(rest, heads), head = first_head + rest - tile * heads.value;
    const int batch = quotient(head, order.kv_heads);
    return {batch, head - batch * params.kv_heads, tile};
}

/* `block`: its number among those that have keys. */
__device__ __forceinline__ void find_work(BlockFacts &facts, const Params &params, int block, int key_tile,
                                          int query_tile)
{
    const fused_sm80_family &family = params.family;
    if (family.order.work == NULL) {
        const WorkTile work = ordered_work_tile(params, block);
        facts.sequence = {static_cast<int>(work.batch), params.q_len, params.kv_len, 0, 0};
        facts.kv_head = static_cast<int>(work.kv_head);
        facts.first_key = work.kv_tile * key_tile;
        facts.own = 0;
    } else {
        const int number = quotient(block, family.order.heads);
        const family_work work = family.order.work[number];
        facts.sequence.number = work.sequence;
        if (work.sequence < 0)
            return;
        facts.sequence = sequence_at(family.lengths, work.sequence, params.q_len, params.kv_len);
        facts.kv_head = work.head + block - number * family.order.heads.value;
        facts.first_key = work.tile * key_tile;
        facts.own = family.lengths.cu_seqlens_q == NULL ? work.tile : number;
    }
    const TileRange range = row_tiles_of(family.window, facts.sequence, facts.first_key, key_tile, query_tile);
    facts.first_tile = range.first;
    facts.end_tile = range.end;
}

/* Where a block is in its loop: a tile of queries of a query head of the group, `group` after the last one. */
template <typename Tile> struct FamilyCursor {
    int head, tile;
    bool is_whole; /* the block mask hides nothing of it */
    VisibleTiles<Tile::Q, Tile::KV, true> visible;

    __device__ __forceinline__ static const uint8_t *mask_of(const Params &params, const BlockFacts &facts, int head)
    {
        return mask_of_head(params.family.mask, facts.sequence.number, facts.kv_head * params.group + head);
    }

    /* To the first tile of `first_head` or of a head behind it. */
    __device__ __forceinline__ void start(const Params &params, const BlockFacts &facts, int first_head)
    {
        const TileRange range = {facts.first_tile, facts.end_tile};
        head = range.first < range.end ? first_head : params.group;
        for (; head < params.group; ++head) {
            const auto mask = [&] { return mask_of(params, facts, head); };
            tile = visible.start(params.family.mask, mask, range, facts.first_key);
            if (tile < range.end)
                break;
        }
        is_whole = head < params.group && visible.is_whole(tile);
    }

    __device__ __forceinline__ void advance(const Params &params, const BlockFacts &facts)
    {
        const auto mask = [&] { return mask_of(params, facts, head); };
        tile = visible.after(params.family.mask, mask, tile, facts.end_tile, facts.first_key);
        if (tile < facts.end_tile)
            is_whole = visible.is_whole(tile);
        else
            start(params, facts, head + 1);
    }
};

/* Number of a tile of queries, counted over the padded rows of all heads. */
template <typename Tile>
__device__ __forceinline__ int32_t family_index(const Params &params, const BlockFacts &facts, int head, int tile)
{
    return static_cast<int32_t>(padded_row(params, facts.sequence, facts.kv_head * params.group + head) / Tile::Q +
                                tile);
}

template <typename Tile>
__device__ __forceinline__ void load_family_step(Smem<Tile> &s, const Params &params, const BlockFacts &facts, int head,
                                                 int tile, int stage)
{
    constexpr int THREADS = Traits<Tile>::THREADS;
    const Sequence &sequence = facts.sequence;
    const int q_head = facts.kv_head * params.group + head, left = sequence.q_len - tile * Tile::Q;
    const int64_t row = static_cast<int64_t>(tile) * Tile::Q;
    load_panels<Tile::Q, Tile::HEAD_DIM, THREADS>(shared_address(s.q[stage]),
                                                  family_head(params, params.q, sequence, sequence.q_first, q_head) +
                                                      row * params.q.stride_row,
                                                  params.q.data, params.q.stride_row, left, params.family.head_dim);
    load_panels<Tile::Q, Tile::HEAD_DIM, THREADS>(
        shared_address(s.dout[stage]),
        family_head(params, params.dout, sequence, sequence.q_first, q_head) + row * params.dout.stride_row,
        params.dout.data, params.dout.stride_row, left, params.family.head_dim);
    if (threadIdx.x < Tile::Q / 2)
        cp_async_16(shared_address(s.stats[stage]) + threadIdx.x * 16,
                    params.stats + static_cast<int64_t>(family_index<Tile>(params, facts, head, tile)) * (2 * Tile::Q) +
                        threadIdx.x * 4,
                    true);
}

template <typename Tile>
__device__ __forceinline__ void load_family_keys(uint32_t shared, const Params &params,
                                                 const struct attn_tensor &tensor, const BlockFacts &facts)
{
    load_panels<Tile::KV, Tile::HEAD_DIM, Traits<Tile>::THREADS>(
        shared,
        family_head(params, tensor, facts.sequence, facts.sequence.k_first, facts.kv_head) +
            facts.first_key * tensor.stride_row,
        tensor.data, tensor.stride_row, facts.sequence.kv_len - facts.first_key, params.family.head_dim);
}

/* Fragments to rows from `rows` on, every `step`-th 16 columns from 16 * column16 on, in any panels. */
template <int PANEL_BYTES, int M16, int K16>
__device__ __forceinline__ void store_columns(uint32_t rows, uint32_t column16, uint32_t step,
                                              const Fragments<M16, K16> &fragments)
{
#pragma unroll
    for (int k = 0; k < K16; ++k) {
        const uint32_t column = column16 + step * k;
        Fragments<M16, 1> part;
#pragma unroll
        for (int m = 0; m < M16; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                part.at[m][0][i] = fragments.at[m][k][i];
        store_fragments({lane_rows_16(threadIdx.x % LANES), rows + column / 4 * PANEL_BYTES, 0}, column % 4, part);
    }
}

/* A warp's part of dK or dV times `scale`, rounded, to the rows of `keys` in shared memory; W: a Width. */
template <typename W, typename T, typename Sums>
__device__ __forceinline__ void round_gradient(Sums &sums, float scale, uint32_t keys, uint32_t warp_q)
{
    Fragments<Sums::M16, W::COLUMNS / 16> packed;
#pragma unroll
    for (int m = 0; m < Sums::M16; ++m)
#pragma unroll
        for (int n = 0; n < W::COLUMNS / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                sums.at[m][n][i] *= scale;
    pack_fragments<T>(packed, sums);
    store_columns<W::KV_PANEL_BYTES>(keys, W::OWN_PANEL ? warp_q * (PANEL_COLUMNS / 16) : warp_q, W::COLUMN16_STEP,
                                     packed);
}

/* ROWS rows from panels in shared memory to the `rows` first rows and `columns` first columns of `to`. is_of_calls:
 * they lie as in key_of_row. */
template <int ROWS, int COLUMNS, int THREADS>
__device__ __forceinline__ void store_panels(uint16_t *to, int64_t stride, uint32_t shared, int rows, int columns,
                                             bool is_of_calls = false)
{
    constexpr int ROW_CHUNKS = COLUMNS / 8;
    for (int index = threadIdx.x; index < ROWS * ROW_CHUNKS; index += THREADS) {
        const int row = index / ROW_CHUNKS, chunk = index % ROW_CHUNKS;
        const int to_row = is_of_calls ? row / 32 * 32 + key_of_row(row % 32) : row;
        if (to_row < rows && chunk * 8 < columns)
            store_once(reinterpret_cast<uint4 *>(to + to_row * stride + chunk * 8),
                       load_shared_128(shared + chunk / 8 * (ROWS * ROW_BYTES) + swizzle_128b(row, chunk % 8)));
    }
}

/* dK and dV of the block's keys, which lie in the shared memory of K and V. */
template <typename Tile, bool CALLS = false>
__device__ __forceinline__ void store_family_keys(const Smem<Tile> &s, const Params &params, const BlockFacts &facts)
{
    constexpr int THREADS = Traits<Tile>::THREADS;
    const Sequence &sequence = facts.sequence;
    const int left = sequence.kv_len - facts.first_key, columns = params.family.head_dim;
    const int v_columns = Traits<Tile>::V_IS_AS_WIDE ? columns : Tile::V_HEAD_DIM;
    store_panels<Tile::KV, Tile::HEAD_DIM, THREADS>(
        family_head(params, params.dk, sequence, sequence.k_first, facts.kv_head) +
            facts.first_key * params.dk.stride_row,
        params.dk.stride_row, shared_address(s.k), left, columns, CALLS);
    store_panels<Tile::KV, Tile::V_HEAD_DIM, THREADS>(
        family_head(params, params.dv, sequence, sequence.k_first, facts.kv_head) +
            facts.first_key * params.dv.stride_row,
        params.dv.stride_row, shared_address(s.v), left, v_columns, CALLS);
}

template <typename Tile, typename T>
__device__ __forceinline__ void store_family_gradients(Gradient<Tile> &dk, GradientOfV<Tile> &dv, const Smem<Tile> &s,
                                                       const Params &params, const BlockFacts &facts, uint32_t warp_kv,
                                                       uint32_t warp_q)
{
    using S = Traits<Tile>;
    const uint32_t keys = warp_kv * Tile::WARP_KEYS * ROW_BYTES;
    round_gradient<S, T>(dk, params.scale, shared_address(s.k) + keys, warp_q);
    round_gradient<typename S::OfV, T>(dv, params.family.dropout.keep_factor, shared_address(s.v) + keys, warp_q);
    __syncthreads();
    store_family_keys<Tile>(s, params, facts);
}

/* What a warp's queries see of its keys, as far as causality, window and the ends of the sequence go. */
template <typename Tile> struct RowsView {
    bool any, all;

    __device__ __forceinline__ RowsView(const fused_sm80_family &family, const FamilyStep &step)
    {
        constexpr int KEYS = Tile::WARP_KEYS, QUERIES = Traits<Tile>::WARP_Q;
        const int diagonal = step.query + step.shift(), kv_len = step.facts->sequence.kv_len;
        any = step.key < kv_len && step.key <= diagonal + QUERIES - 1 + family.window.right &&
              step.key + KEYS > diagonal - family.window.left;
        all = step.key + KEYS <= min(kv_len, diagonal + family.window.right + 1) &&
              step.key >= diagonal + QUERIES - 1 - family.window.left;
    }
};

/* Score has half the scores in registers at a time, for the addresses of biases. */
template <typename Tile> struct SmallChunks : Tile {
    static constexpr int CHUNK = 16;
};

/* Everything else: the tiles of queries that see any of the block's keys, head by head of the group. */
template <typename Tile, typename T, typename Attributes>
__device__ __forceinline__ void compute_family(const Params &params, Smem<Tile> &s)
{
    using S = Traits<Tile>;
    static_assert(S::V_IS_AS_WIDE, "one head_dim is known at run time");
    using Chunks = std::conditional_t<Attributes::SCORE, SmallChunks<Tile>, Tile>;
    __shared__ BlockFacts facts;
    const fused_sm80_family &family = params.family;
    const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / LANES, 0);
    const uint32_t warp_kv = warp / Tile::WARPS_Q, warp_q = warp % Tile::WARPS_Q, first_query = warp_q * S::WARP_Q;
    const uint32_t lane = threadIdx.x % LANES, rows_8 = lane_rows_8(lane), rows_16 = lane_rows_16(lane);
    const bool with_dq = params.dq_sum != NULL;
    FamilyCursor<Tile> now;
    Gradient<Tile> dk, dv;

    if (threadIdx.x == 0)
        find_work(facts, params, blockIdx.x, Tile::KV, Tile::Q);
    __syncthreads();
    if (facts.sequence.number < 0)
        return;
    now.start(params, facts, 0);
    clear(dk);
    clear(dv);
    load_family_keys<Tile>(shared_address(s.k), params, params.k, facts);
    load_family_keys<Tile>(shared_address(s.v), params, params.v, facts);
    if (now.head < params.group)
        load_family_step<Tile>(s, params, facts, now.head, now.tile, 0);
    cp_async_commit();

    int32_t index_before = -1;
    int stage = 0;
    while (now.head < params.group) {
        const int32_t index = family_index<Tile>(params, facts, now.head, now.tile);
        const FamilyStep step = {&facts, facts.kv_head * params.group + now.head,
                                 facts.first_key + static_cast<int>(warp_kv) * Tile::WARP_KEYS,
                                 now.tile * Tile::Q + static_cast<int>(first_query), !now.is_whole};
        now.advance(params, facts);
        cp_async_wait<0>();
        __syncthreads();
        if (S::STAGES == 2 && now.head < params.group)
            load_family_step<Tile>(s, params, facts, now.head, now.tile, stage ^ 1);
        cp_async_commit();

        const StepOperands at = operands_of(s, stage, warp_kv, warp_q, rows_8, rows_16);
        const RowsView<Tile> view(family, step);
        if (view.all && !step.has_hidden)
            accumulate_own<Chunks, T, false, Attributes>(dk, dv, at, first_query, params, 0, 0, step);
        else if (view.any)
            accumulate_own<Chunks, T, true, Attributes>(dk, dv, at, first_query, params, 0, 0, step);
        else
            store_zeros<Tile>(at, first_query);

        if (with_dq && index_before >= 0)
            add_dq<Tile, T>(params.dq_sum, index_before, shared_address(s.ds[stage ^ 1]), shared_address(s.k), warp);
        if (S::EXCHANGE) {
            bar_sync(1 + warp_kv, Tile::WARPS_Q * LANES);
#pragma unroll
            for (int other = 1; other < Tile::WARPS_Q; ++other)
                accumulate_other<Tile, T>(dk, dv, at, (warp_q + other) % Tile::WARPS_Q * S::WARP_Q);
        }
        if (S::STAGES == 1) {
            __syncthreads();
            if (now.head < params.group)
                load_family_step<Tile>(s, params, facts, now.head, now.tile, 0);
            cp_async_commit();
        }
        index_before = index;
        stage ^= 1;
    }

    cp_async_wait<0>();
    __syncthreads();
    if (with_dq && index_before >= 0) {
        add_dq<Tile, T>(params.dq_sum, index_before, shared_address(s.ds[stage ^ 1]), shared_address(s.k), warp);
        __syncthreads();
    }
    store_family_gradients<Tile, T>(dk, dv, s, params, facts, warp_kv, warp_q);
}

} // namespace sm80_bwd
