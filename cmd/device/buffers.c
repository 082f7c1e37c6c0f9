/* Guarded buffers and the tensors of one problem. */
#include "cmd/device/buffers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/npy.h"
#include "cmd/device/status.h"

static const enum attn_dtype npy_dtypes[] = {
    [NPY_FLOAT32] = ATTN_FP32, [NPY_FLOAT16] = ATTN_FP16, [NPY_UINT16] = ATTN_BF16};

/* npy_read with the error as an attn_message. */
static bool read_npy(const char *path, struct npy *file, struct attn_message *why)
{
    struct reason reason;
    const bool good = npy_read(path, file, &reason);
    if (!good)
        snprintf(why->text, sizeof why->text, "%s", reason.text);
    return good;
}

static size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

enum attn_status buffer_alloc(struct backend *be, size_t bytes, struct buffer *buffer, struct attn_message *why)
{
    memset(buffer, 0, sizeof *buffer);
    TRY(be->ops->alloc(be, 2 * (size_t)GUARD_BYTES + rounded(bytes), &buffer->base, why));
    buffer->data = (char *)buffer->base + GUARD_BYTES;
    buffer->bytes = bytes;
    TRY(be->ops->pattern(be, buffer->base, GUARD_BYTES, CANARY_PATTERN, why));
    const size_t end = bytes / 4 * 4; /* the data may end inside a word; those bytes are not checked */
    return be->ops->pattern(be, (char *)buffer->data + end, rounded(bytes) - end + GUARD_BYTES, CANARY_PATTERN, why);
}

void buffer_free(struct backend *be, struct buffer *buffer)
{
    if (buffer->base)
        be->ops->release(be, buffer->base);
    memset(buffer, 0, sizeof *buffer);
}

enum attn_status buffer_guards_broken(struct backend *be, const struct buffer *buffer, uint64_t *words,
                                      struct attn_message *why)
{
    uint64_t before = 0, behind = 0;
    const size_t end = (buffer->bytes + 3) / 4 * 4;
    TRY(be->ops->count_mismatch(be, buffer->base, GUARD_BYTES, CANARY_PATTERN, &before, why));
    TRY(be->ops->count_mismatch(be, (char *)buffer->data + end, rounded(buffer->bytes) - end + GUARD_BYTES,
                                CANARY_PATTERN, &behind, why));
    *words = before + behind;
    return ATTN_OK;
}

struct tensor_shape tensor_shape_of(const struct attn_problem *p, enum problem_tensor tensor)
{
    const bool is_kv = tensor == TENSOR_K || tensor == TENSOR_V || tensor == TENSOR_DK || tensor == TENSOR_DV;
    return (struct tensor_shape){p->batch, is_kv ? p->kv_heads : p->q_heads, is_kv ? p->kv_len : p->q_len,
                                 tensor == TENSOR_LSE ? 1 : p->head_dim};
}

enum attn_dtype tensor_dtype_of(const struct attn_problem *p, enum problem_tensor tensor)
{
    return tensor == TENSOR_LSE ? ATTN_FP32 : p->dtype;
}

/* NULL for LSE, which has no strides. */
static struct attn_tensor *strided(struct attn_tensors *t, enum problem_tensor tensor)
{
    struct attn_tensor *const all[TENSOR_COUNT] = {
        [TENSOR_Q] = &t->q,     [TENSOR_K] = &t->k,   [TENSOR_V] = &t->v,   [TENSOR_O] = &t->o,
        [TENSOR_DO] = &t->dout, [TENSOR_DQ] = &t->dq, [TENSOR_DK] = &t->dk, [TENSOR_DV] = &t->dv,
    };
    return all[tensor];
}

struct attn_tensor tensor_of(const struct attn_problem *p, const struct attn_tensors *t, enum problem_tensor tensor)
{
    struct attn_tensors copy = *t;
    const struct attn_tensor *found = strided(&copy, tensor);
    return found ? *found : (struct attn_tensor){copy.lse, p->q_heads * p->q_len, p->q_len, 1};
}

static struct attn_tensor strides_of(const struct plan_item *item, enum problem_tensor tensor)
{
    const struct tensor_shape s = tensor_shape_of(&item->problem, tensor);
    struct attn_tensor t = problem_strides(item->problem.layout, s.heads, s.len, s.head_dim);
    t.stride_batch += item->batch_gap;
    return t;
}

static size_t bytes_of(const struct plan_item *item, enum problem_tensor tensor)
{
    const struct tensor_shape s = tensor_shape_of(&item->problem, tensor);
    const struct attn_tensor t = strides_of(item, tensor);
    const int64_t elements =
        tensor == TENSOR_LSE ? s.batch * s.heads * s.len : problem_extent(&t, s.batch, s.heads, s.len, s.head_dim);
    return (size_t)elements * attn_dtype_bytes(tensor_dtype_of(&item->problem, tensor));
}

static enum attn_status make_tensor(struct backend *be, const struct plan_item *item, enum problem_tensor tensor,
                                    struct tensor_set *set, struct attn_message *why)
{
    TRY(buffer_alloc(be, bytes_of(item, tensor), &set->buffers[tensor], why));
    struct attn_tensor *to = strided(&set->tensors, tensor);
    if (to) {
        *to = strides_of(item, tensor);
        to->data = set->buffers[tensor].data;
    } else {
        set->tensors.lse = set->buffers[tensor].data;
    }
    return ATTN_OK;
}

/* True when the element is still finite after conversion to the problem's dtype. */
static bool is_finite_in(const struct npy *file, int64_t element, enum attn_dtype dtype)
{
    float rounded = 0;
    fill_store(&rounded, dtype, 0, fill_load(file->data, npy_dtypes[file->type], element));
    return isfinite(fill_load(&rounded, dtype, 0));
}

/* Reads <dir>/<tensor>.npy and compares its shape with the problem's. */
static bool read_input(const struct plan_item *item, enum problem_tensor tensor, const char *dir, struct npy *file,
                       struct attn_message *why)
{
    char *path = xasprintf("%s/%s.npy", dir, problem_tensor_name(tensor));
    const struct tensor_shape s = tensor_shape_of(&item->problem, tensor);
    const int64_t want[4] = {s.batch, s.heads, s.len, s.head_dim};
    bool fits = read_npy(path, file, why);
    if (fits && (file->dims != 4 || memcmp(file->shape, want, sizeof want))) {
        snprintf(why->text, sizeof why->text, "%s: its shape is not [%lld, %lld, %lld, %lld]", path, (long long)want[0],
                 (long long)want[1], (long long)want[2], (long long)want[3]);
        npy_free(file);
        fits = false;
    }
    for (int64_t i = 0; fits && i < s.batch * s.heads * s.len * s.head_dim; i++)
        if (!is_finite_in(file, i, item->problem.dtype)) {
            snprintf(why->text, sizeof why->text, "%s: element %lld is not finite in %s: no result could be judged",
                     path, (long long)i, problem_dtype_name(item->problem.dtype));
            npy_free(file);
            fits = false;
        }
    free(path);
    return fits;
}

bool inputs_readable(const struct plan_item *item, const char *input_dir, struct attn_message *why)
{
    static const enum problem_tensor inputs[] = {TENSOR_Q, TENSOR_K, TENSOR_V, TENSOR_DO};
    for (int i = 0; i < (item->mode == ATTN_FWD ? 3 : 4); i++) {
        struct npy file;
        if (!read_input(item, inputs[i], input_dir, &file, why))
            return false;
        npy_free(&file);
    }
    return true;
}

/* Copies the file's elements into the tensor's memory layout, rounded to the problem's dtype. */
static enum attn_status upload_npy(struct backend *be, const struct plan_item *item, enum problem_tensor tensor,
                                   const char *dir, struct tensor_set *set, struct attn_message *why)
{
    struct npy file;
    const struct tensor_shape s = tensor_shape_of(&item->problem, tensor);
    const struct attn_tensor t = tensor_of(&item->problem, &set->tensors, tensor);
    const struct buffer *buffer = &set->buffers[tensor];
    if (!read_input(item, tensor, dir, &file, why))
        return ATTN_ERROR;
    void *host = xcalloc(1, buffer->bytes);
    int64_t n = 0;
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t i = 0; i < s.len; i++)
                for (int64_t c = 0; c < s.head_dim; c++, n++)
                    fill_store(host, item->problem.dtype, b * t.stride_batch + h * t.stride_head + i * t.stride_row + c,
                               fill_load(file.data, npy_dtypes[file.type], n));
    const enum attn_status status = be->ops->upload(be, buffer->data, host, buffer->bytes, why);
    free(host);
    npy_free(&file);
    return status;
}

/* FILL_PEAK: row i of Q becomes 64 times the last key that a causal row i sees, on the host. */
static enum attn_status plant_peaks(struct backend *be, const struct plan_item *item, struct tensor_set *set,
                                    struct attn_message *why)
{
    const struct attn_problem *p = &item->problem;
    const struct attn_tensor *q = &set->tensors.q, *k = &set->tensors.k;
    const struct buffer *q_buffer = &set->buffers[TENSOR_Q], *k_buffer = &set->buffers[TENSOR_K];
    char *q_host = xmalloc(q_buffer->bytes), *k_host = xmalloc(k_buffer->bytes);
    enum attn_status status = be->ops->download(be, q_host, q_buffer->data, q_buffer->bytes, why);
    if (status == ATTN_OK)
        status = be->ops->download(be, k_host, k_buffer->data, k_buffer->bytes, why);
    for (int64_t b = 0; b < p->batch && status == ATTN_OK; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < p->q_len; i++) {
                const int64_t diagonal = i + p->kv_len - p->q_len, j = diagonal < 0 ? 0 : diagonal;
                const int64_t to = b * q->stride_batch + h * q->stride_head + i * q->stride_row;
                const int64_t from =
                    b * k->stride_batch + h / (p->q_heads / p->kv_heads) * k->stride_head + j * k->stride_row;
                for (int64_t c = 0; c < p->head_dim; c++)
                    fill_store(q_host, p->dtype, to + c, 64 * fill_load(k_host, p->dtype, from + c));
            }
    if (status == ATTN_OK)
        status = be->ops->upload(be, q_buffer->data, q_host, q_buffer->bytes, why);
    free(q_host);
    free(k_host);
    return status;
}

static enum attn_status fill_input(struct backend *be, const struct plan_item *item, enum problem_tensor tensor,
                                   enum fill_tensor id, const char *input_dir, struct tensor_set *set,
                                   struct attn_message *why)
{
    const struct tensor_shape s = tensor_shape_of(&item->problem, tensor);
    TRY(make_tensor(be, item, tensor, set, why));
    if (input_dir)
        return upload_npy(be, item, tensor, input_dir, set, why);
    return be->ops->fill(be, tensor_of(&item->problem, &set->tensors, tensor), item->problem.dtype, s.batch, s.heads,
                         s.len, s.head_dim, item->seed, item->dist, id, why);
}

enum attn_status inputs_make(struct backend *be, const struct plan_item *item, const char *input_dir,
                             struct tensor_set *set, struct attn_message *why)
{
    memset(set, 0, sizeof *set);
    TRY(fill_input(be, item, TENSOR_Q, FILL_Q, input_dir, set, why));
    TRY(fill_input(be, item, TENSOR_K, FILL_K, input_dir, set, why));
    TRY(fill_input(be, item, TENSOR_V, FILL_V, input_dir, set, why));
    if (item->dist == FILL_PEAK && !input_dir)
        TRY(plant_peaks(be, item, set, why));
    if (item->mode == ATTN_FWD)
        return ATTN_OK;
    TRY(fill_input(be, item, TENSOR_DO, FILL_DO, input_dir, set, why));
    TRY(make_tensor(be, item, TENSOR_O, set, why));
    return make_tensor(be, item, TENSOR_LSE, set, why);
}

enum attn_status outputs_make(struct backend *be, const struct plan_item *item, const struct tensor_set *inputs,
                              struct tensor_set *set, struct attn_message *why)
{
    memset(set, 0, sizeof *set);
    set->tensors = inputs->tensors;
    int count;
    const enum problem_tensor *outputs = problem_outputs(item->mode, &count);
    for (int i = 0; i < count; i++)
        TRY(make_tensor(be, item, outputs[i], set, why));
    return outputs_poison(be, set, why);
}

enum attn_status outputs_poison(struct backend *be, struct tensor_set *set, struct attn_message *why)
{
    for (int i = 0; i < TENSOR_COUNT; i++)
        if (set->buffers[i].base)
            TRY(be->ops->pattern(be, set->buffers[i].data, set->buffers[i].bytes, POISON_PATTERN, why));
    return ATTN_OK;
}

void tensor_set_free(struct backend *be, struct tensor_set *set)
{
    for (int i = 0; i < TENSOR_COUNT; i++)
        buffer_free(be, &set->buffers[i]);
}

enum attn_status inputs_hash(struct backend *be, const struct plan_item *item, const struct tensor_set *set,
                             uint64_t *hash, struct attn_message *why)
{
    *hash = 0;
    for (int i = 0; i < TENSOR_COUNT; i++) {
        uint64_t one = 0;
        if (!set->buffers[i].base)
            continue;
        TRY(tensor_hash(be, item, set, (enum problem_tensor)i, &one, why));
        *hash = *hash * 31 + one;
    }
    return ATTN_OK;
}

enum attn_status tensor_hash(struct backend *be, const struct plan_item *item, const struct tensor_set *set,
                             enum problem_tensor tensor, uint64_t *hash, struct attn_message *why)
{
    const struct attn_problem *p = &item->problem;
    const struct tensor_shape s = tensor_shape_of(p, tensor);
    return be->ops->hash(be, tensor_of(p, &set->tensors, tensor), attn_dtype_bytes(tensor_dtype_of(p, tensor)), s.batch,
                         s.heads, s.len, s.head_dim, hash, why);
}

double tensor_set_bytes(const struct plan_item *item)
{
    double bytes = (double)bytes_of(item, TENSOR_LSE);
    const int last = item->mode == ATTN_FWD ? TENSOR_O : TENSOR_DV;
    for (int i = 0; i <= last; i++)
        bytes += (double)bytes_of(item, (enum problem_tensor)i);
    return bytes;
}
