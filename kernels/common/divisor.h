/* A divisor that the host knows before a kernel starts, prepared for division without an integer division instruction
 * (kernels/device/arithmetic.cuh): a product and a shift. Granlund and Montgomery 1994, theorem 4.2. C and CUDA C++. */
#ifndef FABENCH_DIVISOR_H
#define FABENCH_DIVISOR_H

#include <stdint.h>

/* shift = ceil(log2 value), multiplier = ceil(2^(31 + shift) / value), which is below 2^32. multiplier * value exceeds
 * 2^(31 + shift) by less than value <= 2^shift: the theorem's condition for dividends of 31 bits. */
struct divisor {
    int value;
    uint32_t multiplier;
    int shift;
};

static inline struct divisor divisor_of(int64_t value) /* 1 .. 2^31 - 1 */
{
    int shift = 0;

    while (((int64_t)1 << shift) < value)
        ++shift;
    const uint64_t power = (uint64_t)1 << (31 + shift);
    const struct divisor result = {(int)value, (uint32_t)((power + (uint64_t)value - 1) / (uint64_t)value), shift};
    return result;
}

#endif
