/* The producer warp of the sm_90 decode: finds the block's parts and has the copy engine bring Q, K and V. */
#pragma once
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/sm90/decode/rows.cuh"
#include "kernels/sm90/decode/walk.cuh"

namespace sm90_decode {

using namespace device;

/* Where 32 neighbouring boxes of a sequence begin in the cache, one in each lane. */
struct Boxes {
    int batch, row; /* coordinates: page, or sequence, and key within it */
};

/* From box `first` of the sequence on. Only pages that hold keys of [begin, end) are looked up. */
__device__ __forceinline__ Boxes find_boxes(const Params &params, const Part &part, int first, int lane)
{
    const int64_t key = int64_t(first + lane) * params.box_rows;
    Boxes boxes = {part.sequence, int(key)};

    if (params.page_table != NULL && key < part.keys_end && key + params.box_rows > part.keys_begin) {
        const int page = quotient(int(key), params.page_size);
        boxes.batch = __ldg(params.page_table + part.sequence * params.table_pages + page);
        boxes.row = int(key) - page * params.page_size.value;
    }
    return boxes;
}

/* Publishes a part in the next stage of Q, with its rows of Q on their way. */
template <typename Tile>
__device__ __forceinline__ void produce_q(SharedStorage<Tile> &smem, const Params &params, const PartOf<Tile> &part,
                                          PipelineState<Q_STAGES> &q)
{
    const uint32_t full = shared_address(&smem.q_full[q.stage]);

    mbarrier_wait_together(shared_address(&smem.q_empty[q.stage]), q.phase ^ 1);
    if (elect_one()) {
        const RowTile rows = row_tile_of(params, part);
        const QueryOrigin origin = query_origin(params, part, rows);
        smem.part[q.stage] = part;
        mbarrier_arrive_expect(full, Tile::PANELS * params.shape.heads * params.shape.tokens * ROW_BYTES);
        for (int panel = 0; panel < Tile::PANELS; ++panel)
            tma_load(shared_address(smem.q[q.stage]) + panel * Tile::Q_PANEL_BYTES, &params.q, full, L2_EVICT_FIRST,
                     panel * PANEL_COLUMNS, origin.token, rows.first_head, origin.batch);
    }
    __syncwarp();
    q.advance();
}

/* Fills the next slot with the boxes [first, last) of a tile, those of the lanes from `lane_of_tile` on. Buffer: what
 * tiles are loaded into. */
template <typename Buffer>
__device__ __forceinline__ void produce_tile(Buffer &smem, const Params &params, const CUtensorMap *map,
                                             const Boxes &boxes, int lane_of_tile, int first, int last, int kv_head,
                                             uint64_t policy, PipelineState<Buffer::LOAD_SLOTS> &kv)
{
    constexpr int KEY_BYTES = Buffer::LOAD_PANELS * Buffer::LOAD_ROW;
    const uint32_t full = shared_address(&smem.kv_full[kv.stage]), slot = shared_address(smem.kv[kv.stage]);

    mbarrier_wait_together(shared_address(&smem.kv_empty[kv.stage]), kv.phase ^ 1);
    if (elect_one())
        mbarrier_arrive_expect(full, (last - first) * params.box_rows * KEY_BYTES);
    __syncwarp();
    for (int box = first; box < last; ++box) {
        const int batch = __shfl_sync(WHOLE_WARP, boxes.batch, lane_of_tile + box);
        const int row = __shfl_sync(WHOLE_WARP, boxes.row, lane_of_tile + box);
        if (elect_one()) {
            if constexpr (Buffer::IS_ONE_COPY) {
                tma_load(slot + box * params.box_rows * KEY_BYTES, map, full, policy, 0, row, 0, kv_head, batch);
            } else {
#pragma unroll
                for (int panel = 0; panel < Buffer::LOAD_PANELS; ++panel)
                    tma_load(slot + panel * Buffer::LOAD_PANEL_BYTES + box * params.box_rows * Buffer::LOAD_ROW, map,
                             full, policy, panel * Buffer::LOAD_COLUMNS, row, kv_head, batch);
            }
        }
    }
    __syncwarp();
    kv.advance();
}

/* K or V of a part, tile by tile: `map`. */
template <typename Tile, typename Buffer>
__device__ __forceinline__ void produce_part(Buffer &buffer, const Params &params, const CUtensorMap *map,
                                             const PartOf<Tile> &part, int lane, PipelineState<Buffer::LOAD_SLOTS> &kv)
{
    const int tile_boxes = Tile::TILE_KEYS / params.box_rows, kv_head = row_tile_of(params, part).kv_head;
    const int first_box = part.first_tile * tile_boxes, boxes = part.tiles * tile_boxes;
    /* Other tiles of rows read the same keys. */
    const uint64_t policy =
        params.shape.head_tiles * token_tiles_of(params, part) > 1 ? L2_EVICT_NORMAL : L2_EVICT_FIRST;
    Boxes now = find_boxes(params, part, first_box, lane), next = find_boxes(params, part, first_box + 32, lane);

    for (int box = 0; box < boxes; box += tile_boxes) {
        const int first_key = (first_box + box) * params.box_rows;
        const int begin = max(part.keys_begin - first_key, 0), end = min(part.keys_end - first_key, Tile::TILE_KEYS);
        const int first = begin / params.box_rows, last = (end + params.box_rows - 1) / params.box_rows;
        if (box > 0 && box % 32 == 0) {
            now = next;
            next = find_boxes(params, part, first_box + box + 32, lane);
        }
        produce_tile(buffer, params, map, now, box % 32, first, last, kv_head, policy, kv);
        kv.advance(); /* over the slot of the other one */
    }
}

/* The first keys of a block of a cluster start on their way to the second-level cache before the lengths are known:
 * those of the longest length, which mostly are the right ones. One thread. */
template <typename Tile> __device__ __forceinline__ void prefetch_keys(const Params &params)
{
    enum { TILES = 2 };
    const ClusterItem own = cluster_item(params);
    const Part part = cluster_part<Tile>(params, own, params.shape.kv_len);
    const int kv_head = row_tile_of(params, part).kv_head;

    if (params.page_table != NULL)
        return;
    for (int tile = 0; tile < min(part.tiles, int(TILES)); ++tile) {
        const int row = (part.first_tile + tile) * Tile::TILE_KEYS;
        tma_prefetch(&params.k, 0, row, 0, kv_head, own.sequence);
        tma_prefetch(&params.v, 0, row, 0, kv_head, own.sequence);
    }
}

/* All of the block's parts, and behind them the end. Two warps: with is_v one brings V, the other Q and K. One alone
 * does not issue the copies of small pages as fast as the memory brings them. first_used: used_of the lane, or of the
 * cluster's sequence. */
template <typename Tile, typename Buffer>
__device__ __forceinline__ void produce(SharedStorage<Tile> &smem, Buffer &buffer, const Params &params, bool is_v,
                                        int lane, int first_used)
{
    PipelineState<Q_STAGES> q;
    PipelineState<Buffer::LOAD_SLOTS> kv;

    if (is_v)
        kv.advance();
    const auto produce_one = [&](const PartOf<Tile> &part) {
        if (!is_v)
            produce_q<Tile>(smem, params, part, q);
        if (part.keys_end > part.keys_begin)
            produce_part<Tile>(buffer, params, is_v ? &params.v : &params.k, part, lane, kv);
    };
    if constexpr (Tile::IS_CLUSTER) {
        produce_one(cluster_part<Tile>(params, cluster_item(params), first_used));
    } else {
        family_decode_walk walk = start_walk<Tile>(params, blockIdx.x, lane, first_used);
        PartOf<Tile> part;
        while (next_part<Tile>(params, walk, part))
            produce_one(part);
    }
    if (is_v)
        return;
    mbarrier_wait_together(shared_address(&smem.q_empty[q.stage]), q.phase ^ 1);
    if (elect_one()) {
        smem.part[q.stage].sequence = -1;
        mbarrier_arrive(shared_address(&smem.q_full[q.stage]));
    }
}

} // namespace sm90_decode
