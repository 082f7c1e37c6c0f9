/* What the peer `cudnn` tells cuDNN of a problem's masks and of its packed sequences: arithmetic on the host that needs
 * nothing of CUDA or cuDNN. */
#ifndef FABENCH_CUDNN_PROBLEM_H
#define FABENCH_CUDNN_PROBLEM_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The diagonal band in cuDNN's numbers: row i sees key j iff j > i + shift - left and j <= i + shift + right. So `left`
 * is window_left + 1, and `right` is window_right, 0 where the mask is causal. A side that hides no key of any row is
 * not set. Bounds of packed sequences come from the longest ones, and hold for the shorter ones too. */
struct cudnn_band {
    bool has_left, has_right;
    int32_t left, right;
};

struct cudnn_band cudnn_band_of(const struct attn_problem *);

/* False where a row sees no key: cuDNN does not define its result. The longest lengths of packed sequences say nothing
 * about the others, whose lengths cudnn_sequences_make checks. */
bool cudnn_every_row_sees_a_key(const struct attn_problem *);

/* The packed sequences that have queries, in order. One without queries has nothing to compute and is left out. */
struct cudnn_sequences {
    int64_t count;
    bool square;                /* q_len = kv_len in each */
    int32_t *number;            /* [count]: which of the problem's sequences it is */
    int32_t *q_len, *kv_len;    /* [count] */
    int64_t *q_first, *k_first; /* [count + 1]: its first row in the packed tensors; behind them the end of the last */
};

/* From cu_seqlens_q and cu_seqlens_k in host memory, which do not contradict the problem (lengths_check of
 * reference/lengths.h). ATTN_UNSUPPORTED, with the number of the sequence, where a row sees no key, and in backward
 * where a sequence has keys and no queries: its dK and dV must be written as 0, and cuDNN promises nothing about a
 * sequence of length 0. After a failure there is nothing to free. */
enum attn_status cudnn_sequences_make(const struct attn_problem *, enum attn_mode, const int32_t *cu_seqlens_q,
                                      const int32_t *cu_seqlens_k, struct cudnn_sequences *, struct attn_message *why);
void cudnn_sequences_free(struct cudnn_sequences *);

#ifdef __cplusplus
}
#endif
#endif
