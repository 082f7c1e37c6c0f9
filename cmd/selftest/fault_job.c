/* Host copies of a problem's tensors. */
#include "cmd/selftest/fault_job.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/device/backend.h"

int64_t host_tensors_elements(const struct attn_problem *p, enum problem_tensor tensor)
{
    const struct tensor_shape s = tensor_shape_of(p, tensor);
    return s.batch * s.heads * s.len * s.head_dim;
}

static bool has_tensor(const struct attn_problem *p, enum attn_mode mode, enum problem_tensor tensor)
{
    if (tensor == TENSOR_BIAS)
        return p->bias_heads > 0;
    if (tensor == TENSOR_DBIAS || tensor == TENSOR_DSINK)
        return mode == ATTN_BWD && (tensor == TENSOR_DSINK ? p->has_sink : p->bias_heads > 0);
    return mode == ATTN_BWD || tensor <= TENSOR_O || tensor == TENSOR_LSE;
}

struct host_tensors host_tensors_make(const struct attn_problem *p, enum attn_mode mode)
{
    struct host_tensors t = {.at = {NULL}};
    for (int i = 0; i < TENSOR_COUNT; i++)
        if (has_tensor(p, mode, (enum problem_tensor)i))
            t.at[i] = xcalloc((unsigned long)host_tensors_elements(p, (enum problem_tensor)i), sizeof(float));
    for (int i = 0; i < QUANTISED_COUNT; i++)
        if (quantise_has(p, (enum quantised)i))
            t.scales[i] = xcalloc((unsigned long)quantise_scales(p, (enum quantised)i), sizeof(float));
    return t;
}

struct host_tensors host_tensors_copy(const struct host_tensors *from, const struct attn_problem *p,
                                      enum attn_mode mode)
{
    struct host_tensors t = host_tensors_make(p, mode);
    for (int i = 0; i < TENSOR_COUNT; i++)
        if (t.at[i])
            memcpy(t.at[i], from->at[i], (size_t)host_tensors_elements(p, (enum problem_tensor)i) * sizeof(float));
    for (int i = 0; i < QUANTISED_COUNT; i++)
        if (t.scales[i])
            memcpy(t.scales[i], from->scales[i], (size_t)quantise_scales(p, (enum quantised)i) * sizeof(float));
    t.arrays = from->arrays;
    return t;
}

void host_tensors_free(struct host_tensors *t)
{
    for (int i = 0; i < TENSOR_COUNT; i++)
        free(t->at[i]);
    for (int i = 0; i < QUANTISED_COUNT; i++)
        free(t->scales[i]);
    memset(t, 0, sizeof *t);
}

/* Copies each element between a strided tensor, a byte copy of device memory, and the contiguous fp32 array. */
static void convert(enum attn_dtype dtype, const struct attn_tensor *t, const struct tensor_shape *s, void *strided,
                    float *packed, bool to_strided)
{
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
                             enum problem_tensor tensor, float *packed, bool to_device, struct attn_message *why)
{
    const struct attn_problem *p = &item->problem;
    const struct buffer *buffer = &set->buffers[tensor];
    const struct attn_tensor strided = tensor_of(p, &set->tensors, tensor);
    const struct tensor_shape shape = tensor_shape_of(p, tensor);
    void *host = xmalloc(buffer->bytes);
    enum attn_status status = be->ops->download(be, host, buffer->data, buffer->bytes, why);
    if (status == ATTN_OK)
        convert(tensor_dtype_of(p, tensor), &strided, &shape, host, packed, to_device);
    if (status == ATTN_OK && to_device)
        status = be->ops->upload(be, buffer->data, host, buffer->bytes, why);
    free(host);
    return status;
}

enum attn_status host_tensors_write(struct backend *be, const struct plan_item *item, const struct host_tensors *from,
                                    const struct tensor_set *to, struct attn_message *why)
{
    for (int i = 0; i < TENSOR_COUNT; i++)
        if (to->buffers[i].base)
            TRY(move(be, item, to, (enum problem_tensor)i, from->at[i], true, why));
    for (int i = 0; i < QUANTISED_COUNT; i++)
        if (to->scales[i].base) {
            memcpy(to->scale_values[i], from->scales[i], to->scales[i].bytes);
            TRY(be->ops->upload(be, to->scales[i].data, from->scales[i], to->scales[i].bytes, why));
        }
    return ATTN_OK;
}

enum attn_status host_tensors_read(struct backend *be, const struct plan_item *item, const struct tensor_set *from,
                                   struct host_tensors *to, struct attn_message *why)
{
    for (int i = 0; i < TENSOR_COUNT; i++)
        if (from->buffers[i].base)
            TRY(move(be, item, from, (enum problem_tensor)i, to->at[i], false, why));
    for (int i = 0; i < QUANTISED_COUNT; i++)
        if (from->scales[i].base)
            memcpy(to->scales[i], from->scale_values[i], from->scales[i].bytes);
    to->arrays = item->arrays;
    return ATTN_OK;
}
