/* Consumers of the sm_90 decode where a tile has few query rows, 16 at most, as most caches ask for. The 64 rows of a
 * wgmma would be mostly empty, its products wait for each other, and a cache of 8 bits would have to be widened into
 * shared memory. Here each warp multiplies with mma.m16n8k16 a share of the tile's keys of its own, which it widens in
 * registers. Groups of four warps take tiles in turn, and what the warps have of a part is added up at its end.
 *
 * Where a number of K or V lies in a fragment is chosen so that 16 and 8 bits are read without bank conflicts and
 * multiplied in the same order; their sums have the same bits. With g = lane / 4, q = lane % 4:
 *   keys     column n of the eight that a product takes is key n / 2 ^ n % 2 * 5 of eight;
 *   columns  in 64 neighbouring columns of Q and K, a lane has 16 q to 16 q + 15: step s of four takes 4 s to 4 s + 3;
 *   V        ldmatrix transposes pairs of bytes; with 8 bits a product's column n is every other one. */
#pragma once
#include <type_traits>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/sm90/decode/combine.cuh"
#include "kernels/sm90/decode/consumer.cuh"
#include "kernels/sm90/decode/rows.cuh"
#include "kernels/sm90/decode/widen.cuh"

namespace sm90_decode {

/* The state of a circular buffer `steps` slots further. */
template <int STAGES>
__device__ __forceinline__ PipelineState<STAGES> further(const PipelineState<STAGES> &state, uint32_t steps)
{
    const uint32_t at = state.stage + steps;
    PipelineState<STAGES> result;

    result.stage = at % STAGES;
    result.phase = state.phase ^ (at / STAGES & 1);
    return result;
}

__device__ __forceinline__ int key_of_column(int n) { return n / 2 ^ n % 2 * 5; }

/* Where a warp's keys lie in a slot, whose boxes of rows lie one after the other, each with its panels. */
template <typename Tile> struct WarpKeys {
    uint32_t eight[Tile::EIGHTS]; /* of eight keys each, the first row */
    uint32_t panel;               /* from one panel of a row to the next */

    __device__ __forceinline__ WarpKeys(int first_row, int box_rows)
    {
        panel = box_rows * Tile::LOAD_ROW;
#pragma unroll
        for (int i = 0; i < Tile::EIGHTS; ++i) {
            const int row = first_row + 8 * i, within = row & (box_rows - 1); /* box_rows: a power of 2, 8 or more */
            eight[i] = (row - within) * Tile::LOAD_ROW * Tile::LOAD_PANELS + within * Tile::LOAD_ROW;
        }
    }
};

/* A chunk of 16 bytes of row `row` of eight, with the swizzle of the rows' width. */
template <typename Tile> __device__ __forceinline__ uint32_t chunk_offset(int row, int chunk)
{
    return row * Tile::LOAD_ROW + (chunk ^ (Tile::LOAD_ROW == 128 ? row : row / 2 % 4)) * 16;
}

/* Two pairs of T from four bytes, the first pair from the two in the low half. */
template <typename T, typename Stored> __device__ __forceinline__ void widen_two_pairs(uint32_t (&pairs)[2], uint32_t x)
{
    pairs[0] = from_half_pair<T>(widen_pair<Stored>(static_cast<uint16_t>(x)));
    pairs[1] = from_half_pair<T>(widen_pair<Stored>(static_cast<uint16_t>(x >> 16)));
}

/* 16 rows of Q in fragments: 64 columns are four steps of a product. Rows that the tile does not have are zeros. */
__device__ __forceinline__ void load_query(uint32_t (&q)[4][4], uint32_t panel, int lane)
{
    const uint32_t at = panel + lane / 4 * ROW_BYTES + (lane % 4 * 2 ^ lane / 4) * 16;

#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int chunk = 0; chunk < 2; ++chunk) {
            const uint4 x = load_shared_128((at ^ chunk * 16) + half * 8 * ROW_BYTES);
            q[2 * chunk][half] = x.x;
            q[2 * chunk][half + 2] = x.y;
            q[2 * chunk + 1][half] = x.z;
            q[2 * chunk + 1][half + 2] = x.w;
        }
}

/* The rows of Q that no copy writes. All threads of the block call it, before their first barrier. */
template <typename Tile> __device__ __forceinline__ void clear_query(SharedStorage<Tile> &smem)
{
    const float zeros[4] = {0.0f, 0.0f, 0.0f, 0.0f};

    for (int i = threadIdx.x; i < int(sizeof smem.q) / 16; i += blockDim.x)
        store_shared_float4(shared_address(smem.q) + i * 16, zeros);
    async_proxy_fence();
}

/* A lane's numbers of K in 64 columns of a group of eight keys: pairs of four steps. Stored: what the cache has. */
template <typename T, typename Stored, typename Tile>
__device__ __forceinline__ void load_keys(uint32_t (&k)[4][2], uint32_t eight, const WarpKeys<Tile> &keys, int block,
                                          int lane)
{
    const int row = key_of_column(lane / 4), q = lane % 4;

    if constexpr (Tile::IS_8_BIT) {
        constexpr int BLOCKS = Tile::LOAD_COLUMNS / 64; /* of a panel */
        const uint4 x =
            load_shared_128(eight + block / BLOCKS * keys.panel + (chunk_offset<Tile>(row, q) ^ block % BLOCKS * 64));
        widen_two_pairs<T, Stored>(k[0], x.x);
        widen_two_pairs<T, Stored>(k[1], x.y);
        widen_two_pairs<T, Stored>(k[2], x.z);
        widen_two_pairs<T, Stored>(k[3], x.w);
    } else {
#pragma unroll
        for (int chunk = 0; chunk < 2; ++chunk) {
            const uint4 x = load_shared_128(eight + block * keys.panel + (chunk_offset<Tile>(row, 2 * q) ^ chunk * 16));
            k[2 * chunk][0] = x.x;
            k[2 * chunk][1] = x.y;
            k[2 * chunk + 1][0] = x.z;
            k[2 * chunk + 1][1] = x.w;
        }
    }
}

/* What a thread knows of its rows, g and g + 8. */
struct FewThreadRows {
    RowSums at[2];
    SeenKeys seen[2];
};

/* The fragments of S, P and O of a warp: those of S and O are four numbers, two of row g and two of row g + 8. */
template <typename Tile> struct FewFragments {
    float s[Tile::EIGHTS][4];
    uint32_t p[Tile::EIGHTS / 2][4];
};

template <typename Tile> struct FewOutput {
    float at[Tile::OUTPUT_COLUMNS / 8][4];
};

/* What a part is computed with. */
template <typename Tile> struct FewRowsView {
    SeenKeys first, last; /* what its first and its last new token see */
    float scale_log2;
    int halves;                         /* of the 16 rows, that exist */
    uint32_t query[Tile::PANELS][4][4]; /* Q in fragments */
};

/* S = Q K^T of the warp's keys. Where few products do not wait for each other, there are two sums. */
template <typename T, typename Stored, typename Tile>
__device__ __forceinline__ void few_scores(FewFragments<Tile> &x, const FewRowsView<Tile> &view, uint32_t slot,
                                           const WarpKeys<Tile> &keys, int lane)
{
    constexpr int SUMS = Tile::EIGHTS < 4 ? 2 : 1;
    float sums[SUMS][Tile::EIGHTS][4];

#pragma unroll
    for (int sum = 0; sum < SUMS; ++sum)
#pragma unroll
        for (int i = 0; i < Tile::EIGHTS; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j)
                sums[sum][i][j] = 0.0f;
#pragma unroll
    for (int block = 0; block < Tile::PANELS; ++block) {
        uint32_t k[Tile::EIGHTS][4][2];
#pragma unroll
        for (int i = 0; i < Tile::EIGHTS; ++i)
            load_keys<T, Stored>(k[i], slot + keys.eight[i], keys, block, lane);
#pragma unroll
        for (int step = 0; step < 4; ++step)
#pragma unroll
            for (int i = 0; i < Tile::EIGHTS; ++i)
                mma_m16n8k16<T>(sums[step % SUMS][i], view.query[block][step], k[i][step][0], k[i][step][1]);
    }
#pragma unroll
    for (int i = 0; i < Tile::EIGHTS; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
            x.s[i][j] = SUMS == 2 ? __fadd_rn(sums[0][i][j], sums[SUMS - 1][i][j]) : sums[0][i][j];
}

/* O += P V of the warp's keys, from the 16 bytes `first_chunk` of a row on. */
template <typename T, typename Stored, typename Tile>
__device__ __forceinline__ void few_output(FewOutput<Tile> &o, const FewFragments<Tile> &x, uint32_t slot,
                                           int first_chunk, const WarpKeys<Tile> &keys, int lane)
{
    constexpr int CHUNK_COLUMNS = Tile::IS_8_BIT ? 16 : 8, PANEL_CHUNKS = Tile::LOAD_ROW / 16;
    const uint32_t at = chunk_offset<Tile>(key_of_column(lane % 8), lane / 16) ^ first_chunk % PANEL_CHUNKS * 16;

    slot += first_chunk / PANEL_CHUNKS * keys.panel;
#pragma unroll
    for (int i = 0; i < Tile::EIGHTS / 2; ++i) {
        const uint32_t from = slot + (lane / 8 % 2 == 0 ? keys.eight[2 * i] : keys.eight[2 * i + 1]);
#pragma unroll
        for (int chunk = 0; chunk < Tile::OUTPUT_COLUMNS / CHUNK_COLUMNS; chunk += 2) { /* this one and the next */
            uint32_t v[4];
            ldmatrix_x4_trans(v, from + chunk / PANEL_CHUNKS * keys.panel + (at ^ chunk % PANEL_CHUNKS * 16));
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                if constexpr (Tile::IS_8_BIT) {
                    uint32_t first[2], second[2]; /* of the even and of the odd columns */
                    widen_two_pairs<T, Stored>(first, __byte_perm(v[2 * j], 0, 0x3120));
                    widen_two_pairs<T, Stored>(second, __byte_perm(v[2 * j + 1], 0, 0x3120));
                    mma_m16n8k16<T>(o.at[2 * (chunk + j)], x.p[i], first[0], second[0]);
                    mma_m16n8k16<T>(o.at[2 * (chunk + j) + 1], x.p[i], first[1], second[1]);
                } else {
                    mma_m16n8k16<T>(o.at[chunk + j], x.p[i], v[2 * j], v[2 * j + 1]);
                }
            }
        }
    }
}

/* Scores of keys that the rows do not see become -inf. */
template <typename Tile>
__device__ __forceinline__ void mask_few(FewFragments<Tile> &x, const FewThreadRows &rows, int first_key, int q)
{
#pragma unroll
    for (int i = 0; i < Tile::EIGHTS; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int key = first_key + 8 * i + key_of_column(2 * q + j % 2);
            const SeenKeys &seen = rows.seen[j / 2];
            if (key < seen.first || key >= seen.last)
                x.s[i][j] = -INFINITY;
        }
}

/* Of half a row tile S becomes P in fragments; O is rescaled where a row max of the warp has moved. */
template <typename T, typename Tile>
__device__ __forceinline__ void few_softmax(FewFragments<Tile> &x, FewOutput<Tile> &o, RowSums &row, float scale,
                                            int half)
{
    const auto &s = x.s;
    float top = fmaxf(s[0][2 * half], s[0][2 * half + 1]);

#pragma unroll
    for (int i = 1; i < Tile::EIGHTS; ++i)
        top = fmaxf(top, fmaxf(s[i][2 * half], s[i][2 * half + 1]));
    const float now = fmaxf(row.max_log2, quad_max(top) * scale), reference = now == -INFINITY ? 0.0f : now;
    const float alpha = exp2_approx(row.max_log2 - reference);
    row.max_log2 = now;
    if (__any_sync(WHOLE_WARP, alpha != 1.0f)) {
#pragma unroll
        for (int i = 0; i < Tile::OUTPUT_COLUMNS / 8; ++i) {
            o.at[i][2 * half] *= alpha;
            o.at[i][2 * half + 1] *= alpha;
        }
    }
#pragma unroll
    for (int i = 0; i < Tile::EIGHTS; ++i) {
        const float low = exp2_approx(fmaf(s[i][2 * half], scale, -reference));
        const float high = exp2_approx(fmaf(s[i][2 * half + 1], scale, -reference)), both = __fadd_rn(low, high);
        const uint32_t pair = pack2<T>(low, high);
        const float2 rounded = unpack2<T>(pair);
        const float both_rounded = __fadd_rn(rounded.x, rounded.y);
        x.p[i / 2][i % 2 * 2 + half] = pair;
        row.sum = i == 0 ? fmaf(row.sum, alpha, both) : __fadd_rn(row.sum, both);
        row.rounded = i == 0 ? fmaf(row.rounded, alpha, both_rounded) : __fadd_rn(row.rounded, both_rounded);
    }
}

/* Rows of V of the warp that hold no key of [begin, end), counted from the tile's first one, become zeros, in the
 * columns that the warp has. Nobody else reads them; for the copy engine, which fills the slot next, the writes are
 * made visible. */
template <typename Tile>
__device__ __forceinline__ void clear_few(uint32_t slot, int first_row, int first_chunk, int box_rows, int begin,
                                          int end, int lane)
{
    constexpr int PANEL_CHUNKS = Tile::LOAD_ROW / 16, CHUNKS = PANEL_CHUNKS * Tile::LOAD_PANELS / Tile::COLUMN_PARTS;
    const float zeros[4] = {0.0f, 0.0f, 0.0f, 0.0f};

#pragma unroll 1
    for (int i = lane; i < Tile::WARP_KEYS * CHUNKS; i += 32) {
        const int row = first_row + i / CHUNKS, chunk = first_chunk + i % CHUNKS, within = row & (box_rows - 1);
        if (row < begin || row >= end)
            store_shared_float4(slot + (row - within) * Tile::LOAD_ROW * Tile::LOAD_PANELS +
                                    (chunk / PANEL_CHUNKS * box_rows + within - within % 8) * Tile::LOAD_ROW +
                                    chunk_offset<Tile>(within % 8, chunk % PANEL_CHUNKS),
                                zeros);
    }
    async_proxy_fence();
    __syncwarp();
}

/* The warp among those that compute: its group, which columns of O it has, of COLUMN_PARTS, and its place among the
 * warps that have these. */
template <typename Tile> struct FewWarp {
    int number, group, column_part, addend;

    __device__ __forceinline__ FewWarp()
    {
        number = threadIdx.x / 32;
        group = number / Tile::GROUP_WARPS;
        column_part = number % Tile::GROUP_WARPS / Tile::KEY_WARPS;
        addend = group * Tile::KEY_WARPS + number % Tile::KEY_WARPS;
    }
};

/* O and the rows' sums of the warp's share of neighbouring tiles of a part: every GROUPS-th one, from that of its group
 * on. kv: the slot of the first of them. */
template <typename T, typename Stored, typename Tile>
__device__ __forceinline__ void
compute_few(FewRowsStorage<Tile> &smem, const Params &params, const PartOf<Tile> &part, const FewRowsView<Tile> &view,
            int first_tile, int tiles, FewThreadRows &rows, FewOutput<Tile> &o, const PipelineState<Tile::SLOTS> &kv)
{
    const FewWarp<Tile> warp;
    const int lane = threadIdx.x % 32;
    const int first_row = warp.number % Tile::KEY_WARPS * Tile::WARP_KEYS;
    const int first_chunk =
        warp.column_part * (Tile::LOAD_ROW / 16 * Tile::LOAD_PANELS / Tile::COLUMN_PARTS); /* of the warp's columns */
    const WarpKeys<Tile> keys(first_row, params.box_rows);
    PipelineState<Tile::SLOTS> k = further(kv, 2 * warp.group);

#pragma unroll
    for (int half = 0; half < 2; ++half)
        rows.at[half] = {-INFINITY, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < Tile::OUTPUT_COLUMNS / 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
            o.at[i][j] = 0.0f;
#pragma unroll 1
    for (int tile = warp.group; tile < tiles; tile += Tile::GROUPS) {
        const int tile_key = (first_tile + tile) * Tile::TILE_KEYS, key = tile_key + first_row;
        const PipelineState<Tile::SLOTS> v = further(k, 1);
        FewFragments<Tile> x;

        mbarrier_wait(shared_address(&smem.tiles.kv_full[k.stage]), k.phase);
        few_scores<T, Stored, Tile>(x, view, shared_address(smem.tiles.kv[k.stage]), keys, lane);
        release(&smem.tiles.kv_empty[k.stage]);
        if (key < view.last.first || key + Tile::WARP_KEYS > view.first.last)
            mask_few(x, rows, key, lane % 4);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (half == 0 || half < view.halves) {
                few_softmax<T, Tile>(x, o, rows.at[half], view.scale_log2, half);
            } else {
#pragma unroll
                for (int i = 0; i < Tile::EIGHTS; ++i)
                    x.p[i / 2][i % 2 * 2 + half] = 0;
            }
        }
        mbarrier_wait(shared_address(&smem.tiles.kv_full[v.stage]), v.phase);
        const uint32_t slot = shared_address(smem.tiles.kv[v.stage]);
        if (key < part.keys_begin || key + Tile::WARP_KEYS > part.keys_end)
            clear_few<Tile>(slot, first_row, first_chunk, params.box_rows, part.keys_begin - tile_key,
                            part.keys_end - tile_key, lane);
        few_output<T, Stored, Tile>(o, x, slot, first_chunk, keys, lane);
        release(&smem.tiles.kv_empty[v.stage]);
        k = further(k, 2 * Tile::GROUPS);
    }
}

/* Some rows of the warp's O, to shared memory. */
template <typename Tile>
__device__ __forceinline__ void share_output(FewRowsStorage<Tile> &smem, const FewOutput<Tile> &o, int pass, int lane)
{
    const FewWarp<Tile> warp;
    const int g = lane / 4, q = lane % 4;
    float *const to = smem.o[warp.addend][g % Tile::PASS_ROWS] + warp.column_part * Tile::OUTPUT_COLUMNS;

#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const auto &x = o.at;
        const int j = half * 2;
        if ((g + 8 * half) / Tile::PASS_ROWS != pass)
            continue;
#pragma unroll
        for (int i = 0; i < Tile::OUTPUT_COLUMNS / 8; i += 2) {
            if constexpr (Tile::IS_8_BIT) {
                *reinterpret_cast<float4 *>(to + 8 * i + 4 * q) =
                    make_float4(x[i][j], x[i + 1][j], x[i][j + 1], x[i + 1][j + 1]);
            } else {
                *reinterpret_cast<float2 *>(to + 8 * i + 2 * q) = make_float2(x[i][j], x[i][j + 1]);
                *reinterpret_cast<float2 *>(to + 8 * (i + 1) + 2 * q) = make_float2(x[i + 1][j], x[i + 1][j + 1]);
            }
        }
    }
}

/* What all warps have of a row, added up in their order, by a warp. */
template <typename Tile>
__device__ __forceinline__ RowSums sum_warps(RowColumns<Tile> &o, const FewRowsStorage<Tile> &smem,
                                             const RowPiece &piece, int lane)
{
    float weights[Tile::ADDENDS];
    RowSums all = {-INFINITY, 0.0f, 0.0f};

#pragma unroll
    for (int i = 0; i < Tile::ADDENDS; ++i)
        all.max_log2 = fmaxf(all.max_log2, smem.sums[i][piece.row].max_log2);
    const float reference = all.max_log2 == -INFINITY ? 0.0f : all.max_log2;
#pragma unroll
    for (int i = 0; i < Tile::ADDENDS; ++i) {
        const RowSums own = smem.sums[i][piece.row];
        weights[i] = exp2_approx(own.max_log2 - reference);
        all.sum = fmaf(weights[i], own.sum, all.sum);
        all.rounded = fmaf(weights[i], own.rounded, all.rounded);
    }
#pragma unroll
    for (int j = 0; j < RowColumns<Tile>::PAIRS; ++j) {
        o.at[j] = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < Tile::ADDENDS; ++i) {
            const float2 x = *reinterpret_cast<const float2 *>(
                &smem.o[i][piece.row % Tile::PASS_ROWS][piece.column + 64 * j + 2 * lane]);
            o.at[j].x = fmaf(weights[i], x.x, o.at[j].x);
            o.at[j].y = fmaf(weights[i], x.y, o.at[j].y);
        }
    }
    return all;
}

/* In a cluster of n blocks block r adds up the rows r, r + n, ... What block i has of its k-th row comes to place
 * i * most + k, most: of a block. All bytes arrive at one barrier: no block waits for the others to be ready, and none
 * has to stay until it is read. */
struct ClusterRows {
    int own, most, log2_blocks;

    __device__ __forceinline__ ClusterRows(const Params &params, int rank)
    {
        const int rows = int(rows_of_slot(params));
        log2_blocks = __ffs(params.cluster) - 1; /* their number is a power of two */
        own = (rows - rank + params.cluster - 1) >> log2_blocks;
        most = (rows + params.cluster - 1) >> log2_blocks;
    }
};

/* Before the blocks of the cluster know of each other (cluster_arrive). One thread. */
template <typename Tile> __device__ __forceinline__ void expect_parts(FewRowsStorage<Tile> &smem, const Params &params)
{
    const ClusterRows rows(params, blockIdx.x % params.cluster);

    mbarrier_init(shared_address(&smem.parts_full), 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(shared_address(&smem.parts_full),
                           rows.own * params.cluster * (Tile::HEAD_DIM * sizeof(float) + sizeof(float4)));
}

/* What the block has of a row, or of columns of it, to the block that adds it up. */
template <typename Tile>
__device__ __forceinline__ void send_sum(const RowColumns<Tile> &o, const RowSums &sums, FewRowsStorage<Tile> &smem,
                                         const Params &params, const Part &part, const RowPiece &piece, int lane)
{
    const ClusterRows rows(params, 0);
    const int block = piece.row & (params.cluster - 1);
    const int place = part.number * rows.most + (piece.row >> rows.log2_blocks);
    const uint32_t full = address_in_block(shared_address(&smem.parts_full), block);
    const uint32_t to = address_in_block(shared_address(&smem.part_o[place][piece.column + 2 * lane]), block);

#pragma unroll
    for (int j = 0; j < RowColumns<Tile>::PAIRS; ++j)
        send_in_cluster(to + j * 64 * sizeof(float), o.at[j], full);
    if (lane == 0 && piece.column == 0)
        send_in_cluster(address_in_block(shared_address(&smem.part_sums[place]), block),
                        make_float4(sums.max_log2, sums.sum, sums.rounded, 0.0f), full);
}

/* Adds up what the blocks of the cluster have of this one's rows, in the order of the keys: to O and LSE. */
template <typename T, typename Tile>
__device__ __forceinline__ void combine_cluster(FewRowsStorage<Tile> &smem, const Params &params, const Part &part)
{
    const RowTile tile = row_tile_of(params, part);
    const Addends all = {0, 1, part.parts, true};
    const ClusterRows rows(params, part.number);
    const int lane = threadIdx.x % 32;

#pragma unroll 1
    for (int i = threadIdx.x / 32; i < rows.own; i += Tile::WARPS) {
        const int row = part.number + i * part.parts;
        const Row where = row_at(params, tile, row);
        /* Also where the row does not exist: the block has to stay until all that is sent to it is there. */
        mbarrier_wait(shared_address(&smem.parts_full), 0);
        if (!where.exists)
            continue;
#pragma unroll 1
        for (int column = 0; column < Tile::HEAD_DIM; column += Tile::COLUMNS) {
            AddendRows<Tile> read;
            RowColumns<Tile> sum;
            read.sums =
                lane < part.parts ? smem.part_sums[lane * rows.most + i] : make_float4(-INFINITY, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (int block = 0; block < FAMILY_DECODE_FEW_PARTS; ++block)
#pragma unroll
                for (int j = 0; j < RowColumns<Tile>::PAIRS; ++j)
                    read.o[block].at[j] = block < MOST_CLUSTER && block < part.parts
                                              ? *reinterpret_cast<const float2 *>(
                                                    &smem.part_o[block * rows.most + i][column + 64 * j + 2 * lane])
                                              : make_float2(0.0f, 0.0f);
            const RowSums sums = sum_addends<Tile>(sum, read);
            store_sum<T, Tile>(sum, sums, params, part, all, where, {row, column}, lane);
        }
    }
}

/* Adds up what the warps have of a part: to O and LSE, or to its slot. */
template <typename T, typename Tile>
__device__ __forceinline__ void finish_few(FewRowsStorage<Tile> &smem, const Params &params, const PartOf<Tile> &part,
                                           const FewThreadRows &rows, const FewOutput<Tile> &o)
{
    const FewWarp<Tile> warp;
    const int lane = threadIdx.x % 32, row_count = int(rows_of_slot(params));
    const RowTile row_tile = row_tile_of(params, part);
    const Addends target = {part.number, 1, 1, part.parts == 1};

#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const RowSums &own = rows.at[half];
        const RowSums sums = {own.max_log2, quad_sum(own.sum), quad_sum(own.rounded)};
        if (lane % 4 == 0 && warp.column_part == 0)
            smem.sums[warp.addend][lane / 4 + 8 * half] = sums;
    }
    if (Tile::IS_CLUSTER)
        cluster_wait(); /* the others' barriers are there */
#pragma unroll 1
    for (int pass = 0; pass * Tile::PASS_ROWS < row_count; ++pass) {
        share_output(smem, o, pass, lane);
        bar_sync(CONSUMER_BARRIER, 32 * Tile::WARPS);
        const RowPiece piece = {pass * Tile::PASS_ROWS + warp.number % Tile::PASS_ROWS,
                                warp.number / Tile::PASS_ROWS * Tile::COLUMNS};
        const Row where = row_at(params, row_tile, piece.row);
        if (piece.column < Tile::HEAD_DIM && piece.row < row_count && (Tile::IS_CLUSTER || where.exists)) {
            RowColumns<Tile> all;
            const RowSums sums = sum_warps(all, smem, piece, lane);
            if constexpr (Tile::IS_CLUSTER)
                send_sum(all, sums, smem, params, part, piece, lane);
            else
                store_sum<T, Tile>(all, sums, params, part, target, where, piece, lane);
        }
        bar_sync(CONSUMER_BARRIER, 32 * Tile::WARPS);
    }
}

/* All parts of the block. */
template <typename T, typename Stored, typename Tile>
__device__ __forceinline__ void consume_few(FewRowsStorage<Tile> &smem, const Params &params)
{
    const int lane = threadIdx.x % 32, row_count = int(rows_of_slot(params));
    PipelineState<Q_STAGES> q;
    PipelineState<Tile::SLOTS> kv;

    for (;; q.advance()) {
        mbarrier_wait(shared_address(&smem.tiles.q_full[q.stage]), q.phase);
        const PartOf<Tile> part = smem.tiles.part[q.stage];
        if (part.sequence < 0)
            break;
        const RowTile row_tile = row_tile_of(params, part);
        FewRowsView<Tile> view = {seen_keys(params, part, 0),
                                  seen_keys(params, part, new_rows(params, part) - 1),
                                  score_scale<Tile>(params, part, row_tile.kv_head),
                                  keep_uniform((row_count + 7) / 8),
                                  {}};
        const uint32_t query = shared_address(smem.tiles.q[q.stage]);
        FewThreadRows rows;
        FewOutput<Tile> o;
        const int tiles = part.keys_end > part.keys_begin ? part.tiles : 0;

#pragma unroll
        for (int block = 0; block < Tile::PANELS; ++block)
            load_query(view.query[block], query + block * Tile::Q_PANEL_BYTES, lane);
        release(&smem.tiles.q_empty[q.stage]);
#pragma unroll
        for (int half = 0; half < 2; ++half)
            rows.seen[half] = seen_keys(params, part, row_at(params, row_tile, lane / 4 + 8 * half).token);
        compute_few<T, Stored, Tile>(smem, params, part, view, part.first_tile, tiles, rows, o, kv);
        kv = further(kv, 2 * uint32_t(tiles));
        finish_few<T, Tile>(smem, params, part, rows, o);
        if constexpr (Tile::IS_CLUSTER)
            combine_cluster<T, Tile>(smem, params, part);
        else if (part.parts > 1)
            combine_part<T, Tile>(smem.tiles, params, part);
    }
}

} // namespace sm90_decode
