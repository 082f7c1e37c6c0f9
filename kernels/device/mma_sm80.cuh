/* 16x8x16 matrix multiply-accumulate of a warp, fp32 accumulation, sm_80 and newer.
 * PTX ISA, "Matrix multiply-accumulate operation using mma instruction: mma.m16n8k16".
 * With g = lane / 4 and q = lane % 4:
 *   C: c0 c1 = row g, columns 2q 2q+1; c2 c3 = row g + 8.
 *   A: a0 = row g, k 2q 2q+1; a1 = row g + 8; a2 = row g, k 2q+8 2q+9; a3 = row g + 8, the same k.
 *   B: b0 = k 2q 2q+1, column g; b1 = k 2q+8 2q+9.
 * Two neighbouring C tiles, packed to 16 bits, are one A fragment: {c0c1, c2c3, c0'c1', c2'c3'}. */
#pragma once
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace device {

template <typename T> __device__ void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                            uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

} // namespace device
