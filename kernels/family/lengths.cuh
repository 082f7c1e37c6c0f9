/* Where a sequence's rows and keys lie. */
#pragma once
#include <cstdint>

#include "kernels/family/lengths.h"

namespace family {

struct Sequence {
    int number, q_len, kv_len;
    int q_first, k_first; /* packed: its first row in Q and in K, else 0 */
};

/* q_len, kv_len: of sequences of fixed lengths. */
__device__ __forceinline__ Sequence sequence_at(const family_lengths &lengths, int number, int q_len, int kv_len)
{
    Sequence s = {number, q_len, kv_len, 0, 0};
    if (lengths.cu_seqlens_q != NULL) {
        s.q_first = lengths.cu_seqlens_q[number];
        s.q_len = lengths.cu_seqlens_q[number + 1] - s.q_first;
        s.k_first = lengths.cu_seqlens_k[number];
        s.kv_len = lengths.cu_seqlens_k[number + 1] - s.k_first;
    }
    return s;
}

/* The element with which a head of a sequence begins; first: q_first or k_first. */
__device__ __forceinline__ int64_t head_offset(const family_lengths &lengths, int64_t stride_batch, int64_t stride_head,
                                               int64_t stride_row, const Sequence &s, int first, int head)
{
    return (lengths.cu_seqlens_q != NULL ? 0 : s.number * stride_batch) + head * stride_head + first * stride_row;
}

/* Where row 0 of a head of a sequence lies in LSE. */
__device__ __forceinline__ int64_t lse_offset(const family_lengths &lengths, const Sequence &s, int head, int heads)
{
    return lengths.cu_seqlens_q != NULL ? head * lengths.total_q + s.q_first
                                        : (static_cast<int64_t>(s.number) * heads + head) * s.q_len;
}

} // namespace family
