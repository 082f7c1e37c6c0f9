/* The consumer warpgroup of the sm_90 decode: S = Q K^T, P = exp(S), O += P V of a tile of query rows, key tile by key
 * tile, and what becomes of O. */
#pragma once
#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/device/wgmma.cuh"
#include "kernels/sm90/decode/combine.cuh"
#include "kernels/sm90/decode/rows.cuh"

namespace sm90_decode {

/* The two rows of a thread, of which four threads share each: sums are those of the thread's columns. */
struct ThreadRows {
    RowSums at[2];
    SeenKeys seen[2];
};

/* One lane of each warp says that the warp has finished with a buffer. */
__device__ __forceinline__ void release(const uint64_t *empty)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(shared_address(empty));
}

/* Starts S = Q K^T of a tile. */
template <typename T, typename Tile>
__device__ __forceinline__ void start_scores(float (&s)[Tile::SCORES], uint32_t q, uint32_t k)
{
    wgmma_hold(s);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < Tile::HEAD_DIM / 16; ++step) {
        const int panel = step / 4, within = step % 4 * 32;
        wgmma<T, Tile::TILE_KEYS>::template shared<WGMMA_K_MAJOR, WGMMA_K_MAJOR>(
            s, q + (panel * Tile::Q_PANEL_BYTES + within) / 16, k + (panel * Tile::KV_PANEL_BYTES + within) / 16,
            step > 0);
    }
    wgmma_commit();
}

template <int SCORES> __device__ __forceinline__ void finish_scores(float (&s)[SCORES])
{
    wgmma_wait<0>();
    wgmma_hold(s);
}

/* O += P V of a tile, and the end of all products. */
template <typename T, typename Tile>
__device__ __forceinline__ void add_output(float (&o)[Tile::OUTPUTS][Tile::COLUMNS / 2],
                                           uint32_t (&p)[Tile::SCORES / 2], uint32_t v)
{
    wgmma_hold(p);
#pragma unroll
    for (int i = 0; i < Tile::OUTPUTS; ++i)
        wgmma_hold(o[i]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Tile::OUTPUTS; ++i)
#pragma unroll
        for (int step = 0; step < Tile::TILE_KEYS / 16; ++step)
            wgmma<T, Tile::COLUMNS>::template registers<WGMMA_MN_MAJOR>(
                o[i], &p[4 * step], v + (i * Tile::OUTPUT_PANELS * Tile::KV_PANEL_BYTES + step * 16 * ROW_BYTES) / 16,
                true);
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < Tile::OUTPUTS; ++i)
        wgmma_hold(o[i]);
}

/* Scores of keys that the rows do not see become -inf, whatever they are. */
template <int SCORES>
__device__ __forceinline__ void mask_tile(float (&s)[SCORES], const ThreadRows &rows, int first_key)
{
    const int column = first_key + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < SCORES; ++i) {
        const int key = column + 8 * (i / 4) + i % 2;
        const SeenKeys &seen = rows.seen[i / 2 % 2];
        if (key < seen.first || key >= seen.last)
            s[i] = -INFINITY;
    }
}

/* Scores i and i + 1 become P, rounded in p. Written so that all kernels round alike. */
template <typename T, int SCORES>
__device__ __forceinline__ void exponentiate_pair(float (&s)[SCORES], uint32_t (&p)[SCORES / 2], int i,
                                                  ThreadRows &rows, float scale, const float (&reference)[2],
                                                  const float (&alpha)[2])
{
    const int half = i / 2 % 2;
    RowSums &row = rows.at[half];
    const float low = exp2_approx(fmaf(s[i], scale, -reference[half]));
    const float high = exp2_approx(fmaf(s[i + 1], scale, -reference[half])), both = __fadd_rn(low, high);
    p[i / 2] = pack2<T>(low, high);
    const float2 rounded = unpack2<T>(p[i / 2]);
    const float both_rounded = __fadd_rn(rounded.x, rounded.y);
    row.sum = i < 4 ? fmaf(row.sum, alpha[half], both) : __fadd_rn(row.sum, both);
    row.rounded = i < 4 ? fmaf(row.rounded, alpha[half], both_rounded) : __fadd_rn(row.rounded, both_rounded);
}

/* S becomes P, rounded in p; O is rescaled where a row max of the warp has moved. */
template <typename T, typename Tile>
__device__ __forceinline__ void softmax_step(float (&s)[Tile::SCORES], uint32_t (&p)[Tile::SCORES / 2],
                                             float (&o)[Tile::OUTPUTS][Tile::COLUMNS / 2], ThreadRows &rows,
                                             float scale)
{
    float top[2], reference[2], alpha[2];

    float_row_max(top, s);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        RowSums &row = rows.at[half];
        const float now = fmaxf(row.max_log2, top[half] * scale);
        reference[half] = now == -INFINITY ? 0.0f : now;
        alpha[half] = exp2_approx(row.max_log2 - reference[half]);
        row.max_log2 = now;
    }
    if (__any_sync(WHOLE_WARP, alpha[0] != 1.0f || alpha[1] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < Tile::OUTPUTS; ++i)
#pragma unroll
            for (int j = 0; j < Tile::COLUMNS / 2; ++j)
                o[i][j] *= alpha[j / 2 % 2];
    }
#pragma unroll
    for (int i = 0; i < Tile::SCORES; i += 2)
        exponentiate_pair<T>(s, p, i, rows, scale, reference, alpha);
}

/* The same without the rows that the tile does not have. halves: of the warp's 16 rows, that exist. */
template <typename T, typename Tile>
__device__ __forceinline__ void softmax_step_few(float (&s)[Tile::SCORES], uint32_t (&p)[Tile::SCORES / 2],
                                                 float (&o)[Tile::OUTPUTS][Tile::COLUMNS / 2], ThreadRows &rows,
                                                 float scale, int halves)
{
    if (halves == 2) {
        softmax_step<T, Tile>(s, p, o, rows, scale);
        return;
    }
#pragma unroll
    for (int i = 0; i < Tile::SCORES / 2; ++i)
        p[i] = 0;
    if (halves == 0)
        return;
    RowSums &row = rows.at[0];
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < Tile::SCORES; i += 4)
        top = fmaxf(top, fmaxf(s[i], s[i + 1]));
    const float now = fmaxf(row.max_log2, quad_max(top) * scale);
    const float reference[2] = {now == -INFINITY ? 0.0f : now, 0.0f};
    const float alpha[2] = {exp2_approx(row.max_log2 - reference[0]), 1.0f};
    row.max_log2 = now;
    if (__any_sync(WHOLE_WARP, alpha[0] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < Tile::OUTPUTS; ++i)
#pragma unroll
            for (int j = 0; j < Tile::COLUMNS / 2; j += 4) {
                o[i][j] *= alpha[0];
                o[i][j + 1] *= alpha[0];
            }
    }
#pragma unroll
    for (int i = 0; i < Tile::SCORES; i += 4)
        exponentiate_pair<T>(s, p, i, rows, scale, reference, alpha);
}

/* Rows of V that hold no key of [begin, end), counted from the tile's first one, become zeros: what is there may be
 * NaN, and 0 * NaN is NaN. For the products behind it the writes are made visible. */
template <typename Tile> __device__ __forceinline__ void clear_unused_values(uint32_t v, int begin, int end)
{
    constexpr int CHUNKS = Tile::PANELS * 8; /* of 16 bytes in a row */
    const float zeros[4] = {0.0f, 0.0f, 0.0f, 0.0f};

    for (int i = threadIdx.x; i < Tile::TILE_KEYS * CHUNKS; i += CONSUMER_THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        if (row < begin || row >= end)
            store_shared_float4(v + chunk / 8 * Tile::KV_PANEL_BYTES + row * ROW_BYTES + chunk % 8 * 16, zeros);
    }
    async_proxy_fence();
    bar_sync(CONSUMER_BARRIER, CONSUMER_THREADS);
}

/* O of a whole item, to where it belongs. */
template <typename T, typename Tile>
__device__ __forceinline__ void store_item(const float (&o)[Tile::OUTPUTS][Tile::COLUMNS / 2], const RowSums (&sums)[2],
                                           const Params &params, const PartOf<Tile> &part, const RowTile &tile,
                                           int first_row)
{
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const Row where = row_at(params, tile, first_row + 8 * half);
        if (!where.exists)
            continue;
        float lse;
        const float scale =
            finish_row(params, sums[half], where.head, lse) * output_scale<Tile>(params, part, tile.kv_head);
        T *const to = o_row<T>(params, part, where) + threadIdx.x % 4 * 2;
        if (threadIdx.x % 4 == 0)
            params.lse[lse_index(params, part, where)] = lse;
#pragma unroll
        for (int i = 0; i < Tile::OUTPUTS; ++i)
#pragma unroll
            for (int j = 0; j < Tile::COLUMNS / 8; ++j)
                *reinterpret_cast<uint32_t *>(to + i * Tile::COLUMNS + 8 * j) =
                    pack2<T>(o[i][4 * j + 2 * half] * scale, o[i][4 * j + 2 * half + 1] * scale);
    }
}

/* The slot that O of a part goes to; leaves: how many are in it (invariant mode). */
struct SlotTarget {
    int number, leaves;
};

template <typename Tile>
__device__ __forceinline__ void store_part(const float (&o)[Tile::OUTPUTS][Tile::COLUMNS / 2], const RowSums (&sums)[2],
                                           const Params &params, const PartOf<Tile> &part, const RowTile &tile,
                                           int first_row, const SlotTarget &slot)
{
    const int64_t slot_row = family_decode_slot(&part, slot.number) * rows_of_slot(params) + first_row;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (!row_at(params, tile, first_row + 8 * half).exists)
            continue;
        const RowSums &row = sums[half];
        const int64_t target = slot_row + 8 * half;
        float *const to = params.part_o + target * Tile::HEAD_DIM + threadIdx.x % 4 * 2;
        if (threadIdx.x % 4 == 0)
            __stcg(params.part_rows + target, make_float4(row.max_log2, row.sum, row.rounded, float(slot.leaves)));
#pragma unroll
        for (int i = 0; i < Tile::OUTPUTS; ++i)
#pragma unroll
            for (int j = 0; j < Tile::COLUMNS / 8; ++j)
                __stcg(reinterpret_cast<float2 *>(to + i * Tile::COLUMNS + 8 * j),
                       make_float2(o[i][4 * j + 2 * half], o[i][4 * j + 2 * half + 1]));
    }
}

/* What the tiles of a part are computed with. */
struct PartView {
    SeenKeys first, last; /* what its first and its last new token see */
    float scale_log2;
    const uint64_t *q_empty;
    uint32_t query; /* shared address of the stage of Q */
    int halves;     /* of the warp's 16 rows, that exist */
};

template <typename T, typename Tile>
__device__ __forceinline__ PartView view_of(SharedStorage<Tile> &smem, const Params &params, const PartOf<Tile> &part,
                                            const RowTile &tile, const PipelineState<Q_STAGES> &q)
{
    PartView view = {seen_keys(params, part, 0),
                     seen_keys(params, part, new_rows(params, part) - 1),
                     score_scale<Tile>(params, part, tile.kv_head),
                     &smem.q_empty[q.stage],
                     shared_address(smem.q[q.stage]),
                     2};

    if constexpr (Tile::SKIPS_ROWS) {
        const int rows = int(rows_of_slot(params)) - int(threadIdx.x / 32 * 16);
        view.halves = keep_uniform(rows > 8 ? 2 : rows > 0 ? 1 : 0); /* else it is found again for every tile */
    }
    return view;
}

/* Neighbouring key tiles of a part; is_end: the last ones, behind whose products Q is released. */
struct TileRange {
    int first, count;
    bool is_end;
};

/* A tile's softmax and the product with V. */
template <typename T, typename Tile>
__device__ __forceinline__ void
finish_tile(float (&s)[Tile::SCORES], SharedStorage<Tile> &smem, const PartOf<Tile> &part, const PartView &view,
            int key, ThreadRows &rows, float (&o)[Tile::OUTPUTS][Tile::COLUMNS / 2], PipelineState<Tile::SLOTS> &kv)
{
    uint32_t p[Tile::SCORES / 2];

    if (key < view.last.first || key + Tile::TILE_KEYS > view.first.last)
        mask_tile(s, rows, key);
    if constexpr (Tile::SKIPS_ROWS)
        softmax_step_few<T, Tile>(s, p, o, rows, view.scale_log2, view.halves);
    else
        softmax_step<T, Tile>(s, p, o, rows, view.scale_log2);
    mbarrier_wait(shared_address(&smem.kv_full[kv.stage]), kv.phase);
    const uint32_t v = shared_address(smem.kv[kv.stage]);
    if (key < part.keys_begin || key + Tile::TILE_KEYS > part.keys_end)
        clear_unused_values<Tile>(v, part.keys_begin - key, part.keys_end - key);
    add_output<T, Tile>(o, p, wgmma_mn_major(v, Tile::KV_PANEL_BYTES));
    release(&smem.kv_empty[kv.stage]);
    kv.advance();
}

template <typename T, typename Tile>
__device__ __forceinline__ void
compute_tiles(SharedStorage<Tile> &smem, const PartOf<Tile> &part, const PartView &view, const TileRange &tiles,
              ThreadRows &rows, float (&o)[Tile::OUTPUTS][Tile::COLUMNS / 2], PipelineState<Tile::SLOTS> &kv)
{
    const uint32_t query = wgmma_k_major(view.query);
    float s[Tile::SCORES];

    if (tiles.count == 0)
        release(view.q_empty);
#pragma unroll 1
    for (int tile = 0; tile < tiles.count; ++tile) {
        mbarrier_wait(shared_address(&smem.kv_full[kv.stage]), kv.phase);
        start_scores<T, Tile>(s, query, wgmma_k_major(shared_address(smem.kv[kv.stage])));
        finish_scores(s);
        release(&smem.kv_empty[kv.stage]);
        kv.advance();
        if (tiles.is_end && tile == tiles.count - 1)
            release(view.q_empty);
        finish_tile<T, Tile>(s, smem, part, view, (tiles.first + tile) * Tile::TILE_KEYS, rows, o, kv);
    }
}

/* The same, and the next tile's scores are computed during the softmax. The numbers are the same. Q stays in shared
 * memory: products with Q in registers hold the warp until they have read them, which is as long as they take. */
template <typename T, typename Tile>
__device__ __forceinline__ void compute_tiles_overlapped(SharedStorage<Tile> &smem, const PartOf<Tile> &part,
                                                         const PartView &view, const TileRange &tiles, ThreadRows &rows,
                                                         float (&o)[Tile::OUTPUTS][Tile::COLUMNS / 2],
                                                         PipelineState<Tile::SLOTS> &kv)
{
    const uint32_t query = wgmma_k_major(view.query);
    int key = tiles.first * Tile::TILE_KEYS;
    float s[Tile::SCORES];

    if (tiles.count == 0) {
        release(view.q_empty);
        return;
    }
    mbarrier_wait(shared_address(&smem.kv_full[kv.stage]), kv.phase);
    start_scores<T, Tile>(s, query, wgmma_k_major(shared_address(smem.kv[kv.stage])));
    finish_scores(s);
    release(&smem.kv_empty[kv.stage]);
    kv.advance();
#pragma unroll 1
    for (int tile = 0; tile < tiles.count - 1; ++tile, key += Tile::TILE_KEYS) {
        float next[Tile::SCORES];
        PipelineState<Tile::SLOTS> k = kv; /* behind V of this tile */
        k.advance();
        mbarrier_wait(shared_address(&smem.kv_full[k.stage]), k.phase);
        start_scores<T, Tile>(next, query, wgmma_k_major(shared_address(smem.kv[k.stage])));
        finish_tile<T, Tile>(s, smem, part, view, key, rows, o, kv);
        wgmma_hold(next);
        release(&smem.kv_empty[kv.stage]);
        kv.advance();
#pragma unroll
        for (int i = 0; i < Tile::SCORES; ++i)
            s[i] = next[i];
    }
    if (tiles.is_end)
        release(view.q_empty);
    finish_tile<T, Tile>(s, smem, part, view, key, rows, o, kv);
}

/* O and the rows' sums of neighbouring key tiles of a part. */
template <typename T, typename Tile>
__device__ __forceinline__ void
compute_range(SharedStorage<Tile> &smem, const PartOf<Tile> &part, const PartView &view, const TileRange &tiles,
              ThreadRows &rows, float (&o)[Tile::OUTPUTS][Tile::COLUMNS / 2], PipelineState<Tile::SLOTS> &kv)
{
#pragma unroll
    for (int half = 0; half < 2; ++half)
        rows.at[half] = {-INFINITY, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < Tile::OUTPUTS; ++i)
#pragma unroll
        for (int j = 0; j < Tile::COLUMNS / 2; ++j)
            o[i][j] = 0.0f;
    if constexpr (Tile::OVERLAPS)
        compute_tiles_overlapped<T, Tile>(smem, part, view, tiles, rows, o, kv);
    else
        compute_tiles<T, Tile>(smem, part, view, tiles, rows, o, kv);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        rows.at[half].sum = quad_sum(rows.at[half].sum);
        rows.at[half].rounded = quad_sum(rows.at[half].rounded);
    }
}

template <typename T, typename Tile>
__device__ __forceinline__ void consume(SharedStorage<Tile> &smem, const Params &params)
{
    const int first_row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    PipelineState<Q_STAGES> q;
    PipelineState<Tile::SLOTS> kv;

    for (;; q.advance()) {
        mbarrier_wait(shared_address(&smem.q_full[q.stage]), q.phase);
        const PartOf<Tile> part = smem.part[q.stage];
        if (part.sequence < 0)
            break;
        const RowTile tile = row_tile_of(params, part);
        const PartView view = view_of<T, Tile>(smem, params, part, tile, q);
        const int tiles = part.keys_end > part.keys_begin ? part.tiles : 0;
        ThreadRows rows;
        float o[Tile::OUTPUTS][Tile::COLUMNS / 2];
#pragma unroll
        for (int half = 0; half < 2; ++half)
            rows.seen[half] = seen_keys(params, part, row_at(params, tile, first_row + 8 * half).token);
        compute_range<T, Tile>(smem, part, view, {part.first_tile, tiles, true}, rows, o, kv);
        if (part.parts == 1) {
            store_item<T, Tile>(o, rows.at, params, part, tile, first_row);
        } else {
            store_part<Tile>(o, rows.at, params, part, tile, first_row, {part.number, 0});
            combine_part<T, Tile>(smem, params, part);
        }
    }
}

} // namespace sm90_decode
