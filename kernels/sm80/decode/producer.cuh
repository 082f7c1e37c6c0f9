/* The producer warps of the sm_80 decode: find the block's parts and copy Q, K and V to shared memory. All of them do
 * the same walk, each copies some rows. */
#pragma once
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/copies_sm80.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/sm80/decode/rows.cuh"
#include "kernels/sm80/decode/walk.cuh"

namespace sm80_decode {

using namespace device;

/* Where 32 neighbouring boxes, groups of keys that lie together, of a sequence begin in the cache, one in each lane. */
struct Boxes {
    int64_t k, v; /* in elements */
};

/* From box `first` of the sequence on. Only pages that hold keys of [begin, end) are looked up. */
__device__ __forceinline__ Boxes find_boxes(const Params &params, const Part &part, int first, int lane)
{
    const int64_t key = int64_t(first + lane) << params.box_shift;
    int64_t batch = part.sequence, row = key; /* page, or sequence, and key within it */

    if (key >= part.keys_end || key + (1 << params.box_shift) <= part.keys_begin)
        return {0, 0};
    if (params.page_table != NULL) {
        const int page = quotient(int(key), params.page_size);
        batch = __ldg(params.page_table + part.sequence * params.table_pages + page);
        row = int(key) - page * params.page_size.value;
    }
    return {batch * params.k.stride_batch + row * params.k.stride_row,
            batch * params.v.stride_batch + row * params.v.stride_row};
}

/* Publishes a part in the next stage of Q, with its rows of Q on their way; rows that do not exist become zeros. */
template <typename T, typename Tile>
__device__ __forceinline__ void produce_q(SharedStorage<Tile> &smem, const Params &params, const Part &part, int thread,
                                          const PipelineState<Q_STAGES> &q)
{
    constexpr int PASS_ROWS = PRODUCER_THREADS / Tile::CHUNKS;
    const uint32_t full = shared_address(&smem.q_full[q.stage]), to = shared_address(smem.q[q.stage]);
    const RowTile tile = row_tile_of(params, part);
    const T *const from = static_cast<const T *>(params.q.data) + part.sequence * params.q.stride_batch;
    const int chunk = thread % Tile::CHUNKS;

    wait_for(&smem.q_empty[q.stage], q.phase ^ 1);
#pragma unroll
    for (int row = thread / Tile::CHUNKS; row < Tile::ROWS; row += PASS_ROWS) {
        const Row where = row_at(params, tile, row);
        cp_async_16(to + chunk / 8 * (Tile::ROWS * 128) + swizzle_128b(row, chunk % 8),
                    where.exists
                        ? from + where.head * params.q.stride_head + where.token * params.q.stride_row + chunk * 8
                        : from,
                    where.exists);
    }
    cp_async_arrive(full);
    if (thread == 0) {
        smem.part[q.stage] = part;
        mbarrier_arrive(full);
    }
}

/* A tile of keys, of which rows [begin, end) are keys of the part's sequence and first_lane has the first box. */
struct KeyTile {
    int begin, end, first_lane;
};

/* Copies a tile to a slot. Rows outside the keys of the sequence are not read and become zeros: NaN there does not
 * reach the products. `boxes`: the lane's offset; from: the head's first element. */
template <typename T, typename Tile>
__device__ __forceinline__ void copy_keys(uint32_t to, const T *from, int64_t stride_row, int64_t boxes, int box_shift,
                                          const KeyTile &tile, int thread)
{
    constexpr int PASS_ROWS = PRODUCER_THREADS / Tile::CHUNKS;
    const int first = thread / Tile::CHUNKS, chunk = thread % Tile::CHUNKS;

    to += chunk / 8 * (Tile::TILE_KEYS * 128);
    from += chunk * 8;
    if (1 << box_shift == Tile::TILE_KEYS && tile.begin <= 0 && tile.end >= Tile::TILE_KEYS) {
        const T *at = from + __shfl_sync(WHOLE_WARP, boxes, tile.first_lane) + first * stride_row;
#pragma unroll
        for (int pass = 0; pass < Tile::TILE_KEYS; pass += PASS_ROWS) {
            cp_async_16(to + swizzle_128b(first + pass, chunk % 8), at, true);
            at += PASS_ROWS * stride_row;
            keep_pointer(at);
        }
        return;
    }
    const int within = (1 << box_shift) - 1;
#pragma unroll
    for (int pass = 0; pass < Tile::TILE_KEYS; pass += PASS_ROWS) {
        const int row = first + pass;
        const int64_t box = __shfl_sync(WHOLE_WARP, boxes, tile.first_lane + (row >> box_shift));
        const bool valid = row >= tile.begin && row < tile.end;
        cp_async_16(to + swizzle_128b(row, chunk % 8), valid ? from + box + (row & within) * stride_row : from, valid);
    }
}

/* K and V of a part, tile by tile. */
template <typename T, typename Tile>
__device__ __forceinline__ void produce_part(SharedStorage<Tile> &smem, const Params &params, const Part &part,
                                             int thread, SlotState &kv)
{
    const int lane = thread % 32, tile_boxes = Tile::TILE_KEYS >> params.box_shift;
    const int first_box = part.first_tile * tile_boxes, boxes = part.tiles * tile_boxes;
    const int64_t kv_head = row_tile_of(params, part).kv_head;
    const T *const k = static_cast<const T *>(params.k.data) + kv_head * params.k.stride_head;
    const T *const v = static_cast<const T *>(params.v.data) + kv_head * params.v.stride_head;
    Boxes now = find_boxes(params, part, first_box, lane), next = find_boxes(params, part, first_box + 32, lane);

    for (int box = 0; box < boxes; box += tile_boxes) {
        const int first_key = (first_box + box) << params.box_shift;
        if (box > 0 && box % 32 == 0) {
            now = next;
            next = find_boxes(params, part, first_box + box + 32, lane);
        }
        const KeyTile tile = {part.keys_begin - first_key, part.keys_end - first_key, box % 32};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            wait_for(&smem.kv_empty[kv.slot], kv.phase ^ 1);
            copy_keys<T, Tile>(slot_address(smem, kv.slot), i == 0 ? k : v,
                               i == 0 ? params.k.stride_row : params.v.stride_row, i == 0 ? now.k : now.v,
                               params.box_shift, tile, thread);
            cp_async_arrive(shared_address(&smem.kv_full[kv.slot]));
            kv.advance(params.slots);
        }
    }
}

/* All of the block's parts, and behind them the end. */
template <typename T, typename Tile>
__device__ __forceinline__ void produce(SharedStorage<Tile> &smem, const Params &params, int thread)
{
    family_decode_walk walk = start_walk(params, blockIdx.x, thread % 32);
    PipelineState<Q_STAGES> q;
    SlotState kv;
    Part part;

    for (; family_decode_next(&params.shape, params.seqused_k, &walk, &part); q.advance()) {
        produce_q<T>(smem, params, part, thread, q);
        if (part.keys_end > part.keys_begin)
            produce_part<T>(smem, params, part, thread, kv);
    }
    wait_for(&smem.q_empty[q.stage], q.phase ^ 1);
    if (thread == 0)
        smem.part[q.stage].sequence = -1;
    mbarrier_arrive(shared_address(&smem.q_full[q.stage]));
    if (thread == 0)
        mbarrier_arrive(shared_address(&smem.q_full[q.stage]));
}

} // namespace sm80_decode
