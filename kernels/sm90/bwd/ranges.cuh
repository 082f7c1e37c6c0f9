/* Windows: a policy of the sm_90 backward (policies.cuh). A work tile goes through the tiles of queries from the last
 * that sees any of its keys to the first; queries are masked at both edges. Work tiles have no parts. */
#pragma once

#include "kernels/family/ranges.cuh"
#include "kernels/sm90/bwd/policies.cuh"

namespace sm90_bwd {

struct Ranges {
    static constexpr bool HAS_RANGES = true;

    __device__ __forceinline__ static family::Sequence sequence(const Params &params)
    {
        return {0, params.q_len, params.kv_len, 0, 0};
    }

    /* The work tile of a tile of keys of a head. */
    template <typename Tile>
    __device__ __forceinline__ static WorkTile work_tile(const Params &params, int head, int kv_tile, int number)
    {
        const int batch = head / params.kv_heads;
        WorkTile work = {
            .batch = batch, .kv_head = head - batch * params.kv_heads, .kv_tile = kv_tile, .number = number};
        const family::TileRange all =
            family::row_tiles_of(params.window, sequence(params), kv_tile * KV_TILE, KV_TILE, Tile::Q_TILE);

#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int key = kv_tile * KV_TILE + half * (KV_TILE / 2);
            const family::TileRange own =
                family::row_tiles_of(params.window, sequence(params), key, KV_TILE / 2, Tile::Q_TILE);
            work.first_tile[half] = own.first < own.end ? own.first : all.end;
        }
        /* The steps are those of all keys: the first warpgroup begins with them. */
        work.first_tile[0] = all.first;
        work.begin_tile = all.end - 1;
        work.steps = (all.end - all.first) * params.group;
        work.parts = 1;
        return work;
    }

    __device__ __forceinline__ static int last_tile(const Params &, int begin_tile) { return begin_tile; }

    /* The query at which the diagonal meets a key, counted from the first of a tile of q_tile queries. */
    __device__ __forceinline__ static int diagonal(const Params &params, int key, int tile, int q_tile)
    {
        return key - params.shift - tile * q_tile;
    }

    __device__ __forceinline__ static bool is_cut(const Params &params, int first_key, int keys, int diagonal)
    {
        return diagonal + keys - 1 - params.window.right > 0 || diagonal + params.window.left < params.q_tile - 1 ||
               first_key + keys > params.kv_len;
    }

    /* The columns that see a key: from `first` to before `end`. */
    struct Columns {
        int first, end;

        __device__ __forceinline__ bool has(int column) const { return column >= first && column < end; }
    };

    __device__ __forceinline__ static Columns visible(const Params &params, int first_key, int row, int diagonal,
                                                      int column)
    {
        if (first_key + row >= params.kv_len)
            return {0, 0};
        const int at = diagonal + row - column;
        return {at - params.window.right, at + params.window.left + 1};
    }

    __device__ __forceinline__ static int q_coordinate(int row) { return row; }
    __device__ __forceinline__ static int key_coordinate(const WorkTile &, int key) { return key; }
    __device__ __forceinline__ static int batch_coordinate(int batch) { return batch; }
};

} // namespace sm90_bwd
