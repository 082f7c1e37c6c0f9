/* Numbers for the warp's own registers, sm_90 and newer.
 *
 * wgmma takes its operands from uniform registers. What the assembler knows to come from an address it works out again at every
 * use, five instructions for an operand of a ring of slots, and all of them between two products. */
#pragma once
#include <cstdint>

namespace device {

/* A number that is the same in all lanes, worked out once: of what comes from another lane the assembler knows that all of the
 * warp has it, and nothing else. All of the warp calls it. */
__device__ __forceinline__ uint32_t keep_uniform(uint32_t x) { return __shfl_sync(0xffffffffu, x, 0); }

} // namespace device
