/* Registers handed from the warpgroups that copy to those that compute, sm_90a. PTX ISA, "Miscellaneous Instructions:
 * setmaxnreg". All warps of a warpgroup call it; the kernel needs a register count fixed by __launch_bounds__. */
#pragma once

namespace device {

template <int registers> __device__ __forceinline__ void registers_increase()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers> __device__ __forceinline__ void registers_decrease()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

} // namespace device
