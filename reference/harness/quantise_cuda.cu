/* Quantising on a CUDA device, see reference/harness/quantise.h: the same operations in the same order as quantise.c,
 * so that all bits are equal.
 *
 * A block has tiles of rows in turn; a tile lies within the rows of one scale of one head. Four lanes share a row, or
 * eight at head_dim 256, each with every fourth or eighth chunk of eight columns, so that a warp reads whole sectors.
 * Each thread copies the chunks that it works on itself to shared memory by cp.async, two tiles ahead: loads are under
 * way while it computes, and no barrier is needed for them. Two blocks run on a multiprocessor. The Hadamard matrix is
 * a butterfly: columns 1, 2 and 4 apart lie in one chunk, 8 and 16 (and 32) apart in neighbouring lanes, the others in
 * one lane.
 *
 * Where a tile has all rows of its scale, it is read once. Else the first pass finds the largest value of each scale,
 * and the second one begins with the tiles that were read last, which the L2 may still hold. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <math.h>

#include "kernels/common/divisor.h"
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/copies_sm80.cuh"
#include "reference/harness/quantise.h"

enum { THREADS = 256, CHUNK = 8, STAGES = 3, ROWS_OF_THREAD = 2, WARPS = THREADS / 32 };
enum pass { PASS_ALL, PASS_LARGEST, PASS_STORE };

/* One tensor. The scale of tile n of head h of sequence b: b * scale_batch + h / scale_heads * scale_head + n. */
struct quantised_tensor {
    struct attn_tensor from, to;
    float *scales;
    unsigned *largest; /* the bits of floats that are not negative, whose order is that of the bits */
    int64_t scale_batch, scale_head;
    struct divisor heads, scale_heads, tiles_per_scale, tiles_per_head;
    int len, scale_rows; /* scale_rows: rows of a head with one scale */
    int end;             /* tiles of this tensor and of those before it */
    bool is_rotated;
};

struct quantise_params {
    struct quantised_tensor tensors[QUANTISED_COUNT];
    uint32_t signs[8]; /* of the rotation, a bit for each column */
    float factor, most;
    int tiles;
    enum pass pass;
    bool is_e5m2;
};

/* Lanes that share a row, rows of the threads at once, rows of a tile; a thread has 64 or 32 numbers of it. */
template <int D> constexpr int LANES = D == 256 ? 8 : 4;
template <int D> constexpr int ROWS_AT_ONCE = THREADS / LANES<D>;
template <int D> constexpr int TILE_ROWS = ROWS_OF_THREAD *ROWS_AT_ONCE<D>;
template <int D> constexpr int CHUNKS_OF_LANE = D / (LANES<D> * CHUNK);
template <int D> constexpr int STAGE_BYTES = TILE_ROWS<D> *D * 2;

/* A tile: `rows` rows from `row` of a head, none behind the last row of its scale. */
struct place {
    int tensor, batch, head, row, rows;
    int64_t scale;
    bool is_first; /* of its scale */
};

template <int D> __device__ __forceinline__ struct place place_of(const struct quantise_params &p, int tile)
{
    struct place at;
    tile = p.pass == PASS_STORE ? p.tiles - 1 - tile : tile;
    at.tensor = (tile >= p.tensors[0].end) + (tile >= p.tensors[1].end);
    const struct quantised_tensor &t = p.tensors[at.tensor];
    const int own = tile - (at.tensor > 0 ? p.tensors[at.tensor - 1].end : 0);
    const int in_heads = device::quotient(own, t.heads);
    at.head = own - in_heads * t.heads.value;
    at.batch = device::quotient(in_heads, t.tiles_per_head);
    const int in_head = in_heads - at.batch * t.tiles_per_head.value, n = device::quotient(in_head, t.tiles_per_scale);
    const int part = in_head - n * t.tiles_per_scale.value, end = min(t.len, (n + 1) * t.scale_rows);
    at.row = n * t.scale_rows + part * TILE_ROWS<D>;
    at.rows = max(min(TILE_ROWS<D>, end - at.row), 0);
    at.scale = at.batch * t.scale_batch + device::quotient(at.head, t.scale_heads) * t.scale_head + n;
    at.is_first = part == 0;
    return at;
}

__device__ __forceinline__ int64_t offset_of(const struct attn_tensor &t, const struct place &at, int row)
{
    return at.batch * t.stride_batch + at.head * t.stride_head + (at.row + row) * t.stride_row;
}

/* The rows of a tile that a thread has, and its place in them. */
template <int D> __device__ __forceinline__ int row_of(int r) { return threadIdx.x / LANES<D> + r * ROWS_AT_ONCE<D>; }
template <int D> __device__ __forceinline__ int lane_of() { return threadIdx.x % LANES<D>; }

/* Asks for the thread's chunks of a tile. Behind the last row zeros are written and nothing is read. */
template <int D>
__device__ __forceinline__ void load(const struct quantise_params &p, uint32_t stage, const struct place &at)
{
    const struct attn_tensor &from = p.tensors[at.tensor].from;
#pragma unroll
    for (int r = 0; r < ROWS_OF_THREAD; r++) {
        const int row = row_of<D>(r);
        const bool is_row = row < at.rows;
        const uint16_t *const data =
            static_cast<const uint16_t *>(from.data) + (is_row ? offset_of(from, at, row) : 0) + lane_of<D>() * CHUNK;
#pragma unroll
        for (int k = 0; k < CHUNKS_OF_LANE<D>; k++)
            device::cp_async_16(stage + ((r * CHUNKS_OF_LANE<D> + k) * THREADS + threadIdx.x) * 16,
                                data + k * LANES<D> * CHUNK, is_row);
    }
}

__device__ __forceinline__ float2 widened(uint32_t pair, __nv_bfloat16)
{
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}
__device__ __forceinline__ float2 widened(uint32_t pair, __half)
{
    return __half22float2(*reinterpret_cast<const __half2 *>(&pair));
}

/* One row's columns of a lane: chunk k has the columns 8 (LANES k + lane) and the next seven. negated: the bits of the
 * signs that the rotation changes, two columns in a word, for each chunk of a row; NULL without rotation. */
template <typename T, int D>
__device__ __forceinline__ void read(float (&x)[CHUNKS_OF_LANE<D> * CHUNK], const char *stage, int r,
                                     const uint4 *negated)
{
#pragma unroll
    for (int k = 0; k < CHUNKS_OF_LANE<D>; k++) {
        uint4 raw =
            *reinterpret_cast<const uint4 *>(stage + ((r * CHUNKS_OF_LANE<D> + k) * THREADS + threadIdx.x) * 16);
        if (negated) {
            const uint4 signs = negated[k * LANES<D> + lane_of<D>()];
            raw = make_uint4(raw.x ^ signs.x, raw.y ^ signs.y, raw.z ^ signs.z, raw.w ^ signs.w);
        }
        const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const float2 pair = widened(words[w], T());
            x[k * CHUNK + 2 * w] = pair.x;
            x[k * CHUNK + 2 * w + 1] = pair.y;
        }
    }
}

/* The butterfly of what lies `step` elements of a thread apart. */
template <int COUNT> __device__ __forceinline__ void butterfly(float (&x)[COUNT], int step)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (!(i & step)) {
            const float a = x[i], b = x[i + step];
            x[i] = __fadd_rn(a, b);
            x[i + step] = __fsub_rn(a, b);
        }
}

/* The same between lanes: the lower one gets a + b, the upper one a - b. Products with 1 and -1 are exact. */
template <int COUNT> __device__ __forceinline__ void butterfly_of_lanes(float (&x)[COUNT], int lanes)
{
    const float sign = threadIdx.x & lanes ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        x[i] = __fmaf_rn(x[i], sign, __shfl_xor_sync(0xffffffffu, x[i], lanes));
}

/* H / sqrt(D) times the row, whose signs D has changed. */
template <int D> __device__ __forceinline__ void rotate(float factor, float (&x)[CHUNKS_OF_LANE<D> * CHUNK])
{
#pragma unroll
    for (int i = 0; i < CHUNKS_OF_LANE<D> * CHUNK; i++)
        x[i] = __fmul_rn(x[i], factor);
    butterfly(x, 1);
    butterfly(x, 2);
    butterfly(x, 4);
#pragma unroll
    for (int lanes = 1; lanes < LANES<D>; lanes *= 2)
        butterfly_of_lanes(x, lanes);
#pragma unroll
    for (int step = CHUNK; step < CHUNKS_OF_LANE<D> * CHUNK; step *= 2)
        butterfly(x, step);
}

/* The largest |value| of the block's threads; each call has words of its own in turn, so that one barrier is enough. */
__device__ __forceinline__ float largest_of_block(float value, float *words)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, lanes));
    if (threadIdx.x % 32 == 0)
        words[threadIdx.x / 32] = value;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        value = fmaxf(value, words[w]);
    return value;
}

/* x / scale as 8 bits see it, from the reciprocal rounded to nearest: a quotient, and its remainder times that.
 * It was compared with x / scale for every mantissa of a scale, every number M of five bits (the middle between two
 * numbers of 8 bits has five) and the seven x that are nearest to M times the scale: all lie on the same side of M. Not
 * for scales so small that a remainder underflows. */
__device__ __forceinline__ float divided(float x, float scale, float reciprocal)
{
    const float q = __fmul_rn(x, reciprocal), too_much = __fmaf_rn(q, scale, -x);
    return __fmaf_rn(-too_much, reciprocal, q); /* so that a zero keeps its sign */
}

__device__ __forceinline__ uint32_t four_of(const float *x, bool is_e5m2)
{
    const float2 low = make_float2(x[0], x[1]), high = make_float2(x[2], x[3]);
    const uint32_t first = is_e5m2 ? __nv_cvt_float2_to_fp8x2(low, __NV_SATFINITE, __NV_E5M2)
                                   : __nv_cvt_float2_to_fp8x2(low, __NV_SATFINITE, __NV_E4M3);
    const uint32_t second = is_e5m2 ? __nv_cvt_float2_to_fp8x2(high, __NV_SATFINITE, __NV_E5M2)
                                    : __nv_cvt_float2_to_fp8x2(high, __NV_SATFINITE, __NV_E4M3);
    return first | second << 16;
}

template <int D>
__device__ __forceinline__ void store(const struct quantise_params &p, const struct place &at, int row,
                                      float (&x)[CHUNKS_OF_LANE<D> * CHUNK], float scale)
{
    const struct attn_tensor &to = p.tensors[at.tensor].to;
    if (row >= at.rows)
        return;
    uint8_t *const data = static_cast<uint8_t *>(to.data) + offset_of(to, at, row) + lane_of<D>() * CHUNK;
    if (scale < 0x1p-60f) { /* where remainders may: the same quotients of larger numbers */
        scale *= 0x1p64f;
#pragma unroll
        for (int i = 0; i < CHUNKS_OF_LANE<D> * CHUNK; i++)
            x[i] *= 0x1p64f;
    }
    const float reciprocal = __frcp_rn(scale);
#pragma unroll
    for (int k = 0; k < CHUNKS_OF_LANE<D>; k++) {
        float *const chunk = &x[k * CHUNK];
#pragma unroll
        for (int i = 0; i < CHUNK; i++)
            chunk[i] = divided(chunk[i], scale, reciprocal);
        *reinterpret_cast<uint2 *>(data + k * LANES<D> * CHUNK) =
            make_uint2(four_of(chunk, p.is_e5m2), four_of(chunk + 4, p.is_e5m2));
    }
}

template <typename T, int D>
__device__ __forceinline__ void quantise_tile(const struct quantise_params &p, const struct place &at,
                                              const char *stage, const uint4 *negated, float *words)
{
    const struct quantised_tensor &t = p.tensors[at.tensor];
    float x[ROWS_OF_THREAD][CHUNKS_OF_LANE<D> * CHUNK], most = 0;
#pragma unroll
    for (int r = 0; r < ROWS_OF_THREAD; r++) {
        read<T, D>(x[r], stage, r, t.is_rotated ? negated : NULL);
        if (t.is_rotated)
            rotate<D>(p.factor, x[r]);
    }
    if (p.pass == PASS_STORE) {
        most = __uint_as_float(t.largest[at.scale]);
    } else {
#pragma unroll
        for (int r = 0; r < ROWS_OF_THREAD; r++)
#pragma unroll
            for (int i = 0; i < CHUNKS_OF_LANE<D> * CHUNK; i++)
                most = fmaxf(most, fabsf(x[r][i]));
        most = largest_of_block(most, words);
    }
    if (p.pass == PASS_LARGEST) {
        if (threadIdx.x == 0)
            atomicMax(&t.largest[at.scale], __float_as_uint(most));
        return;
    }
    const float scale = most > 0 ? fmaxf(__fdiv_rn(most, p.most), 0x1p-126f) : 1.0f;
    if (at.is_first && threadIdx.x == 0)
        t.scales[at.scale] = scale;
#pragma unroll
    for (int r = 0; r < ROWS_OF_THREAD; r++)
        store<D>(p, at, row_of<D>(r), x[r], scale);
}

template <typename T, int D>
__global__ __launch_bounds__(THREADS, 2) void quantise_kernel(const __grid_constant__ struct quantise_params p)
{
    extern __shared__ __align__(16) char stages[];
    __shared__ float words[2][WARPS];
    __shared__ uint4 negated[D / CHUNK];
    const uint32_t shared = (uint32_t)__cvta_generic_to_shared(stages);
    const int step = gridDim.x;
    if (threadIdx.x < D / CHUNK) {
        const uint32_t signs = p.signs[threadIdx.x * CHUNK / 32] >> threadIdx.x * CHUNK % 32;
        uint32_t pairs[4];
#pragma unroll
        for (int w = 0; w < 4; w++)
            pairs[w] = (signs >> (2 * w) & 1) << 15 | (signs >> (2 * w + 1) & 1) << 31;
        negated[threadIdx.x] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        const int tile = blockIdx.x + s * step;
        if (tile < p.tiles)
            load<D>(p, shared + s * STAGE_BYTES<D>, place_of<D>(p, tile));
        device::cp_async_commit();
    }
    int stage = 0, turn = 0;
    for (int tile = blockIdx.x; tile < p.tiles; tile += step) {
        const int ahead = tile + (STAGES - 1) * step, free_stage = stage == 0 ? STAGES - 1 : stage - 1;
        if (ahead < p.tiles)
            load<D>(p, shared + free_stage * STAGE_BYTES<D>, place_of<D>(p, ahead));
        device::cp_async_commit();
        device::cp_async_wait<STAGES - 1>();
        const struct place at = place_of<D>(p, tile);
        if (at.rows > 0) {
            quantise_tile<T, D>(p, at, stages + stage * STAGE_BYTES<D>, negated, words[turn]);
            turn ^= 1;
        }
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
}

/* ---- host ---- */

typedef void (*quantise_function)(const struct quantise_params);

/* By the type of what is quantised, bf16 first, and by head_dim. */
static const struct {
    int head_dim, tile_rows, stage_bytes;
    quantise_function kernels[2];
} kernels[] = {
    {64, TILE_ROWS<64>, STAGE_BYTES<64>, {quantise_kernel<__nv_bfloat16, 64>, quantise_kernel<__half, 64>}},
    {128, TILE_ROWS<128>, STAGE_BYTES<128>, {quantise_kernel<__nv_bfloat16, 128>, quantise_kernel<__half, 128>}},
    {256, TILE_ROWS<256>, STAGE_BYTES<256>, {quantise_kernel<__nv_bfloat16, 256>, quantise_kernel<__half, 256>}},
};

static int kernel_of(int64_t head_dim)
{
    for (int i = 0; i < (int)(sizeof kernels / sizeof kernels[0]); i++)
        if (kernels[i].head_dim == head_dim)
            return i;
    return -1;
}

static int64_t columns_of(const struct quantise_job *job)
{
    return job->tensor == QUANTISED_V ? attn_v_head_dim(job->problem) : job->problem->head_dim;
}

static int64_t heads_of(const struct quantise_job *job)
{
    return job->tensor == QUANTISED_Q ? job->problem->q_heads : job->problem->kv_heads;
}

static int64_t len_of(const struct quantise_job *job)
{
    return job->tensor == QUANTISED_Q ? job->problem->q_len : job->problem->kv_len;
}

static bool is_aligned(const struct attn_tensor *t, int64_t elements, uintptr_t bytes)
{
    return (uintptr_t)t->data % bytes == 0 && t->stride_row % elements == 0 && t->stride_head % elements == 0 &&
           t->stride_batch % elements == 0;
}

/* The tiles of a tensor. */
static int64_t tiles_per_scale_of(const struct quantise_job *job, int64_t scale_rows)
{
    const int64_t rows = kernels[kernel_of(columns_of(job))].tile_rows;
    return (scale_rows + rows - 1) / rows;
}

static int64_t scale_rows_of(const struct quantise_job *job)
{
    return job->problem->quant_scale == ATTN_SCALE_BLOCK ? job->problem->scale_block : len_of(job);
}

static int64_t tiles_of(const struct quantise_job *job)
{
    const int64_t rows = scale_rows_of(job), scales = (len_of(job) + rows - 1) / rows;
    return job->problem->batch * heads_of(job) * scales * tiles_per_scale_of(job, rows);
}

bool quantise_cuda_takes(const struct quantise_job *jobs, int count)
{
    int64_t tiles = 0;
    for (int i = 0; i < count; i++) {
        const struct quantise_job *job = &jobs[i];
        if (job->cu_seqlens || job->seqused_k || kernel_of(columns_of(job)) < 0 ||
            columns_of(job) != columns_of(&jobs[0]) || (job->from_dtype != ATTN_BF16 && job->from_dtype != ATTN_FP16) ||
            job->from_dtype != jobs[0].from_dtype || !is_aligned(&job->from, 8, 16) || !is_aligned(&job->to, 8, 8))
            return false;
        tiles += tiles_of(job);
    }
    return count > 0 && count <= QUANTISED_COUNT && tiles < 1 << 30;
}

/* Has every tile all rows of its scale? */
static bool reads_once(const struct quantise_job *jobs, int count)
{
    bool once = jobs[0].problem->quant_scale == ATTN_SCALE_BLOCK;
    for (int i = 0; i < count; i++)
        once = once && tiles_per_scale_of(&jobs[i], scale_rows_of(&jobs[i])) == 1;
    return once;
}

size_t quantise_cuda_workspace_bytes(const struct quantise_job *jobs, int count)
{
    size_t scales = 0;
    for (int i = 0; i < count; i++)
        scales += (size_t)quantise_scales(jobs[i].problem, jobs[i].tensor);
    return scales * sizeof(unsigned);
}

static struct quantised_tensor tensor_of(const struct quantise_job *job, unsigned *largest, int64_t tiles_before)
{
    const struct attn_problem *p = job->problem;
    const int64_t heads = heads_of(job), rows = scale_rows_of(job), scales = (len_of(job) + rows - 1) / rows;
    const int64_t group = job->tensor == QUANTISED_Q ? p->q_heads / p->kv_heads : 1;
    struct quantised_tensor t = {};
    t.from = job->from;
    t.to = job->to;
    t.scales = job->scales;
    t.largest = largest;
    t.scale_heads = divisor_of(1);
    if (p->quant_scale == ATTN_SCALE_BLOCK) {
        t.scale_batch = heads * scales;
        t.scale_head = scales;
    } else if (p->quant_scale == ATTN_SCALE_HEAD) {
        t.scale_batch = heads / group;
        t.scale_head = 1;
        t.scale_heads = divisor_of(group);
    }
    t.heads = divisor_of(heads);
    t.len = (int)len_of(job);
    t.scale_rows = (int)rows;
    t.tiles_per_scale = divisor_of(tiles_per_scale_of(job, rows));
    t.tiles_per_head = divisor_of(scales * t.tiles_per_scale.value);
    t.end = (int)(tiles_before + tiles_of(job));
    t.is_rotated = job->is_rotated;
    return t;
}

static cudaError_t launch(quantise_function kernel, int stage_bytes, const struct quantise_params *p,
                          cudaStream_t stream)
{
    int device = 0, multiprocessors = 0, blocks = 0;
    const int shared_bytes = STAGES * stage_bytes;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (error == cudaSuccess)
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, THREADS, (size_t)shared_bytes);
    if (error != cudaSuccess)
        return error;
    if (blocks == 0)
        return cudaErrorLaunchOutOfResources;
    const int most = blocks * multiprocessors, grid = p->tiles < most ? p->tiles : most;
    kernel<<<grid, THREADS, shared_bytes, stream>>>(*p);
    return cudaGetLastError();
}

int quantise_cuda(const struct quantise_job *jobs, int count, void *workspace, void *stream)
{
    const cudaStream_t s = (cudaStream_t)stream;
    const int which = kernel_of(columns_of(&jobs[0]));
    const quantise_function kernel = kernels[which].kernels[jobs[0].from_dtype == ATTN_FP16];
    struct quantise_params p = {};
    unsigned *largest = static_cast<unsigned *>(workspace);
    for (int i = 0; i < count; i++) {
        p.tensors[i] = tensor_of(&jobs[i], largest, p.tiles);
        p.tiles = p.tensors[i].end;
        largest += quantise_scales(jobs[i].problem, jobs[i].tensor);
    }
    for (int i = count; i < QUANTISED_COUNT; i++)
        p.tensors[i].end = p.tiles;
    for (int64_t column = 0; column < kernels[which].head_dim; column++)
        p.signs[column / 32] |= (uint32_t)quantise_negates(jobs[0].seed, column) << column % 32;
    p.factor = (float)(1 / sqrt((double)kernels[which].head_dim));
    p.is_e5m2 = (jobs[0].tensor == QUANTISED_Q ? jobs[0].problem->dtype : attn_kv_dtype(jobs[0].problem)) == ATTN_E5M2;
    p.most = p.is_e5m2 ? 57344.0f : 448.0f;
    if (p.tiles == 0)
        return cudaSuccess;
    if (reads_once(jobs, count)) {
        p.pass = PASS_ALL;
        return launch(kernel, kernels[which].stage_bytes, &p, s);
    }
    cudaError_t error = cudaMemsetAsync(workspace, 0, quantise_cuda_workspace_bytes(jobs, count), s);
    p.pass = PASS_LARGEST;
    if (error == cudaSuccess)
        error = launch(kernel, kernels[which].stage_bytes, &p, s);
    p.pass = PASS_STORE;
    return error == cudaSuccess ? launch(kernel, kernels[which].stage_bytes, &p, s) : error;
}
