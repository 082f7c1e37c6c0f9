/* Guarded buffers and the sets of tensors of one problem. */
#include "cmd/device/buffers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/device/backend.h"

static size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

enum attn_status buffer_alloc(struct backend *be, size_t bytes, struct buffer *buffer, struct attn_message *why)
{
    return buffer_alloc_at(be, 0, bytes, buffer, why);
}

static size_t guard_before(const struct buffer *buffer)
{
    return (size_t)((char *)buffer->data - (char *)buffer->base);
}

enum attn_status buffer_alloc_at(struct backend *be, size_t offset, size_t bytes, struct buffer *buffer,
                                 struct attn_message *why)
{
    memset(buffer, 0, sizeof *buffer);
    if (bytes > SIZE_MAX / 2) { /* such a size, perhaps a negative number in a plugin, would overflow with the guards */
        snprintf(why->text, sizeof why->text, "%zu bytes are more than any memory has", bytes);
        return ATTN_NO_MEMORY;
    }
    TRY(be->ops->alloc(be, offset + 2 * (size_t)GUARD_BYTES + rounded(bytes), &buffer->base, why));
    buffer->data = (char *)buffer->base + GUARD_BYTES + offset;
    buffer->bytes = bytes;
    if (bytes % 4)
        TRY(be->ops->pattern(be, (char *)buffer->data + bytes / 4 * 4, 4, CANARY_PATTERN, why));
    return buffer_guard(be, buffer, why);
}

enum attn_status buffer_guard(struct backend *be, const struct buffer *buffer, struct attn_message *why)
{
    const size_t end = (buffer->bytes + 3) / 4 * 4; /* the data may end inside a word; those bytes are not checked */
    if (!buffer->base)
        return ATTN_OK;
    TRY(be->ops->pattern(be, buffer->base, guard_before(buffer), CANARY_PATTERN, why));
    return be->ops->pattern(be, (char *)buffer->data + end, rounded(buffer->bytes) - end + GUARD_BYTES, CANARY_PATTERN,
                            why);
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
    TRY(be->ops->count_mismatch(be, buffer->base, guard_before(buffer), CANARY_PATTERN, &before, why));
    TRY(be->ops->count_mismatch(be, (char *)buffer->data + end, rounded(buffer->bytes) - end + GUARD_BYTES,
                                CANARY_PATTERN, &behind, why));
    *words = before + behind;
    return ATTN_OK;
}

enum attn_status buffer_overrun(struct backend *be, const struct buffer *buffer, bool *is_overrun,
                                struct attn_message *why)
{
    enum { END_BYTES = 64 };
    uint64_t before = 0, behind = 0;
    *is_overrun = false;
    if (!buffer->base)
        return ATTN_OK;
    const char *end = (const char *)buffer->data + rounded(buffer->bytes) + GUARD_BYTES;
    TRY(be->ops->count_mismatch(be, buffer->base, END_BYTES, CANARY_PATTERN, &before, why));
    TRY(be->ops->count_mismatch(be, end - END_BYTES, END_BYTES, CANARY_PATTERN, &behind, why));
    *is_overrun = before || behind;
    return ATTN_OK;
}

static bool is_bias(enum problem_tensor tensor) { return tensor == TENSOR_BIAS || tensor == TENSOR_DBIAS; }

struct tensor_shape tensor_shape_of(const struct attn_problem *p, enum problem_tensor tensor)
{
    const bool is_kv = tensor == TENSOR_K || tensor == TENSOR_V || tensor == TENSOR_DK || tensor == TENSOR_DV;
    const bool is_qk = tensor == TENSOR_Q || tensor == TENSOR_K || tensor == TENSOR_DQ || tensor == TENSOR_DK;
    const int64_t heads = is_kv ? p->kv_heads : p->q_heads;
    if (tensor == TENSOR_DSINK)
        return (struct tensor_shape){1, heads, 1, 1};
    if (is_bias(tensor))
        return (struct tensor_shape){p->bias_batch, p->bias_heads, p->q_len, p->kv_len};
    const int64_t head_dim = tensor == TENSOR_LSE ? 1 : is_qk ? p->head_dim : attn_v_head_dim(p);
    if (is_kv ? p->lengths == ATTN_PACKED : attn_rows_are_packed(p))
        return (struct tensor_shape){1, heads, is_kv ? p->total_k : p->total_q, head_dim};
    if (is_kv && p->page_size > 0)
        return (struct tensor_shape){p->pages, heads, p->page_size, head_dim};
    return (struct tensor_shape){p->batch, heads, is_kv ? p->kv_len : p->q_len, head_dim};
}

struct tensor_shape tensor_file_shape_of(const struct attn_problem *p, enum problem_tensor tensor)
{
    struct attn_problem contiguous = *p;
    contiguous.page_size = 0;
    return tensor_shape_of(&contiguous, tensor);
}

enum attn_dtype tensor_dtype_of(const struct attn_problem *p, enum problem_tensor tensor)
{
    if (is_bias(tensor))
        return p->bias_dtype;
    if (tensor == TENSOR_K || tensor == TENSOR_V)
        return attn_kv_dtype(p);
    return problem_is_array(tensor) ? ATTN_FP32 : tensor == TENSOR_Q ? p->dtype : attn_output_dtype(p);
}

/* NULL for those that have no strides. */
static struct attn_tensor *strided(struct attn_tensors *t, enum problem_tensor tensor)
{
    struct attn_tensor *const all[TENSOR_COUNT] = {
        [TENSOR_Q] = &t->q,       [TENSOR_K] = &t->k,         [TENSOR_V] = &t->v,   [TENSOR_O] = &t->o,
        [TENSOR_DO] = &t->dout,   [TENSOR_DQ] = &t->dq,       [TENSOR_DK] = &t->dk, [TENSOR_DV] = &t->dv,
        [TENSOR_BIAS] = &t->bias, [TENSOR_DBIAS] = &t->dbias,
    };
    return all[tensor];
}

struct attn_tensor tensor_of(const struct attn_problem *p, const struct attn_tensors *t, enum problem_tensor tensor)
{
    struct attn_tensors copy = *t;
    const struct attn_tensor *found = strided(&copy, tensor);
    const struct tensor_shape s = tensor_shape_of(p, tensor);
    void *const data = tensor == TENSOR_LSE ? copy.lse : copy.dsink;
    return found ? *found : (struct attn_tensor){data, s.heads * s.len, s.len, 1};
}

void tensor_point_at(struct attn_tensors *t, enum problem_tensor tensor, void *memory)
{
    struct attn_tensor *to = strided(t, tensor);
    if (to)
        to->data = memory;
    else if (tensor == TENSOR_LSE)
        t->lse = memory;
    else
        t->dsink = memory;
}

static bool is_of_packed_qkv(enum problem_tensor tensor)
{
    return tensor == TENSOR_Q || tensor == TENSOR_K || tensor == TENSOR_V || tensor == TENSOR_DQ ||
           tensor == TENSOR_DK || tensor == TENSOR_DV;
}

static struct attn_tensor strides_of(const struct plan_item *item, enum problem_tensor tensor)
{
    const struct attn_problem *p = &item->problem;
    const struct tensor_shape s = tensor_shape_of(p, tensor);
    const int64_t own = item->strides == PLAN_OWN_STRIDES ? PLAN_OWN_PADDING * ((int64_t)tensor + 1) : 0;
    const int64_t padding = item->strides == PLAN_PADDED_ROWS ? PLAN_ROW_PADDING : own;
    int64_t heads = s.heads;
    if (is_bias(tensor)) { /* [batch, heads, rows, keys] in every layout, rows on 16-byte boundaries */
        struct attn_tensor bias = problem_strides(ATTN_BHSD, heads, s.len, (s.head_dim + 7) / 8 * 8 + padding);
        bias.stride_batch += item->batch_gap + own;
        return bias;
    }
    if (item->strides == PLAN_PACKED_QKV && is_of_packed_qkv(tensor))
        heads = p->q_heads + 2 * p->kv_heads;
    struct attn_tensor t = problem_strides(p->layout, heads, s.len, s.head_dim + padding);
    t.stride_batch += item->batch_gap + own;
    return t;
}

/* Elements before the tensor: of one packed tensor, the heads of Q before those of K, then V. */
static int64_t offset_of(const struct plan_item *item, enum problem_tensor tensor)
{
    const struct attn_problem *p = &item->problem;
    if (item->strides != PLAN_PACKED_QKV)
        return 0;
    if (tensor == TENSOR_K || tensor == TENSOR_DK)
        return p->q_heads * p->head_dim;
    return tensor == TENSOR_V || tensor == TENSOR_DV ? (p->q_heads + p->kv_heads) * p->head_dim : 0;
}

static size_t bytes_of(const struct plan_item *item, enum problem_tensor tensor)
{
    const struct tensor_shape s = tensor_shape_of(&item->problem, tensor);
    const struct attn_tensor t = strides_of(item, tensor);
    const int64_t elements =
        problem_is_array(tensor) ? s.batch * s.heads * s.len : problem_extent(&t, s.batch, s.heads, s.len, s.head_dim);
    return (size_t)elements * attn_dtype_bytes(tensor_dtype_of(&item->problem, tensor));
}

/* Bytes of its elements, without what lies between its rows. */
static size_t bytes_of_elements(const struct plan_item *item, enum problem_tensor tensor)
{
    const struct tensor_shape s = tensor_shape_of(&item->problem, tensor);
    return (size_t)(s.batch * s.heads * s.len * s.head_dim) * attn_dtype_bytes(tensor_dtype_of(&item->problem, tensor));
}

static enum attn_status make_tensor(struct backend *be, const struct plan_item *item, enum problem_tensor tensor,
                                    struct tensor_set *set, struct attn_message *why)
{
    struct buffer *buffer = &set->buffers[tensor];
    const size_t offset = (size_t)offset_of(item, tensor) * attn_dtype_bytes(tensor_dtype_of(&item->problem, tensor));
    TRY(buffer_alloc_at(be, offset, bytes_of(item, tensor), buffer, why));
    if (buffer->bytes > bytes_of_elements(item, tensor)) /* who reads between the rows gets NaN */
        TRY(be->ops->pattern(be, buffer->data, buffer->bytes, POISON_PATTERN, why));
    struct attn_tensor *to = strided(&set->tensors, tensor);
    if (to)
        *to = strides_of(item, tensor);
    tensor_point_at(&set->tensors, tensor, buffer->data);
    return ATTN_OK;
}

/* Memory for the arrays of lengths, pages and masks. */
static enum attn_status make_arrays(struct backend *be, const struct plan_item *item, struct tensor_set *set,
                                    struct attn_message *why)
{
    const void *on_device[ARRAY_COUNT] = {NULL};
    for (int i = 0; i < ARRAY_COUNT; i++) {
        size_t bytes;
        if (!problem_array(&item->problem, item->arrays, (enum problem_array)i, &bytes))
            continue;
        TRY(buffer_alloc(be, bytes, &set->arrays[i], why));
        on_device[i] = set->arrays[i].data;
    }
    problem_point_at(&set->tensors, on_device);
    return ATTN_OK;
}

/* Memory for the scales of 8-bit inputs. */
static enum attn_status make_scales(struct backend *be, const struct plan_item *item, struct tensor_set *set,
                                    struct attn_message *why)
{
    const float **const to[QUANTISED_COUNT] = {&set->tensors.scale_q, &set->tensors.scale_k, &set->tensors.scale_v};
    for (int i = 0; i < QUANTISED_COUNT; i++) {
        if (!quantise_has(&item->problem, (enum quantised)i))
            continue;
        if (i == QUANTISED_V && attn_v_is_in_k(&item->problem)) {
            set->tensors.scale_v = set->tensors.scale_k;
            continue;
        }
        const size_t bytes = (size_t)quantise_scales(&item->problem, (enum quantised)i) * sizeof(float);
        TRY(buffer_alloc(be, bytes, &set->scales[i], why));
        set->scale_values[i] = xcalloc(1, bytes);
        *to[i] = set->scales[i].data;
    }
    return ATTN_OK;
}

enum attn_status inputs_allocate(struct backend *be, const struct plan_item *item, struct tensor_set *set,
                                 struct attn_message *why)
{
    static const enum problem_tensor needed[] = {TENSOR_Q, TENSOR_K, TENSOR_V, TENSOR_DO, TENSOR_O, TENSOR_LSE};
    memset(set, 0, sizeof *set);
    set->quant_ms = NAN;
    TRY(make_arrays(be, item, set, why));
    TRY(make_scales(be, item, set, why));
    for (int i = 0; i < (item->mode == ATTN_FWD ? 3 : 6); i++)
        if (!(needed[i] == TENSOR_V && attn_v_is_in_k(&item->problem)))
            TRY(make_tensor(be, item, needed[i], set, why));
    if (attn_v_is_in_k(&item->problem))
        set->tensors.v = set->tensors.k;
    return item->problem.bias_heads > 0 ? make_tensor(be, item, TENSOR_BIAS, set, why) : ATTN_OK;
}

enum attn_status outputs_make(struct backend *be, const struct plan_item *item, const struct tensor_set *inputs,
                              struct tensor_set *set, struct attn_message *why)
{
    memset(set, 0, sizeof *set);
    set->tensors = inputs->tensors;
    int count;
    const enum problem_tensor *outputs = problem_outputs(&item->problem, item->mode, &count);
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

enum attn_status output_gaps_broken(struct backend *be, const struct plan_item *item, const struct tensor_set *set,
                                    enum problem_tensor tensor, uint64_t *words, struct attn_message *why)
{
    const struct buffer *buffer = &set->buffers[tensor];
    const size_t of_elements = bytes_of_elements(item, tensor);
    *words = 0;
    if (buffer->bytes == of_elements)
        return ATTN_OK;
    /* Rows begin at a word; one of a bias may end within one, whose rest is not looked at. */
    const struct tensor_shape s = tensor_shape_of(&item->problem, tensor);
    const size_t row_bytes = (size_t)s.head_dim * attn_dtype_bytes(tensor_dtype_of(&item->problem, tensor));
    const uint64_t of_rows = (uint64_t)(s.batch * s.heads * s.len) * ((row_bytes + 3) / 4);
    TRY(be->ops->count_mismatch(be, buffer->data, buffer->bytes, POISON_PATTERN, words, why));
    *words -= *words < of_rows ? *words : of_rows;
    return ATTN_OK;
}

enum attn_status tensor_set_overrun(struct backend *be, const struct tensor_set *set, bool *is_overrun,
                                    struct attn_message *why)
{
    *is_overrun = false;
    for (int i = 0; i < TENSOR_COUNT; i++) {
        bool is_one = false;
        TRY(buffer_overrun(be, &set->buffers[i], &is_one, why));
        *is_overrun |= is_one;
    }
    for (int i = 0; i < ARRAY_COUNT; i++) {
        bool is_one = false;
        TRY(buffer_overrun(be, &set->arrays[i], &is_one, why));
        *is_overrun |= is_one;
    }
    for (int i = 0; i < QUANTISED_COUNT; i++) {
        bool is_one = false;
        TRY(buffer_overrun(be, &set->scales[i], &is_one, why));
        *is_overrun |= is_one;
    }
    return ATTN_OK;
}

enum attn_status tensor_set_guard(struct backend *be, const struct tensor_set *set, struct attn_message *why)
{
    for (int i = 0; i < TENSOR_COUNT; i++)
        TRY(buffer_guard(be, &set->buffers[i], why));
    for (int i = 0; i < ARRAY_COUNT; i++)
        TRY(buffer_guard(be, &set->arrays[i], why));
    for (int i = 0; i < QUANTISED_COUNT; i++)
        TRY(buffer_guard(be, &set->scales[i], why));
    return ATTN_OK;
}

void tensor_set_free(struct backend *be, struct tensor_set *set)
{
    for (int i = 0; i < TENSOR_COUNT; i++)
        buffer_free(be, &set->buffers[i]);
    for (int i = 0; i < ARRAY_COUNT; i++)
        buffer_free(be, &set->arrays[i]);
    for (int i = 0; i < QUANTISED_COUNT; i++) {
        buffer_free(be, &set->scales[i]);
        free(set->scale_values[i]);
        set->scale_values[i] = NULL;
    }
}

struct column_signs tensor_signs(const struct input_signs *signs, enum problem_tensor tensor)
{
    struct column_signs of = {.kept = 0};
    if (tensor == TENSOR_Q || tensor == TENSOR_K || tensor == TENSOR_DQ || tensor == TENSOR_DK)
        of = signs->qk;
    else if (tensor < TENSOR_LSE)
        of = signs->v;
    of.seeds[0] = tensor < TENSOR_COUNT ? signs->elements[tensor] : 0;
    return of;
}

static struct column_signs difference(const struct column_signs *a, const struct column_signs *b)
{
    struct column_signs changed = {.kept = a->kept > b->kept ? a->kept : b->kept};
    for (size_t i = 0; i < sizeof changed.negated / sizeof changed.negated[0]; i++)
        changed.negated[i] = a->negated[i] ^ b->negated[i];
    if (a->seeds[0] != b->seeds[0]) {
        changed.seeds[0] = a->seeds[0];
        changed.seeds[1] = b->seeds[0];
    }
    return changed;
}

enum attn_status inputs_change_signs(struct backend *be, const struct plan_item *item, struct tensor_set *inputs,
                                     const struct input_signs *to, struct attn_message *why)
{
    const struct attn_problem *p = &item->problem;
    for (enum problem_tensor t = TENSOR_Q; t < TENSOR_LSE; t++) {
        if (!inputs->buffers[t].base)
            continue;
        const struct column_signs now = tensor_signs(&inputs->signs, t), wanted = tensor_signs(to, t);
        const struct column_signs change = difference(&now, &wanted);
        const struct tensor_shape s = tensor_shape_of(p, t);
        TRY(be->ops->flip(be, tensor_of(p, &inputs->tensors, t), attn_dtype_bytes(tensor_dtype_of(p, t)), s.batch,
                          s.heads, s.len, s.head_dim, &change, why));
    }
    inputs->signs = *to;
    return ATTN_OK;
}

static struct digest_job digest_job_of(const struct plan_item *item, const struct tensor_set *set,
                                       enum problem_tensor tensor)
{
    const struct attn_problem *p = &item->problem;
    const struct tensor_shape s = tensor_shape_of(p, tensor);
    return (struct digest_job){.tensor = tensor_of(p, &set->tensors, tensor),
                               .element_bytes = attn_dtype_bytes(tensor_dtype_of(p, tensor)),
                               .batch = s.batch,
                               .heads = s.heads,
                               .len = s.len,
                               .head_dim = s.head_dim,
                               .signs = tensor_signs(&set->signs, tensor)};
}

enum attn_status inputs_hash(struct backend *be, const struct plan_item *item, const struct tensor_set *set,
                             uint64_t *hash, struct attn_message *why)
{
    struct digest_job jobs[DIGEST_MAX];
    struct digest digests[DIGEST_MAX];
    int count = 0;
    for (enum problem_tensor t = TENSOR_Q; t < TENSOR_COUNT; t++)
        if (set->buffers[t].base)
            jobs[count++] = digest_job_of(item, set, t);
    TRY(be->ops->digest(be, jobs, count, digests, why));
    *hash = 0;
    for (int i = 0; i < count; i++)
        *hash = *hash * 31 + digests[i].hash;
    return ATTN_OK;
}

enum attn_status outputs_digest(struct backend *be, const struct plan_item *item, const struct tensor_set *set,
                                struct digest digests[TENSOR_COUNT], struct attn_message *why)
{
    struct digest_job jobs[DIGEST_MAX];
    struct digest in_order[DIGEST_MAX];
    int count;
    const enum problem_tensor *outputs = problem_outputs(&item->problem, item->mode, &count);
    memset(digests, 0, TENSOR_COUNT * sizeof *digests);
    for (int i = 0; i < count; i++)
        jobs[i] = digest_job_of(item, set, outputs[i]);
    TRY(be->ops->digest(be, jobs, count, in_order, why));
    for (int i = 0; i < count; i++)
        digests[outputs[i]] = in_order[i];
    return ATTN_OK;
}

double tensor_set_bytes(const struct plan_item *item)
{
    double bytes = (double)bytes_of(item, TENSOR_LSE);
    if (item->problem.bias_heads > 0)
        bytes += (double)bytes_of(item, TENSOR_BIAS) * (item->mode == ATTN_BWD ? 2 : 1);
    if (item->problem.has_sink && item->mode == ATTN_BWD)
        bytes += (double)bytes_of(item, TENSOR_DSINK);
    const int last = item->mode == ATTN_FWD ? TENSOR_O : TENSOR_DV;
    for (int i = 0; i <= last; i++)
        if (!(i == TENSOR_V && attn_v_is_in_k(&item->problem)))
            bytes += (double)bytes_of(item, (enum problem_tensor)i);
    for (int i = 0; i < ARRAY_COUNT; i++) {
        size_t array_bytes;
        problem_array(&item->problem, item->arrays, (enum problem_array)i, &array_bytes);
        bytes += (double)array_bytes;
    }
    for (int i = 0; i < QUANTISED_COUNT; i++)
        if (quantise_has(&item->problem, (enum quantised)i))
            bytes += (double)quantise_scales(&item->problem, (enum quantised)i) * sizeof(float);
    return bytes;
}
