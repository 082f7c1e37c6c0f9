/* fused_sm80, backward: pieces of preprocess and convert_dq in blocks of their own among those of the sparse kernels.
 * Which blocks: places.h. What the passes compute: preprocess_dq.cu, kernel.cuh.
 *
 * A block waits only for blocks with smaller numbers, which have started. A block with keys waits for lse2, -D and the
 * zeros of its section; a piece of dQ until all blocks with keys of its sections have added what they have. */
#pragma once
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/counters.cuh"
#include "kernels/sm80/bwd/tiles.cuh"

namespace sm80_bwd {

using namespace device;

/* Only of tiles whose dQ a warp adds in 32 x 32: then a warp has 32 rows x 32 columns of a row block. */
template <typename Tile>
constexpr bool HAS_PIECES = (Tile::HEAD_DIM == 64 || Tile::HEAD_DIM == 128) && Traits<Tile>::V_IS_AS_WIDE &&
                            (Tile::Q == ROW_STEP) && (Tile::DQ_ROWS == 32) && (Tile::DQ_COLUMNS == 32) &&
                            (Traits<Tile>::DQ_PASSES == 1);

/* What a block of a sparse kernel does; where the launch has no pieces, keys. */
__device__ __forceinline__ struct fused_sm80_bwd_place place_of_block(const Params &params)
{
    const int block = blockIdx.x;
    if (params.pieces.sections == 0)
        return {SM80_BWD_KEYS, block, 0, 0, 0};
    const int section = min(quotient(block, params.pieces.launched), params.pieces.sections - 1);
    return fused_sm80_bwd_place_in(&params.pieces, section, block - section * params.pieces.launched.value);
}

/* Of four words in each of four lanes that follow each other, lane i gets word i of all. */
__device__ __forceinline__ void transpose_words(uint32_t (&words)[4], uint32_t lane)
{
#pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2) {
        const bool is_upper = (lane & distance) != 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (i & distance)
                continue;
            const uint32_t given = __shfl_xor_sync(0xffffffffu, is_upper ? words[i] : words[i + distance], distance);
            words[i] = is_upper ? given : words[i];
            words[i + distance] = is_upper ? words[i + distance] : given;
        }
    }
}

/* A row block, counted over all heads, and what it has: rows from `row` on of a head. */
struct HeadRows {
    int row_block, batch, head, row;

    __device__ __forceinline__ HeadRows(const Params &params, int row_block) : row_block(row_block)
    {
        const int head_blocks = static_cast<int>(params.q_rows) / ROW_STEP, head_index = row_block / head_blocks;
        batch = head_index / params.q_heads;
        head = head_index - batch * params.q_heads;
        row = (row_block - head_index * head_blocks) * ROW_STEP;
    }

    __device__ __forceinline__ void advance(const Params &params)
    {
        ++row_block;
        row += ROW_STEP;
        if (row < params.q_rows)
            return;
        row = 0;
        if (++head == params.q_heads) {
            head = 0;
            ++batch;
        }
    }
};

/* A warp goes over the row blocks of a piece, of each of which it has 4 KB of dq_sum, or 2 KB of O and of dO; as many
 * as shared memory holds are on their way at the same time. Warps do not wait for each other. */
template <typename Tile, typename T> struct Piece {
    using S = Traits<Tile>;
    static constexpr int DATA_BYTES = 4096, STAGE_BYTES = DATA_BYTES + 64; /* LSE of up to 16 rows */
    static constexpr int STAGES = sizeof(Smem<Tile>) / (S::WARPS * STAGE_BYTES);
    static constexpr int ROW_LANES = Tile::HEAD_DIM / 8, PASS_ROWS = LANES / ROW_LANES, WARP_ROWS = 4 * PASS_ROWS;
    static_assert(S::WARPS * DATA_BYTES == ROW_STEP * Tile::HEAD_DIM * 4 && S::WARPS * WARP_ROWS == ROW_STEP,
                  "the warps have a row block");

    /* start(rows, stage) begins to copy, finish(rows, stage) does the rest; stage: the address of its shared memory. */
    template <typename Start, typename Finish>
    __device__ __forceinline__ static void for_each(const Params &params, const struct fused_sm80_bwd_place &place,
                                                    uint32_t shared, const Start &start, const Finish &finish)
    {
        HeadRows next(params, place.first), now = next;
        const int end = place.first + place.count;
        int to = 0, from = 0; /* stages */
        const auto start_next = [&] {
            if (next.row_block < end)
                start(next, shared + to * STAGE_BYTES);
            cp_async_commit();
            next.advance(params);
            to = to == STAGES - 1 ? 0 : to + 1;
        };
        for (int i = 0; i < STAGES - 1; ++i)
            start_next();
        for (; now.row_block < end; now.advance(params)) {
            start_next();
            cp_async_wait<STAGES - 1>();
            __syncwarp();
            finish(now, shared + from * STAGE_BYTES);
            __syncwarp();
            from = from == STAGES - 1 ? 0 : from + 1;
        }
    }

    /* lse2 and -D, as preprocess, and zeros in dq_sum. */
    __device__ __forceinline__ static void compute_stats(const Params &params, const struct fused_sm80_bwd_place &place,
                                                         uint32_t shared)
    {
        const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
        const uint64_t policy = once_policy();
        const int of_row = lane % ROW_LANES, in_block = warp * WARP_ROWS, in_pass = lane / ROW_LANES;
        const auto start = [&](const HeadRows &rows, uint32_t stage) {
            const int first = rows.row + in_block;
            const uint16_t *o = head_pointer<uint16_t>(params.o, rows.batch, rows.head) + of_row * 8,
                           *dout = head_pointer<uint16_t>(params.dout, rows.batch, rows.head) + of_row * 8;
#pragma unroll
            for (int pass = 0; pass < 4; ++pass) {
                const int row = first + pass * PASS_ROWS + in_pass;
                const bool valid = row < params.q_len;
                const int64_t readable = valid ? row : 0;
                const uint32_t to = stage + pass * 1024 + lane * 16;
                cp_async_16(to, o + readable * params.o.stride_row, valid, policy);
                cp_async_16(to + 512, dout + readable * params.dout.stride_row, valid);
            }
            float4 *zeros = reinterpret_cast<float4 *>(params.dq_sum) +
                            static_cast<int64_t>(rows.row_block) * (ROW_STEP * Tile::HEAD_DIM / 4) +
                            warp * (DATA_BYTES / 16) + lane;
#pragma unroll
            for (int i = 0; i < DATA_BYTES / 16; i += LANES)
                zeros[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            const int row = first + static_cast<int>(lane);
            const bool valid = row < params.q_len;
            if (lane < WARP_ROWS)
                cp_async_4(stage + DATA_BYTES + lane * 4,
                           params.lse + (static_cast<int64_t>(rows.batch) * params.q_heads + rows.head) * params.q_len +
                               (valid ? row : 0),
                           valid);
        };
        const auto finish = [&](const HeadRows &rows, uint32_t stage) {
            float sum = 0.0f; /* of row pass * PASS_ROWS + in_pass in lane of_row = pass */
#pragma unroll
            for (int pass = 0; pass < 4; ++pass) {
                const uint32_t from = stage + pass * 1024 + lane * 16;
                float of_pass = dot8<T>(load_shared_128(from), load_shared_128(from + 512));
#pragma unroll
                for (int offset = ROW_LANES / 2; offset > 0; offset /= 2)
                    of_pass += __shfl_xor_sync(0xffffffffu, of_pass, offset);
                sum = of_row == pass ? of_pass : sum;
            }
            if (of_row >= 4)
                return;
            const int in_warp = of_row * PASS_ROWS + in_pass;
            const bool valid = rows.row + in_block + in_warp < params.q_len;
            const float lse = valid ? load_shared_float(stage + DATA_BYTES + in_warp * 4) : -INFINITY;
            float *stats = params.stats + static_cast<int64_t>(rows.row_block) * (2 * Tile::Q) + in_block + in_warp;
            const int q_tile = Tile::Q;
            store_stats(params, stats, q_tile, lse, sum);
        };
        for_each(params, place, shared, start, finish);
    }

    /* dQ, as convert_dq, of the rows and columns where this warp adds. */
    __device__ __forceinline__ static void convert_rows(const Params &params, const struct fused_sm80_bwd_place &place,
                                                        uint32_t shared)
    {
        const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
        const uint64_t policy = once_policy();
        const int row_of_warp = warp / S::DQ_WARPS_D * Tile::DQ_ROWS + lane / 4;
        const int column = warp % S::DQ_WARPS_D * Tile::DQ_COLUMNS + lane % 4 * 8;
        const auto start = [&](const HeadRows &rows, uint32_t stage) {
            const float *from = params.dq_sum + static_cast<int64_t>(rows.row_block) * (Tile::Q * Tile::HEAD_DIM) +
                                warp * S::DQ_QUADS * QUAD_FLOATS + lane * 4;
#pragma unroll
            for (int quad = 0; quad < S::DQ_QUADS; ++quad)
                cp_async_16(stage + (quad * LANES + lane) * 16, from + quad * QUAD_FLOATS, true, policy);
        };
        const auto finish = [&](const HeadRows &rows, uint32_t stage) {
            T *dq = head_pointer<T>(params.dq, rows.batch, rows.head) + column;
#pragma unroll
            for (int m = 0; m < 2; ++m) {
                uint32_t words[2][4]; /* of rows lane / 4 and lane / 4 + 8: two columns of every eight */
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    float c[4];
                    load_shared_quad(c, stage + (m * 4 + n) * (QUAD_FLOATS * 4), lane);
                    words[0][n] = pack2<T>(c[0] * params.ds_scale, c[1] * params.ds_scale);
                    words[1][n] = pack2<T>(c[2] * params.ds_scale, c[3] * params.ds_scale);
                }
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int row = rows.row + row_of_warp + 16 * m + 8 * half;
                    uint32_t(&of_row)[4] = words[half];
                    transpose_words(of_row, lane);
                    if (row < params.q_len)
                        store_once(reinterpret_cast<uint4 *>(dq + row * params.dq.stride_row),
                                   make_uint4(of_row[0], of_row[1], of_row[2], of_row[3]));
                }
            }
        };
        for_each(params, place, shared, start, finish);
    }
};

/* All threads of a block of pieces call it. */
template <typename Tile, typename T>
__device__ __forceinline__ void compute_piece(const Params &params, struct fused_sm80_bwd_place place, uint32_t shared)
{
    shared += threadIdx.x / LANES * (Piece<Tile, T>::STAGES * Piece<Tile, T>::STAGE_BYTES);
    if (place.role == SM80_BWD_STATS) {
        Piece<Tile, T>::compute_stats(params, place, shared);
        __syncthreads();
        if (threadIdx.x < LANES)
            count_stores(params.stats_done + place.section, threadIdx.x);
        return;
    }
    const int end_section = (place.first + place.count - 1) / params.pieces.row_blocks + 1;
    if (place.count > 0)
        for (int section = place.first / params.pieces.row_blocks; section < end_section; ++section)
            wait_for_count(params.dq_done + section, params.pieces.key_blocks);
    Piece<Tile, T>::convert_rows(params, place, shared);
}

/* One thread of a block with keys calls it, ahead of a barrier. */
__device__ __forceinline__ void wait_for_stats(const Params &params, const struct fused_sm80_bwd_place &place)
{
    if (params.pieces.sections > 0 && place.section > 0)
        wait_for_count_alone(params.stats_done + place.section, params.pieces.pieces);
}

/* One warp of such a block calls it when all have added what they have to dQ, behind a barrier. */
__device__ __forceinline__ void tell_dq(const Params &params, int section)
{
    if (params.pieces.sections > 0 && section < params.pieces.converted)
        count_stores(params.dq_done + section, forget(threadIdx.x) % LANES);
}

} // namespace sm80_bwd
