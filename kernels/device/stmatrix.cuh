/* Fragments of 8x8 matrices of 16-bit elements from registers to shared memory, the inverse of ldmatrix: sm_90 and
 * newer. PTX ISA, "Warp-level matrix store instruction: stmatrix". */
#pragma once
#include <cstdint>

namespace device {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/* Lane l gives the address of row l % 8 of matrix l / 8; register i of lane l is row l / 4, columns 2 (l % 4) and + 1
 * of matrix i. Rows are 16-byte aligned. */
__device__ __forceinline__ void stmatrix_x4(uint32_t shared_row, const uint32_t (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_row), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
#endif

} // namespace device
