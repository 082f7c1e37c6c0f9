/* Copies of inputs with their values: pages one behind the other, 8-bit elements times their scales. */
#pragma once
#include "kernels/attention.h"

/* Which rows: those of heads [head, head + heads) of sequences [b, b + batch), [first, first + rows) of each. Of Q and
 * dO, or `is_kv` of K and V. */
struct gather_rows {
    int64_t b, batch, head, heads, first, rows;
    bool is_kv;
    int64_t columns;
    int64_t first_row; /* where the rows of Q are counted from for its scales; reference_outputs.first_row */
};

/* Row r of head h of sequence i of those goes to data + i * stride_batch + h * stride_head + r * stride_row. */
struct gather_output {
    void *data;
    int64_t stride_batch, stride_head, stride_row;
    enum attn_dtype dtype; /* fp32, fp16 or bf16 */
    bool absolute;         /* the absolute values */
};

/* from, dtype, scales: the tensor, its type, and its array of scales or NULL. The arrays of attn_tensors are in device
 * memory. Enqueues on `stream` (cudaStream_t); no rows are no error. */
enum attn_status gather(const struct attn_problem *, const struct attn_tensors *, const struct gather_rows *,
                        struct attn_tensor from, enum attn_dtype dtype, const float *scales,
                        const struct gather_output *, void *stream, struct attn_message *why);
