/* Products of one warp over swizzled tiles in shared memory (swizzle_128b), with mma.m16n8k16, sm_80 and newer.
 *
 * A tile is stored row by row in panels of 64 columns (128 bytes). A lane's address for ldmatrix.x4 is the address of
 * the warp's first row (the same for all lanes) plus one of two lane offsets:
 *   lane_rows_16: row l % 16, chunk l / 16        A of a tile whose rows are m; B (.trans) of a tile whose rows are k
 *   lane_rows_8:  row l % 8 + 8 (l / 16), chunk (l / 8) % 2
 *                                                 B of a tile whose rows are n; A (.trans) of a tile whose rows are k
 * From there 16 rows are + 2048 bytes, and 16 columns are an exclusive or on the lane offset: chunk numbers are even,
 * and the swizzle is itself an exclusive or of the same address bits. Keeping the two parts apart leaves eight lane
 * offsets for all operands of a kernel; the rest of every address is uniform or an immediate.
 *
 * Every loop loads the fragments of the next step before the products of this one. */
#pragma once
#include <cstdint>
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/warp_matrix.cuh"

namespace device {

enum { PANEL_COLUMNS = 64, ROW_BYTES = 128, ROWS_16_BYTES = 16 * ROW_BYTES };

/* 16 M16 x 8 N8 sums. */
template <int M16_, int N8_> struct Accumulator {
    static constexpr int M16 = M16_, N8 = N8_;
    float at[M16][N8][4];
};

/* 16 M16 x 16 K16 elements of an A operand. */
template <int M16_, int K16_> struct Fragments {
    static constexpr int M16 = M16_, K16 = K16_;
    uint32_t at[M16][K16][4];
};

/* A lane's view of an operand in shared memory. */
struct operand {
    uint32_t lane;  /* lane_rows_16 or lane_rows_8, moved by columns_right to the first column within its panel */
    uint32_t first; /* address of the first row in the first panel; a multiple of 128 */
    uint32_t panel; /* bytes from panel to panel */
};

__device__ __forceinline__ uint32_t lane_rows_16(uint32_t lane) { return swizzle_128b(lane & 15, lane >> 4); }

__device__ __forceinline__ uint32_t lane_rows_8(uint32_t lane)
{
    return swizzle_128b((lane & 7) | ((lane >> 1) & 8), (lane >> 3) & 1);
}

/* A lane offset `columns` (a multiple of 16, within the panel) to the right. */
__device__ __forceinline__ uint32_t columns_right(uint32_t lane, uint32_t columns) { return lane ^ columns * 2; }

/* The address of 16 rows from 16 * row16 on, 16 columns from 16 * column16 on. */
__device__ __forceinline__ uint32_t block_address(const struct operand &x, uint32_t row16, uint32_t column16)
{
    return columns_right(x.lane, column16 % 4 * 16) + (x.first + column16 / 4 * x.panel + row16 * ROWS_16_BYTES);
}

template <typename Sums> __device__ __forceinline__ void clear(Sums &c)
{
#pragma unroll
    for (int m = 0; m < Sums::M16; ++m)
#pragma unroll
        for (int n = 0; n < Sums::N8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                c.at[m][n][i] = 0.0f;
}

/* One step of 16 k: fragments b[n] hold the columns 16 n to 16 n + 15 of B. */
template <typename T, typename Sums>
__device__ __forceinline__ void multiply_step(Sums &c, const uint32_t (&a)[Sums::M16][4],
                                              const uint32_t (&b)[Sums::N8 / 2][4])
{
#pragma unroll
    for (int n = 0; n < Sums::N8; ++n)
#pragma unroll
        for (int m = 0; m < Sums::M16; ++m)
            mma_m16n8k16<T>(c.at[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
}

/* C += A B^T over 16 K16 columns of both tiles; the rows of A are m (lane_rows_16), those of B are n (lane_rows_8). */
template <int K16, typename T, typename Sums>
__device__ __forceinline__ void gemm_by_columns(Sums &c, const struct operand &a, const struct operand &b)
{
    uint32_t a_fragment[2][Sums::M16][4], b_fragment[2][Sums::N8 / 2][4];
#pragma unroll
    for (int k = 0; k <= K16; ++k) {
        if (k < K16) {
#pragma unroll
            for (int m = 0; m < Sums::M16; ++m)
                ldmatrix_x4(a_fragment[k & 1][m], block_address(a, m, k));
#pragma unroll
            for (int n = 0; n < Sums::N8 / 2; ++n)
                ldmatrix_x4(b_fragment[k & 1][n], block_address(b, n, k));
        }
        if (k > 0)
            multiply_step<T>(c, a_fragment[(k - 1) & 1], b_fragment[(k - 1) & 1]);
    }
}

/* C += A B over 16 K16 rows of both tiles, whose rows are k. a: lane_rows_8, columns within one panel; b: lane_rows_16,
 * every column16_step-th 16 columns from its first ones on, within one panel or, with b.panel set, across them. */
template <int K16, typename T, typename Sums>
__device__ __forceinline__ void gemm_by_rows(Sums &c, const struct operand &a, const struct operand &b,
                                             uint32_t column16_step = 1)
{
    uint32_t a_fragment[2][Sums::M16][4], b_fragment[2][Sums::N8 / 2][4];
#pragma unroll
    for (int k = 0; k <= K16; ++k) {
        if (k < K16) {
#pragma unroll
            for (int m = 0; m < Sums::M16; ++m)
                ldmatrix_x4_trans(a_fragment[k & 1][m], block_address(a, k, m));
#pragma unroll
            for (int n = 0; n < Sums::N8 / 2; ++n)
                ldmatrix_x4_trans(b_fragment[k & 1][n], block_address(b, k, column16_step * n));
        }
        if (k > 0)
            multiply_step<T>(c, a_fragment[(k - 1) & 1], b_fragment[(k - 1) & 1]);
    }
}

/* C += A B with A in registers and the rows of B, from 16 * row16 on, being k. b as in gemm_by_rows. */
template <typename T, typename Sums, typename Operand>
__device__ __forceinline__ void gemm_registers(Sums &c, const Operand &a, const struct operand &b, uint32_t row16,
                                               uint32_t column16_step = 1)
{
    constexpr int N16 = Sums::N8 / 2, STEPS = Operand::K16 * N16;
    static_assert(Sums::M16 == Operand::M16, "A and C have the same rows");
    uint32_t b_fragment[2][4];
#pragma unroll
    for (int step = 0; step <= STEPS; ++step) {
        if (step < STEPS)
            ldmatrix_x4_trans(b_fragment[step & 1], block_address(b, row16 + step / N16, column16_step * (step % N16)));
        if (step == 0)
            continue;
        const int k = (step - 1) / N16, n = (step - 1) % N16 * 2, now = (step - 1) & 1;
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int m = 0; m < Sums::M16; ++m)
                mma_m16n8k16<T>(c.at[m][n + half], a.at[m][k], b_fragment[now][2 * half],
                                b_fragment[now][2 * half + 1]);
    }
}

/* Rounds an accumulator to 16 bits: A of a following product over its columns. */
template <typename T, int M16, int N8>
__device__ __forceinline__ void pack_fragments(Fragments<M16, N8 / 2> &a, const Accumulator<M16, N8> &c)
{
#pragma unroll
    for (int m = 0; m < M16; ++m)
#pragma unroll
        for (int k = 0; k < N8 / 2; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float *pair = &c.at[m][2 * k + i / 2][i % 2 * 2];
                a.at[m][k][i] = pack2<T>(pair[0], pair[1]);
            }
}

/* An A operand from and to a tile whose rows are m (lane_rows_16), columns from 16 * column16 on, within one panel. */
template <typename Operand>
__device__ __forceinline__ void load_fragments(Operand &a, const struct operand &tile, uint32_t column16)
{
#pragma unroll
    for (int m = 0; m < Operand::M16; ++m)
#pragma unroll
        for (int k = 0; k < Operand::K16; ++k)
            ldmatrix_x4(a.at[m][k], block_address(tile, m, column16 + k));
}

template <typename Operand>
__device__ __forceinline__ void store_fragments(const struct operand &tile, uint32_t column16, const Operand &a)
{
#if __CUDA_ARCH__ < 900 /* 4 bytes at a time, at row l / 4 */
    const uint32_t l = threadIdx.x % 32, moved = tile.lane ^ lane_rows_16(l);
    const uint32_t lane = (swizzle_128b(l / 4, 0) + l % 4 * 4) ^ moved;
#endif
#pragma unroll
    for (int m = 0; m < Operand::M16; ++m)
#pragma unroll
        for (int k = 0; k < Operand::K16; ++k) {
#if __CUDA_ARCH__ >= 900
            stmatrix_x4(block_address(tile, m, column16 + k), a.at[m][k]);
#else
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const uint32_t column_bytes = (column16 + k) * 32 + i / 2 * 16, below = 16 * m + i % 2 * 8;
                store_shared_32((lane ^ column_bytes) + tile.first + below * ROW_BYTES, a.at[m][k][i]);
            }
#endif
        }
}

} // namespace device
