/* The read ceiling of a CUDA device, see reference/harness/harness_cuda.h: a kernel that only reads.
 *
 * Enough loads must be under way to cover the latency of memory: an H200 needs about 25 KB for each multiprocessor
 * (4.8 TB/s x 700 ns / 132). 2048 threads with four loads of 16 bytes each have 128 KB. Blocks take tiles in turn, so
 * that neighbours read neighbouring addresses, and nothing waits for another block: each warp leaves its own sum, which
 * is what keeps the compiler from leaving out the reading. */
#include <cuda_runtime.h>

#include "reference/harness/harness_cuda.h"

enum { READ_THREADS = 256, READ_LOADS = 4, READ_TILE = READ_THREADS * READ_LOADS, READ_BLOCKS_PER_SM = 8, WARP = 32 };

__device__ __forceinline__ unsigned long long sum_of(uint4 x) { return (unsigned long long)x.x + x.y + x.z + x.w; }

__global__ __launch_bounds__(READ_THREADS, READ_BLOCKS_PER_SM) void read_kernel(const uint4 *from, int64_t count,
                                                                                unsigned long long *sums)
{
    unsigned long long sum = 0;
    for (int64_t tile = blockIdx.x * (int64_t)READ_TILE; tile < count; tile += gridDim.x * (int64_t)READ_TILE) {
        const int64_t first = tile + threadIdx.x;
        uint4 x[READ_LOADS];
#pragma unroll
        for (int i = 0; i < READ_LOADS; i++)
            x[i] = first + i * READ_THREADS < count ? __ldcs(from + first + i * READ_THREADS) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < READ_LOADS; i++)
            sum += sum_of(x[i]);
    }
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % WARP == 0)
        sums[(blockIdx.x * READ_THREADS + threadIdx.x) / WARP] = sum;
}

int harness_read_sums(int multiprocessors) { return multiprocessors * READ_BLOCKS_PER_SM * READ_THREADS / WARP; }

int harness_read(const void *buffer, size_t bytes, int multiprocessors, unsigned long long *sums, void *stream)
{
    const int64_t count = (int64_t)(bytes / sizeof(uint4)), tiles = (count + READ_TILE - 1) / READ_TILE;
    const int64_t most = (int64_t)multiprocessors * READ_BLOCKS_PER_SM;
    const unsigned blocks = (unsigned)(tiles < 1 ? 1 : tiles < most ? tiles : most);
    read_kernel<<<blocks, READ_THREADS, 0, (cudaStream_t)stream>>>((const uint4 *)buffer, count, sums);
    return cudaGetLastError();
}
