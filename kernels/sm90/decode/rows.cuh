/* The tile of query rows of a part: row r of the 64 is head r / tokens of the tile's heads and token r % tokens of its
 * tokens. What a row sees, and where its results go. */
#pragma once
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/sm90/decode/tiles.cuh"

namespace sm90_decode {

using namespace device;

struct RowTile {
    int kv_head, first_head, first_token;
    int heads, tokens; /* that exist */
};

/* a / b of numbers from 0 on, where b is mostly 1: a division takes as long as a hundred other instructions. */
__device__ __forceinline__ int quotient_by_few(int a, int b) { return b == 1 ? a : a / b; }

__device__ __forceinline__ RowTile row_tile_of(const Params &params, const Part &part)
{
    const family_decode_shape &shape = params.shape;
    const int others = quotient_by_few(part.item, shape.token_tiles);
    const int token_tile = part.item - others * shape.token_tiles;
    const int kv_head = quotient_by_few(others, shape.head_tiles), head_tile = others - kv_head * shape.head_tiles;
    const int head = head_tile * shape.heads, token = token_tile * shape.tokens;

    return {kv_head, kv_head * params.group + head, token, min(params.group - head, shape.heads),
            min(shape.q_len - token, shape.tokens)};
}

__device__ __forceinline__ RowTile row_tile_of(const Params &params, const RaggedPart &part)
{
    const family_decode_shape &shape = params.shape;
    const int token_tiles = sm90_decode_token_tiles(&shape, part.own.q_len);
    const int others = quotient_by_few(part.item, token_tiles), token_tile = part.item - others * token_tiles;
    const int kv_head = quotient_by_few(others, shape.head_tiles), head_tile = others - kv_head * shape.head_tiles;
    const int head = head_tile * shape.heads, token = token_tile * shape.tokens;

    return {kv_head, kv_head * params.group + head, token, min(params.group - head, shape.heads),
            min(part.own.q_len - token, shape.tokens)};
}

/* New rows of the part's sequence. */
__device__ __forceinline__ int new_rows(const Params &params, const Part &) { return params.shape.q_len; }
__device__ __forceinline__ int new_rows(const Params &, const RaggedPart &part) { return part.own.q_len; }

__device__ __forceinline__ int token_tiles_of(const Params &params, const Part &) { return params.shape.token_tiles; }
__device__ __forceinline__ int token_tiles_of(const Params &params, const RaggedPart &part)
{
    return sm90_decode_token_tiles(&params.shape, part.own.q_len);
}

/* Where the part's rows are in Q: the first token of the tile, and the sequence. */
struct QueryOrigin {
    int token, batch;
};

__device__ __forceinline__ QueryOrigin query_origin(const Params &, const Part &part, const RowTile &tile)
{
    return {tile.first_token, part.sequence};
}

__device__ __forceinline__ QueryOrigin query_origin(const Params &params, const RaggedPart &part, const RowTile &tile)
{
    return {part.own.q_first + tile.first_token, params.total_q != 0 ? 0 : part.sequence};
}

/* The scales of an 8-bit cache, with the one of the scores; and of the sum of P V. */
__device__ __forceinline__ float cache_scale(const Params &params, const float *scales, const Part &part, int kv_head)
{
    return scales != NULL ? __ldg(scales + int64_t(part.sequence) * params.kv_heads + kv_head) : 1.0f;
}

template <typename Tile>
__device__ __forceinline__ float score_scale(const Params &params, const Part &part, int kv_head)
{
    return Tile::IS_8_BIT ? params.scale_log2 * cache_scale(params, params.scale_k, part, kv_head) : params.scale_log2;
}

template <typename Tile>
__device__ __forceinline__ float output_scale(const Params &params, const Part &part, int kv_head)
{
    return Tile::IS_8_BIT ? cache_scale(params, params.scale_v, part, kv_head) : 1.0f;
}

/* A row of the tile. */
struct Row {
    bool exists;
    int head, token;
};

__device__ __forceinline__ Row row_at(const Params &params, const RowTile &tile, int row)
{
    const int head = quotient_by_few(row, params.shape.tokens), token = row - head * params.shape.tokens;

    return {head < tile.heads && token < tile.tokens, tile.first_head + head, tile.first_token + token};
}

/* The keys [first, last) that a new token sees. A token whose diagonal is left of key 0 sees none. */
struct SeenKeys {
    int first, last;
};

template <typename PartType>
__device__ __forceinline__ SeenKeys seen_keys(const Params &params, const PartType &part, int token)
{
    const int diagonal = part.keys_end - new_rows(params, part) + token; /* the lengths are below 2^31 - 65536 */
    const int right = min(params.window_right, part.keys_end);           /* no sum overflows */

    return {params.shape.window_left < 0 ? 0 : max(diagonal - params.shape.window_left, 0),
            diagonal >= part.keys_end - right ? part.keys_end : diagonal + right + 1};
}

/* What the sum of P V is multiplied with; and LSE, with the sink. */
__device__ __forceinline__ float finish_row(const Params &params, const RowSums &row, int head, float &lse)
{
    float top = row.max_log2, sum = row.sum, rounded = row.rounded, factor = 1.0f;

    if (params.sink != NULL) {
        const float sink = __fmul_rn(__ldg(params.sink + head), LOG2_E); /* rounded alike by all callers */
        top = fmaxf(row.max_log2, sink);
        factor = exp2_approx(row.max_log2 - top);
        sum = fmaf(row.sum, factor, exp2_approx(sink - top));
        rounded = fmaf(row.rounded, factor, exp2_approx(sink - top));
    }
    lse = sum > 0.0f ? (top + log2f(sum)) * LN_2 : -INFINITY;
    return rounded > 0.0f ? factor / rounded : 0.0f;
}

__device__ __forceinline__ int64_t lse_index(const Params &params, const Part &part, const Row &row)
{
    return (int64_t(part.sequence) * params.q_heads + row.head) * params.shape.q_len + row.token;
}

__device__ __forceinline__ int64_t lse_index(const Params &params, const RaggedPart &part, const Row &row)
{
    return params.total_q != 0 ? row.head * params.total_q + part.own.q_first + row.token
                               : (int64_t(part.sequence) * params.q_heads + row.head) * params.shape.q_len + row.token;
}

/* Where the row of O begins. */
template <typename T> __device__ __forceinline__ T *o_row(const Params &params, const RaggedPart &part, const Row &row)
{
    return static_cast<T *>(params.o.data) + (params.total_q != 0 ? 0 : part.sequence * params.o.stride_batch) +
           row.head * params.o.stride_head + (int64_t(part.own.q_first) + row.token) * params.o.stride_row;
}

template <typename T> __device__ __forceinline__ T *o_row(const Params &params, const Part &part, const Row &row)
{
    return static_cast<T *>(params.o.data) + part.sequence * params.o.stride_batch + row.head * params.o.stride_head +
           row.token * params.o.stride_row;
}

} // namespace sm90_decode
