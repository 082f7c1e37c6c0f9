/* What the references and naive compute of single elements and rows of problems beyond dense attention. Functions for
 * the host and, in CUDA code, for the device, beside those of kernels/attention.h. */
#ifndef FABENCH_REFERENCE_ELEMENTS_H
#define FABENCH_REFERENCE_ELEMENTS_H

#include <math.h>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include "kernels/attention.h"

/* S from x = scale Q K^T; cap 0 = none. */
ATTN_FUNCTION float element_capped(float x, float cap) { return cap == 0.0f ? x : cap * tanhf(x / cap); }

/* The derivative of S with respect to x: 1 - tanh^2(x / cap), without the difference of nearly equal numbers. */
ATTN_FUNCTION float element_slope(float x, float cap)
{
    if (cap == 0.0f)
        return 1.0f;
    const float power = expf(-2.0f * fabsf(x / cap)), sum = 1.0f + power;
    return 4.0f * power / (sum * sum);
}

/* An element of the bias. */
ATTN_FUNCTION float element_bias(const struct attn_problem *p, const struct attn_tensors *t, int64_t at)
{
    if (p->bias_dtype == ATTN_FP32)
        return ((const float *)t->bias.data)[at];
#if defined(__CUDA_ARCH__)
    if (p->bias_dtype == ATTN_FP16)
        return __half2float(((const __half *)t->bias.data)[at]);
    return __bfloat162float(((const __nv_bfloat16 *)t->bias.data)[at]);
#else
    return NAN; /* implementations on the host compute in fp32 */
#endif
}

/* What is added to S of an element behind the softcap: its bias, or ALiBi's. */
ATTN_FUNCTION float element_added(const struct attn_problem *p, const struct attn_tensors *t, int64_t b, int64_t head,
                                  int64_t q_len, int64_t kv_len, int64_t row, int64_t key)
{
    if (p->bias_heads > 0)
        return element_bias(p, t, attn_bias_offset(p, t->bias, b, head, row) + key);
    return p->has_alibi ? -t->alibi_slopes[head] * (float)attn_alibi_distance(q_len, kv_len, row, key) : 0.0f;
}

/* One row of S: its sequence with its lengths, its query head, its number in the sequence. */
struct element_row {
    int64_t b, head, row, q_len, kv_len;
};

/* The sequence of a row of packed tensors: the last one that begins at or before it, because the empty ones before it
 * begin there too. */
ATTN_FUNCTION int64_t element_sequence(const int32_t *cu_seqlens, int64_t batch, int64_t row)
{
    int64_t low = 0, high = batch - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (cu_seqlens[middle] <= row)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* How many rows S has, over all heads and sequences. */
ATTN_FUNCTION int64_t element_rows(const struct attn_problem *p)
{
    return p->q_heads * (attn_rows_are_packed(p) ? p->total_q : p->batch * p->q_len);
}

/* The row with this number among them; attn_lse_index is the inverse. */
ATTN_FUNCTION struct element_row element_row_at(const struct attn_problem *p, const struct attn_tensors *t,
                                                int64_t number)
{
    struct element_row at;
    if (attn_rows_are_packed(p)) {
        at.head = number / p->total_q;
        at.row = number - at.head * p->total_q;
        at.b = element_sequence(t->cu_seqlens_q, p->batch, at.row);
        at.row -= t->cu_seqlens_q[at.b];
    } else {
        const int64_t head = number / p->q_len;
        at.row = number - head * p->q_len;
        at.b = head / p->q_heads;
        at.head = head - at.b * p->q_heads;
    }
    const struct attn_sequence sequence = attn_sequence_at(p, t, at.b);
    at.q_len = sequence.q_len;
    at.kv_len = sequence.kv_len;
    return at;
}

#endif
