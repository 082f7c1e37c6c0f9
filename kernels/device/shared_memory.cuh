/* Loads and stores by 32-bit shared address. PTX ISA, "Data Movement and Conversion Instructions: ld, st" with
 * .shared. */
#pragma once
#include <cstdint>

namespace device {

/* The 32-bit address of something in shared memory. */
__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void store_shared_32(uint32_t shared, uint32_t value)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(value) : "memory");
}

/* 16-byte aligned. */
__device__ __forceinline__ void store_shared_float4(uint32_t shared, const float (&value)[4])
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "f"(value[0]), "f"(value[1]), "f"(value[2]),
                 "f"(value[3])
                 : "memory");
}

/* 16-byte aligned. */
__device__ __forceinline__ uint4 load_shared_128(uint32_t shared)
{
    uint4 value;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(shared)
                 : "memory");
    return value;
}

/* 8-byte aligned. */
__device__ __forceinline__ float2 load_shared_float2(uint32_t shared)
{
    float2 value;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(shared) : "memory");
    return value;
}

} // namespace device
