/* The kernels around fused_sm80's backward that do not depend on its tiles.
 *
 * preprocess: eight or sixteen lanes to a row compute D = rowsum(dO * O) in fp32 and put LSE in base 2; rows that see
 * no key, and rows that only pad, get lse2 = +inf, so that P = exp2(S - lse2) is 0 in the main kernel without a mask.
 * The same threads zero the fp32 sums of dQ.
 *
 * backward_dq: for request.deterministic. The main kernel's dQ is added by thread blocks in the order in which they
 * get there; here a block owns 64 queries, recomputes S and dP tile by tile of 64 keys in ascending order and keeps dQ
 * in registers: dS leaves the accumulators as the A operand of dQ += dS K. Seven products instead of five.
 *
 *   warp w: queries 16 w .. 16 w + 15, all keys of the tile
 *   shared memory: Q | dO | K 0 | K 1 | V 0 | V 1, 8 KB each at head_dim 64, 16 KB at 128
 *   loop: wait for stage i, barrier, start loading stage i + 1, S = Q K^T, dP = dO V^T, dS, dQ += dS K
 */
#include "kernels/sm80/fused_sm80_bwd.h"

#include <cuda_runtime.h>

#include "kernels/common/checks.h"
#include "kernels/device/exp2.cuh"
#include "kernels/device/pack.cuh"
#include "kernels/device/tile_io_sm80.cuh"

namespace fused_sm80 {

using namespace device;

namespace {

enum {
    PREPROCESS_THREADS = 256,
    DQ_TILE = 64, /* queries, and keys */
    DQ_THREADS = DQ_TILE / 16 * LANES
};

/* ---- preprocess ------------------------------------------------------------------------------------------------ */

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

/* A block has rows of one head only. */
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(PREPROCESS_THREADS) preprocess(const __grid_constant__ struct bwd_args args)
{
    constexpr int ROW_LANES = HEAD_DIM / 8, ROWS = PREPROCESS_THREADS / ROW_LANES;
    const int64_t head_blocks = args.q_rows / ROWS, head_index = blockIdx.x / head_blocks;
    const int64_t row = blockIdx.x % head_blocks * ROWS + threadIdx.x / ROW_LANES;
    const int64_t batch = head_index / args.q_heads, head = head_index % args.q_heads;
    const int column = threadIdx.x % ROW_LANES * 8;
    const bool valid = row < args.q_len;
    float sum = 0.0f;

    if (valid) {
        const uint16_t *o = head_pointer<uint16_t>(args.o, batch, head) + row * args.o.stride_row + column;
        const uint16_t *dout = head_pointer<uint16_t>(args.dout, batch, head) + row * args.dout.stride_row + column;
        sum = dot8<T>(*reinterpret_cast<const uint4 *>(o), *reinterpret_cast<const uint4 *>(dout));
    }
#pragma unroll
    for (int offset = ROW_LANES / 2; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    const int64_t index = head_index * args.q_rows + row;
    if (column == 0) {
        const float lse = valid ? args.lse[head_index * args.q_len + row] : -INFINITY;
        const bool sees = lse != -INFINITY;
        float *stats = args.stats + stats_index(args, index);
        stats[0] = sees ? lse * LOG2_E : INFINITY;
        stats[args.q_tile] = sees ? -sum : 0.0f;
    }
    if (args.dq_sum != NULL) {
        float4 *zeros = reinterpret_cast<float4 *>(args.dq_sum + index * HEAD_DIM + column);
        zeros[0] = zeros[1] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
}

/* ---- dQ in a fixed order ---------------------------------------------------------------------------------------- */

template <int HEAD_DIM> struct DqSmem {
    static constexpr int PANELS = HEAD_DIM / PANEL_COLUMNS, PANEL_BYTES = DQ_TILE * ROW_BYTES;
    alignas(1024) unsigned char q[PANELS * PANEL_BYTES]; /* at the end dQ on its way out */
    unsigned char dout[PANELS * PANEL_BYTES], k[2][PANELS * PANEL_BYTES], v[2][PANELS * PANEL_BYTES];
};

/* What a lane knows of its two rows. */
struct dq_rows {
    float lse2[2], neg_delta[2];
    int64_t last_key[2]; /* the last one seen, below 0 when none */
};

/* dS = P * (dP - D) of 16 queries (m) and a tile of keys (n) from `key` on, as the A operand of dQ. */
template <int HEAD_DIM, typename T>
__device__ __forceinline__ void score_rows(Fragments<1, DQ_TILE / 16> &fragments, const DqSmem<HEAD_DIM> &s, int stage,
                                           const struct dq_rows &rows, float scale_log2, int64_t key)
{
    constexpr int N8 = DQ_TILE / 8, PANEL = DqSmem<HEAD_DIM>::PANEL_BYTES;
    const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, row = warp * ROWS_16_BYTES;
    const uint32_t rows_16 = lane_rows_16(lane), rows_8 = lane_rows_8(lane);
    Accumulator<1, N8> p, ds;
    clear(p);
    gemm_by_columns<HEAD_DIM / 16, T>(p, {rows_16, shared_address(s.q) + row, PANEL},
                                      {rows_8, shared_address(s.k[stage]), PANEL});
    clear(ds);
    gemm_by_columns<HEAD_DIM / 16, T>(ds, {rows_16, shared_address(s.dout) + row, PANEL},
                                      {rows_8, shared_address(s.v[stage]), PANEL});
#pragma unroll
    for (int n = 0; n < N8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float probability = exp2_approx(fmaf(p.at[0][n][i], scale_log2, -rows.lse2[i / 2]));
            ds.at[0][n][i] = (ds.at[0][n][i] + rows.neg_delta[i / 2]) * probability;
        }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int last = clamp_to_tile(rows.last_key[half] - key) - lane % 4 * 2;
        if (last >= DQ_TILE - 1)
            continue;
#pragma unroll
        for (int n = 0; n < N8; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                if (8 * n + i > last)
                    ds.at[0][n][2 * half + i] = 0.0f;
    }
    pack_fragments<T>(fragments, ds);
}

/* Blocks of the last queries, which see most under a causal mask, come first. */
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(DQ_THREADS) backward_dq(const __grid_constant__ struct bwd_args args)
{
    using S = DqSmem<HEAD_DIM>;
    extern __shared__ __align__(1024) unsigned char s_bytes[];
    S &s = *reinterpret_cast<S *>(s_bytes);
    const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int64_t q_tiles = args.q_rows / DQ_TILE;
    const int64_t head_index = blockIdx.x / q_tiles, tile = q_tiles - 1 - blockIdx.x % q_tiles;
    const int64_t batch = head_index / args.q_heads, head = head_index % args.q_heads;
    const int64_t first_row = tile * DQ_TILE, warp_row = first_row + warp * 16, q_left = args.q_len - first_row;
    const uint16_t *k = head_pointer<uint16_t>(args.k, batch, head / args.group);
    const uint16_t *v = head_pointer<uint16_t>(args.v, batch, head / args.group);
    int64_t keys = args.kv_len; /* that any row of the tile sees */
    if (args.causal && first_row + DQ_TILE + args.shift < keys)
        keys = first_row + DQ_TILE + args.shift;

    load_rows<DQ_TILE, HEAD_DIM, DQ_THREADS>(
        shared_address(s.q), head_pointer<uint16_t>(args.q, batch, head) + first_row * args.q.stride_row,
        args.q.stride_row, q_left);
    load_rows<DQ_TILE, HEAD_DIM, DQ_THREADS>(
        shared_address(s.dout), head_pointer<uint16_t>(args.dout, batch, head) + first_row * args.dout.stride_row,
        args.dout.stride_row, q_left);
    load_rows<DQ_TILE, HEAD_DIM, DQ_THREADS>(shared_address(s.k[0]), k, args.k.stride_row, args.kv_len);
    load_rows<DQ_TILE, HEAD_DIM, DQ_THREADS>(shared_address(s.v[0]), v, args.v.stride_row, args.kv_len);
    cp_async_commit();

    Accumulator<1, 8> dq[S::PANELS];
    struct dq_rows rows;
#pragma unroll
    for (int panel = 0; panel < S::PANELS; ++panel)
        clear(dq[panel]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int64_t row = warp_row + lane / 4 + 8 * half, diagonal = row + args.shift, last = args.kv_len - 1;
        const float *stats = args.stats + stats_index(args, head_index * args.q_rows + row);
        rows.lse2[half] = stats[0];
        rows.neg_delta[half] = stats[args.q_tile];
        rows.last_key[half] = args.causal && diagonal < last ? diagonal : last;
    }
    int stage = 0;
    for (int64_t key = 0; key < keys; key += DQ_TILE, stage ^= 1) {
        cp_async_wait<0>();
        __syncthreads();
        if (key + DQ_TILE < keys) {
            const int64_t left = args.kv_len - key - DQ_TILE;
            k += DQ_TILE * args.k.stride_row;
            v += DQ_TILE * args.v.stride_row;
            load_rows<DQ_TILE, HEAD_DIM, DQ_THREADS>(shared_address(s.k[stage ^ 1]), k, args.k.stride_row, left);
            load_rows<DQ_TILE, HEAD_DIM, DQ_THREADS>(shared_address(s.v[stage ^ 1]), v, args.v.stride_row, left);
        }
        cp_async_commit();
        Fragments<1, DQ_TILE / 16> ds;
        score_rows<HEAD_DIM, T>(ds, s, stage, rows, args.scale_log2, key);
#pragma unroll
        for (int panel = 0; panel < S::PANELS; ++panel)
            gemm_registers<T>(dq[panel], ds,
                              {lane_rows_16(lane), shared_address(s.k[stage]) + panel * S::PANEL_BYTES, 0}, 0);
    }
    cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int panel = 0; panel < S::PANELS; ++panel)
        store_rows(dq[panel], args.scale, shared_address(s.q) + panel * S::PANEL_BYTES + warp * ROWS_16_BYTES,
                   head_pointer<T>(args.dq, batch, head) + warp_row * args.dq.stride_row + panel * PANEL_COLUMNS,
                   args.dq.stride_row, clamp_to_tile(args.q_len - warp_row));
}

enum attn_status cuda_status(cudaError_t error, const char *call, struct attn_message *why)
{
    if (error == cudaSuccess)
        return ATTN_OK;
    return attn_fail(why, error == cudaErrorMemoryAllocation ? ATTN_NO_MEMORY : ATTN_ERROR, "%s: %s (%s)", call,
                           cudaGetErrorName(error), cudaGetErrorString(error));
}

} // namespace

/* ---- launch ---------------------------------------------------------------------------------------------------- */

enum attn_status launch_kernel(void (*kernel)(struct bwd_args), const char *name, int64_t blocks, int threads,
                               size_t smem_bytes, const struct bwd_args &args, const struct attn_run *run,
                               struct attn_message *why)
{
    if (run->pass != NULL)
        run->pass(run->pass_context, name);
    if (smem_bytes > 0) {
        const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       static_cast<int>(smem_bytes));
        if (error != cudaSuccess)
            return cuda_status(error, "cudaFuncSetAttribute(MaxDynamicSharedMemorySize)", why);
    }
    kernel<<<static_cast<unsigned>(blocks), threads, smem_bytes, static_cast<cudaStream_t>(run->stream)>>>(args);
    return cuda_status(cudaGetLastError(), name, why);
}

int64_t preprocess_head_blocks(int64_t head_dim, int64_t q_rows)
{
    return q_rows / (PREPROCESS_THREADS / (head_dim / 8));
}

enum attn_status launch_preprocess(const struct attn_problem *p, const struct bwd_args &args,
                                   const struct attn_run *run, struct attn_message *why)
{
    void (*const kernels[2][2])(struct bwd_args) = {{preprocess<__half, 64>, preprocess<__half, 128>},
                                                    {preprocess<__nv_bfloat16, 64>, preprocess<__nv_bfloat16, 128>}};
    return launch_kernel(kernels[p->dtype == ATTN_BF16][p->head_dim == 128], "preprocess",
                         preprocess_head_blocks(p->head_dim, args.q_rows) * p->q_heads * p->batch,
                         PREPROCESS_THREADS, 0, args, run, why);
}

size_t dq_smem_bytes(int64_t head_dim) { return head_dim == 64 ? sizeof(DqSmem<64>) : sizeof(DqSmem<128>); }

enum attn_status launch_dq(const struct attn_problem *p, const struct bwd_args &args, const struct attn_run *run,
                           struct attn_message *why)
{
    void (*const kernels[2][2])(struct bwd_args) = {{backward_dq<__half, 64>, backward_dq<__half, 128>},
                                                    {backward_dq<__nv_bfloat16, 64>, backward_dq<__nv_bfloat16, 128>}};
    return launch_kernel(kernels[p->dtype == ATTN_BF16][p->head_dim == 128], "dq",
                         args.q_rows / DQ_TILE * p->q_heads * p->batch, DQ_THREADS, dq_smem_bytes(p->head_dim), args,
                         run, why);
}

} // namespace fused_sm80
