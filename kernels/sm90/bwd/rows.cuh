/* The rows of a thread block of the kernels before and after the sm_90 backward: a row block of one
 * head (sm90_bwd_row_block_rows), whatever the main kernel's tile. These row blocks are taken from the last one to the
 * first: the main kernel begins with the first heads, whose dO and dq_sum the kernel before leaves in the L2, and
 * leaves the sums of the last heads there for the kernel after. */
#pragma once
#include <cstdint>

#include "kernels/device/slab.cuh"
#include "kernels/family/lengths.cuh"
#include "kernels/sm90/bwd/params.h"

namespace sm90_bwd {

using namespace device;

static_assert(SLAB_ROWS == SM90_BWD_STORE_ROWS, "the rows of a warp");
static_assert(SLAB_FLOATS_OF_LANE * LANES == SLAB_FLOATS, "all of a slab");

constexpr int THREADS = SM90_BWD_ROW_THREADS;

struct RowBlock {
    int64_t head_index, batch, head, first_row;
    int q_first, q_len; /* packed: the sequence's first row in Q; rows of the sequence */
    int64_t lse_row;    /* row 0 of the sequence and head in LSE */
};

/* number: of all heads' row blocks. Packed: batch is 0, as sequences have no stride of their own. A sequence's last row
 * block may have no row. */
template <int HEAD_DIM, bool IS_PACKED>
__device__ __forceinline__ RowBlock row_block(const Params &params, unsigned number)
{
    if constexpr (IS_PACKED) {
        constexpr int ROWS = ROW_BLOCK_ROWS<HEAD_DIM>;
        const unsigned row_blocks = params.row_blocks, head = number / row_blocks, i = number - head * row_blocks;
        const family::Sequence s = family::sequence_at(params.lengths, params.order.row_blocks[i], 0, 0);
        return {head,
                0,
                head,
                (static_cast<int64_t>(i) - (s.q_first / ROWS + s.number)) * ROWS,
                s.q_first,
                s.q_len,
                head * params.lengths.total_q + s.q_first};
    }
    const unsigned row_blocks = params.row_blocks, heads = params.q_heads; /* a division of 64 bits takes long */
    const unsigned head_index = number / row_blocks, batch = head_index / heads;
    return {head_index,
            batch,
            head_index - batch * heads,
            static_cast<int64_t>(number - head_index * row_blocks) * ROW_BLOCK_ROWS<HEAD_DIM>,
            0,
            params.q_len,
            static_cast<int64_t>(head_index) * params.q_len};
}

/* Packed: a thread block has a row block of several heads, and of one head where it has no row: those of empty
 * sequences cost little. */
template <int HEAD_DIM> struct PackedRows {
    unsigned in_head, first_head, end_head;

    __device__ __forceinline__ PackedRows(const Params &params)
    {
        const unsigned at = gridDim.x - 1 - blockIdx.x, row_blocks = params.row_blocks, group = at / row_blocks;
        in_head = at - group * row_blocks;
        first_head = group * params.heads_of_block;
        end_head = min(first_head + params.heads_of_block, static_cast<unsigned>(params.q_heads));
        const RowBlock block = row_block<HEAD_DIM, true>(params, number(params, first_head));
        if (block.first_row >= block.q_len)
            end_head = first_head + 1;
    }

    /* Of a head's row block, among those of all heads. */
    __device__ __forceinline__ unsigned number(const Params &params, unsigned head) const
    {
        return head * params.row_blocks + in_head;
    }
};

template <typename T>
__device__ __forceinline__ T *head_pointer(const struct attn_tensor &tensor, const RowBlock &block)
{
    return static_cast<T *>(tensor.data) + block.batch * tensor.stride_batch + block.head * tensor.stride_head +
           block.q_first * tensor.stride_row;
}

} // namespace sm90_bwd
