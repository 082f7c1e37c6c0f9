/* The order of kernels in a stream and of thread blocks in a kernel, sm_90 and newer. */
#pragma once
#include <cstdint>

#include "kernels/device/copy_engine.cuh"
#include "kernels/device/registers.cuh"

namespace device {

/* ---- kernels that overlap ---- */

/* Kernels of one stream that overlap, sm_90 and newer. PTX ISA, "Parallel Synchronization and Communication
 * Instructions: griddepcontrol". A kernel that is launched with the attribute for programmatic stream serialization
 * may start once every block of the kernel before it has called grid_let_next_start or has ended. Without the
 * attribute both functions do nothing. */

/* Lets the next kernel's blocks start. They see what this block writes only after grid_wait_for_last. */
__device__ __forceinline__ void grid_let_next_start()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* Waits until the kernel before has ended and its writes are visible. */
__device__ __forceinline__ void grid_wait_for_last() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/* ---- counters ---- */

/* Adds 1 to a counter in device memory; returns what it was. Whoever finds a number sees what those wrote who found the
 * ones before it, before they called this; also what other threads of their blocks wrote before a barrier. PTX ISA,
 * "Memory Consistency Model"; "atom.acq_rel". */
__device__ __forceinline__ int counter_add(int *counter)
{
    int before;

    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
}

/* ---- semaphores ---- */

/* Semaphores in device memory that fix the order in which thread blocks add to the same sums, sm_90 and newer. A
 * semaphore counts the warps that have finished with its piece of memory; the warp that is to be the n-th (from 0)
 * waits for n. PTX ISA, "Memory Consistency Model"; "ld.acquire", "fence.acq_rel".
 *
 * The sums are changed by the copy engine (copy_engine.cuh) or by reductions. All threads of a warp call these
 * functions and one acts: that of elect_one (registers.cuh), which has to be the thread that issues the warp's copies.
 * Writes of the other threads are ordered by a __syncwarp before a release and by one after a wait. */

/* Waits until the warp's additions under `held` are done, adds 1 to `held`, and returns whether `next` is at `count`.
 * Either may be NULL: nothing to release, nothing to test. One call does both because they share one fence, which takes
 * longer than everything else here. */
__device__ __forceinline__ bool semaphore_release_and_test(int *held, const int *next, int count)
{
    bool is_open = false;

    if (elect_one()) {
        int now = -1;

        if (next)
            asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(now) : "l"(next) : "memory");
        if (held) {
            bulk_wait();
            bulk_global_fence();
        }
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        if (held)
            asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(held) : "memory");
        bulk_global_fence();
        is_open = now == count;
    }
    return __any_sync(0xffffffffu, is_open);
}

/* Adds 1 to a semaphore, behind the warp's stores. */
__device__ __forceinline__ void semaphore_release_stores(int *semaphore)
{
    __syncwarp();
    if (elect_one()) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        bulk_global_fence();
        asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(semaphore) : "memory");
    }
}

/* Waits until the semaphore is at `count`. The whole warp loops, not one thread: values that live across a loop of a
 * single thread cannot be in uniform registers. */
__device__ __forceinline__ void semaphore_wait(const int *semaphore, int count)
{
    bool is_open;

    do {
        int now = -1;

        if (elect_one())
            asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(now) : "l"(semaphore) : "memory");
        is_open = __any_sync(0xffffffffu, now == count);
    } while (!is_open);
    if (elect_one())
        bulk_global_fence();
}

} // namespace device
