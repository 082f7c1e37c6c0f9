/* The consumer warps of the sm_80 decode: S = Q K^T, P = exp(S), O += P V of 16 query rows a warp, key tile by key
 * tile. What becomes of O: output.cuh. */
#pragma once
#include "kernels/device/barriers.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/device/warp_gemm_sm80.cuh"
#include "kernels/sm80/decode/combine.cuh"
#include "kernels/sm80/decode/output.cuh"
#include "kernels/sm80/decode/rows.cuh"

namespace sm80_decode {

/* One lane of each warp says that the warp has finished with a buffer. */
__device__ __forceinline__ void release(const uint64_t *empty)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(shared_address(empty));
}

/* Scores of keys that the rows do not see become -inf, whatever they are. */
template <int N8> __device__ __forceinline__ void mask_tile(float (&s)[N8][4], const ThreadRows &rows, int first_key)
{
    const int column = first_key + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < N8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int key = column + 8 * n + i % 2;
            const SeenKeys &seen = rows.seen[i / 2];
            if (key < seen.first || key >= seen.last)
                s[n][i] = -INFINITY;
        }
}

/* S becomes P, rounded in p; O is rescaled where a row max of the warp has moved. */
template <typename T, int KEYS, int DIM>
__device__ __forceinline__ void softmax_step(Accumulator<1, KEYS / 8> &s, Fragments<1, KEYS / 16> &p,
                                             Accumulator<1, DIM / 8> &o, ThreadRows &rows, float scale)
{
    float reference[2], alpha[2];

#pragma unroll
    for (int half = 0; half < 2; ++half) {
        RowSums &row = rows.at[half];
        const float now = fmaxf(row.max_log2, quad_max(lane_max(s.at[0], half)) * scale);
        reference[half] = now == -INFINITY ? 0.0f : now;
        alpha[half] = exp2_approx(row.max_log2 - reference[half]);
        row.max_log2 = now;
        row.sum *= alpha[half];
        row.rounded *= alpha[half];
    }
    if (__any_sync(WHOLE_WARP, alpha[0] != 1.0f || alpha[1] != 1.0f)) {
#pragma unroll
        for (int n = 0; n < DIM / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                o.at[0][n][i] *= alpha[i / 2];
    }
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float low = exp2_approx(fmaf(s.at[0][n][2 * half], scale, -reference[half]));
            const float high = exp2_approx(fmaf(s.at[0][n][2 * half + 1], scale, -reference[half]));
            const uint32_t pair = pack2<T>(low, high);
            const float2 rounded = unpack2<T>(pair);
            p.at[0][n / 2][n % 2 * 2 + half] = pair;
            rows.at[half].sum += low + high;
            rows.at[half].rounded += rounded.x + rounded.y;
        }
}

/* The key tiles of a part. Releases Q behind its last product. */
template <typename T, typename Tile>
__device__ __forceinline__ void compute_part(SharedStorage<Tile> &smem, const Params &params, const Part &part,
                                             int q_stage, ThreadRows &rows, Accumulator<1, Tile::HEAD_DIM / 8> &o,
                                             SlotState &kv)
{
    constexpr int KEYS = Tile::WARP_KEYS;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, panel = Tile::TILE_KEYS * 128;
    const uint32_t first_row = warp / Tile::ROW_WARPS * KEYS; /* of the warp's keys in a tile */
    const SeenKeys first = seen_keys(params, part, 0), last = seen_keys(params, part, params.shape.q_len - 1);
    const int tiles = part.keys_end > part.keys_begin ? part.tiles : 0;
    const operand q = {lane_rows_16(lane), shared_address(smem.q[q_stage]) + warp % Tile::ROW_WARPS * ROWS_16_BYTES,
                       Tile::ROWS * 128};
    operand k = {lane_rows_8(lane), 0, panel}, v = {lane_rows_16(lane), 0, panel};

    if (tiles == 0)
        release(&smem.q_empty[q_stage]);
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        const int key = (part.first_tile + tile) * Tile::TILE_KEYS + int(first_row);
        Accumulator<1, KEYS / 8> s;
        Fragments<1, KEYS / 16> p;
        clear(s);
        wait_for(&smem.kv_full[kv.slot], kv.phase);
        k.first = slot_address(smem, kv.slot) + first_row * ROW_BYTES;
        gemm_by_columns<Tile::HEAD_DIM / 16, T>(s, q, k);
        release(&smem.kv_empty[kv.slot]);
        kv.advance(params.slots);
        if (tile == tiles - 1)
            release(&smem.q_empty[q_stage]);
        if (key < last.first || key + KEYS > first.last)
            mask_tile(s.at[0], rows, key);
        softmax_step<T, KEYS, Tile::HEAD_DIM>(s, p, o, rows, params.scale_log2);
        wait_for(&smem.kv_full[kv.slot], kv.phase);
        v.first = slot_address(smem, kv.slot) + first_row * ROW_BYTES;
        gemm_registers<T>(o, p, v, 0);
        release(&smem.kv_empty[kv.slot]);
        kv.advance(params.slots);
    }
}

template <typename T, typename Tile>
__device__ __forceinline__ void consume(SharedStorage<Tile> &smem, const Params &params)
{
    const int first_row = threadIdx.x / 32 % Tile::ROW_WARPS * 16 + threadIdx.x % 32 / 4;
    PipelineState<Q_STAGES> q;
    SlotState kv;

    for (;; q.advance()) {
        wait_for(&smem.q_full[q.stage], q.phase);
        const Part part = smem.part[q.stage];
        if (part.sequence < 0)
            break;
        const RowTile tile = row_tile_of(params, part);
        ThreadRows rows;
        Accumulator<1, Tile::HEAD_DIM / 8> o;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            rows.at[half] = {-INFINITY, 0.0f, 0.0f};
            rows.seen[half] = seen_keys(params, part, row_at(params, tile, first_row + 8 * half).token);
        }
        clear(o);
        compute_part<T>(smem, params, part, q.stage, rows, o, kv);
        store_part<T>(smem, params, part, tile, rows, o);
        if (part.parts > 1)
            combine_part<T>(smem, params, part);
    }
}

} // namespace sm80_decode
