/* The kernels ahead of and behind the forward of chunks, see chunk.h. */
#include "kernels/sm90/decode/chunk.h"

namespace {

__global__ void __launch_bounds__(SM90_CHUNK_THREADS)
    write_ranges_kernel(const __grid_constant__ sm90_chunk_ranges ranges)
{
    const int b = blockIdx.x * SM90_CHUNK_THREADS + threadIdx.x;

    if (b < ranges.batch) {
        const int used = min(max(ranges.seqused_k[b], 0), ranges.kv_len);
        ranges.cu_q[2 * b] = b * ranges.q_len;
        ranges.cu_q[2 * b + 1] = (b + 1) * ranges.q_len;
        ranges.cu_k[2 * b] = b * ranges.pitch;
        ranges.cu_k[2 * b + 1] = b * ranges.pitch + used;
    }
    if (b == ranges.batch - 1) { /* the last sequence without rows */
        ranges.cu_q[2 * b + 2] = (b + 1) * ranges.q_len;
        ranges.cu_k[2 * b + 2] = b * ranges.pitch + ranges.kv_len;
    }
}

__global__ void __launch_bounds__(SM90_CHUNK_THREADS) copy_lse_kernel(const __grid_constant__ sm90_chunk_lse lse)
{
    const int64_t i = blockIdx.x * int64_t(SM90_CHUNK_THREADS) + threadIdx.x;

    if (i >= lse.count)
        return;
    const int64_t plane = i / lse.q_len, row = i - plane * lse.q_len, sequence = plane / lse.q_heads;
    lse.to[i] = lse.from[((plane - sequence * lse.q_heads) * lse.batch + sequence) * lse.q_len + row];
}

} // namespace

extern "C" const void *const sm90_chunk_write_ranges = (const void *)write_ranges_kernel;
extern "C" const void *const sm90_chunk_copy_lse = (const void *)copy_lse_kernel;
