/* Fragment addresses in tiles of shared memory that are made of panels: 64 columns of 16 bits wide, rows of 128 bytes
 * with swizzle_128b (ldmatrix.cuh), one panel after the other. A lane keeps one address, everything else is XOR and
 * immediate offset: the swizzle of row r + 16 i is that of row r. */
#pragma once
#include <cstdint>

#include "kernels/device/ldmatrix.cuh"

namespace device {

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

} // namespace device
