/* See lengths.h. */
#include "reference/lengths.h"

#include <stdlib.h>

#include "reference/status.h"

static enum attn_status download(int32_t *to, const int32_t *from, int64_t count, cudaStream_t stream,
                                 struct attn_message *why)
{
    return status_cuda(cudaMemcpyAsync(to, from, (size_t)count * sizeof *to, cudaMemcpyDeviceToHost, stream),
                       "cudaMemcpyAsync", why);
}

enum attn_status lengths_copy(const struct attn_problem *p, const struct attn_tensors *tensors, void *stream,
                              struct lengths *out, struct attn_message *why)
{
    const int64_t count = p->batch + 1;
    const cudaStream_t s = (cudaStream_t)stream;
    *out = (struct lengths){*tensors, NULL};
    if (p->lengths == ATTN_FIXED)
        return ATTN_OK;
    int32_t *const memory = malloc(2 * (size_t)count * sizeof *memory);
    if (!memory)
        return status_fail(why, ATTN_NO_MEMORY, "the lengths of %lld sequences need %zu bytes of host memory",
                           (long long)p->batch, 2 * (size_t)count * sizeof *memory);
    enum attn_status status = ATTN_OK;
    if (attn_rows_are_packed(p)) {
        out->tensors.cu_seqlens_q = memory;
        status = download(memory, tensors->cu_seqlens_q, count, s, why);
    }
    if (p->lengths == ATTN_PACKED) {
        out->tensors.cu_seqlens_k = memory + count;
        status = status == ATTN_OK ? download(memory + count, tensors->cu_seqlens_k, count, s, why) : status;
    } else {
        out->tensors.seqused_k = memory + count;
        status = status == ATTN_OK ? download(memory + count, tensors->seqused_k, p->batch, s, why) : status;
    }
    /* Waits after a failure too: a copy into this memory may be under way. */
    const enum attn_status waited = status_cuda(cudaStreamSynchronize(s), "copying the lengths", why);
    status = status == ATTN_OK ? waited : status;
    if (status == ATTN_OK)
        status = lengths_check(p, &out->tensors, why);
    out->memory = memory;
    if (status != ATTN_OK)
        lengths_free(out);
    return status;
}

void lengths_free(struct lengths *lengths)
{
    free(lengths->memory);
    *lengths = (struct lengths){.memory = NULL};
}
