/* The kernel after the sm_90 backward: dQ = gradient_scale * dq_sum, rounded to 16 bits. Bound by device memory. A
 * block has one tile of queries. A warp reads its slab of the sums, which lies in the order of accumulator registers,
 * and writes it through shared memory as 16 rows of 128 bytes. */
#include "kernels/sm90/bwd_params.h"

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/grid_order.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/sm90/bwd_rows.cuh"

namespace sm90_bwd {

using namespace device;

namespace {

constexpr int SLAB_ROWS = 16;

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(THREADS) convert(const __grid_constant__ Params params)
{
    __shared__ __align__(1024) unsigned char s_rows[THREADS / LANES][SLAB_ROWS * ROW_BYTES];
    const RowBlock block = row_block(params);
    const int slab = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int slab_row = (HEAD_DIM == 64 ? slab : slab % 4) * SLAB_ROWS;
    const int slab_column = HEAD_DIM == 64 ? 0 : slab / 4 * PANEL_COLUMNS;
    const float *sums = params.dq_sum + static_cast<int64_t>(blockIdx.x) * TILE_FLOATS + slab * SLAB_FLOATS;
    const uint32_t rows = static_cast<uint32_t>(__cvta_generic_to_shared(s_rows[slab]));
    const float scale = params.gradient_scale;
    float quads[SLAB_QUADS][4];

    grid_wait_for_last();
#pragma unroll
    for (int i = 0; i < SLAB_QUADS; ++i)
        load_quad(quads[i], sums + i * QUAD_FLOATS, lane);
#pragma unroll
    for (int i = 0; i < SLAB_QUADS; i += 2) {
        uint32_t packed[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            packed[j] = pack2<T>(quads[i + j / 2][j % 2 * 2] * scale, quads[i + j / 2][j % 2 * 2 + 1] * scale);
        stmatrix_x4(rows + swizzle_128b(lane % 16, i + lane / 16), packed);
    }
    __syncwarp();
    T *dq = head_pointer<T>(params.dq_rows, block) + slab_column;
#pragma unroll
    for (int i = 0; i < SLAB_ROWS * 8 / LANES; ++i) {
        const int row = i * 4 + lane / 8, chunk = lane % 8;
        const int64_t q_row = block.first_row + slab_row + row;
        if (q_row < params.q_len)
            *reinterpret_cast<uint4 *>(dq + q_row * params.dq_rows.stride_row + chunk * VECTOR) =
                load_shared_128(rows + swizzle_128b(row, chunk));
    }
}

} // namespace

} // namespace sm90_bwd

using namespace sm90_bwd;

extern "C" const fused_sm90_bwd_kernel fused_sm90_bwd_convert_dq[2][2] = {
    {convert<__half, 64>, convert<__half, 128>}, {convert<__nv_bfloat16, 64>, convert<__nv_bfloat16, 128>}};
