/* The device code of test_eight_bits.c. */
#include "tests/gpu/eight_bits.h"

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/eight_bits.cuh"
#include "kernels/device/memory.cuh"

using namespace device;

static constexpr int WARPGROUP = 128;

/* Where byte `column` of row `row` lies in a panel of rows of K bytes with the swizzle of that width. */
template <int K> static __device__ int place(int row, int column)
{
    const int at = row * K + column;
    return at ^ (at >> 7 & (K == 128 ? 7 : 3)) << 4;
}

/* By one warpgroup. */
template <typename T, int N, int K>
static __device__ void multiply(bool from_registers, const uint8_t *a, const uint8_t *b, float *c, bool accumulate)
{
    __shared__ alignas(1024) uint8_t a_panel[EIGHT_BITS_M * K], b_panel[N * K];
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, q = lane % 4;
    float sums[N / 2];
    uint32_t fragments[K / 32][4];

    for (int i = threadIdx.x; i < EIGHT_BITS_M * K; i += WARPGROUP)
        a_panel[place<K>(i / K, i % K)] = a[i];
    for (int i = threadIdx.x; i < N * K; i += WARPGROUP)
        b_panel[place<K>(i / K, i % K)] = b[i];
    for (int step = 0; step < K / 32; ++step)
        for (int i = 0; i < 4; ++i) { /* rows g, g + 8, g, g + 8; k from 4q for the first two, 4q + 16 for the others */
            const uint8_t *four = a + (row + i % 2 * 8) * K + step * 32 + q * 4 + i / 2 * 16;
            fragments[step][i] = four[0] | four[1] << 8 | four[2] << 16 | uint32_t(four[3]) << 24;
        }
    for (int i = 0; i < N / 2; ++i)
        sums[i] = c[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + q * 2 + i % 2];
    async_proxy_fence();
    __syncthreads();

    const uint32_t of_a = wgmma_k_major(shared_address(a_panel)), of_b = wgmma_k_major(shared_address(b_panel));
    wgmma_hold(sums);
    wgmma_fence();
    if (from_registers) {
#pragma unroll
        for (int step = 0; step < K / 32; ++step)
            wgmma<T, N>::template registers<K>(sums, fragments[step], of_b + 2 * step, step > 0 || accumulate);
    } else {
#pragma unroll
        for (int step = 0; step < K / 32; ++step)
            wgmma<T, N>::template shared<K>(sums, of_a + 2 * step, of_b + 2 * step, step > 0 || accumulate);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(sums);
    for (int i = 0; i < N / 2; ++i)
        c[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + q * 2 + i % 2] = sums[i];
}

template <typename T, int N, int K>
__global__ void __launch_bounds__(WARPGROUP, 1)
    multiply_kernel(bool from_registers, const uint8_t *a, const uint8_t *b, float *c, bool accumulate)
{
    if (from_registers)
        multiply<T, N, K>(true, a, b, c, accumulate);
    else
        multiply<T, N, K>(false, a, b, c, accumulate);
}

template <typename T> __global__ void pack(const float *from, uint32_t *packed, int count)
{
    const int i = blockIdx.x * WARPGROUP + threadIdx.x;
    if (i < count)
        packed[i] = pack4<T>(from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]);
}

__global__ void exponentiate(const float *x, float *y, int count)
{
    const int i = blockIdx.x * WARPGROUP + threadIdx.x;
    if (i < count)
        y[i] = exp2_polynomial(x[i]);
}

extern "C" {

cudaError_t eight_bits_multiply(bool from_registers, enum attn_dtype dtype, int n, int k, const uint8_t *a,
                                const uint8_t *b, float *c, bool accumulate)
{
    using kernel = void (*)(bool, const uint8_t *, const uint8_t *, float *, bool);
    static const kernel kernels[2][2][2] = {{{multiply_kernel<e4m3, 64, 64>, multiply_kernel<e4m3, 64, 128>},
                                             {multiply_kernel<e4m3, 128, 64>, multiply_kernel<e4m3, 128, 128>}},
                                            {{multiply_kernel<e5m2, 64, 64>, multiply_kernel<e5m2, 64, 128>},
                                             {multiply_kernel<e5m2, 128, 64>, multiply_kernel<e5m2, 128, 128>}}};
    if ((n != 64 && n != 128) || (k != 64 && k != 128) || !attn_dtype_is_8_bit(dtype))
        return cudaErrorInvalidValue;
    kernels[dtype == ATTN_E5M2][n == 128][k == 128]<<<1, WARPGROUP>>>(from_registers, a, b, c, accumulate);
    return cudaGetLastError();
}

cudaError_t eight_bits_pack(enum attn_dtype dtype, const float *from, uint32_t *packed, int count)
{
    (dtype == ATTN_E5M2 ? pack<e5m2> : pack<e4m3>)<<<(count + WARPGROUP - 1) / WARPGROUP, WARPGROUP>>>(from, packed,
                                                                                                       count);
    return cudaGetLastError();
}

cudaError_t eight_bits_exp2(const float *x, float *y, int count)
{
    exponentiate<<<(count + WARPGROUP - 1) / WARPGROUP, WARPGROUP>>>(x, y, count);
    return cudaGetLastError();
}

} /* extern "C" */
