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

/* Calls for the same keys of one head of a sequence and many rows: what of the first three rounds does not depend on
 * the row, so that the rest is two of their six products and seven rounds. */
struct DropoutColumn {
    enum { ROUNDS_BEFORE = 3 };
    uint32_t of_third, first, third, fourth; /* what the words, or what becomes them, are combined with */

    /* key_word: 4 * (key / 16) + c, see attn_dropout_bits. */
    __device__ __forceinline__ void start(const struct attn_philox_keys &keys, uint32_t key_word, uint32_t head,
                                          uint32_t sequence)
    {
        uint32_t words[4] = {key_word, 0, head, sequence}; /* round 1 only adds the row to the first word */
        attn_philox_round(words, keys.low[0], keys.high[0]);
        of_third = words[3] ^ keys.high[1];
        attn_philox_round(words, keys.low[1], keys.high[1]); /* the first two words do not depend on the row */
        first = words[1] ^ keys.low[2];
        words[2] = words[3] = 0;
        attn_philox_round(words, keys.low[2], keys.high[2]);
        third = words[2];
        fourth = words[3];
    }

    /* What row words are combined with in round 1. */
    __device__ __forceinline__ static uint32_t row_of_head(const struct attn_philox_keys &keys, uint32_t head)
    {
        uint32_t words[4] = {0, 0, head, 0};
        attn_philox_round(words, keys.low[0], 0);
        return words[0];
    }

    /* The words after ROUNDS_BEFORE rounds of the call for rows r and r + 8.
     * row: row_of_head ^ (8 * (row / 16) + r). */
    __device__ __forceinline__ void begin_call(uint32_t (&words)[4], uint32_t row) const
    {
        uint32_t of_row[4] = {row, 0, 0, 0}, of_both[4] = {0, 0, 0, 0};
        attn_philox_round(of_row, 0, 0);
        of_both[2] = of_row[2] ^ of_third;
        attn_philox_round(of_both, 0, 0);
        words[0] = of_both[0] ^ first;
        words[1] = of_both[1];
        words[2] = of_row[3] ^ third;
        words[3] = fourth;
    }
};

/* Whether an element is kept whose bits are the low or the high half of a word. last_dropped: the largest number whose
 * high half is a threshold's last dropped bits. */
__device__ __forceinline__ bool is_low_kept(uint32_t word, uint32_t last_dropped) { return word << 16 > last_dropped; }
__device__ __forceinline__ bool is_high_kept(uint32_t word, uint32_t last_dropped) { return word > last_dropped; }

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
