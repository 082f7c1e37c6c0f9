/* Matrix instructions of a warp and the fragments that they take. */
#pragma once
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace device {

/* ---- ldmatrix ---- */

/* Fragments of 8x8 matrices of 16-bit elements between shared memory and registers, sm_75 and newer.
 * PTX ISA, "Warp-level matrix load instruction: ldmatrix". Lane l gives the address of row l % 8 of matrix l / 8. */

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

/* ---- stmatrix ---- */

/* Fragments of 8x8 matrices of 16-bit elements from registers to shared memory, the inverse of ldmatrix: sm_90 and
 * newer. PTX ISA, "Warp-level matrix store instruction: stmatrix". */

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

/* ---- fragment addresses in panels ---- */

/* Fragment addresses in tiles of shared memory that are made of panels: 64 columns of 16 bits wide, rows of 128 bytes
 * with swizzle_128b, one panel after the other. A lane keeps one address, everything else is XOR and
 * immediate offset: the swizzle of row r + 16 i is that of row r. */

/* The lane's offset for the 16x16 block at row 0, column 0, matrices in the order rows 0-7, rows 8-15, then the same at
 * columns 8-15. With ldmatrix_x4 this is A of a row-major matrix, with ldmatrix_x4_trans it is b0 b1 of columns 0-7 and
 * of columns 8-15 for B with k along the rows. */
__device__ __forceinline__ uint32_t rows_first(int lane) { return swizzle_128b(lane % 16, lane / 16); }

/* The same in the order columns 0-7, columns 8-15, then the same at rows 8-15. With ldmatrix_x4 this is b0 b1 of rows
 * 0-7 and of rows 8-15 for B with k along the columns. */
__device__ __forceinline__ uint32_t columns_first(int lane)
{
    return swizzle_128b(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

/* The lane's address for the 16x16 block at row 16 row_slice, column 16 column_slice of panels with PANEL_ROWS rows. */
template <int PANEL_ROWS>
__device__ __forceinline__ uint32_t fragment(uint32_t lane_address, int row_slice, int column_slice)
{
    return (lane_address ^ (column_slice % 4 * 32)) + column_slice / 4 * (PANEL_ROWS * 128) + row_slice * 2048;
}

/* ---- mma.m16n8k16 ---- */

/* 16x8x16 matrix multiply-accumulate of a warp, fp32 accumulation, sm_80 and newer.
 * PTX ISA, "Matrix multiply-accumulate operation using mma instruction: mma.m16n8k16".
 * With g = lane / 4 and q = lane % 4:
 *   C: c0 c1 = row g, columns 2q 2q+1; c2 c3 = row g + 8.
 *   A: a0 = row g, k 2q 2q+1; a1 = row g + 8; a2 = row g, k 2q+8 2q+9; a3 = row g + 8, the same k.
 *   B: b0 = k 2q 2q+1, column g; b1 = k 2q+8 2q+9.
 * Two neighbouring C tiles, packed to 16 bits, are one A fragment: {c0c1, c2c3, c0'c1', c2'c3'}. */

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
