#include "tests/gpu/blocks.h"

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/grid_order.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/device/wgmma.cuh"

using namespace device;

namespace {

constexpr int WARPGROUP = BLOCKS_WARPGROUP, PANEL_BYTES = 64 * 128;
constexpr uint16_t POISON = 0x5a5a;

/* Element (row, column) of panels of 64 rows that lie one after the other. */
__device__ uint16_t &element(unsigned char *panels, int panel_rows, int row, int column)
{
    const uint32_t chunk = swizzle_128b(row, column % 64 / 8);
    return *reinterpret_cast<uint16_t *>(panels + column / 64 * panel_rows * 128 + chunk + column % 8 * 2);
}

/* ---- wgmma ---------------------------------------------------------------------------------------------------- */

template <typename T, int N, blocks_operands OPERANDS>
__global__ void __launch_bounds__(WARPGROUP, 1)
    multiply(const uint16_t *a, const uint16_t *b, float *c, bool accumulate)
{
    __shared__ alignas(1024) unsigned char a_panel[PANEL_BYTES];
    __shared__ alignas(1024) unsigned char b_panels[2 * PANEL_BYTES];
    constexpr bool TRANSPOSED = OPERANDS == BLOCKS_SHARED_TRANSPOSED || OPERANDS == BLOCKS_REGISTERS_TRANSPOSED;
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, q = lane % 4;
    float sums[N / 2];
    uint32_t fragments[BLOCKS_K / 16][4];

    for (int i = threadIdx.x; i < BLOCKS_M * BLOCKS_K; i += WARPGROUP) {
        const int m = i / BLOCKS_K, k = i % BLOCKS_K;
        (TRANSPOSED ? element(a_panel, BLOCKS_K, k, m) : element(a_panel, BLOCKS_M, m, k)) = a[i];
    }
    for (int i = threadIdx.x; i < N * BLOCKS_K; i += WARPGROUP) {
        const int n = i / BLOCKS_K, k = i % BLOCKS_K;
        (TRANSPOSED ? element(b_panels, BLOCKS_K, k, n) : element(b_panels, N, n, k)) = b[i];
    }
    for (int step = 0; step < BLOCKS_K / 16; ++step)
        for (int i = 0; i < 4; ++i) { /* rows g, g + 8, g, g + 8; k 2q for the first two, 2q + 8 for the others */
            const uint16_t *pair = a + (row + i % 2 * 8) * BLOCKS_K + step * 16 + q * 2 + i / 2 * 8;
            fragments[step][i] = pair[0] | uint32_t(pair[1]) << 16;
        }
    for (int i = 0; i < N / 2; ++i)
        sums[i] = c[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + q * 2 + i % 2];
    async_proxy_fence();
    __syncthreads();

    const uint32_t a_address = shared_address(a_panel), b_address = shared_address(b_panels);
    wgmma_hold(sums);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < BLOCKS_K / 16; ++step) {
        const uint32_t k_step = step * 32 / 16, mn_step = step * 16 * 128 / 16;
        const bool add = step > 0 || accumulate;
        if constexpr (OPERANDS == BLOCKS_SHARED)
            wgmma<T, N>::template shared<WGMMA_K_MAJOR, WGMMA_K_MAJOR>(sums, wgmma_k_major(a_address) + k_step,
                                                                       wgmma_k_major(b_address) + k_step, add);
        else if constexpr (OPERANDS == BLOCKS_SHARED_TRANSPOSED)
            wgmma<T, N>::template shared<WGMMA_MN_MAJOR, WGMMA_MN_MAJOR>(
                sums, wgmma_mn_major(a_address, PANEL_BYTES) + mn_step,
                wgmma_mn_major(b_address, PANEL_BYTES) + mn_step, add);
        else if constexpr (OPERANDS == BLOCKS_REGISTERS)
            wgmma<T, N>::template registers<WGMMA_K_MAJOR>(sums, fragments[step], wgmma_k_major(b_address) + k_step,
                                                           add);
        else
            wgmma<T, N>::template registers<WGMMA_MN_MAJOR>(sums, fragments[step],
                                                            wgmma_mn_major(b_address, PANEL_BYTES) + mn_step, add);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(sums);
    for (int i = 0; i < N / 2; ++i)
        c[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + q * 2 + i % 2] = sums[i];
}

/* ---- copies --------------------------------------------------------------------------------------------------- */

__global__ void copy_box(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to, int rows,
                         int4 at, int *poisoned)
{
    __shared__ alignas(1024) uint16_t box[PANEL_BYTES / 2];
    __shared__ uint64_t barrier;
    for (int i = threadIdx.x; i < PANEL_BYTES / 2; i += blockDim.x)
        box[i] = POISON;
    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(&barrier), 1);
        mbarrier_init_fence();
    }
    async_proxy_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        tma_prefetch_map(&from);
        mbarrier_arrive_expect(shared_address(&barrier), rows * 128);
        tma_load(shared_address(box), &from, shared_address(&barrier), L2_EVICT_FIRST, at.x, at.y, at.z, at.w);
    }
    mbarrier_wait(shared_address(&barrier), 0);
    for (int i = threadIdx.x; i < PANEL_BYTES / 2; i += blockDim.x)
        if (box[i] == POISON)
            atomicAdd(poisoned, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        tma_store(&to, shared_address(box), at.x, at.y, at.z, at.w);
        tma_store_commit();
        tma_store_wait_read<0>();
    }
}

__global__ void move_matrix(const uint16_t *in, uint16_t *out)
{
    __shared__ alignas(1024) unsigned char panel[16 * 128], moved[16 * 128];
    for (int i = threadIdx.x; i < 256; i += 32)
        element(panel, 16, i / 16, i % 16) = in[i];
    __syncwarp();
    uint32_t fragment[4];
    ldmatrix_x4(fragment, shared_address(panel) + rows_first(threadIdx.x));
    stmatrix_x4(shared_address(moved) + rows_first(threadIdx.x), fragment);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32)
        out[i] = element(moved, 16, i / 16, i % 16);
}

/* ---- barriers ------------------------------------------------------------------------------------------------- */

/* One warp fills slots, the other empties them. BULK: the copy engine fills them. ONE_LANE: one lane releases a slot
 * for the warp, after __syncwarp, as in the kernels; otherwise every lane releases it. */
template <bool BULK, bool ONE_LANE> __global__ void ring(const int *in, int *out, int count)
{
    __shared__ alignas(128) int slots[2][32];
    __shared__ uint64_t full[2], empty[2];
    const int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; ++i) {
            mbarrier_init(shared_address(&full[i]), BULK ? 1 : 32);
            mbarrier_init(shared_address(&empty[i]), ONE_LANE ? 1 : 32);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    PipelineState<2> at;
    for (int i = 0; i < count / 32; ++i, at.advance()) {
        if (threadIdx.x < 32) {
            mbarrier_wait(shared_address(&empty[at.stage]), at.phase ^ 1); /* the first pass falls through */
            if (!BULK) {
                slots[at.stage][lane] = in[i * 32 + lane];
                mbarrier_arrive(shared_address(&full[at.stage]));
            } else if (lane == 0) {
                mbarrier_arrive_expect(shared_address(&full[at.stage]), sizeof slots[0]);
                bulk_load(shared_address(slots[at.stage]), in + i * 32, sizeof slots[0],
                          shared_address(&full[at.stage]));
            }
            __syncwarp(); /* keeps the lanes within one phase: two phases have the same parity */
        } else {
            while (!mbarrier_try(shared_address(&full[at.stage]), at.phase))
                ;
            out[i * 32 + 31 - lane] = slots[at.stage][31 - lane]; /* what another lane wrote */
            if (ONE_LANE)
                __syncwarp();
            if (!ONE_LANE || lane == 0)
                mbarrier_arrive(shared_address(&empty[at.stage]));
        }
    }
}

/* ---- semaphores and ping-pong ---------------------------------------------------------------------------------- */

__global__ void add_in_order(int tiles, const float *in, float *sums, int *semaphores)
{
    enum { WARPS = 2, FLOATS = 64, SHARED_TILES = 2 };
    __shared__ alignas(128) float s_rows[WARPS][2][FLOATS / 2];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first = int(int64_t(blockIdx.x) * tiles / gridDim.x);
    int *held = NULL;
    bool is_open = false;
    for (int tile = tiles - 1; tile >= first; --tile) {
        const float *row = in + ((int64_t(blockIdx.x) * tiles + tile) * WARPS + warp) * FLOATS;
        float *sum = sums + (int64_t(tile) * WARPS + warp) * FLOATS;
        int *const next = semaphores + tile / SHARED_TILES * WARPS + warp;
        if (next != held) {
            __syncwarp();
            is_open = semaphore_release_and_test(held, next, blockIdx.x);
            held = next;
        }
        if (elect_one())
            tma_store_wait_read<1>();
        __syncwarp();
        s_rows[warp][tile % 2][lane] = row[lane];
        async_proxy_fence();
        if (!is_open)
            semaphore_wait(held, blockIdx.x);
        is_open = true;
        __syncwarp();
        if (elect_one()) {
            bulk_reduce_add(sum, shared_address(s_rows[warp][tile % 2]), sizeof s_rows[warp][0]);
            tma_store_commit();
        }
        atomicAdd(&sum[FLOATS / 2 + lane], row[FLOATS / 2 + lane]);
    }
    __syncwarp();
    if (held)
        semaphore_release_and_test(held, NULL, 0);
}

/* As in kernels/sm90/fwd/mainloop.cuh: a named barrier of each warpgroup alone, and one of each where it waits and the
 * warpgroup before it arrives. */
__global__ void ping_pong(int steps, uint32_t *last, int *order)
{
    __shared__ uint32_t x[WARPGROUP];
    __shared__ int position;
    const int warpgroups = blockDim.x / WARPGROUP, warpgroup = threadIdx.x / WARPGROUP,
              thread = threadIdx.x % WARPGROUP;
    const int own = 1 + warpgroups + warpgroup, next = 1 + warpgroups + (warpgroup + 1) % warpgroups;

    if (threadIdx.x < WARPGROUP)
        x[thread] = thread;
    if (threadIdx.x == 0)
        position = 0;
    __syncthreads();
    if (warpgroup == warpgroups - 1)
        bar_arrive(next, 2 * WARPGROUP); /* the first one begins */
    for (int step = warpgroup; step < steps; step += warpgroups) {
        bar_sync(own, 2 * WARPGROUP);
        if (thread / 32 == step % 4)
            __nanosleep(500); /* delays one warp, so that a missing wait of another warp shows in the result */
        const uint32_t before = x[(thread + BLOCKS_AWAY) % WARPGROUP];
        bar_sync(1 + warpgroup, WARPGROUP); /* all four warps have read */
        x[thread] = 3 * before + step + warpgroup;
        if (thread == 0)
            order[position++] = warpgroup;
        bar_arrive(next, 2 * WARPGROUP);
    }
    if (warpgroup == 0) {
        bar_sync(own, 2 * WARPGROUP); /* takes the last pass */
        last[thread] = x[thread];
    }
}

/* ---- softmax -------------------------------------------------------------------------------------------------- */

template <int PAIRS> __global__ void find_exceeding(const uint32_t *p, uint32_t headroom, bool *passed, int count)
{
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t pairs[PAIRS];
    if (row >= count)
        return;
#pragma unroll
    for (int i = 0; i < PAIRS; ++i)
        pairs[i] = p[row * PAIRS + i];
    passed[row] = any_exceeds(pairs, headroom);
}

/* ---- integers and warps ------------------------------------------------------------------------------------------ */

__global__ void divide(divisor by, const int *dividends, int *quotients, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        quotients[i] = quotient(dividends[i], by);
}

__global__ void elect(int *elected)
{
    const bool first = elect_one();
    elected[threadIdx.x] = first + 2 * elect_one();
}

/* Warps 0 and 1 write alternately, late each time, and the other one reads. */
__global__ void meet_unaligned(const int *in, int *out)
{
    __shared__ int left[2][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int round = 0; round < BLOCKS_MEETINGS; ++round) {
        if (warp == round % 2) {
            __nanosleep(2000);
            left[round % 2][lane] = in[32 * round + lane];
            bar_sync_unaligned(1, 64);
        } else {
            bar_sync_unaligned(1, 64);
            out[32 * round + lane] = left[round % 2][31 - lane];
        }
    }
}

/* Uses an object that is not the first one in shared memory. */
__global__ void keep(unsigned *numbers)
{
    __shared__ unsigned both[2][BLOCKS_ELECTORS];
    unsigned *given = both[0], *kept = both[1];
    given[threadIdx.x] = numbers[threadIdx.x];
    kept[threadIdx.x] = 0;
    keep_shared_uniform<unsigned>(kept)[threadIdx.x] = keep_uniform(given[threadIdx.x]);
    numbers[threadIdx.x] = given[threadIdx.x] == numbers[threadIdx.x] ? kept[threadIdx.x] : 0;
}

} // namespace

extern "C" {

cudaError_t blocks_multiply(enum blocks_operands operands, enum attn_dtype dtype, int n, const uint16_t *a,
                            const uint16_t *b, float *c, bool accumulate)
{
    using kernel = void (*)(const uint16_t *, const uint16_t *, float *, bool);
#define BLOCKS_OF(T, N) \
    { \
        multiply<T, N, BLOCKS_SHARED>, multiply<T, N, BLOCKS_SHARED_TRANSPOSED>, multiply<T, N, BLOCKS_REGISTERS>, \
            multiply<T, N, BLOCKS_REGISTERS_TRANSPOSED> \
    }
    static const kernel kernels[2][2][BLOCKS_OPERANDS] = {
        {BLOCKS_OF(__half, 64), BLOCKS_OF(__half, 128)}, {BLOCKS_OF(__nv_bfloat16, 64), BLOCKS_OF(__nv_bfloat16, 128)}};
    if ((n != 64 && n != 128) || (dtype != ATTN_FP16 && dtype != ATTN_BF16) || operands >= BLOCKS_OPERANDS)
        return cudaErrorInvalidValue;
    kernels[dtype == ATTN_BF16][n == 128][operands]<<<1, WARPGROUP>>>(a, b, c, accumulate);
    return cudaGetLastError();
}

cudaError_t blocks_copy_box(const CUtensorMap *from, const CUtensorMap *to, int rows, const int at[4], int *poisoned)
{
    copy_box<<<1, 64>>>(*from, *to, rows, make_int4(at[0], at[1], at[2], at[3]), poisoned);
    return cudaGetLastError();
}

cudaError_t blocks_move_matrix(const uint16_t *in, uint16_t *out)
{
    move_matrix<<<1, 32>>>(in, out);
    return cudaGetLastError();
}

cudaError_t blocks_ring(bool bulk, bool one_lane, const int *in, int *out, int count)
{
    if (bulk)
        (one_lane ? ring<true, true> : ring<true, false>)<<<1, 64>>>(in, out, count);
    else
        (one_lane ? ring<false, true> : ring<false, false>)<<<1, 64>>>(in, out, count);
    return cudaGetLastError();
}

cudaError_t blocks_divide(int divisor, const int *dividends, int *quotients, int count)
{
    divide<<<(count + 127) / 128, 128>>>(divisor_of(divisor), dividends, quotients, count);
    return cudaGetLastError();
}

cudaError_t blocks_elect(int *elected)
{
    elect<<<1, BLOCKS_ELECTORS>>>(elected);
    return cudaGetLastError();
}

cudaError_t blocks_bar_sync_unaligned(const int *in, int *out)
{
    meet_unaligned<<<1, 64>>>(in, out);
    return cudaGetLastError();
}

cudaError_t blocks_keep_uniform(unsigned *numbers)
{
    keep<<<1, BLOCKS_ELECTORS>>>(numbers);
    return cudaGetLastError();
}

cudaError_t blocks_add_in_order(int blocks, int tiles, const float *in, float *sums, int *semaphores)
{
    add_in_order<<<blocks, 64>>>(tiles, in, sums, semaphores);
    return cudaGetLastError();
}

cudaError_t blocks_ping_pong(int warpgroups, int steps, uint32_t *last, int *order)
{
    ping_pong<<<1, warpgroups * WARPGROUP>>>(steps, last, order);
    return cudaGetLastError();
}

cudaError_t blocks_any_exceeds(int pairs, const uint32_t *p, uint32_t headroom, bool *passed, int count)
{
    if (pairs != 16 && pairs != 32)
        return cudaErrorInvalidValue;
    (pairs == 16 ? find_exceeding<16> : find_exceeding<32>)<<<(count + 127) / 128, 128>>>(p, headroom, passed, count);
    return cudaGetLastError();
}

} /* extern "C" */
