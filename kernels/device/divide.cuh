/* Division of numbers in 0 .. 2^31 - 1 by one that the host has prepared (kernels/common/divisor.h). It needs no
 * reciprocal, which would come from the unit that computes ex2. */
#pragma once
#include <cstdint>

#include "kernels/common/divisor.h"

namespace device {

__device__ __forceinline__ int quotient(int dividend, const divisor &by)
{
    return static_cast<int>(__umulhi(2 * static_cast<uint32_t>(dividend), by.multiplier) >> by.shift);
}

} // namespace device
