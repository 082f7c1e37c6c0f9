/* Loads, stores and sums in memory. */
#pragma once
#include <cstdint>

namespace device {

/* ---- shared memory ---- */

/* Loads and stores by 32-bit shared address. PTX ISA, "Data Movement and Conversion Instructions: ld, st" with
 * .shared. */

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

__device__ __forceinline__ float load_shared_float(uint32_t shared)
{
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(shared) : "memory");
    return value;
}

/* 8-byte aligned. */
__device__ __forceinline__ float2 load_shared_float2(uint32_t shared)
{
    float2 value;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(shared) : "memory");
    return value;
}

/* ---- device memory that is touched once ---- */

/* For inputs that no later kernel of a pass reads, and outputs: the second-level cache may drop them first, and keeps
 * more of what the next kernel reads. PTX ISA, "Cache Operators": .cs. */
template <typename Vector> __device__ __forceinline__ Vector load_once(const Vector *from) { return __ldcs(from); }

template <typename Vector> __device__ __forceinline__ void store_once(Vector *to, const Vector &value)
{
    __stcs(to, value);
}

/* ---- sums in device memory ---- */

/* Sums of many thread blocks in device memory: fp32 additions without a result, sm_80 and newer.
 * PTX ISA, "Parallel Synchronization and Communication Instructions: red" (vectors of fp32 from sm_90 on).
 *
 * A quad is the 128 floats of one m16n8 accumulator of a warp, four to a lane, that lie together in device memory in
 * an order that belongs to the code's architecture, so that every instruction of the warp covers whole lines: lane by
 * lane where one instruction adds four floats, register by register where it adds one. Only red_add_quad,
 * load_quad, load_shared_quad and store_quad, compiled together, know the order. */

enum { QUAD_FLOATS = 128 };

__device__ __forceinline__ void red_add_quad(float *quad, uint32_t lane, const float (&c)[4])
{
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(quad + 4 * lane), "f"(c[0]),
                 "f"(c[1]), "f"(c[2]), "f"(c[3])
                 : "memory");
#else
#pragma unroll
    for (int i = 0; i < 4; ++i)
        atomicAdd(quad + 32 * i + lane, c[i]);
#endif
}

__device__ __forceinline__ void load_quad(float (&c)[4], const float *quad, uint32_t lane)
{
#if __CUDA_ARCH__ >= 900
    const float4 all = *reinterpret_cast<const float4 *>(quad + 4 * lane);
    c[0] = all.x, c[1] = all.y, c[2] = all.z, c[3] = all.w;
#else
#pragma unroll
    for (int i = 0; i < 4; ++i)
        c[i] = quad[32 * i + lane];
#endif
}

/* The same of a copy of it in shared memory. */
__device__ __forceinline__ void load_shared_quad(float (&c)[4], uint32_t quad, uint32_t lane)
{
#if __CUDA_ARCH__ >= 900
    const uint4 all = load_shared_128(quad + 16 * lane);
    c[0] = __uint_as_float(all.x), c[1] = __uint_as_float(all.y);
    c[2] = __uint_as_float(all.z), c[3] = __uint_as_float(all.w);
#else
#pragma unroll
    for (int i = 0; i < 4; ++i)
        c[i] = load_shared_float(quad + (32 * i + lane) * 4);
#endif
}

__device__ __forceinline__ void store_quad(float *quad, uint32_t lane, const float (&c)[4])
{
#if __CUDA_ARCH__ >= 900
    *reinterpret_cast<float4 *>(quad + 4 * lane) = make_float4(c[0], c[1], c[2], c[3]);
#else
#pragma unroll
    for (int i = 0; i < 4; ++i)
        quad[32 * i + lane] = c[i];
#endif
}

} // namespace device
