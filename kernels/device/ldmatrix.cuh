/* Fragments of 8x8 matrices of 16-bit elements between shared memory and registers, sm_75 and newer.
 * PTX ISA, "Warp-level matrix load instruction: ldmatrix". Lane l gives the address of row l % 8 of matrix l / 8. */
#pragma once
#include <cstdint>

namespace device {

/* Register i of lane l holds row l / 4, columns 2 (l % 4) and + 1 of matrix i. */
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t shared_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_row)
                 : "memory");
}

/* The same with every matrix transposed: register i holds column l / 4, rows 2 (l % 4) and + 1. */
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t shared_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_row)
                 : "memory");
}

/* Byte offset of the 16-byte chunk `chunk` (0..7) of row `row` in a panel of 128-byte rows, with the XOR swizzle that
 * TMA calls 128B: chunk ^= row mod 8. Conflict-free for ldmatrix along rows and for 16-byte stores. A tile of
 * head_dim 128 is two panels one after the other. */
__device__ __forceinline__ uint32_t swizzle_128b(uint32_t row, uint32_t chunk)
{
    return row * 128u + ((chunk ^ (row & 7u)) << 4);
}

} // namespace device
