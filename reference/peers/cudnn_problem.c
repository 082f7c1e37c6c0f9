/* See cudnn_problem.h. */
#include "reference/peers/cudnn_problem.h"

#include <inttypes.h>
#include <stdlib.h>

struct cudnn_band cudnn_band_of(const struct attn_problem *p)
{
    struct cudnn_band band = {false, false, 0, 0};
    const int64_t right = p->causal ? 0 : p->window_right;
    if (p->window_left >= 0 &&
        p->window_left < p->kv_len - 1) { /* the last row sees the first key from kv_len - 1 on */
        band.has_left = true;
        band.left = (int32_t)(p->window_left + 1);
    }
    if (right >= 0 && right < p->q_len - 1) { /* the first row sees the last key from q_len - 1 on */
        band.has_right = true;
        band.right = (int32_t)right;
    }
    return band;
}

/* The first row sees the fewest keys on the right, and on the left no row has none: its own diagonal is a key, or lies
 * before the first one. */
bool cudnn_every_row_sees_a_key(const struct attn_problem *p)
{
    int64_t first, last;
    attn_visible(p, 0, &first, &last);
    return first <= last;
}

static enum attn_status check_sequence(const struct attn_problem *p, enum attn_mode mode, int64_t number, int64_t q_len,
                                       int64_t kv_len, struct attn_message *why)
{
    struct attn_problem one = *p;
    one.q_len = q_len;
    one.kv_len = kv_len;
    if (q_len == 0 && kv_len > 0 && mode == ATTN_BWD) {
        snprintf(why->text, sizeof why->text,
                 "sequence %" PRId64 " has no queries, but keys: cuDNN does not promise to write their dK and dV",
                 number);
        return ATTN_UNSUPPORTED;
    }
    if (q_len > 0 && !cudnn_every_row_sees_a_key(&one)) {
        snprintf(why->text, sizeof why->text,
                 "rows that see no key: sequence %" PRId64 " has q_len %" PRId64 " and kv_len %" PRId64
                 ", undefined in cuDNN",
                 number, q_len, kv_len);
        return ATTN_UNSUPPORTED;
    }
    return ATTN_OK;
}

static bool allocate(struct cudnn_sequences *out, int64_t batch)
{
    const size_t count = (size_t)batch;
    out->number = malloc(count * sizeof *out->number);
    out->q_len = malloc(count * sizeof *out->q_len);
    out->kv_len = malloc(count * sizeof *out->kv_len);
    out->q_first = malloc((count + 1) * sizeof *out->q_first);
    out->k_first = malloc((count + 1) * sizeof *out->k_first);
    return out->number && out->q_len && out->kv_len && out->q_first && out->k_first;
}

enum attn_status cudnn_sequences_make(const struct attn_problem *p, enum attn_mode mode, const int32_t *cu_seqlens_q,
                                      const int32_t *cu_seqlens_k, struct cudnn_sequences *out,
                                      struct attn_message *why)
{
    enum attn_status status = ATTN_OK;
    *out = (struct cudnn_sequences){.square = true};
    if (!allocate(out, p->batch)) {
        snprintf(why->text, sizeof why->text, "the lengths of %" PRId64 " sequences need more host memory", p->batch);
        status = ATTN_NO_MEMORY;
    }
    for (int64_t b = 0; b < p->batch && status == ATTN_OK; b++) {
        const int32_t q_len = cu_seqlens_q[b + 1] - cu_seqlens_q[b], kv_len = cu_seqlens_k[b + 1] - cu_seqlens_k[b];
        status = check_sequence(p, mode, b, q_len, kv_len, why);
        if (status != ATTN_OK || q_len == 0)
            continue;
        const int64_t n = out->count++;
        out->square = out->square && q_len == kv_len;
        out->number[n] = (int32_t)b;
        out->q_len[n] = q_len;
        out->kv_len[n] = kv_len;
        out->q_first[n] = cu_seqlens_q[b];
        out->k_first[n] = cu_seqlens_k[b];
        out->q_first[n + 1] = cu_seqlens_q[b + 1];
        out->k_first[n + 1] = cu_seqlens_k[b + 1];
    }
    if (status == ATTN_OK && out->count == 0) {
        snprintf(why->text, sizeof why->text, "no sequence has queries: there is nothing for cuDNN to compute");
        status = ATTN_UNSUPPORTED;
    }
    if (status != ATTN_OK)
        cudnn_sequences_free(out);
    return status;
}

void cudnn_sequences_free(struct cudnn_sequences *sequences)
{
    free(sequences->number);
    free(sequences->q_len);
    free(sequences->kv_len);
    free(sequences->q_first);
    free(sequences->k_first);
    *sequences = (struct cudnn_sequences){.count = 0};
}
