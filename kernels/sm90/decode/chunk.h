/* Chunks of a prefill against a cache, by the forward of packed sequences (kernels/sm90/fwd): a sequence's keys are
 * [b * pitch, b * pitch + seqused_k[b]) of all keys in memory; what lies between them is a sequence without rows. A
 * kernel ahead writes these ranges from the lengths on the device, and one behind brings LSE into the order of a cache.
 * The forward has 128 rows or more of a head in a tile and overlaps products with the softmax; it does not split keys.
 * C and CUDA C++. */
#ifndef FABENCH_SM90_DECODE_CHUNK_H
#define FABENCH_SM90_DECODE_CHUNK_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SM90_CHUNK_THREADS = 256 };

/* The parameter of the kernel that writes the ranges. cu_q, cu_k: [2 batch + 1]. */
struct sm90_chunk_ranges {
    const int32_t *seqused_k;
    int32_t *cu_q, *cu_k;
    int32_t batch, q_len, kv_len;
    int32_t pitch; /* keys in memory from one sequence to the next */
};

/* The parameter of the kernel that copies LSE from [q_heads, batch * q_len] to [batch, q_heads, q_len]. */
struct sm90_chunk_lse {
    const float *from;
    float *to;
    int64_t count;
    int32_t batch, q_heads, q_len;
};

extern const void *const sm90_chunk_write_ranges, *const sm90_chunk_copy_lse;

/* Whether the forward can compute the request: 16 bits, rows alike, contiguous, and what the forward refuses. */
bool sm90_chunk_can(const struct attn_request *);

/* Whether that is faster than tiles of 64 rows of the decode kernels. */
bool sm90_chunk_pays(const struct attn_request *);

size_t sm90_chunk_workspace_bytes(const struct attn_request *);

/* Whether the tensors lie as the forward needs them; otherwise the decode kernels compute the request. */
bool sm90_chunk_fits(const struct attn_request *, const struct attn_tensors *);

enum attn_status sm90_chunk_launch(const struct attn_request *, const struct attn_tensors *, const struct attn_run *,
                                   struct attn_message *why);

#ifdef __cplusplus
}
#endif
#endif
