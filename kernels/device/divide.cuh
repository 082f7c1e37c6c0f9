/* Division of numbers in 0 .. 2^31 - 1 by one that the host knows, without the unit of reciprocals: a product and a shift.
 * Granlund and Montgomery 1994, theorem 4.2. */
#pragma once
#include <cstdint>

namespace device {

/* shift = ceil(log2 divisor), multiplier = ceil(2^(31 + shift) / divisor), which is below 2^32. multiplier * divisor exceeds
 * 2^(31 + shift) by less than divisor <= 2^shift: the theorem's condition for dividends of 31 bits. */
struct Divisor {
    int divisor;
    uint32_t multiplier;
    int shift;
};

inline Divisor divisor_of(int64_t divisor) /* 1 .. 2^31 - 1 */
{
    int shift = 0;

    while ((int64_t{1} << shift) < divisor)
        ++shift;
    const uint64_t power = uint64_t{1} << (31 + shift);
    return {static_cast<int>(divisor), static_cast<uint32_t>((power + divisor - 1) / divisor), shift};
}

__device__ __forceinline__ int quotient(int dividend, const Divisor &by)
{
    return static_cast<int>(__umulhi(2 * static_cast<uint32_t>(dividend), by.multiplier) >> by.shift);
}

} // namespace device
