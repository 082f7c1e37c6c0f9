/* 2^x, sm_80 and newer: on the special function unit, and without it. */
#pragma once

namespace device {

/* 2^x, one instruction on the special function unit, denormals flushed; 2^-inf = 0.
 * PTX ISA, "Floating Point Instructions: ex2". */
__device__ __forceinline__ float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The same on the FMA and integer pipes alone, for a share of the elements where the special function unit (16 results
 * a clock) is the narrow place. x = i + f with i the nearest integer: 2^f by a polynomial of degree 3 whose largest
 * relative error on [-1/2, 1/2] is 7.5e-5, far below the rounding of P to 16 bits, times 2^i through the exponent bits.
 * x <= 127; results below 2^-126 are 2^-126 instead of 0, so a masked score must not come here.
 * Cody and Waite 1980, chapter 6; Dao et al. use it on Blackwell. */
__device__ __forceinline__ float exp2_polynomial(float x)
{
    constexpr float MAGIC = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    x = fmaxf(x, -126.0f);
    const float shifted = x + MAGIC;
    const float f = x - (shifted - MAGIC);
    const float y = fmaf(fmaf(fmaf(0.05517167f, f, 0.24261112f), f, 0.69326099f), f, 0.99992807f);
    return __int_as_float(__float_as_int(y) + (__float_as_int(shifted) << 23));
}

} // namespace device
