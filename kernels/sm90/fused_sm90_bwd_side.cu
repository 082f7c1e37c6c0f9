/* The kernels before and after fused_sm90's backward. A block has one tile of queries; all are bound by device memory.
 *
 * preprocess: eight or sixteen lanes to a row compute D = rowsum(dO * O) in fp32 and put LSE in base 2; rows that see
 * no key, and rows that only pad, get lse2 = +inf, so that P = exp2(S - lse2) is 0 in the main kernel without a mask.
 * The same threads zero the tile's fp32 sum of dQ and its turns.
 *
 * convert: a warp turns its slab of the sum, four floats a lane in the order of the accumulators, into 16 rows of 128
 * bytes by way of shared memory.
 */
#include "kernels/sm90/fused_sm90_bwd.h"

#include "kernels/common/checks.h"
#include "kernels/device/grid_dependency.cuh"
#include "kernels/device/ldmatrix.cuh"
#include "kernels/device/pack.cuh"
#include "kernels/device/red_add.cuh"
#include "kernels/device/shared_memory.cuh"
#include "kernels/device/stmatrix.cuh"

namespace fused_sm90_bwd {

using namespace device;

namespace {

enum { THREADS = 256, VECTOR = 8 /* elements in 16 bytes */, SLAB_ROWS = 16 };

/* Which rows a block has. */
struct Place {
    int64_t head_index, batch, head, first_row;
};

__device__ __forceinline__ Place place_of(const Arguments &arg)
{
    const int64_t head_index = blockIdx.x / arg.q_tiles;
    return {head_index, head_index / arg.q_heads, head_index % arg.q_heads,
            static_cast<int64_t>(blockIdx.x % arg.q_tiles) * arg.q_tile};
}

template <typename T>
__device__ __forceinline__ T *head_pointer(const struct attn_tensor &tensor, const Place &place)
{
    return static_cast<T *>(tensor.data) + place.batch * tensor.stride_batch + place.head * tensor.stride_head;
}

/* The sum of eight products. */
template <typename T> __device__ __forceinline__ float dot8(const uint4 &x, const uint4 &y)
{
    const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 a = unpack2<T>(xs[i]), b = unpack2<T>(ys[i]);
        sum = fmaf(a.x, b.x, fmaf(a.y, b.y, sum));
    }
    return sum;
}

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(THREADS) preprocess(const __grid_constant__ Arguments arg)
{
    constexpr int ROW_LANES = HEAD_DIM / VECTOR, ROWS = THREADS / ROW_LANES, Q_TILE = SUM_FLOATS / HEAD_DIM;
    constexpr int PASSES = Q_TILE / ROWS;
    const Place place = place_of(arg);
    const int lane_row = threadIdx.x / ROW_LANES, column = threadIdx.x % ROW_LANES * VECTOR;
    const uint16_t *o = head_pointer<uint16_t>(arg.o_rows, place) + column;
    const uint16_t *dout = head_pointer<uint16_t>(arg.dout_rows, place) + column;
    uint4 o_part[PASSES], dout_part[PASSES];

    grid_let_next_start();
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) { /* all loads first */
        const int64_t row = place.first_row + pass * ROWS + lane_row;
        o_part[pass] = dout_part[pass] = make_uint4(0, 0, 0, 0);
        if (row < arg.q_len) {
            o_part[pass] = *reinterpret_cast<const uint4 *>(o + row * arg.o_rows.stride_row);
            dout_part[pass] = *reinterpret_cast<const uint4 *>(dout + row * arg.dout_rows.stride_row);
        }
    }
    float4 *sum_of_tile = reinterpret_cast<float4 *>(arg.dq_sum + static_cast<int64_t>(blockIdx.x) * SUM_FLOATS);
#pragma unroll
    for (int i = 0; i < SUM_FLOATS / 4 / THREADS; ++i)
        sum_of_tile[i * THREADS + threadIdx.x] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (arg.turns != NULL && threadIdx.x < TILE_TURNS)
        arg.turns[blockIdx.x * int64_t(TILE_TURNS) + threadIdx.x] = 0;
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int tile_row = pass * ROWS + lane_row;
        const int64_t row = place.first_row + tile_row;
        float sum = dot8<T>(o_part[pass], dout_part[pass]);
#pragma unroll
        for (int offset = ROW_LANES / 2; offset > 0; offset /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (column == 0) {
            const float lse = row < arg.q_len ? arg.lse[place.head_index * arg.q_len + row] : -INFINITY;
            const bool sees = lse != -INFINITY;
            float *stats = arg.stats + static_cast<int64_t>(blockIdx.x) * (2 * Q_TILE) + tile_row;
            stats[0] = sees ? lse * LOG2_E : INFINITY;
            stats[Q_TILE] = sees ? -sum : 0.0f;
        }
    }
}

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(THREADS) convert(const __grid_constant__ Arguments arg)
{
    __shared__ __align__(1024) unsigned char s_rows[THREADS / LANES][SLAB_ROWS * ROW_BYTES];
    const Place place = place_of(arg);
    const int slab = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int slab_row = (HEAD_DIM == 64 ? slab : slab % 4) * SLAB_ROWS;
    const int slab_column = HEAD_DIM == 64 ? 0 : slab / 4 * PANEL_COLUMNS;
    const float *sums = arg.dq_sum + static_cast<int64_t>(blockIdx.x) * SUM_FLOATS + slab * SLAB_FLOATS;
    const uint32_t rows = static_cast<uint32_t>(__cvta_generic_to_shared(s_rows[slab]));
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
            packed[j] = pack2<T>(quads[i + j / 2][j % 2 * 2] * arg.scale, quads[i + j / 2][j % 2 * 2 + 1] * arg.scale);
        stmatrix_x4(rows + swizzle_128b(lane % 16, i + lane / 16), packed);
    }
    __syncwarp();
    T *dq = head_pointer<T>(arg.dq_rows, place) + slab_column;
#pragma unroll
    for (int i = 0; i < SLAB_ROWS * 8 / LANES; ++i) {
        const int row = i * 4 + lane / 8, chunk = lane % 8;
        const int64_t q_row = place.first_row + slab_row + row;
        if (q_row < arg.q_len)
            *reinterpret_cast<uint4 *>(dq + q_row * arg.dq_rows.stride_row + chunk * VECTOR) =
                load_shared_128(rows + swizzle_128b(row, chunk));
    }
}

} // namespace

enum attn_status launch_kernel(void (*kernel)(Arguments), const char *name, int64_t blocks, int threads,
                               size_t smem_bytes, bool after, const Arguments &arg, const struct attn_run *run,
                               struct attn_message *why)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    const char *call = "cudaFuncSetAttribute";
    cudaError_t error = cudaSuccess;

    if (run->pass != NULL)
        run->pass(run->pass_context, name);
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = smem_bytes;
    config.stream = static_cast<cudaStream_t>(run->stream);
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = after && run->pass == NULL ? 1 : 0; /* a pass begins when the one before has ended */
    if (smem_bytes > 0)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem_bytes));
    if (error == cudaSuccess) {
        call = name;
        error = cudaLaunchKernelEx(&config, kernel, arg);
    }
    if (error == cudaSuccess)
        return ATTN_OK;
    cudaGetLastError(); /* not to be found again by the next check */
    return attn_fail(why, ATTN_ERROR, "%s: %s (%s)", call, cudaGetErrorString(error), cudaGetErrorName(error));
}

namespace {

int64_t tiles_of(const struct attn_problem *p, const Arguments &arg)
{
    return p->batch * p->q_heads * arg.q_tiles;
}

} // namespace

enum attn_status launch_preprocess(const struct attn_problem *p, const Arguments &arg, const struct attn_run *run,
                                   struct attn_message *why)
{
    void (*const kernels[2][2])(Arguments) = {{preprocess<__half, 64>, preprocess<__half, 128>},
                                              {preprocess<__nv_bfloat16, 64>, preprocess<__nv_bfloat16, 128>}};
    return launch_kernel(kernels[p->dtype == ATTN_BF16][p->head_dim == 128], "preprocess", tiles_of(p, arg), THREADS, 0,
                         false, arg, run, why);
}

enum attn_status launch_convert(const struct attn_problem *p, const Arguments &arg, const struct attn_run *run,
                                struct attn_message *why)
{
    void (*const kernels[2][2])(Arguments) = {{convert<__half, 64>, convert<__half, 128>},
                                              {convert<__nv_bfloat16, 64>, convert<__nv_bfloat16, 128>}};
    return launch_kernel(kernels[p->dtype == ATTN_BF16][p->head_dim == 128], "convert", tiles_of(p, arg), THREADS, 0,
                         true, arg, run, why);
}

} // namespace fused_sm90_bwd
