/* fused_sm80, backward: sparse attention, which is windows, packed lengths and block masks, and dense attention at head
 * dims that a tile has exactly, each also with dropout. The kernel and its description: kernel.cuh.
 *
 * The dense kernel's loop over a list of tiles of queries (tile_lists.cuh), made anew for each query head of the group.
 * A tile of which the block's keys see every pair is computed as in the dense kernel. */
#pragma once
#include "kernels/sm80/bwd/family.cuh"
#include "kernels/sm80/bwd/pieces.cuh"
#include "kernels/sm80/bwd/zeros.cuh"
#include "kernels/family/tile_lists.cuh"

namespace sm80_bwd {

using namespace device;

/* A step's query head, and the number of its tile over the padded rows of all heads. */
struct SparseStep {
    int32_t head, index;
};

/* What all warps of a block share. */
struct SparseBlock {
    BlockFacts facts;
    TileList list; /* of query head `head` of the group, which is the one that is loaded next */
    int32_t head;
    const uint16_t *q, *dout;
    int32_t index; /* of that head: its first rows, the number of its first tile over the padded rows of all heads */
    SparseStep steps[4]; /* the last ones */
    int32_t section;     /* of kv heads, where the launch has pieces */
};

/* All threads fill the list with the section of query head `head` from tile `first` on; meanwhile(): what is done while
 * memory is waited for. */
template <typename Tile, typename Meanwhile>
__device__ __forceinline__ void list_query_tiles(SparseBlock &block, const Params &params, int head, int first,
                                                 const Meanwhile &meanwhile)
{
    const fused_sm80_family &family = params.family;
    const BlockFacts facts = block.facts;
    const Sequence &s = facts.sequence;
    const int q_head = facts.kv_head * params.group + head;
    if (threadIdx.x == 0) {
        block.head = head;
        block.q = family_head(params, params.q, s, s.q_first, q_head);
        block.dout = family_head(params, params.dout, s, s.q_first, q_head);
        block.index = family_index<Tile>(params, facts, head, 0);
    }
    if (family.lists.entries != NULL) {
        load_list(block.list, family.lists, list_number(family.lists, s.number, q_head, facts.own),
                  first & ~(LIST_TILES - 1), facts.end_tile, meanwhile);
        return;
    }
    meanwhile();
    fill_list<Traits<Tile>::THREADS>(block.list, first, facts.end_tile, [&](int tile) {
        return tile_bits_of<true>(family.window, s, tile * Tile::Q, Tile::Q, facts.first_key, Tile::KV);
    });
}

/* Where a block is in its loop: entry `at` of the list, -1 behind the last one of the last query head. */
template <typename Tile> struct SparseCursor {
    int at, entry;

    /* All threads call these; the first list has been made. */
    __device__ __forceinline__ void start(SparseBlock &block, const Params &params)
    {
        at = 0;
        entry = block.list.at(0);
        if (entry < 0)
            next_section(block, params);
    }

    __device__ __forceinline__ void advance(SparseBlock &block, const Params &params)
    {
        entry = block.list.at(++at);
        if (entry < 0)
            next_section(block, params);
    }

    __device__ __forceinline__ void next_section(SparseBlock &block, const Params &params)
    {
        while (entry < 0) {
            const bool is_next = block.list.has_more_sections();
            const int head = block.head + (is_next ? 0 : 1);
            if (head >= params.group)
                return;
            const int first = is_next ? block.list.first + LIST_TILES : block.facts.first_tile;
            __syncthreads(); /* all have read the list before */
            list_query_tiles<Tile>(block, params, head, first, [] {});
            at = 0;
            entry = block.list.at(0);
        }
    }
};

template <typename Tile, bool CALLS>
__device__ __forceinline__ void load_sparse_step(Smem<Tile> &s, const Params &params, const SparseBlock &block,
                                                 int entry, int stage)
{
    constexpr int THREADS = Traits<Tile>::THREADS;
    /* Where registers are short, what follows from the thread's index is not kept over the loop. */
    const uint32_t thread = Tile::DIVIDES_SCORES || CALLS ? forget(threadIdx.x) : static_cast<int>(threadIdx.x);
    const int tile = entry >> TILE_BITS, row = tile * Tile::Q;
    const uint16_t *q = block.q + row * params.q.stride_row, *dout = block.dout + row * params.dout.stride_row;
    const uint32_t to_q = shared_address(s.q[stage]), to_dout = shared_address(s.dout[stage]);
    if ((entry & TILE_IS_SHORT) == 0) {
        load_wide_rows<Tile::Q, Tile::HEAD_DIM, THREADS>(to_q, q, params.q.stride_row, Tile::Q, thread);
        load_wide_rows<Tile::Q, Tile::V_HEAD_DIM, THREADS>(to_dout, dout, params.dout.stride_row, Tile::Q, thread);
    } else {
        const int left = block.facts.sequence.q_len - row;
        load_wide_rows<Tile::Q, Tile::HEAD_DIM, THREADS>(to_q, q, params.q.stride_row, left, thread);
        load_wide_rows<Tile::Q, Tile::V_HEAD_DIM, THREADS>(to_dout, dout, params.dout.stride_row, left, thread);
    }
    if (thread < Tile::Q / 2)
        cp_async_16(shared_address(s.stats[stage]) + thread * 16,
                    params.stats + static_cast<int64_t>(block.index + tile) * (2 * Tile::Q) + thread * 4, true);
}

/* The rows of the block's keys in K, V, dK or dV. */
__device__ __forceinline__ uint16_t *sparse_keys(const Params &params, const struct attn_tensor &tensor,
                                                 const BlockFacts &facts)
{
    return family_head(params, tensor, facts.sequence, facts.sequence.k_first, facts.kv_head) +
           facts.first_key * tensor.stride_row;
}

/* Starts copying the block's keys of K or V in the order of key_of_row. */
template <typename Tile>
__device__ __forceinline__ void load_keys_of_calls(uint32_t shared, const uint16_t *keys, int64_t stride_row, int left)
{
    static_assert(Traits<Tile>::V_IS_AS_WIDE, "K and V are of one width");
    constexpr int ROW_CHUNKS = Tile::HEAD_DIM / 8;
#pragma unroll 4
    for (int i = threadIdx.x; i < Tile::KV * ROW_CHUNKS; i += Traits<Tile>::THREADS) {
        const int row = i / ROW_CHUNKS, chunk = i % ROW_CHUNKS, key = row / 32 * 32 + key_of_row(row % 32);
        cp_async_16(shared + chunk / 8 * Traits<Tile>::KV_PANEL_BYTES + swizzle_128b(row, chunk % 8),
                    key < left ? keys + key * stride_row + chunk * 8 : keys, key < left);
    }
}

/* dK and dV of this warp's keys, by way of the shared memory of K and V. */
template <typename Tile, typename T>
__device__ __forceinline__ void store_sparse_gradients(Gradient<Tile> &dk, Gradient<Tile> &dv, const Smem<Tile> &s,
                                                       const Params &params, const BlockFacts &facts, uint32_t warp_kv,
                                                       uint32_t warp_q)
{
    static_assert(Traits<Tile>::OWN_PANEL && Traits<Tile>::OfV::OWN_PANEL, "a warp has one panel");
    const uint32_t panel = warp_q * Traits<Tile>::KV_PANEL_BYTES + warp_kv * Tile::WARP_KEYS * ROW_BYTES;
    const int first = warp_kv * Tile::WARP_KEYS, column = warp_q * PANEL_COLUMNS;
    const int left = facts.sequence.kv_len - facts.first_key - first;
    store_rows(dk, params.scale, shared_address(s.k) + panel,
               reinterpret_cast<T *>(sparse_keys(params, params.dk, facts)) + first * params.dk.stride_row + column,
               params.dk.stride_row, left);
    store_rows(dv, 1.0f, shared_address(s.v) + panel,
               reinterpret_cast<T *>(sparse_keys(params, params.dv, facts)) + first * params.dv.stride_row + column,
               params.dv.stride_row, left);
}

/* The same where the keys lie in the order of key_of_row. */
template <typename Tile, typename T>
__device__ __forceinline__ void store_gradients_of_calls(Gradient<Tile> &dk, Gradient<Tile> &dv, const Smem<Tile> &s,
                                                         const Params &params, const BlockFacts &facts,
                                                         uint32_t warp_kv, uint32_t warp_q)
{
    const uint32_t keys = warp_kv * Tile::WARP_KEYS * ROW_BYTES;
    round_gradient<Traits<Tile>, T>(dk, params.ds_scale, shared_address(s.k) + keys, warp_q);
    round_gradient<Traits<Tile>, T>(dv, params.family.dropout.keep_factor, shared_address(s.v) + keys, warp_q);
    __syncthreads();
    store_family_keys<Tile, true>(s, params, facts);
}

/* Whether a warp's queries see all of its keys in step i; else, or if `always_fills`, fills in `step`. */
template <typename Tile>
__device__ __forceinline__ bool sees_all_of(FamilyStep &step, const Params &params, const SparseBlock &block, int entry,
                                            int i, uint32_t warp_kv, uint32_t first_query, bool always_fills)
{
    const bool has_hidden = (entry & TILE_HAS_HIDDEN) != 0;
    if (!always_fills && !has_hidden && (entry & TILE_IS_CUT) == 0)
        return true;
    step.facts = &block.facts;
    step.head = block.steps[i & 3].head;
    step.key = block.facts.first_key + static_cast<int>(warp_kv) * Tile::WARP_KEYS;
    step.query = (entry >> TILE_BITS) * Tile::Q + static_cast<int>(first_query);
    step.has_hidden = has_hidden;
    step.is_masked = has_hidden || !RowsView<Tile>(params.family, step).all;
    return !step.is_masked;
}

/* Whether a warp's queries from `query` on, CHUNK_Q of them, see any of its keys as far as causality and window go. */
template <typename Tile>
__device__ __forceinline__ bool sees_any_of(const FamilyStep &step, const fused_sm80_family &family, int query)
{
    const int diagonal = step.query + query + step.shift();
    return step.key <= diagonal + Traits<Tile>::CHUNK_Q - 1 + family.window.right &&
           step.key + Tile::WARP_KEYS > diagonal - family.window.left;
}

/* accumulate_own where this warp's queries do not see all of its keys; a part that sees none is left out. */
template <typename Tile, typename T, typename Attributes>
__device__ __forceinline__ void accumulate_cut(Gradient<Tile> &dk, GradientOfV<Tile> &dv, const StepOperands &at,
                                               int first_query, const Params &params, const FamilyStep &step)
{
    using S = Traits<Tile>;
#pragma unroll 1
    for (int query = 0; query < S::WARP_Q; query += S::CHUNK_Q) {
        ScoreFragments<Tile> p = {}, ds = {};
        const bool any = sees_any_of<Tile>(step, params.family, query);
        if (any)
            score_chunk<Tile, T, true, Attributes>(p, ds, at, query, params, 0, 0, step);
        store_fragments(at.ds, (first_query + query) / 16, ds);
        if (S::EXCHANGE)
            store_fragments(at.p, (first_query + query) / 16, p);
        if (any) {
            gemm_registers<T>(dv, p, at.dout_rows, (first_query + query) / 16, S::OfV::COLUMN16_STEP);
            gemm_registers<T>(dk, ds, at.q_rows, (first_query + query) / 16, S::COLUMN16_STEP);
        }
    }
}

/* What a warp of a sparse kernel computes: S, dP, dV and dK of its keys. */
template <typename Tile, typename T, typename Attributes> struct SparseWarp {
    using S = Traits<Tile>;
    static constexpr bool CALLS = Attributes::DROPOUT; /* keys lie in the order of key_of_row */
    Gradient<Tile> dk;
    GradientOfV<Tile> dv;
    uint32_t warp, warp_kv, warp_q, rows_8, rows_16;

    __device__ __forceinline__ void start(uint32_t index)
    {
        warp = index, warp_kv = warp / Tile::WARPS_Q, warp_q = warp % Tile::WARPS_Q;
        rows_8 = lane_rows_8(threadIdx.x % LANES), rows_16 = lane_rows_16(threadIdx.x % LANES);
        clear(dk);
        clear(dv);
    }

    /* Tile `entry` of the list, step i; dq(): dQ of the step before. */
    template <typename Dq>
    __device__ __forceinline__ void step(const Smem<Tile> &s, const Params &params, const SparseBlock &block, int entry,
                                         int i, const Dq &dq)
    {
        const uint32_t first_query = warp_q * S::WARP_Q;
        const StepOperands at = operands_of(s, i & 1, warp_kv, warp_q, rows_8, rows_16);
        FamilyStep step = {};
        const bool is_whole = sees_all_of<Tile>(step, params, block, entry, i, warp_kv, first_query, CALLS);
        if (CALLS)
            start_dropout(step, params, block, i);
        const bool is_dq_first = S::WARPS == 8 && warp >= S::WARPS / 2; /* see kernel.cuh */
        if (is_dq_first)
            dq();
        if (is_whole && !(CALLS && S::EXCHANGE)) /* with both, registers would be kept in memory */
            accumulate_own<Tile, T, false, Attributes>(dk, dv, at, first_query, params, 0, 0, step);
        else
            accumulate_cut<Tile, T, Attributes>(dk, dv, at, first_query, params, step);
        if (!is_dq_first)
            dq();
        if (S::EXCHANGE) {
            bar_sync(1 + warp_kv, Tile::WARPS_Q * LANES);
#pragma unroll
            for (int other = 1; other < Tile::WARPS_Q; ++other)
                accumulate_other<Tile, T>(dk, dv, at, (warp_q ^ other) * S::WARP_Q);
        }
    }

    /* The parts of Philox that step.head and this thread's keys have in common. */
    __device__ __forceinline__ void start_dropout(FamilyStep &step, const Params &params, const SparseBlock &block,
                                                  int i)
    {
        __shared__ uint4 of_keys[S::THREADS]; /* DropoutKeys */
        static_assert(sizeof of_keys + sizeof(SparseBlock) <= SM80_BWD_DROPOUT_BYTES, "what the host reckons with");
        uint4 &own = of_keys[threadIdx.x];
        if (i == 0 || step.head != block.steps[(i - 1) & 3].head) {
            const uint32_t first_key = block.facts.first_key + warp_kv * Tile::WARP_KEYS, key = threadIdx.x % LANES / 4;
            const DropoutHead head(params.family.dropout.keys, block.facts.sequence.number, step.head);
            const DropoutKeys keys = dropout_keys(head, first_key / 16 * 4 + key);
            own = make_uint4(keys.lo_0, keys.lo_1, keys.hi_2, keys.lo_2);
        }
        step.of_keys = shared_address(&own);
    }

    __device__ __forceinline__ void store(const Smem<Tile> &s, const Params &params, const BlockFacts &facts)
    {
        if constexpr (CALLS)
            store_gradients_of_calls<Tile, T>(dk, dv, s, params, facts, warp_kv, warp_q);
        else if constexpr (S::OWN_PANEL && S::OfV::OWN_PANEL)
            store_sparse_gradients<Tile, T>(dk, dv, s, params, facts, warp_kv, warp_q);
        else
            store_family_gradients<Tile, T>(dk, dv, s, params, facts, warp_kv, warp_q);
    }
};

/* Sparse attention: the tiles of queries that see any of the block's keys, head by head of the group. */
template <typename Tile, typename T, typename Warp>
__device__ __forceinline__ void compute_sparse(const Params &params, Smem<Tile> &s)
{
    using S = Traits<Tile>;
    static_assert(Tile::DEFER_DQ && S::STAGES == 2, "of the tiles that it is compiled for");
    constexpr bool PIECES = HAS_PIECES<Tile> && !Warp::CALLS;
    __shared__ SparseBlock block;
    const BlockFacts &facts = block.facts;
    const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / LANES, 0);
    SparseCursor<Tile> now;
    Warp own;

    struct fused_sm80_bwd_place place = {SM80_BWD_KEYS, static_cast<int>(blockIdx.x), 0, 0, 0};
    if constexpr (PIECES) {
        place = place_of_block(params);
        if (place.role != SM80_BWD_KEYS) {
            compute_piece<Tile, T>(params, place, shared_address(&s));
            return;
        }
        if (threadIdx.x == LANES)
            wait_for_stats(params, place);
    }
    if (threadIdx.x == 0) {
        if (PIECES)
            block.section = place.section;
        find_work(block.facts, params, place.number, Tile::KV, Tile::Q);
    }
    __syncthreads();
    if (facts.sequence.number < 0)
        return;
    const int keys_left = facts.sequence.kv_len - facts.first_key;
    const uint16_t *k = sparse_keys(params, params.k, facts), *v = sparse_keys(params, params.v, facts);
    list_query_tiles<Tile>(block, params, 0, facts.first_tile, [&] {
        if constexpr (Warp::CALLS) {
            load_keys_of_calls<Tile>(shared_address(s.k), k, params.k.stride_row, keys_left);
            load_keys_of_calls<Tile>(shared_address(s.v), v, params.v.stride_row, keys_left);
        } else {
            load_wide_rows<Tile::KV, Tile::HEAD_DIM, S::THREADS>(shared_address(s.k), k, params.k.stride_row,
                                                                 keys_left);
            load_wide_rows<Tile::KV, Tile::V_HEAD_DIM, S::THREADS>(shared_address(s.v), v, params.v.stride_row,
                                                                   keys_left);
        }
    });
    now.start(block, params);
    if (now.entry >= 0)
        load_sparse_step<Tile, Warp::CALLS>(s, params, block, now.entry, 0);
    cp_async_commit();
    if constexpr (!PIECES)
        write_next_zeros<Tile>(params, warp);
    own.start(warp);

    int i = 0;
    const auto dq_before = [&] {
        if (params.dq_sum != NULL && i > 0)
            add_dq<Tile, T>(params.dq_sum, block.steps[(i - 1) & 3].index, shared_address(s.ds[(i - 1) & 1]),
                            shared_address(s.k), warp);
    };
    for (; now.entry >= 0; ++i) {
        const int entry = now.entry;
        if (threadIdx.x == 0)
            block.steps[i & 3] = {facts.kv_head * params.group + block.head, block.index + (entry >> TILE_BITS)};
        now.advance(block, params);
        cp_async_wait<0>();
        __syncthreads();
        if (now.entry >= 0)
            load_sparse_step<Tile, Warp::CALLS>(s, params, block, now.entry, (i & 1) ^ 1);
        cp_async_commit();
        own.step(s, params, block, entry, i, dq_before);
    }

    cp_async_wait<0>();
    __syncthreads();
    dq_before();
    __syncthreads();
    if (PIECES && warp == S::WARPS - 1)
        tell_dq(params, block.section);
    own.store(s, params, facts);
}

} // namespace sm80_bwd
