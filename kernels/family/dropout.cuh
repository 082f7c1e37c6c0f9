/* Dropout's mask in registers (section 3 of docs/design.md): Philox4x32-10 serves eight elements of a 16 x 16 block,
 * the eight that one thread holds of two neighbouring accumulators of mma.m16n8k16 (warp_matrix.cuh).
 *
 * The counter is (keys, rows, head, sequence), and the first rounds do not mix all of it: what depends on the head, on
 * the rows and on the keys alone is computed apart, so that blocks can share it. With a = M0 * word 0 and
 * b = M1 * word 2 of a round (attn_philox_round), of which `hi` and `lo` are the halves:
 *
 *   after round   word 0            word 1     word 2            word 3
 *   0             rows, head        head       keys, sequence    keys
 *   1             keys, head        keys       rows, keys        rows
 *   2             rows, keys        rows, keys rows, keys        keys */
#pragma once
#include <cstdint>

#include "kernels/attention.h"

namespace family {

/* The seed's keys of the rounds, and what the head and the sequence add to the counter in the first two rounds. */
struct DropoutHead {
    const struct attn_philox_keys &round_keys;
    uint32_t rows, keys, sequence;

    __device__ __forceinline__ DropoutHead(const struct attn_philox_keys &round_keys, int sequence_number, int head)
        : round_keys(round_keys)
    {
        const uint64_t b = static_cast<uint64_t>(ATTN_PHILOX_M1) * static_cast<uint32_t>(head);
        rows = static_cast<uint32_t>(b >> 32) ^ round_keys.low[0];
        keys = static_cast<uint32_t>(b) ^ round_keys.low[1];
        sequence = static_cast<uint32_t>(sequence_number) ^ round_keys.high[0];
    }
};

/* The part of the rows, whose counter is 8 * (row / 16) + row % 8. */
struct DropoutRows {
    uint32_t hi, lo;
};

__device__ __forceinline__ DropoutRows dropout_rows(const DropoutHead &head, uint32_t counter)
{
    const uint64_t a = static_cast<uint64_t>(ATTN_PHILOX_M0) * (counter ^ head.rows);
    return {static_cast<uint32_t>(a >> 32) ^ head.round_keys.high[1],
            static_cast<uint32_t>(a) ^ head.round_keys.high[2]};
}

/* The part of the keys, whose counter is 4 * (key / 16) + key % 8 / 2. */
struct DropoutKeys {
    uint32_t lo_0, lo_1, hi_2, lo_2; /* of the products that depend on the keys in rounds 0, 1 and 2 */
};

__device__ __forceinline__ DropoutKeys dropout_keys(const DropoutHead &head, uint32_t counter)
{
    const uint64_t a = static_cast<uint64_t>(ATTN_PHILOX_M0) * counter;
    const uint64_t b = static_cast<uint64_t>(ATTN_PHILOX_M1) * (static_cast<uint32_t>(a >> 32) ^ head.sequence);
    const uint64_t c = static_cast<uint64_t>(ATTN_PHILOX_M0) * (static_cast<uint32_t>(b >> 32) ^ head.keys);
    return {static_cast<uint32_t>(a), static_cast<uint32_t>(b) ^ head.round_keys.low[2], static_cast<uint32_t>(c >> 32),
            static_cast<uint32_t>(c)};
}

enum { DROPOUT_ROUNDS_BEFORE = 3 };

/* The words of rows and keys after so many rounds. */
__device__ __forceinline__ void dropout_begin(uint32_t (&words)[4], const DropoutRows &rows, const DropoutKeys &keys)
{
    const uint64_t b = static_cast<uint64_t>(ATTN_PHILOX_M1) * (rows.hi ^ keys.lo_0);
    words[0] = static_cast<uint32_t>(b >> 32) ^ keys.lo_1;
    words[1] = static_cast<uint32_t>(b);
    words[2] = keys.hi_2 ^ rows.lo;
    words[3] = keys.lo_2;
}

/* The random words of rows and keys: attn_philox of the whole counter. */
__device__ __forceinline__ void dropout_words(uint32_t (&words)[4], const DropoutHead &head, const DropoutRows &rows,
                                              const DropoutKeys &keys)
{
    dropout_begin(words, rows, keys);
    attn_philox_rounds(words, &head.round_keys, DROPOUT_ROUNDS_BEFORE);
}

/* Whether elements are kept: their 16 bits are not below the threshold, which is 1 to 65536. */
struct DropoutTest {
    uint32_t below, majority;

    __device__ __forceinline__ explicit DropoutTest(uint32_t threshold)
    {
        const uint32_t last_dropped = threshold - 1;
        below = ((last_dropped & 0x7fffu) + 1) * 0x10001u;
        majority = (last_dropped & 0x8000u) != 0 ? 0 : ~0u;
    }

    /* In the highest bit of each half of a word: whether that half is kept. The lower 15 bits are compared by a
     * subtraction that borrows nothing from the other half; then the 16th decides, or where it equals the threshold's,
     * they do. */
    __device__ __forceinline__ uint32_t of_halves(uint32_t word) const
    {
        const uint32_t lower = (word | 0x80008000u) - below;
        return (word & lower) | (majority & (word | lower));
    }
};

/* The same for one element, whose bits are the low or the high half of a word. last_dropped: the largest word whose
 * high half is below the threshold. */
__device__ __forceinline__ bool is_low_kept(uint32_t word, uint32_t last_dropped) { return word << 16 > last_dropped; }
__device__ __forceinline__ bool is_high_kept(uint32_t word, uint32_t last_dropped) { return word > last_dropped; }

/* 16 ones for each half whose highest bit is set: of the lower halves of `low` and `high`, or of their upper halves.
 * PTX ISA, "Data Movement and Conversion Instructions: prmt", which can repeat a byte's sign. */
template <bool UPPER> __device__ __forceinline__ uint32_t mask_of_halves(uint32_t low, uint32_t high)
{
    uint32_t mask;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(mask) : "r"(low), "r"(high), "n"(UPPER ? 0xffbb : 0xdd99));
    return mask;
}

/* The mask of a 16 x 16 block: ones in the 16 bits of an element that is kept, zeros where it is dropped. Register i is
 * laid out like register i of an A fragment: rows lane / 4 (i even) or 8 further down, keys 2 (lane % 4) and + 1
 * (i < 2) or 8 further right. The counters are 8 * row block + lane / 4 and 4 * key block + lane % 4. */
__device__ __forceinline__ void dropout_mask(uint32_t (&kept)[4], const DropoutTest &test, const DropoutHead &head,
                                             const DropoutRows &rows, const DropoutKeys &keys)
{
    uint32_t words[4];
    dropout_words(words, head, rows, keys);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        words[i] = test.of_halves(words[i]);
#pragma unroll
    for (int i = 0; i < 2; ++i) { /* words r and r + 2 have the elements of one row with even and odd keys */
        kept[i] = mask_of_halves<false>(words[i], words[i + 2]);
        kept[i + 2] = mask_of_halves<true>(words[i], words[i + 2]);
    }
}

/* Of 16 rows, the one for which a thread of S^T makes its call. */
__device__ __forceinline__ uint32_t transposed_row(uint32_t lane) { return lane % 4 * 2 + lane / 4 % 2; }

/* The same of a block of S^T, whose rows are keys: register i is keys lane / 4 (i even) or 8 further down, rows
 * 2 (lane % 4) and + 1 (i < 2) or 8 further right. A thread needs two words of each of two calls; the thread with the
 * neighbouring key needs the other two: each makes one call. The whole warp calls it. The counters are
 * 8 * row block + transposed_row(lane) and 4 * key block + lane / 8. */
__device__ __forceinline__ void dropout_mask_transposed(uint32_t (&kept)[4], const DropoutTest &test,
                                                        const DropoutHead &head, const DropoutRows &rows,
                                                        const DropoutKeys &keys)
{
    const bool is_odd = threadIdx.x / 4 % 2 != 0; /* this thread's key */
    uint32_t words[4];
    dropout_words(words, head, rows, keys);
    /* Words 0 and 1 are for even keys (rows r and r + 8), 2 and 3 for odd ones. */
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) { /* rows, and rows 8 further */
        const uint32_t mine = is_odd ? words[2 + eight] : words[eight];
        const uint32_t other = __shfl_xor_sync(0xffffffffu, is_odd ? words[eight] : words[2 + eight], 4);
        const uint32_t low = test.of_halves(is_odd ? other : mine), high = test.of_halves(is_odd ? mine : other);
        kept[2 * eight] = mask_of_halves<false>(low, high); /* rows 2 (lane % 4), + 1 */
        kept[2 * eight + 1] = mask_of_halves<true>(low, high);
    }
}

} // namespace family
