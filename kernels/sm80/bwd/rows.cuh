/* fused_sm80, backward: the attributes that its kernels are compiled with, and the rows of stats and dq_sum. */
#pragma once
#include "kernels/device/softmax.cuh"
#include "kernels/sm80/family.cuh"
#include "kernels/sm80/bwd/params.h"

namespace sm80_bwd {

using namespace sm80_family;

/* WITH_DQ is off where a second kernel computes dQ in a fixed order. The family decides that at run time. */
struct DenseDq : Dense {
    static constexpr bool WITH_DQ = true;
};
struct DenseNoDq : Dense {
    static constexpr bool WITH_DQ = false;
};

/* Row 0 of a head of a sequence; first: where packed sequences begin in this tensor. */
__device__ __forceinline__ uint16_t *family_head(const Params &params, const struct attn_tensor &tensor,
                                                 const Sequence &s, int first, int head)
{
    return static_cast<uint16_t *>(tensor.data) + head_offset(params.family.lengths, tensor.stride_batch,
                                                              tensor.stride_head, tensor.stride_row, s, first, head);
}

/* Where row 0 of a head of a sequence lies in stats and dq_sum, counted over the padded rows of all heads. */
__device__ __forceinline__ int64_t padded_row(const Params &params, const Sequence &s, int head)
{
    if (params.family.lengths.cu_seqlens_q == NULL)
        return (static_cast<int64_t>(s.number) * params.q_heads + head) * params.q_rows;
    return head * params.q_rows + static_cast<int64_t>(s.q_first / FAMILY_ROW_BLOCK + s.number) * FAMILY_ROW_BLOCK;
}

/* What lies at a padded row: row `row` of a head of a sequence, or behind its last one. */
struct RowBlock {
    Sequence sequence;
    int head, row;
};

/* head_index: batch * q_heads + head, packed the head; row: within it. */
__device__ __forceinline__ RowBlock row_block_at(const Params &params, int64_t head_index, int64_t row)
{
    const fused_sm80_family &family = params.family;
    if (family.lengths.cu_seqlens_q == NULL)
        return {{static_cast<int>(head_index / params.q_heads), params.q_len, params.kv_len, 0, 0},
                static_cast<int>(head_index % params.q_heads),
                static_cast<int>(row)};
    const Sequence s = sequence_at(family.lengths, family.order.row_blocks[row / FAMILY_ROW_BLOCK], 0, 0);
    const int64_t first = static_cast<int64_t>(s.q_first / FAMILY_ROW_BLOCK + s.number) * FAMILY_ROW_BLOCK;
    return {s, static_cast<int>(head_index), static_cast<int>(row - first)};
}

/* Writes lse2 of a row to `stats`, and -D q_tile further; `sum`: rowsum(dO * O). A row that sees no key, with an LSE of
 * -inf, has lse2 = +inf: then P = exp2(S - lse2) is 0. */
__device__ __forceinline__ void store_stats(const Params &params, float *stats, const int &q_tile, float lse, float sum)
{
    const bool sees = lse != -INFINITY;
    stats[0] = sees ? lse * device::LOG2_E - params.lse2_less : INFINITY;
    stats[q_tile] = sees ? -sum : 0.0f;
}

} // namespace sm80_bwd
