/* Dropout's mask in registers (section 3 of docs/design.md): attn_philox serves eight elements of a 16 x 16 block, the
 * eight that one thread holds of two neighbouring accumulators of mma.m16n8k16 (warp_matrix.cuh). */
#pragma once
#include <cstdint>

#include "kernels/attention.h"

namespace device {

/* The mask of the 16 x 16 block with these numbers of rows and of keys, for the query head and the sequence: ones in
 * the 16 bits of an element that is kept, zeros where it is dropped. Register i is laid out like register i of an A
 * fragment: rows lane / 4 (i even) or 8 further down, keys 2 (lane % 4) and + 1 (i < 2) or 8 further right. */
__device__ __forceinline__ void dropout_mask(uint32_t (&kept)[4], const struct attn_philox_keys &keys,
                                             uint32_t threshold, int sequence, int head, int row_block, int key_block)
{
    const uint32_t lane = threadIdx.x % 32, last_dropped = (threshold - 1) * 0x10001u;
    uint32_t words[4] = {static_cast<uint32_t>(key_block) * 4 + lane % 4,
                         static_cast<uint32_t>(row_block) * 8 + lane / 4, static_cast<uint32_t>(head),
                         static_cast<uint32_t>(sequence)};
    attn_philox_rounds(words, &keys);
#pragma unroll
    for (int i = 0; i < 4; ++i) /* words r and r + 2 have the elements of one row with even and odd keys */
        kept[i] = __vcmpgtu2(__byte_perm(words[i % 2], words[i % 2 + 2], i < 2 ? 0x5410 : 0x7632), last_dropped);
}

/* The same of a block of S^T, whose rows are keys: register i is keys lane / 4 (i even) or 8 further down, rows
 * 2 (lane % 4) and + 1 (i < 2) or 8 further right. A thread needs two words of each of two calls; the thread with the
 * neighbouring key needs the other two: each makes one call. The whole warp calls it. */
__device__ __forceinline__ void dropout_mask_transposed(uint32_t (&kept)[4], const struct attn_philox_keys &keys,
                                                        uint32_t threshold, int sequence, int head, int row_block,
                                                        int key_block)
{
    const uint32_t lane = threadIdx.x % 32, last_dropped = (threshold - 1) * 0x10001u;
    const uint32_t key = lane / 4, odd = key % 2; /* this thread's call is for the row 2 (lane % 4) + odd */
    uint32_t words[4] = {static_cast<uint32_t>(key_block) * 4 + key / 2,
                         static_cast<uint32_t>(row_block) * 8 + lane % 4 * 2 + odd, static_cast<uint32_t>(head),
                         static_cast<uint32_t>(sequence)};
    attn_philox_rounds(words, &keys);
    /* Words 0 and 1 are for even keys (rows r and r + 8), 2 and 3 for odd ones. */
    const uint32_t mine[2] = {odd ? words[2] : words[0], odd ? words[3] : words[1]};
    const uint32_t given[2] = {odd ? words[0] : words[2], odd ? words[1] : words[3]};
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) { /* rows, and rows 8 further */
        const uint32_t other = __shfl_xor_sync(0xffffffffu, given[eight], 4);
        const uint32_t low = odd ? other : mine[eight], high = odd ? mine[eight] : other; /* rows 2 (lane % 4), + 1 */
        kept[2 * eight] = __vcmpgtu2(__byte_perm(low, high, 0x5410), last_dropped);
        kept[2 * eight + 1] = __vcmpgtu2(__byte_perm(low, high, 0x7632), last_dropped);
    }
}

} // namespace device
