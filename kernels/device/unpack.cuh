/* Two 16-bit numbers of a register as floats: the inverse of pack2 (mma_sm80.cuh). */
#pragma once
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace device {

/* x is the low half. */
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
