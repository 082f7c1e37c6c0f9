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
    int batch, row; /* page, or sequence, and key within it */
};

/* From box `first` of the sequence on. Only pages that hold keys of [begin, end) are looked up. */
__device__ __forceinline__ Boxes find_boxes(const Params &params, const Part &part, int first, int lane)
{
    const int64_t key = int64_t(first + lane) << params.box_shift;
    Boxes boxes = {part.sequence, int(key)};

    if (params.page_table != NULL && key < part.keys_end && key + (1 << params.box_shift) > part.keys_begin) {
        const int page = quotient(int(key), params.page_size);
        boxes.batch = __ldg(params.page_table + part.sequence * params.table_pages + page);
        boxes.row = int(key) - page * params.page_size.value;
    }
    return boxes;
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

/* Copies the tile of keys from `first_key` on, whose first box is that of lane `lane_of_tile`, to a slot. Rows outside
 * the keys of the part's sequence are not read and become zeros: NaN there does not reach the products. */
template <typename T, typename Tile>
__device__ __forceinline__ void copy_keys(uint32_t to, const T *from, const attn_tensor &tensor, const Params &params,
                                          const Part &part, const Boxes &boxes, int lane_of_tile, int first_key,
                                          int thread)
{
    constexpr int PASS_ROWS = PRODUCER_THREADS / Tile::CHUNKS;
    const int first = thread / Tile::CHUNKS, chunk = thread % Tile::CHUNKS, within = (1 << params.box_shift) - 1;

    from += chunk * 8;
#pragma unroll
    for (int pass = 0; pass < Tile::TILE_KEYS; pass += PASS_ROWS) {
        const int row = first + pass, lane = lane_of_tile + (row >> params.box_shift), key = first_key + row;
        const int batch = __shfl_sync(WHOLE_WARP, boxes.batch, lane);
        const int box_row = __shfl_sync(WHOLE_WARP, boxes.row, lane) + (row & within);
        const bool valid = key >= part.keys_begin && key < part.keys_end;
        cp_async_16(to + chunk / 8 * (Tile::TILE_KEYS * 128) + swizzle_128b(row, chunk % 8),
                    valid ? from + batch * tensor.stride_batch + box_row * tensor.stride_row : from, valid);
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
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            wait_for(&smem.kv_empty[kv.slot], kv.phase ^ 1);
            copy_keys<T, Tile>(slot_address(smem, kv.slot), i == 0 ? k : v, i == 0 ? params.k : params.v, params, part,
                               now, box % 32, first_key, thread);
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
