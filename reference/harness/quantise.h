/* 16-bit inputs -> 8-bit inputs and their scales, on the host. The harness does it outside the timing; kernels get what
 * is stored and the scales.
 *
 * For each tensor, for each pair of sequence and key head, or for each block of rows (enum attn_quant_scale):
 *   scale   the largest |value| / the largest finite value of the type (448 or 57344), in fp32; 1 where all are zero
 *   stored  value / scale, rounded to nearest even; what is too large becomes the largest finite value
 * The query heads of a group share Q's scale of a pair.
 *
 * Rotation: each row of Q and of K is multiplied by the same orthogonal matrix H D / sqrt(head_dim), where H is the
 * Hadamard matrix of the order head_dim, a power of two, and D a diagonal of random signs. Q K^T stays what it is,
 * while a few large columns are spread over all. */
#ifndef FABENCH_QUANTISE_H
#define FABENCH_QUANTISE_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum quantised { QUANTISED_Q, QUANTISED_K, QUANTISED_V, QUANTISED_COUNT };

/* Whether the tensor has 8 bits, and so scales. Of an 8-bit cache of 16-bit queries K and V alone. */
static inline bool quantise_has(const struct attn_problem *p, enum quantised tensor)
{
    return attn_dtype_is_8_bit(tensor == QUANTISED_Q ? p->dtype : attn_kv_dtype(p));
}

/* Floats in the array of scales of one tensor; 1, or as struct attn_tensors says. */
int64_t quantise_scales(const struct attn_problem *, enum quantised);

/* Where the scale of a row, or of a key, of a kv head's or query head's sequence lies in it. cu_seqlens: of the packed
 * queries or keys, on the host; else NULL. */
int64_t quantise_scale_at(const struct attn_problem *, enum quantised, const int32_t *cu_seqlens, int64_t batch,
                          int64_t head, int64_t row);

/* One tensor in host memory. */
struct quantise_job {
    const struct attn_problem *problem; /* the 8-bit one */
    enum quantised tensor;
    const int32_t *cu_seqlens; /* of its rows, where they are packed */
    const int32_t *seqused_k;  /* of K and V of a cache, whose other rows are neither read nor written; else NULL */
    const int32_t *page_table; /* where they lie in pages */
    struct attn_tensor from;   /* in from_dtype; finite values */
    enum attn_dtype from_dtype;
    struct attn_tensor to; /* in the problem's type of this tensor, which quantise_has */
    float *scales;         /* quantise_scales of them */
    bool is_rotated;
    uint64_t seed; /* of the random signs */
};
/* threads: 0 = as many as the machine has. The result does not depend on them. */
void quantise(const struct quantise_job *, int threads);

/* The rotation of one row of `count` floats, a power of two. */
void quantise_rotate(float *row, int64_t count, uint64_t seed);

/* Does the rotation's diagonal negate the column? */
bool quantise_negates(uint64_t seed, int64_t column);

/* ---- The same on a CUDA device, bit for bit: quantise_cuda.cu ---- */

/* Does it take the jobs, Q, K and V of a problem? Sequences of one length, from bf16 or fp16, head dims 64, 128 and
 * 256, the same for all; rows on boundaries of 16 bytes, quantised ones of 8. */
bool quantise_cuda_takes(const struct quantise_job *, int count);

/* Bytes of workspace that quantise_cuda needs on the device. */
size_t quantise_cuda_workspace_bytes(const struct quantise_job *, int count);

/* Enqueues the jobs, at most QUANTISED_COUNT, whose data and scales are on the device. Waits for nothing; returns a
 * cudaError_t. With scales of blocks of at most 128 rows (64 at head_dim 256) all is read once, else twice. */
int quantise_cuda(const struct quantise_job *, int count, void *workspace, void *stream);

#ifdef __cplusplus
}
#endif
#endif
