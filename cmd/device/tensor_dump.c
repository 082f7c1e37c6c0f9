/* Tensors from the device into .npy files, and tensors.json. */
#include "cmd/device/tensor_dump.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/base/npy.h"
#include "cmd/device/inputs.h"
#include "cmd/problem/problem_key.h"

/* How a dtype is stored in a file. */
static const struct {
    enum npy_type type;
    const char *text;
} storage[] = {[ATTN_FP32] = {NPY_FLOAT32, "float32"},
               [ATTN_FP16] = {NPY_FLOAT16, "float16"},
               [ATTN_BF16] = {NPY_UINT16, "uint16: bfloat16 bits"},
               [ATTN_E4M3] = {NPY_UINT8, "uint8: e4m3 bits"},
               [ATTN_E5M2] = {NPY_UINT8, "uint8: e5m2 bits"}};

/* How Python reads a file of such a dtype; the %s is its name. */
static char *numpy_text(enum attn_dtype stored, const char *name)
{
    switch (stored) {
    case ATTN_BF16: return xasprintf("(numpy.load('%s.npy').astype(numpy.uint32) << 16).view(numpy.float32)", name);
    case ATTN_E4M3: return xasprintf("numpy.load('%s.npy').view(ml_dtypes.float8_e4m3fn)", name);
    case ATTN_E5M2: return xasprintf("numpy.load('%s.npy').view(ml_dtypes.float8_e5m2)", name);
    default: return xasprintf("numpy.load('%s.npy')", name);
    }
}

static const char *const tensor_dimensions[4] = {"batch", "heads", "len", "head_dim"};

/* One dump: its folder and the content of tensors.json. */
struct dump {
    struct backend *backend;
    const struct plan_item *item;
    const struct tensor_set *set;
    const struct dump_reference *reference; /* may be NULL */
    const char *dir;
    enum dump_dtype dtype;
    json_t *files; /* owned; an array */
};

static enum attn_status write_npy(const struct dump *d, const char *name, const struct npy *file,
                                  struct attn_message *why)
{
    struct reason reason;
    char *path = xasprintf("%s/%s.npy", d->dir, name);
    const bool good = npy_write(path, file, &reason);
    free(path);
    if (!good)
        snprintf(why->text, sizeof why->text, "%s", reason.text);
    return good ? ATTN_OK : ATTN_ERROR;
}

/* A row of tensors.json: `computed` is the tensor's dtype, `stored` the one whose storage the file has. */
static enum attn_status describe(const struct dump *d, const char *tensor, const char *name, const struct npy *file,
                                 const char *const *dimensions, enum attn_dtype computed, enum attn_dtype stored,
                                 struct attn_message *why)
{
    json_t *shape = json_array(), *meaning = json_array();
    char *numpy = numpy_text(stored, name);
    for (int i = 0; i < file->dims; i++) {
        json_array_append_new(shape, json_integer(file->shape[i]));
        json_array_append_new(meaning, json_string(dimensions[i]));
    }
    json_t *row = json_pack("{s:s+, s:s, s:s, s:s, s:o, s:o, s:s}", "file", name, ".npy", "tensor", tensor, "dtype",
                            problem_dtype_name(computed), "stored_as", storage[stored].text, "shape", shape,
                            "dimensions", meaning, "numpy", numpy);
    free(numpy);
    if (json_array_append_new(d->files, row) == 0)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "tensors.json: out of memory");
    return ATTN_ERROR;
}

static bool is_output(const struct plan_item *item, enum problem_tensor tensor)
{
    int count;
    bool is_one = false;
    const enum problem_tensor *outputs = problem_outputs(&item->problem, item->mode, &count);
    for (int i = 0; i < count; i++)
        is_one |= outputs[i] == tensor;
    return is_one;
}

static const float *part_of(const struct dump_part *part, enum problem_tensor tensor)
{
    const float *const all[TENSOR_COUNT] = {
        [TENSOR_O] = part->outputs.o,        [TENSOR_LSE] = part->outputs.lse, [TENSOR_DQ] = part->outputs.dq,
        [TENSOR_DK] = part->outputs.dk,      [TENSOR_DV] = part->outputs.dv,   [TENSOR_DSINK] = part->outputs.dsink,
        [TENSOR_DBIAS] = part->outputs.dbias};
    return all[tensor];
}

/* Copies the elements of one part to their place in the whole tensor. */
static enum attn_status copy_part(const struct dump *d, const struct dump_part *part, enum problem_tensor tensor,
                                  const struct tensor_shape *whole, float *to, struct attn_message *why)
{
    const struct tensor_shape s = tensor_shape_of(&part->problem, tensor);
    const bool is_kv = tensor == TENSOR_DK || tensor == TENSOR_DV;
    const int64_t first_head = is_kv ? part->kv_head_offset : part->q_head_offset, head = s.len * s.head_dim;
    const size_t bytes = (size_t)(s.batch * s.heads * head) * sizeof(float);
    float *host = xmalloc(bytes);
    const enum attn_status status = d->backend->ops->download(d->backend, host, part_of(part, tensor), bytes, why);
    for (int64_t b = 0; b < s.batch && status == ATTN_OK; b++)
        for (int64_t h = 0; h < s.heads; h++)
            memcpy(to + (((part->batch_offset + b) * whole->heads + first_head + h) * whole->len + part->row_offset) *
                            whole->head_dim,
                   host + (b * s.heads + h) * head, (size_t)head * sizeof(float));
    free(host);
    return status;
}

/* Of a file: [batch, heads, len, head_dim], LSE without the last one; of dSink [1, q_heads]. */
static int file_dims(enum problem_tensor tensor) { return tensor == TENSOR_LSE ? 3 : tensor == TENSOR_DSINK ? 2 : 4; }

/* The reference's tensor, NaN where there is no part of it; the caller frees file->data. */
static enum attn_status read_reference(const struct dump *d, enum problem_tensor tensor, struct npy *file,
                                       struct attn_message *why)
{
    const struct tensor_shape s = tensor_shape_of(&d->item->problem, tensor);
    const int64_t elements = s.batch * s.heads * s.len * s.head_dim;
    enum attn_status status = ATTN_OK;
    *file = (struct npy){.dims = file_dims(tensor),
                         .shape = {s.batch, s.heads, s.len, s.head_dim},
                         .type = NPY_FLOAT32,
                         .bytes = (size_t)elements * sizeof(float)};
    float *values = file->data = xmalloc(file->bytes);
    for (int64_t i = 0; i < elements; i++)
        values[i] = NAN;
    for (int i = 0; i < d->reference->count && status == ATTN_OK; i++)
        status = copy_part(d, &d->reference->parts[i], tensor, &s, values, why);
    return status;
}

/* Writes the file as <tensor>_<suffix>.npy and describes it. */
static enum attn_status write_beside(const struct dump *d, enum problem_tensor tensor, const char *suffix,
                                     const struct npy *file, struct attn_message *why)
{
    char *name = xasprintf("%s_%s", problem_tensor_name(tensor), suffix);
    enum attn_status status = write_npy(d, name, file, why);
    if (status == ATTN_OK)
        status = describe(d, problem_tensor_name(tensor), name, file, tensor_dimensions, ATTN_FP32, ATTN_FP32, why);
    free(name);
    return status;
}

static enum attn_status write_reference(const struct dump *d, enum problem_tensor tensor, struct attn_message *why)
{
    struct npy file;
    enum attn_status status = read_reference(d, tensor, &file, why);
    if (status == ATTN_OK)
        status = write_beside(d, tensor, "reference", &file, why);
    npy_free(&file);
    return status;
}

/* result: the tensor as its file has it. */
static enum attn_status write_difference(const struct dump *d, enum problem_tensor tensor, const struct npy *result,
                                         enum attn_dtype dtype, struct attn_message *why)
{
    struct npy file;
    enum attn_status status = read_reference(d, tensor, &file, why);
    float *values = file.data;
    for (size_t i = 0; i < file.bytes / sizeof(float) && status == ATTN_OK; i++) {
        const float got = fill_load(result->data, dtype, (int64_t)i);
        values[i] = got == values[i] ? 0 : got - values[i]; /* equal infinities have no difference */
    }
    if (status == ATTN_OK)
        status = write_beside(d, tensor, "difference", &file, why);
    npy_free(&file);
    return status;
}

static enum attn_status dump_tensor(const struct dump *d, enum problem_tensor tensor, struct attn_message *why)
{
    const struct attn_problem *p = &d->item->problem;
    const struct tensor_shape s = tensor_file_shape_of(p, tensor);
    const struct buffer *buffer = &d->set->buffers[tensor];
    const enum attn_dtype from = tensor_dtype_of(p, tensor);
    /* 8-bit inputs stay what they are, beside their scales. */
    const enum attn_dtype to = d->dtype == DUMP_FP32 && !attn_dtype_is_8_bit(from) ? ATTN_FP32 : from;
    struct npy file = {
        .dims = file_dims(tensor), .shape = {s.batch, s.heads, s.len, s.head_dim}, .type = storage[to].type};
    file.bytes = (size_t)(s.batch * s.heads * s.len * s.head_dim) * attn_dtype_bytes(to);
    file.data = xmalloc(file.bytes);
    void *host = xmalloc(buffer->bytes);
    enum attn_status status = d->backend->ops->download(d->backend, host, buffer->data, buffer->bytes, why);
    int64_t n = 0;
    for (int64_t b = 0; b < s.batch && status == ATTN_OK; b++)
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t i = 0; i < s.len; i++, n += s.head_dim) {
                const int64_t row = tensor_file_row(d->item, &d->set->tensors, tensor, b, h, i);
                const size_t bytes = attn_dtype_bytes(from);
                if (row < 0)
                    memset((char *)file.data + (size_t)n * attn_dtype_bytes(to), 0xff,
                           (size_t)s.head_dim * attn_dtype_bytes(to)); /* NaN */
                else if (from == to)
                    memcpy((char *)file.data + (size_t)n * bytes, (char *)host + (size_t)row * bytes,
                           (size_t)s.head_dim * bytes);
                else
                    for (int64_t c = 0; c < s.head_dim; c++)
                        ((float *)file.data)[n + c] = fill_load(host, from, row + c);
            }
    if (status == ATTN_OK)
        status = write_npy(d, problem_tensor_name(tensor), &file, why);
    if (status == ATTN_OK)
        status = describe(d, problem_tensor_name(tensor), problem_tensor_name(tensor), &file, tensor_dimensions, from,
                          to, why);
    if (status == ATTN_OK && is_output(d->item, tensor) && d->reference && d->reference->count)
        status = write_difference(d, tensor, &file, to, why);
    free(host);
    npy_free(&file);
    return status;
}

/* The scales of an 8-bit input: one, [batch, kv_heads], or of blocks of rows. */
static enum attn_status dump_scales(const struct dump *d, enum quantised tensor, struct attn_message *why)
{
    static const char *const names[QUANTISED_COUNT] = {"scale_q", "scale_k", "scale_v"};
    static const char *const of_tensor[] = {"tensor"}, *const of_heads[] = {"batch", "kv_heads"},
                             *const of_blocks[] = {"batch", "heads", "blocks"}, *const packed[] = {"heads", "blocks"};
    const struct attn_problem *p = &d->item->problem;
    const int64_t heads = tensor == QUANTISED_Q ? p->q_heads : p->kv_heads, count = quantise_scales(p, tensor);
    const bool is_packed = tensor == QUANTISED_Q ? attn_rows_are_packed(p) : p->lengths == ATTN_PACKED;
    struct npy file = {.dims = 1, .shape = {1}, .type = NPY_FLOAT32, .bytes = (size_t)count * sizeof(float)};
    const char *const *dimensions = of_tensor;
    file.data = d->set->scale_values[tensor];
    if (p->quant_scale == ATTN_SCALE_HEAD) {
        file.dims = 2;
        file.shape[0] = p->batch;
        file.shape[1] = p->kv_heads;
        dimensions = of_heads;
    } else if (p->quant_scale == ATTN_SCALE_BLOCK) {
        const int64_t shape[4] = {p->batch, heads, count / heads / p->batch};
        const int64_t packed_shape[4] = {heads, count / heads};
        file.dims = is_packed ? 2 : 3;
        memcpy(file.shape, is_packed ? packed_shape : shape, sizeof file.shape);
        dimensions = is_packed ? packed : of_blocks;
    }
    TRY(write_npy(d, names[tensor], &file, why));
    return describe(d, names[tensor], names[tensor], &file, dimensions, ATTN_FP32, ATTN_FP32, why);
}

/* One of the arrays that say which rows and keys belong together and which are visible; nothing where the problem does
 * not have it. */
static enum attn_status dump_array(const struct dump *d, enum problem_array which, struct attn_message *why)
{
    const struct attn_problem *const p = &d->item->problem;
    const int64_t block = p->mask_block > 0 ? p->mask_block : 1;
    const int64_t pages = p->page_size > 0 ? (p->kv_len + p->page_size - 1) / p->page_size : 0;
    const struct {
        const char *name;
        enum npy_type type;
        int dims;
        int64_t shape[4];
        const char *dimensions[4];
    } arrays[ARRAY_COUNT] = {
        [ARRAY_CU_SEQLENS_Q] = {"cu_seqlens_q", NPY_INT32, 1, {p->batch + 1}, {"batch + 1"}},
        [ARRAY_CU_SEQLENS_K] = {"cu_seqlens_k", NPY_INT32, 1, {p->batch + 1}, {"batch + 1"}},
        [ARRAY_SEQUSED_K] = {"seqused_k", NPY_INT32, 1, {p->batch}, {"batch"}},
        [ARRAY_PAGE_TABLE] = {"page_table", NPY_INT32, 2, {p->batch, pages}, {"batch", "pages"}},
        [ARRAY_BLOCK_MASK] = {"block_mask",
                              NPY_UINT8,
                              4,
                              {p->mask_batch, p->mask_heads, (p->q_len + block - 1) / block,
                               (p->kv_len + block - 1) / block},
                              {"batch or 1", "heads or 1", "blocks of q_len", "blocks of kv_len"}},
    };
    struct npy file = {.dims = arrays[which].dims, .type = arrays[which].type};
    const void *const array = problem_array(p, d->item->arrays, which, &file.bytes);
    if (!array || !arrays[which].name)
        return ATTN_OK;
    json_t *shape = json_array(), *meaning = json_array();
    for (int i = 0; i < file.dims; i++) {
        file.shape[i] = arrays[which].shape[i];
        json_array_append_new(shape, json_integer(file.shape[i]));
        json_array_append_new(meaning, json_string(arrays[which].dimensions[i]));
    }
    file.data = (void *)(uintptr_t)array;
    const char *type = file.type == NPY_INT32 ? "int32" : "uint8", *name = arrays[which].name;
    json_t *row =
        json_pack("{s:s+, s:s, s:s, s:s, s:o, s:o, s:s++}", "file", name, ".npy", "tensor", name, "dtype", type,
                  "stored_as", type, "shape", shape, "dimensions", meaning, "numpy", "numpy.load('", name, ".npy')");
    if (json_array_append_new(d->files, row) == 0)
        return write_npy(d, name, &file, why);
    snprintf(why->text, sizeof why->text, "tensors.json: out of memory");
    return ATTN_ERROR;
}

static enum attn_status dump_sink(const struct dump *d, struct attn_message *why)
{
    static const char *const of_heads[] = {"q_heads"};
    const int64_t heads = d->item->problem.q_heads;
    struct npy file = {.dims = 1, .shape = {heads}, .type = NPY_FLOAT32, .bytes = (size_t)heads * sizeof(float)};
    file.data = d->item->arrays->sink;
    TRY(write_npy(d, "sink", &file, why));
    return describe(d, "sink", "sink", &file, of_heads, ATTN_FP32, ATTN_FP32, why);
}

/* The fields of the problem that a plan is made from again. */
static json_t *problem_of(const struct plan_item *item)
{
    const struct problem_key key = plan_item_key(item, L2_COLD);
    json_t *object = json_object();
    for (int i = 0; i < problem_field_count; i++) {
        const struct problem_field *field = &problem_fields[i];
        const void *value = (const char *)&key + field->offset;
        char text[PROBLEM_TEXT_SIZE];
        if (field->may_be_empty && !*problem_field_text(field, &key, text, sizeof text))
            continue;
        json_t *written = field->kind == PROBLEM_NAME    ? json_string(field->names[*(const int *)value])
                          : field->kind == PROBLEM_TEXT  ? json_string(value)
                          : field->kind == PROBLEM_COUNT ? json_integer(*(const int64_t *)value)
                                                         : json_real(*(const double *)value);
        if (strcmp(field->name, "l2") != 0) /* of the measurement */
            json_object_set_new(object, field->name, written);
        else
            json_decref(written);
    }
    if (item->batch_gap)
        json_object_set_new(object, "batch_gap", json_integer(item->batch_gap));
    if (item->strides)
        json_object_set_new(object, "strides", json_string(plan_strides_names[item->strides]));
    return object;
}

/* Written to a temporary file and renamed, so that tensors.json is complete or absent. */
static enum attn_status write_description(const struct dump *d, struct attn_message *why)
{
    char *path = xasprintf("%s/tensors.json", d->dir), *draft = xasprintf("%s.%ld.tmp", path, (long)getpid());
    json_t *root = json_pack("{s:o, s:O}", "problem", problem_of(d->item), "tensors", d->files);
    errno = 0;
    const bool good = json_dump_file(root, draft, JSON_INDENT(2)) == 0 && rename(draft, path) == 0;
    if (!good) {
        snprintf(why->text, sizeof why->text, "%.300s: cannot be written: %s", path,
                 errno ? strerror(errno) : "no reason given");
        remove(draft);
    }
    json_decref(root);
    free(path);
    free(draft);
    return good ? ATTN_OK : ATTN_ERROR;
}

enum attn_status tensor_set_dump(struct backend *be, const struct plan_item *item, const struct tensor_set *set,
                                 const struct dump_reference *reference, const char *dir, enum dump_dtype dtype,
                                 struct attn_message *why)
{
    const struct dump d = {be, item, set, reference, dir, dtype, json_array()};
    enum attn_status status = ATTN_OK;
    for (int i = 0; i < TENSOR_COUNT && status == ATTN_OK; i++)
        if (set->buffers[i].base)
            status = dump_tensor(&d, (enum problem_tensor)i, why);
        else if (is_output(item, (enum problem_tensor)i) && reference && reference->count)
            status = write_reference(&d, (enum problem_tensor)i, why);
    for (int i = 0; i < QUANTISED_COUNT && status == ATTN_OK; i++)
        if (set->scale_values[i])
            status = dump_scales(&d, (enum quantised)i, why);
    for (int i = 0; i < ARRAY_COUNT && status == ATTN_OK; i++)
        status = dump_array(&d, (enum problem_array)i, why);
    if (status == ATTN_OK && item->problem.has_sink)
        status = dump_sink(&d, why);
    if (status == ATTN_OK)
        status = write_description(&d, why);
    json_decref(d.files);
    return status;
}
