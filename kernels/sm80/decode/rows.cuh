/* The tile of query rows of a part: row r is head r / tokens of the tile's heads and token r % tokens of its
 * tokens. What a row sees, and where its results go. */
#pragma once
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/sm80/decode/tiles.cuh"

namespace sm80_decode {

using namespace device;

struct RowTile {
    int kv_head, first_head, first_token;
    int heads, tokens; /* that exist */
};

__device__ __forceinline__ RowTile row_tile_of(const Params &params, const Part &part)
{
    const family_decode_shape &shape = params.shape;
    const int token_tile = part.item % shape.token_tiles, others = part.item / shape.token_tiles;
    const int head_tile = others % shape.head_tiles, kv_head = others / shape.head_tiles;
    const int head = head_tile * shape.heads, token = token_tile * shape.tokens;

    return {kv_head, kv_head * params.group + head, token, min(params.group - head, shape.heads),
            min(shape.q_len - token, shape.tokens)};
}

/* A row of the tile. */
struct Row {
    bool exists;
    int head, token;
};

__device__ __forceinline__ Row row_at(const Params &params, const RowTile &tile, int row)
{
    const int head = row / params.shape.tokens, token = row - head * params.shape.tokens;

    return {head < tile.heads && token < tile.tokens, tile.first_head + head, tile.first_token + token};
}

/* The keys [first, last) that a new token sees. A token whose diagonal is left of key 0 sees none. */
struct SeenKeys {
    int first, last;
};

__device__ __forceinline__ SeenKeys seen_keys(const Params &params, const Part &part, int token)
{
    const int diagonal = part.keys_end - params.shape.q_len + token; /* the lengths are below 2^31 - 65536 */
    const int right = min(params.window_right, part.keys_end);       /* no sum overflows */

    return {params.shape.window_left < 0 ? 0 : max(diagonal - params.shape.window_left, 0),
            diagonal >= part.keys_end - right ? part.keys_end : diagonal + right + 1};
}

/* What is known of a row's keys, or of those of a part. */
struct RowSums {
    float max_log2; /* the largest score times scale * log2(e); -inf: no key yet */
    /* Of P = 2^(score - max_log2): before rounding, which LSE needs, and as it is multiplied with V, so that O is a
     * weighted mean whatever the rounding. */
    float sum, rounded;
};

/* What the sum of P V is multiplied with; and LSE, with the sink. */
__device__ __forceinline__ float finish_row(const Params &params, const RowSums &row, int head, float &lse)
{
    float top = row.max_log2, sum = row.sum, rounded = row.rounded, factor = 1.0f;

    if (params.sink != NULL) {
        const float sink = __ldg(params.sink + head) * LOG2_E;
        top = fmaxf(row.max_log2, sink);
        factor = exp2_approx(row.max_log2 - top);
        sum = fmaf(row.sum, factor, exp2_approx(sink - top));
        rounded = fmaf(row.rounded, factor, exp2_approx(sink - top));
    }
    lse = sum > 0.0f ? (top + log2f(sum)) * LN_2 : -INFINITY;
    return rounded > 0.0f ? factor / rounded : 0.0f;
}

__device__ __forceinline__ int64_t lse_index(const Params &params, int sequence, const Row &row)
{
    return (int64_t(sequence) * params.q_heads + row.head) * params.shape.q_len + row.token;
}

/* Where the row of O begins. */
template <typename T> __device__ __forceinline__ T *o_row(const Params &params, int sequence, const Row &row)
{
    return static_cast<T *>(params.o.data) + sequence * params.o.stride_batch + row.head * params.o.stride_head +
           row.token * params.o.stride_row;
}

} // namespace sm80_decode
