/* Kernels of one stream that overlap, sm_90 and newer. PTX ISA, "Parallel Synchronization and Communication
 * Instructions: griddepcontrol". A kernel that is launched with programmatic stream serialization may start once every
 * block of the one before has let it, or has ended; without that attribute both do nothing. */
#pragma once

namespace device {

/* The next kernel's blocks may start. What this block writes is visible to them only after their wait. */
__device__ __forceinline__ void grid_let_next_start()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* Waits until the kernel before has ended and its writes are visible. */
__device__ __forceinline__ void grid_wait_for_last() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

} // namespace device
