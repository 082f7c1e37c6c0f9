/* The lengths of a problem's sequences on the host, for implementations on CUDA that compute one sequence at a time. */
#ifndef FABENCH_REFERENCE_LENGTHS_H
#define FABENCH_REFERENCE_LENGTHS_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `tensors` is a copy of the problem's in which the arrays of lengths (cu_seqlens_q, cu_seqlens_k, seqused_k) are host
 * memory; its other pointers are as they were. */
struct lengths {
    struct attn_tensors tensors;
    int32_t *memory;
};

/* Copies the arrays behind what is enqueued on `stream` (cudaStream_t) and waits for it; with lengths that are fixed it
 * does nothing. ATTN_ERROR when the lengths contradict the problem; then, too, nothing needs to be freed. */
enum attn_status lengths_copy(const struct attn_problem *, const struct attn_tensors *, void *stream, struct lengths *,
                              struct attn_message *why);
void lengths_free(struct lengths *);

/* The sum of the lengths before each sequence: from 0 up to the total, no length above the longest. */
static inline enum attn_status lengths_check_sums(const char *name, const int32_t *sums, int64_t batch, int64_t longest,
                                                  int64_t total, struct attn_message *why)
{
    if (sums[0] != 0 || sums[batch] != total) {
        snprintf(why->text, sizeof why->text, "%s goes from %d to %d, not from 0 to %lld", name, (int)sums[0],
                 (int)sums[batch], (long long)total);
        return ATTN_ERROR;
    }
    for (int64_t b = 0; b < batch; b++) {
        const int64_t len = (int64_t)sums[b + 1] - sums[b];
        if (len < 0 || len > longest) {
            snprintf(why->text, sizeof why->text, "sequence %lld has the length %lld by %s; legal are 0 to %lld",
                     (long long)b, (long long)len, name, (long long)longest);
            return ATTN_ERROR;
        }
    }
    return ATTN_OK;
}

/* The arrays of `tensors` are host memory. ATTN_ERROR where they contradict the problem. */
static inline enum attn_status lengths_check(const struct attn_problem *p, const struct attn_tensors *tensors,
                                             struct attn_message *why)
{
    if (attn_rows_are_packed(p)) {
        const enum attn_status status =
            lengths_check_sums("cu_seqlens_q", tensors->cu_seqlens_q, p->batch, p->q_len, p->total_q, why);
        if (status != ATTN_OK)
            return status;
    }
    if (p->lengths == ATTN_PACKED)
        return lengths_check_sums("cu_seqlens_k", tensors->cu_seqlens_k, p->batch, p->kv_len, p->total_k, why);
    for (int64_t b = 0; p->lengths == ATTN_CACHE && b < p->batch; b++)
        if (tensors->seqused_k[b] < 0 || tensors->seqused_k[b] > p->kv_len) {
            snprintf(why->text, sizeof why->text, "seqused_k of sequence %lld is %d; legal are 0 to %lld", (long long)b,
                     (int)tensors->seqused_k[b], (long long)p->kv_len);
            return ATTN_ERROR;
        }
    return ATTN_OK;
}

#ifdef __cplusplus
}
#endif
#endif
