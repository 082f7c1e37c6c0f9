/* Two 16-bit numbers of a register from and to floats. */
#pragma once
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace device {

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

} // namespace device
