/* Barriers within a thread block, and the circular buffers that they guard. */
#pragma once
#include <cstdint>

namespace device {

/* ---- some warps of a block ---- */

/* A barrier of some warps of a thread block. PTX ISA, "Parallel Synchronization and Communication Instructions:
 * bar, barrier". Barrier 0 is __syncthreads. */

/* Waits until `threads` threads (a multiple of 32, whole warps) are at barrier `id` (1..15); orders shared memory
 * between them. */
__device__ __forceinline__ void bar_sync(uint32_t id, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* The same for warps that reach the barrier at different instructions. bar.sync is barrier.sync.aligned, which requires
 * that all threads execute the same instruction; synccheck reports a kernel where they do not. */
__device__ __forceinline__ void bar_sync_unaligned(uint32_t id, uint32_t threads)
{
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Arrives at the barrier and goes on; those that wait there see what was written to shared memory before. */
__device__ __forceinline__ void bar_arrive(uint32_t id, uint32_t threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- mbarrier ---- */

/* Barriers in shared memory that count arrivals and bytes, sm_90 and newer; on sm_80 they count arrivals alone, and one
 * cannot sleep at them (mbarrier_test). PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
 *
 * A barrier's phase ends when all expected arrivals and bytes are in; phases have parity 0, 1, 0, ... A waiter names
 * the parity of the phase whose end it waits for. Waiting for parity 1 of a barrier that was just initialised returns
 * at once: a producer does not wait for buffers that nobody has used yet. */

/* One thread, before anybody else touches the barrier: mbarrier_init_fence and a block barrier come after it. */
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* Makes initialised barriers visible to the copy engine. */
__device__ __forceinline__ void mbarrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, and has the phase wait for so many bytes of copies that name the barrier. */
__device__ __forceinline__ void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Whether the phase of this parity has ended, after a short sleep if it has not. */
__device__ __forceinline__ bool mbarrier_try(uint32_t barrier, uint32_t parity)
{
    uint32_t ended;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(ended)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return ended != 0;
}

/* The same without a sleep. */
__device__ __forceinline__ bool mbarrier_test(uint32_t barrier, uint32_t parity)
{
    uint32_t ended;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(ended)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return ended != 0;
}

/* Sleeps until the phase of this parity has ended; what was written before its arrivals is visible then. */
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred ended;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
                 "@ended bra done;\n"
                 "bra again;\n"
                 "done:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* The same for a whole warp. The assembler knows that all threads go on together, which it does not behind a
 * mbarrier_wait in a loop whose barrier is not the same at every turn; values may then be in uniform registers. */
__device__ __forceinline__ void mbarrier_wait_together(uint32_t barrier, uint32_t parity)
{
    while (!__all_sync(0xffffffffu, mbarrier_try(barrier, parity))) {
    }
}

/* mbarrier_test for a whole warp: true where it is for all threads. */
__device__ __forceinline__ bool mbarrier_test_together(uint32_t barrier, uint32_t parity)
{
    return __all_sync(0xffffffffu, mbarrier_test(barrier, parity));
}

/* ---- clusters ---- */

/* Thread blocks of a cluster run at the same time and reach each other's shared memory. PTX ISA, "barrier.cluster",
 * "mapa", "mbarrier.arrive", "st.async". */

/* Waits until all threads of the cluster have come here. Threads of a warp may come one after the other. */
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/* The same in two steps: comes here; waits for all others. */
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

/* Of clusters of two blocks, pairs: this block's rank in its pair; both, as the blocks of a multicast. */
__device__ __forceinline__ int pair_rank() { return blockIdx.x % 2; }
constexpr uint16_t BOTH_BLOCKS = 3;

/* The address of the same place in the shared memory of a block of the cluster. */
__device__ __forceinline__ uint32_t address_in_block(uint32_t shared, uint32_t block)
{
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(block));
    return address;
}

/* `barrier`: of address_in_block. For what has been read, by this warp's loads whose values it has used and by products
 * that it has waited for; never to publish writes. A release at the scope of the cluster, which these would need, waits
 * for all writes of the thread to device memory (MEMBAR.ALL.GPU). */
__device__ __forceinline__ void mbarrier_arrive_in_cluster(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* The same, and the phase waits for so many bytes of copies that name the barrier. */
__device__ __forceinline__ void mbarrier_arrive_expect_in_cluster(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Writes 4 bytes that arrive at a barrier of the same block; both addresses are of address_in_block. */
__device__ __forceinline__ void send_in_cluster(uint32_t to, int value, uint32_t barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(value),
                 "r"(barrier)
                 : "memory");
}

/* The same of 8 and of 16 bytes. */
__device__ __forceinline__ void send_in_cluster(uint32_t to, float2 x, uint32_t barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
                 "f"(x.x), "f"(x.y), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void send_in_cluster(uint32_t to, float4 x, uint32_t barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
                 : "memory");
}

/* ---- pipeline stages ---- */

/* Where a producer or a consumer is in a circular buffer of pipeline stages in shared memory. Each stage has two
 * barriers: `full` and `empty`. */

/* The stage that is used next, and the parity of the phase to wait for: a consumer waits for `full` with `phase`, a
 * producer for `empty` with `phase ^ 1`. */
template <int STAGES> struct PipelineState {
    int stage = 0;
    uint32_t phase = 0;

    __device__ __forceinline__ void advance()
    {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

} // namespace device
