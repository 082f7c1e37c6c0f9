/* Arithmetic that several kernels share: pairs of 16-bit numbers, dot products, 2^x, division. */
#pragma once
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/common/divisor.h"

namespace device {

/* ---- 16-bit pairs ---- */

/* Two 16-bit numbers of a register from and to floats. */

/* Two floats rounded to nearest even into one register, `low` in the low half. */
template <typename T> __device__ uint32_t pack2(float low, float high);

template <> __device__ __forceinline__ uint32_t pack2<__half>(float low, float high)
{
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&pair);
}

template <> __device__ __forceinline__ uint32_t pack2<__nv_bfloat16>(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&pair);
}

/* The inverse; x is the low half. */
template <typename T> __device__ float2 unpack2(uint32_t pair);

template <> __device__ __forceinline__ float2 unpack2<__half>(uint32_t pair)
{
    return __half22float2(*reinterpret_cast<const __half2 *>(&pair));
}

/* A bfloat16 is the upper half of a float. */
template <> __device__ __forceinline__ float2 unpack2<__nv_bfloat16>(uint32_t pair)
{
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

/* ---- dot product ---- */

/* The dot product of eight 16-bit elements, in fp32. */

template <typename T> __device__ __forceinline__ float dot8(const uint4 &x, const uint4 &y)
{
    const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 a = unpack2<T>(xs[i]), b = unpack2<T>(ys[i]);
        sum = fmaf(a.x, b.x, fmaf(a.y, b.y, sum));
    }
    return sum;
}

/* ---- 2^x ---- */

/* 2^x on the special function unit, sm_80 and newer. */

/* 2^x, one instruction on the special function unit, denormals flushed; 2^-inf = 0.
 * PTX ISA, "Floating Point Instructions: ex2". */
__device__ __forceinline__ float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* y = 2^x where `condition`, otherwise y stays as it is: by a predicate, without a branch.
 * PTX ISA, "Predicated Execution". */
__device__ __forceinline__ void exp2_approx_if(float &y, float x, bool condition)
{
    asm("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p ex2.approx.ftz.f32 %0, %1;\n}"
        : "+f"(y)
        : "f"(x), "r"(static_cast<int>(condition)));
}

/* The larger one; NaN where one of them is.
 * PTX ISA, "Floating Point Instructions: max". */
__device__ __forceinline__ float max_or_nan(float x, float y)
{
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
    return larger;
}

/* 2^x for x up to 127 without the special function unit: its integer by way of a number whose last bit is 1, the rest
 * by a polynomial, with an error below 2^-13. Below -120 it is 2^-120. */
__device__ __forceinline__ float exp2_polynomial(float x)
{
    constexpr float ROUNDS = 12582912.0f; /* 1.5 * 2^23 */
    const float bounded = max_or_nan(x, -120.0f), rounded = bounded + ROUNDS, f = bounded - (rounded - ROUNDS);
    const float y = fmaf(fmaf(fmaf(0.05500857f, f, 0.24221096f), f, 0.69328297f), f, 1.0f);
    return y * __int_as_float((__float_as_int(rounded) << 23) + 0x3f800000);
}

/* ---- division ---- */

/* Division of numbers in 0 .. 2^31 - 1 by one that the host has prepared (kernels/common/divisor.h). It needs no
 * reciprocal, which would come from the unit that computes ex2. */

__device__ __forceinline__ int quotient(int dividend, const divisor &by)
{
    return static_cast<int>(__umulhi(2 * static_cast<uint32_t>(dividend), by.multiplier) >> by.shift);
}

} // namespace device
