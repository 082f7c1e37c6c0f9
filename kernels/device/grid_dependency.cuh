/* Kernels of one stream that overlap, sm_90 and newer. PTX ISA, "Parallel Synchronization and Communication
 * Instructions: griddepcontrol". A kernel that is launched with the attribute for programmatic stream serialization
 * may start once every block of the kernel before it has called grid_let_next_start or has ended. Without the
 * attribute both functions do nothing. */
#pragma once

namespace device {

/* Lets the next kernel's blocks start. They see what this block writes only after grid_wait_for_last. */
__device__ __forceinline__ void grid_let_next_start()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* Waits until the kernel before has ended and its writes are visible. */
__device__ __forceinline__ void grid_wait_for_last() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

} // namespace device
