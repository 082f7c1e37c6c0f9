/* The kernel after the sm_90 backward, bound by device memory. Its first blocks have a tile of queries each, or two
 * short ones: dQ = scale * dq_sum, rounded to 16 bits. Where tiles of keys were shared out to parts, further blocks
 * have 64 columns of dV or of dK of such a tile each and add up its parts, always in the same order. A warp reads its
 * slab of the sums, which lies in the order of accumulator registers, and writes it through shared memory as 16 rows
 * of 128 bytes. */
#include "kernels/sm90/bwd_params.h"

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/grid_order.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/sm90/bwd_rows.cuh"
#include "kernels/sm90/bwd_tiles.cuh"

namespace sm90_bwd {

using namespace device;

namespace {

constexpr int SLAB_ROWS = 16, SLAB_FLOATS_OF_LANE = SLAB_FLOATS / LANES;

/* Rounds a warp's slab times `scale` and writes it to rows of device memory; `rows`: as many as exist. */
template <typename T>
__device__ __forceinline__ void write_slab(const float (&slab)[SLAB_FLOATS_OF_LANE], float scale, uint32_t shared,
                                           T *to, int64_t stride_row, int64_t rows, int lane)
{
#pragma unroll
    for (int i = 0; i < SLAB_QUADS; i += 2) {
        uint32_t packed[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            packed[j] = pack2<T>(slab[4 * i + 2 * j] * scale, slab[4 * i + 2 * j + 1] * scale);
        stmatrix_x4(shared + swizzle_128b(lane % 16, i + lane / 16), packed);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < SLAB_ROWS * 8 / LANES; ++i) {
        const int row = i * 4 + lane / 8, chunk = lane % 8;
        if (row < rows)
            store_once(reinterpret_cast<uint4 *>(to + row * stride_row + chunk * VECTOR),
                       load_shared_128(shared + swizzle_128b(row, chunk)));
    }
}

__device__ __forceinline__ void add_slab(float (&slab)[SLAB_FLOATS_OF_LANE], const float *sums, int lane)
{
    float quads[SLAB_QUADS][4];
#pragma unroll
    for (int i = 0; i < SLAB_QUADS; ++i) /* all loads first */
        load_quad(quads[i], sums + i * QUAD_FLOATS, lane);
#pragma unroll
    for (int i = 0; i < SLAB_FLOATS_OF_LANE; ++i)
        slab[i] += quads[i / 4][i % 4];
}

/* dQ of a row block. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void convert_dq(const Params &params, unsigned number, uint32_t shared, int slab, int lane)
{
    const RowBlock block = row_block<HEAD_DIM>(params, number);
    const int64_t row = block.first_row + (HEAD_DIM == 64 ? slab : slab % 4) * SLAB_ROWS;
    const int column = HEAD_DIM == 64 ? 0 : slab / 4 * PANEL_COLUMNS;
    float sum[SLAB_FLOATS_OF_LANE] = {};

    add_slab(sum, params.dq_sum + static_cast<int64_t>(number) * ROW_BLOCK_FLOATS + slab * SLAB_FLOATS, lane);
    write_slab<T>(sum, params.scale, shared,
                  head_pointer<T>(params.dq_rows, block) + row * params.dq_rows.stride_row + column,
                  params.dq_rows.stride_row, params.q_len - row, lane);
}

/* 64 columns of dV or dK of a tile of keys that has parts. index: of these blocks. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void add_parts(const Params &params, int64_t index, uint32_t shared, int slab, int lane)
{
    constexpr int PANELS = HEAD_DIM / PANEL_COLUMNS;
    const int panel = static_cast<int>(index % PANELS), is_dk = static_cast<int>(index / PANELS % 2);
    const int64_t tile = index / (2 * PANELS), head_index = tile / params.kv_tiles;
    const int kv_tile = static_cast<int>(tile % params.kv_tiles);
    const struct attn_tensor &tensor = is_dk ? params.dk_rows : params.dv_rows;
    const int64_t row = static_cast<int64_t>(kv_tile) * KV_TILE + slab * SLAB_ROWS;
    const int within = (is_dk * PANELS + panel) * (KV_TILE * PANEL_COLUMNS) + slab * SLAB_FLOATS;
    float sum[SLAB_FLOATS_OF_LANE] = {};
    int first_tile[2];

    find_first_tiles(first_tile, params, kv_tile, params.q_tile);
    const int parts = parts_of(params, (params.q_tiles - first_tile[0]) * params.group);
    if (parts == 1)
        return;
    for (int part = 0; part < parts; ++part)
        add_slab(sum, params.kv_sums + kv_sums_offset<HEAD_DIM>(params, part, tile) + within, lane);
    const RowBlock block = {head_index, head_index / params.kv_heads, head_index % params.kv_heads, row};
    write_slab<T>(sum, is_dk ? params.scale : 1.0f, shared,
                  head_pointer<T>(tensor, block) + row * tensor.stride_row + panel * PANEL_COLUMNS, tensor.stride_row,
                  params.kv_len - row, lane);
}

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(THREADS) convert(const __grid_constant__ Params params)
{
    __shared__ __align__(1024) unsigned char s_rows[THREADS / LANES][SLAB_ROWS * ROW_BYTES];
    const int slab = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(s_rows[slab]));
    const unsigned q_blocks = params.kv_heads_total * params.group * params.row_blocks;

    grid_wait_for_last();
    if (blockIdx.x < q_blocks)
        convert_dq<T, HEAD_DIM>(params, q_blocks - 1 - blockIdx.x, shared, slab, lane);
    else
        add_parts<T, HEAD_DIM>(params, blockIdx.x - q_blocks, shared, slab, lane);
}

} // namespace

} // namespace sm90_bwd

using namespace sm90_bwd;

extern "C" const fused_sm90_bwd_kernel fused_sm90_bwd_convert[2][2] = {
    {convert<__half, 64>, convert<__half, 128>}, {convert<__nv_bfloat16, 64>, convert<__nv_bfloat16, 128>}};
