/* The kernel after the sm_90 backward, bound by device memory. Its first blocks have a tile of queries each, or two
 * short ones: dQ = dqk_scale * dq_sum, rounded to 16 bits. Where tiles of keys were shared out to parts, further blocks
 * have slabs of dV or of dK of such a tile and add up their parts, always in the same order. A slab of the sums lies in
 * the order of accumulator registers and is written through shared memory as 16 rows of 128 bytes. */
#include "kernels/sm90/bwd/params.h"

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/grid_order.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/slab.cuh"
#include "kernels/sm90/bwd/rows.cuh"
#include "kernels/sm90/bwd/tiles.cuh"

namespace sm90_bwd {

using namespace device;

namespace {

constexpr int WARPS = SM90_BWD_ROW_WARPS;
static_assert(WARPS == THREADS / LANES, "all of a block");
static_assert(WARPS * SLAB_ROWS == KV_TILE, "64 columns of a tile of keys are a slab for each warp");

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
template <typename T, int HEAD_DIM, bool IS_PACKED>
__device__ __forceinline__ void convert_dq(const Params &params, unsigned number, uint32_t shared, int slab, int lane)
{
    const RowBlock block = row_block<HEAD_DIM, IS_PACKED>(params, number);
    const int64_t row = block.first_row + (HEAD_DIM == 64 ? slab : slab % 4) * SLAB_ROWS;
    const int column = HEAD_DIM == 64 ? 0 : slab / 4 * PANEL_COLUMNS;
    float sum[SLAB_FLOATS_OF_LANE] = {};

    grid_wait_for_last();
    if (IS_PACKED && block.first_row >= block.q_len)
        return; /* a row block without rows */
    add_slab(sum, params.dq_sum + static_cast<int64_t>(number) * ROW_BLOCK_FLOATS<HEAD_DIM> + slab * SLAB_FLOATS, lane);
    write_slab<T>(sum, params.dqk_scale, shared,
                  head_pointer<T>(params.dq_rows, block) + row * params.dq_rows.stride_row + column,
                  params.dq_rows.stride_row, block.q_len - row, lane);
}

/* A slab of dV or dK, of 16 keys x 64 columns, whose tile of keys may have parts. In the numbers of slabs the last of
 * is_dk, panel and slab changes first. */
template <int HEAD_DIM> struct KvSlab {
    static constexpr int PANELS = HEAD_DIM / PANEL_COLUMNS;
    int summed_tile; /* of keys, one of params.summed_tiles */
    int is_dk, panel, slab;
    int head_index, kv_tile; /* of all kv heads; of the head */
    int parts;

    __device__ __forceinline__ KvSlab(const Params &params, unsigned number)
        : summed_tile(number / (WARPS * PANELS * 2)), is_dk(number / (WARPS * PANELS) % 2),
          panel(number / WARPS % PANELS), slab(number % WARPS)
    {
        if (params.tail.parts > 1) {
            const int work = summed_tile / params.cluster;
            const WorkPlace at = work_place(params, params.tail.first + work);
            head_index = at.head;
            kv_tile = at.place * params.cluster + summed_tile - work * params.cluster;
            parts = params.tail.parts;
        } else {
            head_index = summed_tile / params.kv_tiles;
            kv_tile = summed_tile - head_index * params.kv_tiles;
            parts = parts_of(params, steps_of(params, kv_tile, params.q_tile));
        }
    }

    /* Adds every `step`-th part from `first` on to `sum`. */
    __device__ __forceinline__ void add_parts(float (&sum)[SLAB_FLOATS_OF_LANE], const Params &params, int first,
                                              int step, int lane) const
    {
        const int within = (is_dk * PANELS + panel) * (KV_TILE * PANEL_COLUMNS) + slab * SLAB_FLOATS;
        for (int part = first; part < parts; part += step)
            add_slab(sum, params.kv_sums + kv_sums_offset<HEAD_DIM>(params, part, summed_tile) + within, lane);
    }

    __device__ __forceinline__ float scale(const Params &params) const
    {
        return is_dk ? params.dqk_scale : params.dv_scale;
    }

    __device__ __forceinline__ const struct attn_tensor &tensor(const Params &params) const
    {
        return is_dk ? params.dk_rows : params.dv_rows;
    }

    /* Where it begins in the tensor. */
    template <typename T> __device__ __forceinline__ T *begin(const Params &params) const
    {
        const RowBlock block = {
            head_index, head_index / params.kv_heads, head_index % params.kv_heads, first_key(), 0, 0, 0};
        return head_pointer<T>(tensor(params), block) + block.first_row * tensor(params).stride_row +
               panel * PANEL_COLUMNS;
    }

    __device__ __forceinline__ int first_key() const { return kv_tile * KV_TILE + slab * SLAB_ROWS; }
};

/* A warp has a slab: few parts, one after the other. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void add_few_parts(const Params &params, unsigned number, uint32_t shared, int lane)
{
    const KvSlab<HEAD_DIM> slab(params, number);
    float sum[SLAB_FLOATS_OF_LANE] = {};

    if (slab.parts == 1)
        return;
    grid_wait_for_last();
    slab.add_parts(sum, params, 0, 1, lane);
    write_slab<T>(sum, slab.scale(params), shared, slab.template begin<T>(params), slab.tensor(params).stride_row,
                  params.kv_len - slab.first_key(), lane);
}

/* A block has a slab. Its warps add up every eighth part each, so that eight are on their way at once, and then a quad
 * of the slab over all warps. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void add_many_parts(const Params &params, unsigned number, unsigned char *s_bytes, int warp,
                                               int lane)
{
    const KvSlab<HEAD_DIM> slab(params, number);
    const uint32_t rows = shared_address(s_bytes);
    float4 *sums = reinterpret_cast<float4 *>(s_bytes) + lane; /* [warp][quad][lane] */
    float own[SLAB_FLOATS_OF_LANE] = {};
    static_assert(WARPS == SLAB_QUADS, "a warp for each quad");

    if (slab.parts == 1)
        return;
    grid_wait_for_last();
    slab.add_parts(own, params, warp, WARPS, lane);
#pragma unroll
    for (int i = 0; i < SLAB_QUADS; ++i)
        sums[(warp * SLAB_QUADS + i) * LANES] = make_float4(own[4 * i], own[4 * i + 1], own[4 * i + 2], own[4 * i + 3]);
    __syncthreads();
    float4 sum = sums[warp * LANES];
    for (int other = 1; other < min(slab.parts, WARPS); ++other) {
        const float4 more = sums[(other * SLAB_QUADS + warp) * LANES];
        sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
    }
    __syncthreads();
    const float scale = slab.scale(params);
    store_shared_32(rows + swizzle_128b(lane / 4, warp) + lane % 4 * 4, pack2<T>(sum.x * scale, sum.y * scale));
    store_shared_32(rows + swizzle_128b(lane / 4 + 8, warp) + lane % 4 * 4, pack2<T>(sum.z * scale, sum.w * scale));
    __syncthreads();
    const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
    if (row < SLAB_ROWS && slab.first_key() + row < params.kv_len)
        store_once(reinterpret_cast<uint4 *>(slab.template begin<T>(params) + row * slab.tensor(params).stride_row +
                                             chunk * VECTOR),
                   load_shared_128(rows + swizzle_128b(row, chunk)));
}

template <typename T, int HEAD_DIM, bool IS_PACKED>
__global__ void __launch_bounds__(THREADS) convert(const __grid_constant__ Params params)
{
    __shared__ __align__(1024) unsigned char s_bytes[WARPS * SLAB_FLOATS * sizeof(float)];
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const uint32_t shared = shared_address(s_bytes) + warp * (SLAB_ROWS * ROW_BYTES);
    const unsigned heads = IS_PACKED ? params.q_heads : params.kv_heads_total * params.group;
    const unsigned q_blocks = heads * params.row_blocks;

    if constexpr (IS_PACKED) { /* a row block of several heads, as in preprocess; there are no parts */
        const PackedRows<HEAD_DIM> rows(params);
#pragma unroll 1
        for (unsigned head = rows.end_head; head > rows.first_head; --head) {
            convert_dq<T, HEAD_DIM, IS_PACKED>(params, rows.number(params, head - 1), shared, warp, lane);
            __syncwarp(); /* the warp has read its rows of shared memory */
        }
    } else if (blockIdx.x < q_blocks)
        convert_dq<T, HEAD_DIM, IS_PACKED>(params, q_blocks - 1 - blockIdx.x, shared, warp, lane);
    else if (sm90_bwd_has_many_parts(params.summed_parts))
        add_many_parts<T, HEAD_DIM>(params, blockIdx.x - q_blocks, s_bytes, warp, lane);
    else
        add_few_parts<T, HEAD_DIM>(params, (blockIdx.x - q_blocks) * WARPS + warp, shared, lane);
}

} // namespace

} // namespace sm90_bwd

using namespace sm90_bwd;

extern "C" const fused_sm90_bwd_kernel fused_sm90_bwd_convert[2][SM90_HEAD_DIMS] = {
    {convert<__half, 64, false>, convert<__half, 128, false>},
    {convert<__nv_bfloat16, 64, false>, convert<__nv_bfloat16, 128, false>}};
extern "C" const fused_sm90_bwd_kernel fused_sm90_bwd_convert_packed[2][SM90_HEAD_DIMS] = {
    {convert<__half, 64, true>, convert<__half, 128, true>},
    {convert<__nv_bfloat16, 64, true>, convert<__nv_bfloat16, 128, true>}};
