/* The device blocks of sm_90a, each launched alone: blocks.cu, for test_blocks.c. */
#ifndef FABENCH_TESTS_GPU_BLOCKS_H
#define FABENCH_TESTS_GPU_BLOCKS_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BLOCKS_M = 64, BLOCKS_K = 64 }; /* rows of A, and k: four steps of wgmma */
enum { BLOCKS_ELECTORS = 64, BLOCKS_MEETINGS = 8 };
enum { BLOCKS_WARPGROUP = 128, BLOCKS_AWAY = 37 }; /* threads; how far on one reads: what another warp and lane wrote */

/* How A and B of a product lie (kernels/device/wgmma.cuh). */
enum blocks_operands {
    BLOCKS_SHARED,               /* A and B in shared memory, k-major */
    BLOCKS_SHARED_TRANSPOSED,    /* both mn-major */
    BLOCKS_REGISTERS,            /* A in registers, B k-major */
    BLOCKS_REGISTERS_TRANSPOSED, /* A in registers, B mn-major */
    BLOCKS_OPERANDS
};

/* c[64 x n] = a b, plus what c held where `accumulate`; a[64][64] is m by k, b[n][64] is n by k, c[64][n], row after
 * row, on the device. dtype is fp16 or bf16, n 64 or 128. Returns cudaErrorInvalidValue for what there is no
 * instruction of. */
cudaError_t blocks_multiply(enum blocks_operands, enum attn_dtype, int n, const uint16_t *a, const uint16_t *b,
                            float *c, bool accumulate);

/* One box of 64 columns x `rows` rows (at most 64) from `from` at (column, row, head, batch) through shared memory to
 * the same place of `to`; *poisoned counts the elements of shared memory that the load left as they were. */
cudaError_t blocks_copy_box(const CUtensorMap *from, const CUtensorMap *to, int rows, const int at[4], int *poisoned);

/* out[i] = in[i] for 16 x 16 elements, through ldmatrix and stmatrix. */
cudaError_t blocks_move_matrix(const uint16_t *in, uint16_t *out);

/* Two warps hand `count` numbers over through a ring of two slots and its barriers; out[i] = in[i]. `bulk`: the copy
 * engine fills the slots. `one_lane`: a slot is given back by one lane for its warp, not by every lane. */
cudaError_t blocks_ring(bool bulk, bool one_lane, const int *in, int *out, int count);

/* quotients[i] = dividends[i] / divisor, for `count` numbers at or above 0; the divisor is 1 or more. */
cudaError_t blocks_divide(int divisor, const int *dividends, int *quotients, int count);

/* elected[BLOCKS_ELECTORS], of two warps: 1 for who was elected first, plus 2 for who was elected second. */
cudaError_t blocks_elect(int *elected);

/* Two warps alternately write 32 numbers to shared memory for the other one, which reaches the barrier at another
 * instruction: out[round][i] = in[round][31 - i], of in[BLOCKS_MEETINGS][32]. */
cudaError_t blocks_bar_sync_unaligned(const int *in, int *out);

/* numbers[BLOCKS_ELECTORS], of two warps: each becomes that of the first lane of its warp. */
cudaError_t blocks_keep_uniform(unsigned *numbers);

/* Blocks of two warps add their rows to sums[tiles][2 warps][64], block 0 first, in the order of a semaphore for each
 * warp and pair of tiles: the first 32 floats of a warp by the copy engine, the others from registers. Block b has the
 * tiles from b * tiles / blocks on and goes through them backwards, as a causal block of keys does.
 * in[blocks][tiles][2][64]; semaphores[(tiles + 1) / 2][2]; sums and semaphores are zero before. */
cudaError_t blocks_add_in_order(int blocks, int tiles, const float *in, float *sums, int *semaphores);

/* The warpgroups of a block (2 to 4) make `steps` steps in ping-pong order; `steps` is a multiple of `warpgroups`. Of
 * 128 numbers, at first x[t] = t, step n of warpgroup w makes 3 x[(t + BLOCKS_AWAY) % 128] + n + w. last[128] are these
 * numbers in the end, as warpgroup 0 sees them; order[steps] says which warpgroup made each step. */
cudaError_t blocks_ping_pong(int warpgroups, int steps, uint32_t *last, int *order);

/* exceeded[i] = whether one of the two 16-bit numbers of any p[i][pairs] is above the bound
 * (kernels/device/softmax.cuh), for `count` rows; `pairs` is 16 or 32. */
cudaError_t blocks_any_exceeds(int pairs, const uint32_t *p, uint32_t headroom, bool *exceeded, int count);

#ifdef __cplusplus
}
#endif
#endif
