/* Lengths of the sequences of a batch, as kernels see them: all have the longest ones, or packed sequences each their
 * own. C and CUDA C++. */
#ifndef FABENCH_FAMILY_LENGTHS_H
#define FABENCH_FAMILY_LENGTHS_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FAMILY_MAX_LEN = 1 << 29, /* so that row + window and the like stay within an int */
    FAMILY_ROW_BLOCK = 64     /* packed: rows of a row block (family_row_blocks) of sm_80's backward */
};

struct family_lengths {
    const int32_t *cu_seqlens_q, *cu_seqlens_k; /* device, [batch + 1]; NULL: all sequences have the longest lengths */
    int64_t total_q;                            /* packed: rows of a head in LSE */
    int32_t batch;
};

struct family_lengths family_lengths_of(const struct attn_problem *, const struct attn_tensors *);

/* Blocks of `rows` rows of all packed sequences, each of which begins with a new one: sequence b begins with block
 * cu_seqlens_q[b] / rows + b. 0 of sequences of fixed lengths. */
int64_t family_row_blocks(const struct attn_problem *, int rows);

#ifdef __cplusplus
}
#endif
#endif
