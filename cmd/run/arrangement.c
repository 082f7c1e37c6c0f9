/* Batches made of the sequences of another one. */
#include "cmd/run/arrangement.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/device/inputs.h"
#include "cmd/problem/problem_sequences.h"

/* ---- copies in host memory ---- */

enum attn_status host_copy_make(struct backend *be, const struct plan_item *item, const struct tensor_set *set,
                                const enum problem_tensor *tensors, int count, struct host_copy *copy,
                                struct attn_message *why)
{
    *copy = (struct host_copy){.tensors = set->tensors};
    inputs_point_at_host_arrays(item, &copy->tensors);
    for (int i = 0; i < count; i++) {
        const struct buffer *buffer = &set->buffers[tensors[i]];
        if (!buffer->base)
            continue;
        void *const memory = copy->memory[tensors[i]] = xmalloc(buffer->bytes);
        tensor_point_at(&copy->tensors, tensors[i], memory);
        TRY(be->ops->download(be, memory, buffer->data, buffer->bytes, why));
    }
    return ATTN_OK;
}

void host_copy_free(struct host_copy *copy)
{
    for (int i = 0; i < TENSOR_COUNT; i++)
        free(copy->memory[i]);
    memset(copy, 0, sizeof *copy);
}

/* ---- inputs of the new batch ---- */

/* Where inputs come from and go to, in host memory. */
struct transfer {
    const struct attn_problem *from_problem, *to_problem;
    const struct attn_tensors *from, *to;
    const int64_t *sequences;
};

static void copy_elements(struct attn_tensor to, int64_t to_at, struct attn_tensor from, int64_t from_at,
                          int64_t columns, enum attn_dtype dtype)
{
    const int64_t bytes = (int64_t)attn_dtype_bytes(dtype);
    memcpy((char *)to.data + to_at * bytes, (const char *)from.data + from_at * bytes, (size_t)(columns * bytes));
}

static void take_queries(const struct transfer *t)
{
    const struct attn_problem *p = t->to_problem;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < attn_sequence_at(p, t->to, b).q_len; i++)
                copy_elements(t->to->q, attn_row_offset(p, t->to, t->to->q, b, h, i), t->from->q,
                              attn_row_offset(t->from_problem, t->from, t->from->q, t->sequences[b], h, i), p->head_dim,
                              p->dtype);
}

static void take_keys(const struct transfer *t, struct attn_tensor to, struct attn_tensor from, int64_t columns)
{
    const struct attn_problem *p = t->to_problem;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->kv_heads; h++)
            for (int64_t j = 0; j < attn_sequence_at(p, t->to, b).kv_len; j++)
                copy_elements(to, attn_key_offset(p, t->to, to, b, h, j), from,
                              attn_key_offset(t->from_problem, t->from, from, t->sequences[b], h, j), columns,
                              attn_kv_dtype(p));
}

static void take_bias(const struct transfer *t)
{
    const struct attn_problem *p = t->to_problem;
    for (int64_t b = 0; b < p->bias_batch; b++)
        for (int64_t h = 0; h < p->bias_heads; h++)
            for (int64_t i = 0; i < p->q_len; i++)
                copy_elements(t->to->bias, attn_bias_offset(p, t->to->bias, b, h, i), t->from->bias,
                              attn_bias_offset(t->from_problem, t->from->bias, t->sequences[b], h, i), p->kv_len,
                              p->bias_dtype);
}

/* Scales of 8-bit inputs, in host memory. */
static void take_scales(const struct transfer *t, enum quantised tensor, const float *from, float *to)
{
    const struct attn_problem *p = t->to_problem, *from_p = t->from_problem;
    const bool is_q = tensor == QUANTISED_Q;
    const bool is_packed = is_q ? attn_rows_are_packed(p) : p->lengths == ATTN_PACKED;
    const int32_t *const to_lengths = !is_packed ? NULL : is_q ? t->to->cu_seqlens_q : t->to->cu_seqlens_k;
    const int32_t *const from_lengths = !is_packed ? NULL : is_q ? t->from->cu_seqlens_q : t->from->cu_seqlens_k;
    for (int64_t b = 0; b < p->batch; b++) {
        const struct attn_sequence s = attn_sequence_at(p, t->to, b);
        for (int64_t h = 0; h < (is_q ? p->q_heads : p->kv_heads); h++)
            for (int64_t i = 0; i < (is_q ? s.q_len : s.kv_len); i++)
                to[quantise_scale_at(p, tensor, to_lengths, b, h, i)] =
                    from[quantise_scale_at(from_p, tensor, from_lengths, t->sequences[b], h, i)];
    }
}

/* Host memory for a tensor of the set, all of it POISON_PATTERN, which no launch may read. */
static void *poisoned(const struct buffer *buffer)
{
    return memset(xmalloc(buffer->bytes), POISON_PATTERN & 0xff, buffer->bytes);
}

/* The values of Q, K, V and the bias, and their upload. */
static enum attn_status fill_tensors(struct backend *be, const struct plan_item *whole, const struct host_copy *inputs,
                                     const int64_t *sequences, struct arrangement *made, struct attn_message *why)
{
    static const enum problem_tensor needed[] = {TENSOR_Q, TENSOR_K, TENSOR_V, TENSOR_BIAS};
    const struct attn_problem *p = &made->item.problem;
    struct host_copy to = {.tensors = made->inputs.tensors};
    const struct transfer transfer = {&whole->problem, p, &inputs->tensors, &to.tensors, sequences};
    enum attn_status status = ATTN_OK;
    inputs_point_at_host_arrays(&made->item, &to.tensors);
    for (int i = 0; i < 4; i++)
        if (made->inputs.buffers[needed[i]].base)
            tensor_point_at(&to.tensors, needed[i], to.memory[needed[i]] = poisoned(&made->inputs.buffers[needed[i]]));
    take_queries(&transfer);
    take_keys(&transfer, to.tensors.k, inputs->tensors.k, p->head_dim);
    if (!attn_v_is_in_k(p))
        take_keys(&transfer, to.tensors.v, inputs->tensors.v, attn_v_head_dim(p));
    if (p->bias_heads > 0)
        take_bias(&transfer);
    for (int i = 0; i < 4 && status == ATTN_OK; i++) {
        const struct buffer *buffer = &made->inputs.buffers[needed[i]];
        if (buffer->base)
            status = be->ops->upload(be, buffer->data, to.memory[needed[i]], buffer->bytes, why);
    }
    host_copy_free(&to);
    return status;
}

static enum attn_status fill_arrays(struct backend *be, const struct plan_item *whole, const struct host_copy *inputs,
                                    float *const scales[QUANTISED_COUNT], const int64_t *sequences,
                                    struct arrangement *made, struct attn_message *why)
{
    struct attn_tensors host = {0};
    inputs_point_at_host_arrays(&made->item, &host);
    const struct transfer transfer = {&whole->problem, &made->item.problem, &inputs->tensors, &host, sequences};
    for (int i = 0; i < QUANTISED_COUNT; i++)
        if (made->inputs.scales[i].base)
            take_scales(&transfer, (enum quantised)i, scales[i], made->inputs.scale_values[i]);
    TRY(inputs_upload_arrays(be, &made->item, &made->inputs, why));
    return inputs_upload_scales(be, &made->inputs, why);
}

enum attn_status arrangement_make(struct backend *be, const struct plan_item *whole, const struct host_copy *inputs,
                                  float *const scales[QUANTISED_COUNT], const int64_t *sequences, int64_t count,
                                  int64_t page_size, struct arrangement *made, bool *exists, struct attn_message *why)
{
    memset(made, 0, sizeof *made);
    made->item = *whole;
    made->item.arrays = &made->arrays;
    *exists = problem_take_sequences(&whole->problem, whole->arrays, sequences, count, page_size, whole->seed,
                                     &made->item.problem, &made->arrays) &&
              plan_shape_fits(&made->item.problem);
    if (!*exists) {
        problem_arrays_free(&made->arrays);
        return ATTN_OK;
    }
    TRY(inputs_allocate(be, &made->item, &made->inputs, why));
    TRY(fill_arrays(be, whole, inputs, scales, sequences, made, why));
    return fill_tensors(be, whole, inputs, sequences, made, why);
}

void arrangement_free(struct backend *be, struct arrangement *made)
{
    tensor_set_free(be, &made->inputs);
    problem_arrays_free(&made->arrays);
}
