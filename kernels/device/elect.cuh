/* One thread of a warp, sm_90 and newer. PTX ISA, "Parallel Synchronization and Communication Instructions:
 * elect.sync". The assembler knows that the code under it runs in one thread. Under a comparison of threadIdx.x it does
 * not, and puts a loop over the threads around every instruction whose operands are those of the whole warp, such as
 * copies. */
#pragma once
#include <cstdint>

namespace device {

/* True in one thread of the warp, always the same one. The whole warp calls it. */
__device__ __forceinline__ bool elect_one()
{
    uint32_t elected;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "elect.sync _|p, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(elected));
    return elected != 0;
}

} // namespace device
