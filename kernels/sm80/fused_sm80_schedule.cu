/* The list of work tiles of packed sequences. The host cannot read their lengths: it launches as many blocks as there
 * can be tiles, and this kernel, one block before them, says what each computes.
 *
 * Tiles are sorted by how many tiles of the other side they visit, the most first, so that a long sequence starts early
 * and short tiles fill the gaps at the end: a counting sort with a counter for each of SM80_SCHEDULE_THREADS classes.
 * Within a class the order depends on the run; no result does. A warp takes one sequence at a time, a lane one of its
 * tiles.
 *
 * For the backward it also fills the table of row blocks: stats and dq_sum begin a sequence at a multiple of
 * SM80_ROW_BLOCK rows, block cu_seqlens_q[b] / SM80_ROW_BLOCK + b. */
#include "kernels/sm80/family.cuh"

namespace {

using namespace sm80_family;
using Params = fused_sm80_schedule;

constexpr int THREADS = SM80_SCHEDULE_THREADS, CLASSES = THREADS, LANES = 32;

/* The class of a tile: 0 for those that visit most. */
__device__ __forceinline__ int class_of(const Params &params, const Sequence &s, int tile)
{
    const int first = tile * params.own_tile;
    const TileRange range = params.own_is_keys
                                ? row_tiles_of(params.family, s, first, params.own_tile, params.other_tile)
                                : key_tiles_of(params.family, s, first, params.own_tile, params.other_tile);
    const int64_t most = params.longest_other / params.other_tile + 1, visited = range.end - range.first;
    return CLASSES - 1 - static_cast<int>(min(visited * (CLASSES - 1) / most, static_cast<int64_t>(CLASSES - 1)));
}

/* Calls `each` for every tile of every sequence. */
template <typename Each> __device__ __forceinline__ void for_each_tile(const Params &params, const Each &each)
{
    for (int b = threadIdx.x / LANES; b < params.family.batch; b += THREADS / LANES) {
        const Sequence s = sequence_at(params.family, b, 0, 0);
        const int len = params.own_is_keys ? s.kv_len : s.q_len;
        const int tiles = len / params.own_tile + (len % params.own_tile != 0);
        for (int tile = threadIdx.x % LANES; tile < tiles; tile += LANES)
            each(s, tile);
    }
}

__global__ void __launch_bounds__(THREADS) schedule_work(const __grid_constant__ Params params)
{
    __shared__ int counts[CLASSES];
    const fused_sm80_family &family = params.family;
    const int thread = threadIdx.x;

    counts[thread] = 0;
    __syncthreads();
    for_each_tile(params, [&](const Sequence &s, int tile) { atomicAdd(&counts[class_of(params, s, tile)], 1); });
    __syncthreads();
    for (int step = 1; step < CLASSES; step *= 2) { /* the sum of all classes up to each (Hillis and Steele 1986) */
        const int before = thread >= step ? counts[thread - step] : 0;
        __syncthreads();
        counts[thread] += before;
        __syncthreads();
    }
    const int tiles = counts[CLASSES - 1], first = thread > 0 ? counts[thread - 1] : 0;
    __syncthreads();
    counts[thread] = first;
    __syncthreads();
    for_each_tile(params, [&](const Sequence &s, int tile) {
        const int at = atomicAdd(&counts[class_of(params, s, tile)], 1);
        if (at < family.work_tiles)
            family.work[at] = {s.number, tile};
    });
    for (int at = tiles + thread; at < family.work_tiles; at += THREADS)
        family.work[at] = {-1, 0};
    if (family.row_blocks == NULL)
        return;
    for (int b = thread / LANES; b < family.batch; b += THREADS / LANES) {
        const int end = family.cu_seqlens_q[b + 1] / SM80_ROW_BLOCK + b + 1;
        for (int i = family.cu_seqlens_q[b] / SM80_ROW_BLOCK + b + thread % LANES; i < end; i += LANES)
            family.row_blocks[i] = b;
    }
}

} // namespace

extern "C" const fused_sm80_schedule_kernel fused_sm80_schedule_work = schedule_work;
