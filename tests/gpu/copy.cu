/* See tests/gpu/copy.h. */
#include "tests/gpu/copy.h"

enum { THREADS = 256, LOADS = 4, BLOCKS = 132 * 4 };

__device__ __forceinline__ uint4 half_of(uint4 a, uint4 b)
{
    return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w);
}

/* Sixteen elements at a time. reads_alone: what it would never write keeps the compiler from leaving out the reads. */
__global__ __launch_bounds__(THREADS, 4) void copy_kernel(const uint4 *from, uint4 *to, int64_t count, bool reads_alone)
{
    for (int64_t first = blockIdx.x * (int64_t)(THREADS * LOADS) + threadIdx.x; first < count;
         first += gridDim.x * (int64_t)(THREADS * LOADS)) {
        uint4 low[LOADS], high[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const int64_t at = first + i * THREADS < count ? first + i * THREADS : first;
            low[i] = from[2 * at];
            high[i] = from[2 * at + 1];
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const uint4 x = half_of(low[i], high[i]);
            const bool is_written = !reads_alone || (x.x == 0x12345678u && x.y == 0x9abcdef0u && x.z == x.w);
            if (is_written && first + i * THREADS < count)
                to[first + i * THREADS] = x;
        }
    }
}

cudaError_t copy_half(const void *from, void *to, int64_t elements, bool is_twice, cudaStream_t stream)
{
    const uint4 *const read = static_cast<const uint4 *>(from);
    if (is_twice)
        copy_kernel<<<BLOCKS, THREADS, 0, stream>>>(read, static_cast<uint4 *>(to), elements / 16, true);
    copy_kernel<<<BLOCKS, THREADS, 0, stream>>>(read, static_cast<uint4 *>(to), elements / 16, false);
    return cudaGetLastError();
}
