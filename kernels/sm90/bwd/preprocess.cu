/* The kernel before the sm_90 backward, bound by device memory. A block has one tile of queries of the main kernel, or
 * two short ones. 8 or 16 threads for each row compute D = rowsum(dO * O) in fp32 and LSE in base 2, less p_log2. Rows
 * that see no key, and rows that only pad, get lse2 = +inf: then P = exp2(S - lse2) is 0 in the main kernel without a
 * mask. The same threads zero the rows of dq_sum, unless the main kernel does (zeros.cuh), and their semaphores. */
#include "kernels/sm90/bwd/params.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/grid_order.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/sm90/bwd/lists.cuh"
#include "kernels/sm90/bwd/ranges.cuh"
#include "kernels/sm90/bwd/rows.cuh"
#include "kernels/sm90/bwd/work.cuh"

namespace sm90_bwd {

using namespace device;

namespace {

/* Brings what the main kernel loads first to the second-level cache: Q of the block's rows, and K and V of every
 * gridDim.x-th tile of keys. */
template <int HEAD_DIM> __device__ __forceinline__ void prefetch_operands(const Params &params, const RowBlock &block)
{
    const int kv_tiles = params.kv_heads_total * params.kv_tiles, first_row = static_cast<int>(block.first_row);

#pragma unroll
    for (int column = 0; column < HEAD_DIM; column += PANEL_COLUMNS) {
        for (int row = 0; row < ROW_BLOCK_ROWS<HEAD_DIM>; row += params.q_tile)
            tma_prefetch(&params.q, column, first_row + row, static_cast<int>(block.head),
                         static_cast<int>(block.batch));
        for (int tile = blockIdx.x; tile < kv_tiles; tile += gridDim.x) {
            const int head = tile / params.kv_tiles, key = (tile - head * params.kv_tiles) * KV_TILE;
            const int batch = head / params.kv_heads, kv_head = head - batch * params.kv_heads;
            tma_prefetch(&params.k, column, key, kv_head, batch);
            tma_prefetch(&params.v, column, key, kv_head, batch);
        }
    }
}

/* What the main kernel behind is: its additions to dQ in any order, or in a fixed one; or it is, with either, that of
 * packed sequences; or it has work tiles of a window or of a block mask, of which blocks take one after the other. */
enum MainKernel { DEFAULT, DETERMINISTIC_MAIN, PACKED, LISTED, WINDOWS };

/* A work tile of the list of windows and packed lengths. */
template <int HEAD_DIM> __device__ __forceinline__ Ranges::Listed listed_range(const Params &params, int number)
{
    Ranges::Listed work = {};

    if (number < params.work_tiles)
        work = Ranges::listed_work_tile<HEAD_DIM, listed_q_tile(HEAD_DIM), true>(params, number);
    if (number >= params.work_tiles || work.steps == SKIPPED)
        work.steps = NO_WORK;
    return work;
}

/* A row block. number: of all heads'. writes_work: with its share of the list of work tiles. */
template <typename T, int HEAD_DIM, MainKernel MAIN>
__device__ __forceinline__ void preprocess_rows(const Params &params, const unsigned number, bool writes_work)
{
    constexpr int ROW_LANES = HEAD_DIM / VECTOR, ROWS = THREADS / ROW_LANES, BLOCK_ROWS = ROW_BLOCK_ROWS<HEAD_DIM>;
    constexpr int PASSES = BLOCK_ROWS / ROWS;
    constexpr bool DETERMINISTIC = MAIN == DETERMINISTIC_MAIN, IS_PACKED = MAIN == PACKED;
    const RowBlock block = row_block<HEAD_DIM, IS_PACKED>(params, number);
    const int lane_row = threadIdx.x / ROW_LANES, column = threadIdx.x % ROW_LANES * VECTOR;
    const uint16_t *o = head_pointer<uint16_t>(params.o_rows, block) + column;
    const uint16_t *dout = head_pointer<uint16_t>(params.dout_rows, block) + column;
    const bool has_rows = !IS_PACKED || block.first_row < block.q_len; /* otherwise nobody reads what it would write */
    uint4 o_part[PASSES], dout_part[PASSES];
    float lse[PASSES]; /* of the thread in a row's first columns */

    grid_let_next_start();
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) { /* all loads first */
        const int64_t row = block.first_row + pass * ROWS + lane_row;
        o_part[pass] = dout_part[pass] = make_uint4(0, 0, 0, 0);
        lse[pass] = -INFINITY;
        if (row < block.q_len) {
            o_part[pass] = load_once(reinterpret_cast<const uint4 *>(o + row * params.o_rows.stride_row));
            dout_part[pass] = *reinterpret_cast<const uint4 *>(dout + row * params.dout_rows.stride_row);
            if (column == 0)
                lse[pass] = params.lse[block.lse_row + row];
        }
    }
    if (!IS_PACKED && params.prefetches && threadIdx.x == THREADS - 1)
        prefetch_operands<HEAD_DIM>(params, block);
    if (has_rows &&
        (DETERMINISTIC || IS_PACKED || number < int64_t(params.zeros.preprocessed) * params.zeros.row_blocks)) {
        float4 *block_sum =
            reinterpret_cast<float4 *>(params.dq_sum + static_cast<int64_t>(number) * ROW_BLOCK_FLOATS<HEAD_DIM>);
#pragma unroll
        for (int i = 0; i < ROW_BLOCK_FLOATS<HEAD_DIM> / 4 / THREADS; ++i)
            block_sum[i * THREADS + threadIdx.x] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    if (!DETERMINISTIC && !IS_PACKED) {
        for (int64_t i = blockIdx.x * int64_t(THREADS) + threadIdx.x; i < params.zeros.sections;
             i += gridDim.x * int64_t(THREADS))
            params.zeroed[i] = 0;
    }
    for (int64_t i = blockIdx.x * int64_t(THREADS) + threadIdx.x; writes_work && i < params.listed_tiles;
         i += gridDim.x * int64_t(THREADS)) {
        if constexpr (IS_PACKED || MAIN == WINDOWS) {
            static_cast<Ranges::Listed *>(params.work)[i] = listed_range<HEAD_DIM>(params, static_cast<int>(i));
        } else {
            WorkTile work = {.steps = NO_WORK};
            if (MAIN == LISTED && i < params.work_tiles)
                work = Lists::listed_work_tile(params, static_cast<int>(i));
            else if (i < params.work_tiles)
                work = listed_work_tile<listed_q_tile(HEAD_DIM), DETERMINISTIC>(params, static_cast<int>(i));
            static_cast<WorkTile *>(params.work)[i] = work;
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *params.taken = 0;
    if (!has_rows)
        return;
    if ((DETERMINISTIC || (IS_PACKED && params.dq_semaphores != NULL)) && threadIdx.x < SM90_BWD_TILE_SEMAPHORES)
        params.dq_semaphores[number * int64_t(SM90_BWD_TILE_SEMAPHORES) + threadIdx.x] = 0;
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int block_row = pass * ROWS + lane_row, first_of_tile = block_row < params.q_tile ? 0 : params.q_tile;
        float sum = dot8<T>(o_part[pass], dout_part[pass]);
#pragma unroll
        for (int offset = ROW_LANES / 2; offset > 0; offset /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (column == 0) {
            const bool sees = lse[pass] != -INFINITY;
            /* [tiles][2][q_tile]: that of a second tile follows both arrays of the first. */
            float *stats = params.stats + static_cast<int64_t>(number) * (2 * BLOCK_ROWS) + first_of_tile + block_row;
            stats[0] = sees ? lse[pass] * LOG2_E - static_cast<float>(params.p_log2) : INFINITY;
            stats[params.q_tile] = sees ? -sum : 0.0f;
        }
    }
}

template <typename T, int HEAD_DIM, MainKernel MAIN>
__global__ void __launch_bounds__(THREADS) preprocess(const __grid_constant__ Params params)
{
    if constexpr (MAIN != PACKED) {
        preprocess_rows<T, HEAD_DIM, MAIN>(params, gridDim.x - 1 - blockIdx.x, true);
    } else {
        const PackedRows<HEAD_DIM> rows(params);
#pragma unroll 1
        for (unsigned head = rows.end_head; head > rows.first_head; --head)
            preprocess_rows<T, HEAD_DIM, MAIN>(params, rows.number(params, head - 1), head == rows.end_head);
    }
}

} // namespace

} // namespace sm90_bwd

using namespace sm90_bwd;

extern "C" const fused_sm90_bwd_kernel fused_sm90_bwd_preprocess[2][2][SM90_HEAD_DIMS] = {
    {{preprocess<__half, 64, DEFAULT>, preprocess<__half, 128, DEFAULT>},
     {preprocess<__nv_bfloat16, 64, DEFAULT>, preprocess<__nv_bfloat16, 128, DEFAULT>}},
    {{preprocess<__half, 64, DETERMINISTIC_MAIN>, preprocess<__half, 128, DETERMINISTIC_MAIN>},
     {preprocess<__nv_bfloat16, 64, DETERMINISTIC_MAIN>, preprocess<__nv_bfloat16, 128, DETERMINISTIC_MAIN>}}};
extern "C" const fused_sm90_bwd_kernel fused_sm90_bwd_preprocess_packed[2][SM90_HEAD_DIMS] = {
    {preprocess<__half, 64, PACKED>, preprocess<__half, 128, PACKED>},
    {preprocess<__nv_bfloat16, 64, PACKED>, preprocess<__nv_bfloat16, 128, PACKED>}};
extern "C" const fused_sm90_bwd_kernel fused_sm90_bwd_preprocess_windows[2][SM90_HEAD_DIMS] = {
    {preprocess<__half, 64, WINDOWS>, preprocess<__half, 128, WINDOWS>},
    {preprocess<__nv_bfloat16, 64, WINDOWS>, preprocess<__nv_bfloat16, 128, WINDOWS>}};
extern "C" const fused_sm90_bwd_kernel fused_sm90_bwd_preprocess_listed[2][SM90_HEAD_DIMS] = {
    {preprocess<__half, 64, LISTED>, preprocess<__half, 128, LISTED>},
    {preprocess<__nv_bfloat16, 64, LISTED>, preprocess<__nv_bfloat16, 128, LISTED>}};
