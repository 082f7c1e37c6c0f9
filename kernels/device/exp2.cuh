/* 2^x on the special function unit, sm_80 and newer. */
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

} // namespace device
