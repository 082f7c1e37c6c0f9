/* Host copies of a problem's tensors. */
#include "cmd/selftest/host_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/device/status.h"

static const enum tensor_index output_index[TENSOR_COUNT] = {
    [TENSOR_O] = INDEX_O, [TENSOR_DQ] = INDEX_DQ, [TENSOR_DK] = INDEX_DK, [TENSOR_DV] = INDEX_DV};

static int64_t elements_of(const struct attn_problem *p, enum tensor_index index)
{
    const struct tensor_shape s = tensor_shape_of(p, index);
    return s.batch * s.heads * s.len * s.head_dim;
}

int64_t host_tensors_elements(const struct attn_problem *p, enum problem_tensor tensor)
{
    return tensor == TENSOR_LSE ? p->batch * p->q_heads * p->q_len : elements_of(p, output_index[tensor]);
}

float *host_tensors_output(const struct host_tensors *t, enum problem_tensor tensor)
{
    return tensor == TENSOR_LSE ? t->lse : t->at[output_index[tensor]];
}

struct host_tensors host_tensors_make(const struct attn_problem *p, enum attn_mode mode)
{
    struct host_tensors t = {.lse = xcalloc((unsigned long)host_tensors_elements(p, TENSOR_LSE), sizeof(float))};
    const enum tensor_index last = mode == ATTN_FWD ? INDEX_O : INDEX_DV;
    for (int i = 0; i <= (int)last; i++)
        t.at[i] = xcalloc((unsigned long)elements_of(p, (enum tensor_index)i), sizeof(float));
    return t;
}

struct host_tensors host_tensors_copy(const struct host_tensors *from, const struct attn_problem *p,
                                      enum attn_mode mode)
{
    struct host_tensors t = host_tensors_make(p, mode);
    memcpy(t.lse, from->lse, (size_t)host_tensors_elements(p, TENSOR_LSE) * sizeof(float));
    for (int i = 0; i < INDEX_COUNT; i++)
        if (t.at[i])
            memcpy(t.at[i], from->at[i], (size_t)elements_of(p, (enum tensor_index)i) * sizeof(float));
    return t;
}

void host_tensors_free(struct host_tensors *t)
{
    for (int i = 0; i < INDEX_COUNT; i++)
        free(t->at[i]);
    free(t->lse);
    memset(t, 0, sizeof *t);
}

/* Copies each element between a strided tensor, a byte copy of device memory, and the contiguous fp32 array. */
static void convert(const struct plan_item *item, const struct attn_tensor *t, const struct tensor_shape *s,
                    void *strided, float *packed, bool to_strided)
{
    const enum attn_dtype dtype = item->problem.dtype;
    int64_t n = 0;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t i = 0; i < s->len; i++) {
                const int64_t row = b * t->stride_batch + h * t->stride_head + i * t->stride_row;
                for (int64_t c = 0; c < s->head_dim; c++, n++)
                    if (to_strided)
                        fill_store(strided, dtype, row + c, packed[n]);
                    else
                        packed[n] = fill_load(strided, dtype, row + c);
            }
}

static enum attn_status move(struct backend *be, const struct plan_item *item, const struct tensor_set *set,
                             enum tensor_index index, float *packed, bool to_device, struct attn_message *why)
{
    const struct buffer *buffer = &set->buffers[index];
    struct attn_tensors tensors = set->tensors;
    const struct tensor_shape shape = tensor_shape_of(&item->problem, index);
    void *host = xmalloc(buffer->bytes);
    enum attn_status status = be->ops->download(be, host, buffer->data, buffer->bytes, why);
    if (status == ATTN_OK)
        convert(item, tensor_of(&tensors, index), &shape, host, packed, to_device);
    if (status == ATTN_OK && to_device)
        status = be->ops->upload(be, buffer->data, host, buffer->bytes, why);
    free(host);
    return status;
}

enum attn_status host_tensors_write(struct backend *be, const struct plan_item *item, const struct host_tensors *from,
                                    const struct tensor_set *to, struct attn_message *why)
{
    for (int i = 0; i < INDEX_COUNT; i++)
        if (to->buffers[i].base)
            TRY(move(be, item, to, (enum tensor_index)i, from->at[i], true, why));
    return to->lse.base ? be->ops->upload(be, to->lse.data, from->lse, to->lse.bytes, why) : ATTN_OK;
}

enum attn_status host_tensors_read(struct backend *be, const struct plan_item *item, const struct tensor_set *from,
                                   struct host_tensors *to, struct attn_message *why)
{
    for (int i = 0; i < INDEX_COUNT; i++)
        if (from->buffers[i].base)
            TRY(move(be, item, from, (enum tensor_index)i, to->at[i], false, why));
    return from->lse.base ? be->ops->download(be, to->lse, from->lse.data, from->lse.bytes, why) : ATTN_OK;
}
