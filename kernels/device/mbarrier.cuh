/* Barriers in shared memory that count arrivals and bytes, sm_90 and newer. PTX ISA, "Parallel Synchronization and
 * Communication Instructions: mbarrier".
 *
 * A barrier's phase ends when all expected arrivals and bytes are in; phases have parity 0, 1, 0, ... A waiter names
 * the parity of the phase whose end it waits for. Waiting for parity 1 of a barrier that was just initialised returns
 * at once: a producer does not wait for buffers that nobody has used yet. */
#pragma once
#include <cstdint>

namespace device {

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

} // namespace device
