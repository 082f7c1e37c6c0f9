/* The values of a problem's inputs: from files, from the seed, quantised. */
#include "cmd/device/inputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/base/npy.h"
#include "cmd/base/stats.h"
#include "cmd/device/backend.h"

static const enum attn_dtype npy_dtypes[] = {
    [NPY_FLOAT32] = ATTN_FP32, [NPY_FLOAT16] = ATTN_FP16, [NPY_UINT16] = ATTN_BF16};

/* The type of a file's elements; `dtype`: of the tensor, which 8-bit integers are the bits of. */
static enum attn_dtype dtype_of_file(const struct npy *file, enum attn_dtype dtype)
{
    return file->type == NPY_UINT8 ? dtype : npy_dtypes[file->type];
}

/* npy_read with the error as an attn_message. Only an 8-bit tensor takes 8-bit integers. */
static bool read_npy(const char *path, enum attn_dtype dtype, struct npy *file, struct attn_message *why)
{
    struct reason reason;
    if (!npy_read(path, file, &reason)) {
        snprintf(why->text, sizeof why->text, "%s", reason.text);
        return false;
    }
    if (file->type != NPY_UINT8 || attn_dtype_is_8_bit(dtype))
        return true;
    snprintf(why->text, sizeof why->text, "%.300s: has 8-bit integers; must be fp32, fp16, or 16-bit integers for bf16",
             path);
    npy_free(file);
    return false;
}

static bool is_cached(const struct attn_problem *p, enum problem_tensor tensor)
{
    return p->lengths == ATTN_CACHE && (tensor == TENSOR_K || tensor == TENSOR_V);
}

/* True when the element is still finite after conversion to the problem's dtype. */
static bool is_finite_in(const struct npy *file, int64_t element, enum attn_dtype dtype)
{
    float rounded = 0;
    fill_store(&rounded, dtype, 0, fill_load(file->data, dtype_of_file(file, dtype), element));
    return isfinite(fill_load(&rounded, dtype, 0));
}

void inputs_point_at_host_arrays(const struct plan_item *item, struct attn_tensors *t)
{
    const void *arrays[ARRAY_COUNT];
    for (int i = 0; i < ARRAY_COUNT; i++)
        arrays[i] = problem_array(&item->problem, item->arrays, (enum problem_array)i, &(size_t){0});
    problem_point_at(t, arrays);
}

static struct attn_tensors host_arrays_of(const struct plan_item *item)
{
    struct attn_tensors host = {0};
    inputs_point_at_host_arrays(item, &host);
    return host;
}

int64_t tensor_file_row(const struct plan_item *item, const struct attn_tensors *tensors, enum problem_tensor tensor,
                        int64_t batch, int64_t head, int64_t row)
{
    const struct attn_tensor t = tensor_of(&item->problem, tensors, tensor);
    if (is_cached(&item->problem, tensor)) {
        const struct attn_tensors host = host_arrays_of(item);
        return row < host.seqused_k[batch] ? attn_key_offset(&item->problem, &host, t, batch, head, row) : -1;
    }
    return batch * t.stride_batch + head * t.stride_head + row * t.stride_row;
}

/* Reads a file and compares its shape with the tensor's. */
static bool read_tensor(const struct plan_item *item, enum problem_tensor tensor, const char *path, struct npy *file,
                        struct attn_message *why)
{
    const struct tensor_shape s = tensor_file_shape_of(&item->problem, tensor);
    const int64_t want[4] = {s.batch, s.heads, s.len, s.head_dim};
    const int dims = tensor == TENSOR_LSE ? 3 : tensor == TENSOR_DSINK ? 2 : 4;
    char last[32] = "";
    if (!read_npy(path, tensor_dtype_of(&item->problem, tensor), file, why))
        return false;
    if (file->dims == dims && memcmp(file->shape, want, (size_t)dims * sizeof *want) == 0)
        return true;
    if (dims == 4)
        snprintf(last, sizeof last, ", %lld", (long long)want[3]);
    if (dims == 2)
        snprintf(why->text, sizeof why->text, "%.300s: its shape is not [1, %lld]", path, (long long)want[1]);
    else
        snprintf(why->text, sizeof why->text, "%.300s: its shape is not [%lld, %lld, %lld%s]", path, (long long)want[0],
                 (long long)want[1], (long long)want[2], last);
    npy_free(file);
    return false;
}

/* True for an element of a file that no launch may read: behind the used keys of a cache. */
static bool is_unused(const struct plan_item *item, enum problem_tensor tensor, int64_t element)
{
    const struct tensor_shape s = tensor_file_shape_of(&item->problem, tensor);
    const int64_t row = element / s.head_dim;
    return is_cached(&item->problem, tensor) && row % s.len >= item->arrays->seqused_k[row / s.len / s.heads];
}

/* Reads <dir>/<tensor>.npy; its values must be finite. */
static bool read_input(const struct plan_item *item, enum problem_tensor tensor, const char *dir, struct npy *file,
                       struct attn_message *why)
{
    char *path = xasprintf("%s/%s.npy", dir, problem_tensor_name(tensor));
    const struct tensor_shape s = tensor_file_shape_of(&item->problem, tensor);
    bool fits = read_tensor(item, tensor, path, file, why);
    for (int64_t i = 0; fits && i < s.batch * s.heads * s.len * s.head_dim; i++)
        if (!is_finite_in(file, i, tensor_dtype_of(&item->problem, tensor)) && !is_unused(item, tensor, i)) {
            snprintf(why->text, sizeof why->text, "%s: element %lld is not finite in %s: no result could be judged",
                     path, (long long)i, problem_dtype_name(tensor_dtype_of(&item->problem, tensor)));
            npy_free(file);
            fits = false;
        }
    free(path);
    return fits;
}

/* ---- 8-bit inputs in files ---- */

static const enum problem_tensor quantised[QUANTISED_COUNT] = {TENSOR_Q, TENSOR_K, TENSOR_V};

/* False for a V that is part of K. */
static bool has_own_memory(const struct plan_item *item, enum problem_tensor tensor)
{
    return !(tensor == TENSOR_V && attn_v_is_in_k(&item->problem));
}

/* Does <dir>/<tensor>.npy hold 8-bit integers? */
static bool has_8_bits(const char *dir, enum problem_tensor tensor)
{
    struct npy file;
    struct reason ignored;
    char *path = xasprintf("%s/%s.npy", dir, problem_tensor_name(tensor));
    bool has = npy_read(path, &file, &ignored);
    free(path);
    if (has) {
        has = file.type == NPY_UINT8;
        npy_free(&file);
    }
    return has;
}

/* An input that has 8 bits in every problem whose inputs have: Q, or of a cache alone K. */
static enum problem_tensor first_quantised(const struct plan_item *item)
{
    return quantise_has(&item->problem, QUANTISED_Q) ? TENSOR_Q : TENSOR_K;
}

bool inputs_are_quantised(const struct plan_item *item, const char *input_dir)
{
    return quantise_has(&item->problem, QUANTISED_K) && !(input_dir && has_8_bits(input_dir, first_quantised(item)));
}

/* All inputs that have 8 bits hold 8-bit integers, as the first of them does. */
static bool are_all_8_bits(const struct plan_item *item, const char *dir, struct attn_message *why)
{
    for (int i = 0; i < QUANTISED_COUNT; i++)
        if (quantise_has(&item->problem, (enum quantised)i) && has_own_memory(item, quantised[i]) &&
            !has_8_bits(dir, quantised[i])) {
            snprintf(why->text, sizeof why->text, "%.300s/%s.npy: has no 8-bit integers, but %s.npy beside it has", dir,
                     problem_tensor_name(quantised[i]), problem_tensor_name(first_quantised(item)));
            return false;
        }
    return true;
}

/* Sums of P V in units of one scale of V hold those of another up to this: 2^127 / (448 * 2^8 * 2^20 keys). */
#define SCALES_APART_MAX 0x1p90

/* Reads <dir>/scale_<tensor>.npy: fp32, as many as the problem has, finite and above 0, those of V not too far apart.
 * The caller frees the file. */
static bool read_scales(const struct plan_item *item, enum quantised tensor, const char *dir, struct npy *file,
                        struct attn_message *why)
{
    const int64_t count = quantise_scales(&item->problem, tensor);
    char *path = xasprintf("%s/scale_%s.npy", dir, problem_tensor_name(quantised[tensor]));
    bool good = read_npy(path, ATTN_FP32, file, why);
    const bool fits = good && file->type == NPY_FLOAT32 && file->bytes == (size_t)count * sizeof(float);
    if (good && !fits)
        snprintf(why->text, sizeof why->text, "%.300s: must be %lld numbers in fp32, the scales of %s", path,
                 (long long)count, problem_tensor_title(problem_tensor_name(quantised[tensor])));
    double least = INFINITY, most = 0;
    for (int64_t i = 0; fits && good && i < count; i++) {
        const float scale = ((const float *)file->data)[i];
        least = fmin(least, (double)scale);
        most = fmax(most, (double)scale);
        good = scale > 0 && isfinite(scale);
        if (!good)
            snprintf(why->text, sizeof why->text, "%.300s: element %lld is %g; a scale must be above 0 and finite",
                     path, (long long)i, (double)scale);
    }
    if (good && fits && tensor == QUANTISED_V && most > least * SCALES_APART_MAX) {
        snprintf(why->text, sizeof why->text,
                 "%.300s: the scales %g and %g of V are more than 2^90 apart; sums in fp32 cannot hold both", path,
                 least, most);
        good = false;
    }
    if (file->data && !(good && fits))
        npy_free(file);
    free(path);
    return good && fits;
}

/* The item whose tensors 8-bit ones are made from: the same in bf16, or in the type of a 16-bit Q. */
static struct plan_item item_before(const struct plan_item *item)
{
    struct plan_item before = *item;
    before.problem.dtype = quantise_has(&item->problem, QUANTISED_Q) ? ATTN_BF16 : item->problem.dtype;
    before.problem.cache_dtype = ATTN_FP32;
    before.problem.quant_scale = ATTN_SCALE_NONE;
    before.problem.scale_block = 0;
    return before;
}

static bool are_8_bit_inputs_readable(const struct plan_item *item, const char *input_dir, struct attn_message *why)
{
    bool good = are_all_8_bits(item, input_dir, why);
    for (int i = 0; i < QUANTISED_COUNT && good; i++) {
        struct npy file = {.data = NULL};
        if (!quantise_has(&item->problem, (enum quantised)i) || !has_own_memory(item, quantised[i]))
            continue;
        good = read_scales(item, (enum quantised)i, input_dir, &file, why);
        if (good)
            npy_free(&file);
    }
    return good;
}

bool inputs_readable(const struct plan_item *asked, const char *input_dir, struct attn_message *why)
{
    static const enum problem_tensor inputs[] = {TENSOR_Q, TENSOR_K, TENSOR_V, TENSOR_DO};
    const bool is_quantised = inputs_are_quantised(asked, input_dir);
    const struct plan_item before = item_before(asked), *item = is_quantised ? &before : asked;
    if (quantise_has(&asked->problem, QUANTISED_K) && !is_quantised &&
        !are_8_bit_inputs_readable(asked, input_dir, why))
        return false;
    if (item->problem.bias_heads > 0) {
        struct npy file;
        if (!read_input(item, TENSOR_BIAS, input_dir, &file, why))
            return false;
        npy_free(&file);
    }
    for (int i = 0; i < (item->mode == ATTN_FWD ? 3 : 4); i++) {
        struct npy file;
        if (!has_own_memory(item, inputs[i]))
            continue;
        if (!read_input(item, inputs[i], input_dir, &file, why))
            return false;
        npy_free(&file);
    }
    return true;
}

/* Copies the file's elements into the tensor's memory layout, rounded to its dtype, and frees the file. What the file
 * does not have, pages of nobody, is NaN. */
static enum attn_status upload_file(struct backend *be, const struct plan_item *item, enum problem_tensor tensor,
                                    struct npy *file, struct tensor_set *set, struct attn_message *why)
{
    const struct tensor_shape s = tensor_file_shape_of(&item->problem, tensor);
    const struct buffer *buffer = &set->buffers[tensor];
    const enum attn_dtype dtype = tensor_dtype_of(&item->problem, tensor);
    void *host = memset(xmalloc(buffer->bytes), 0xFF, buffer->bytes); /* POISON_PATTERN between the rows */
    int64_t n = 0;
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t i = 0; i < s.len; i++, n += s.head_dim) {
                const int64_t row = tensor_file_row(item, &set->tensors, tensor, b, h, i);
                for (int64_t c = 0; c < s.head_dim && row >= 0; c++)
                    fill_store(host, dtype, row + c, fill_load(file->data, dtype_of_file(file, dtype), n + c));
            }
    const enum attn_status status = be->ops->upload(be, buffer->data, host, buffer->bytes, why);
    free(host);
    npy_free(file);
    return status;
}

static enum attn_status upload_npy(struct backend *be, const struct plan_item *item, enum problem_tensor tensor,
                                   const char *dir, struct tensor_set *set, struct attn_message *why)
{
    struct npy file;
    return read_input(item, tensor, dir, &file, why) ? upload_file(be, item, tensor, &file, set, why) : ATTN_ERROR;
}

/* Row i of one query head of one sequence becomes 64 times the last key that a causal row i sees. */
static void plant_peak(const struct attn_problem *p, const struct attn_tensors *host, int64_t b, int64_t head,
                       int64_t row)
{
    const struct attn_sequence s = attn_sequence_at(p, host, b);
    const int64_t diagonal = row + s.kv_len - s.q_len, key = diagonal < 0 ? 0 : diagonal;
    if (s.kv_len == 0)
        return;
    const int64_t to = attn_row_offset(p, host, host->q, b, head, row);
    const int64_t from = attn_key_offset(p, host, host->k, b, head / (p->q_heads / p->kv_heads), key);
    for (int64_t c = 0; c < p->head_dim; c++)
        fill_store(host->q.data, p->dtype, to + c, 64 * fill_load(host->k.data, p->dtype, from + c));
}

/* FILL_PEAK: queries that are 64 times a key, on the host. */
static enum attn_status plant_peaks(struct backend *be, const struct plan_item *item, struct tensor_set *set,
                                    struct attn_message *why)
{
    const struct attn_problem *p = &item->problem;
    struct attn_tensors host = host_arrays_of(item);
    const struct buffer *q_buffer = &set->buffers[TENSOR_Q], *k_buffer = &set->buffers[TENSOR_K];
    char *q_host = xmalloc(q_buffer->bytes), *k_host = xmalloc(k_buffer->bytes);
    host.q = set->tensors.q;
    host.k = set->tensors.k;
    host.q.data = q_host;
    host.k.data = k_host;
    enum attn_status status = be->ops->download(be, q_host, q_buffer->data, q_buffer->bytes, why);
    if (status == ATTN_OK)
        status = be->ops->download(be, k_host, k_buffer->data, k_buffer->bytes, why);
    for (int64_t b = 0; b < p->batch && status == ATTN_OK; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < attn_sequence_at(p, &host, b).q_len; i++)
                plant_peak(p, &host, b, h, i);
    if (status == ATTN_OK)
        status = be->ops->upload(be, q_buffer->data, q_host, q_buffer->bytes, why);
    free(q_host);
    free(k_host);
    return status;
}

/* NaN behind the used keys of a contiguous cache. */
static enum attn_status poison_unused_keys(struct backend *be, const struct plan_item *item,
                                           const struct attn_tensor *t, int64_t columns, struct attn_message *why)
{
    const struct attn_problem *p = &item->problem;
    const int64_t bytes = (int64_t)attn_dtype_bytes(attn_kv_dtype(p)), heads = p->layout == ATTN_BSHD ? 1 : p->kv_heads;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < heads; h++) { /* in ATTN_BSHD the rows of all heads lie together */
            const int64_t used = item->arrays->seqused_k[b];
            char *first = (char *)t->data + (b * t->stride_batch + h * t->stride_head + used * t->stride_row) * bytes;
            /* Without what is behind the last row, which may be behind the buffer. */
            const int64_t elements = problem_extent(t, 1, p->kv_heads / heads, p->kv_len - used, columns);
            if (used < p->kv_len)
                TRY(be->ops->pattern(be, first, (size_t)(elements * bytes), POISON_PATTERN, why));
        }
    return ATTN_OK;
}

/* Copies the used keys of a contiguous tensor, in host memory, to their pages. */
static void scatter_keys(const struct plan_item *item, const struct attn_tensor *from, int64_t columns,
                         const struct attn_tensor *to)
{
    const struct attn_problem *p = &item->problem;
    const struct attn_tensors host = host_arrays_of(item);
    const int64_t bytes = (int64_t)attn_dtype_bytes(attn_kv_dtype(p));
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->kv_heads; h++)
            for (int64_t i = 0; i < host.seqused_k[b]; i++)
                memcpy((char *)to->data + attn_key_offset(p, &host, *to, b, h, i) * bytes,
                       (const char *)from->data +
                           (b * from->stride_batch + h * from->stride_head + i * from->stride_row) * bytes,
                       (size_t)(columns * bytes));
}

/* K or V of a cache in pages: the values of a contiguous cache, in their pages, and NaN in all other rows. Through host
 * memory, outside of any timing. */
static enum attn_status fill_pages(struct backend *be, const struct plan_item *item, enum problem_tensor tensor,
                                   enum fill_tensor id, const struct fill_spec *spec, struct tensor_set *set,
                                   struct attn_message *why)
{
    const struct attn_problem *p = &item->problem;
    const struct tensor_shape s = tensor_file_shape_of(p, tensor);
    const struct buffer *buffer = &set->buffers[tensor];
    struct attn_tensor keys = problem_strides(p->layout, s.heads, s.len, s.head_dim);
    struct attn_tensor pages = tensor_of(p, &set->tensors, tensor);
    const size_t bytes = (size_t)(s.batch * s.heads * s.len * s.head_dim) * attn_dtype_bytes(p->dtype);
    TRY(be->ops->alloc(be, bytes, &keys.data, why));
    void *const on_device = keys.data;
    enum attn_status status = be->ops->fill(be, keys, p->dtype, s.batch, s.heads, s.len, s.head_dim, spec, id, why);
    keys.data = xmalloc(bytes);
    pages.data = xmalloc(buffer->bytes);
    memset(pages.data, POISON_PATTERN & 0xff, buffer->bytes);
    if (status == ATTN_OK)
        status = be->ops->download(be, keys.data, on_device, bytes, why);
    if (status == ATTN_OK) {
        scatter_keys(item, &keys, s.head_dim, &pages);
        status = be->ops->upload(be, buffer->data, pages.data, buffer->bytes, why);
    }
    free(keys.data);
    free(pages.data);
    be->ops->release(be, on_device);
    return status;
}

static enum attn_status fill_input(struct backend *be, const struct plan_item *item, enum problem_tensor tensor,
                                   enum fill_tensor id, const char *input_dir, struct tensor_set *set,
                                   struct attn_message *why)
{
    const struct tensor_shape s = tensor_shape_of(&item->problem, tensor);
    const struct fill_spec spec = {.dist = item->dist,
                                   .seed = item->seed,
                                   .logit_std = item->logit_std,
                                   .logit_mean = item->logit_mean,
                                   .scale = (double)item->problem.scale};
    if (!has_own_memory(item, tensor))
        return ATTN_OK;
    if (input_dir)
        return upload_npy(be, item, tensor, input_dir, set, why);
    if (is_cached(&item->problem, tensor) && item->problem.page_size > 0)
        return fill_pages(be, item, tensor, id, &spec, set, why);
    const struct attn_tensor t = tensor_of(&item->problem, &set->tensors, tensor);
    TRY(be->ops->fill(be, t, tensor_dtype_of(&item->problem, tensor), s.batch, s.heads, s.len, s.head_dim, &spec, id,
                      why));
    return is_cached(&item->problem, tensor) ? poison_unused_keys(be, item, &t, s.head_dim, why) : ATTN_OK;
}

enum attn_status inputs_upload_scales(struct backend *be, struct tensor_set *set, struct attn_message *why)
{
    for (int i = 0; i < QUANTISED_COUNT; i++)
        if (set->scales[i].base)
            TRY(be->ops->upload(be, set->scales[i].data, set->scale_values[i], set->scales[i].bytes, why));
    return ATTN_OK;
}

/* 8-bit inputs as the files have them. */
static enum attn_status read_8_bit_inputs(struct backend *be, const struct plan_item *item, const char *input_dir,
                                          struct tensor_set *set, struct attn_message *why)
{
    if (!are_all_8_bits(item, input_dir, why))
        return ATTN_ERROR;
    for (int i = 0; i < QUANTISED_COUNT; i++) {
        struct npy file = {.data = NULL};
        if (!has_own_memory(item, quantised[i]))
            continue;
        if (quantise_has(&item->problem, (enum quantised)i)) {
            if (!read_scales(item, (enum quantised)i, input_dir, &file, why))
                return ATTN_ERROR;
            memcpy(set->scale_values[i], file.data, file.bytes);
            npy_free(&file);
        }
        TRY(upload_npy(be, item, quantised[i], input_dir, set, why));
    }
    return inputs_upload_scales(be, set, why);
}

/* The tensors of `before` to quantise into `to`, both in memory of the device. */
static struct quantiser quantiser_of(const struct plan_item *item, const struct tensor_set *before,
                                     const struct tensor_set *to)
{
    const struct attn_problem *p = &item->problem;
    struct quantiser q = {.count = 0};
    for (int i = 0; i < QUANTISED_COUNT; i++) {
        const enum problem_tensor tensor = quantised[i];
        if (!quantise_has(p, (enum quantised)i) || !has_own_memory(item, tensor))
            continue;
        struct quantise_job *job = &q.jobs[q.count++];
        *job = (struct quantise_job){.problem = p,
                                     .tensor = (enum quantised)i,
                                     .from = tensor_of(p, &before->tensors, tensor),
                                     .from_dtype = item_before(item).problem.dtype,
                                     .to = tensor_of(p, &to->tensors, tensor),
                                     .scales = to->scales[i].data,
                                     .is_rotated = item->hadamard && i != QUANTISED_V,
                                     .seed = item->seed};
        if (i == QUANTISED_Q ? attn_rows_are_packed(p) : p->lengths == ATTN_PACKED)
            job->cu_seqlens = i == QUANTISED_Q ? item->arrays->cu_seqlens_q : item->arrays->cu_seqlens_k;
        if (is_cached(p, tensor)) {
            job->seqused_k = item->arrays->seqused_k;
            job->page_table = item->arrays->page_table;
        }
    }
    return q;
}

/* A job of another memory, on the host. */
static enum attn_status quantise_on_host(struct backend *be, const struct tensor_set *before, struct tensor_set *set,
                                         struct quantise_job job, struct attn_message *why)
{
    const struct buffer *from = &before->buffers[quantised[job.tensor]], *to = &set->buffers[quantised[job.tensor]];
    job.from.data = xmalloc(from->bytes);
    /* NaN where no key is used, and between the tensor's rows */
    job.to.data = memset(xmalloc(to->bytes), POISON_PATTERN & 0xff, to->bytes);
    job.scales = set->scale_values[job.tensor];
    enum attn_status status = be->ops->download(be, job.from.data, from->data, from->bytes, why);
    const double start_ms = clock_ms();
    if (status == ATTN_OK)
        quantise(&job, be->device.threads); /* 0 beside a GPU */
    set->quant_ms += clock_ms() - start_ms;
    if (status == ATTN_OK)
        status = be->ops->upload(be, to->data, job.to.data, to->bytes, why);
    free(job.from.data);
    free(job.to.data);
    return status == ATTN_OK ? be->ops->upload(be, set->scales[job.tensor].data, set->scale_values[job.tensor],
                                               set->scales[job.tensor].bytes, why)
                             : status;
}

/* The jobs where the device can do them itself; quant_ms is the median of a few launches then. */
static enum attn_status quantise_on_device(struct backend *be, struct quantiser *q, size_t workspace_bytes,
                                           struct tensor_set *set, struct attn_message *why)
{
    enum { LAUNCHES = 5 };
    const struct launcher launcher = {.quantiser = q};
    const bool is_gpu = be->device.platform == ATTN_CUDA;
    double times_ms[LAUNCHES];
    const int launches = is_gpu ? LAUNCHES : 1;
    for (int i = 0; i < q->count; i++) {
        const struct buffer *to = &set->buffers[quantised[q->jobs[i].tensor]];
        TRY(be->ops->pattern(be, to->data, to->bytes, POISON_PATTERN, why));
    }
    TRY(be->ops->alloc(be, workspace_bytes, &q->workspace, why));
    enum attn_status status = is_gpu ? be->ops->launch(be, &launcher, why) : ATTN_OK;
    for (int i = 0; i < launches && status == ATTN_OK; i++)
        status = be->ops->sample(be, &launcher, is_gpu, &times_ms[i], why);
    be->ops->release(be, q->workspace);
    q->workspace = NULL;
    TRY(status);
    set->quant_ms = stats_of(times_ms, launches).median;
    for (int i = 0; i < q->count; i++) {
        const enum quantised which = q->jobs[i].tensor;
        TRY(be->ops->download(be, set->scale_values[which], set->scales[which].data, set->scales[which].bytes, why));
    }
    return ATTN_OK;
}

static enum attn_status quantise_into(struct backend *be, const struct plan_item *item, const struct tensor_set *before,
                                      struct tensor_set *set, struct attn_message *why)
{
    struct quantiser q = quantiser_of(item, before, set);
    size_t workspace_bytes = 0;
    if (be->ops->quantise_room(be, &q, &workspace_bytes))
        return quantise_on_device(be, &q, workspace_bytes, set, why);
    set->quant_ms = 0;
    for (int i = 0; i < q.count; i++)
        TRY(quantise_on_host(be, before, set, q.jobs[i], why));
    return ATTN_OK;
}

enum attn_status quantising_make(struct backend *be, const struct plan_item *item, struct quantising *q,
                                 struct attn_message *why)
{
    struct plan_item before;
    size_t bytes = 0;
    TRY(inputs_make_before(be, item, NULL, &before, &q->before, why));
    TRY(inputs_allocate(be, item, &q->to, why));
    q->quantiser = quantiser_of(item, &q->before, &q->to);
    if (!be->ops->quantise_room(be, &q->quantiser, &bytes)) {
        snprintf(why->text, sizeof why->text,
                 "--quant-in-time: a GPU quantises sequences of one length, with head dims of 64, 128 and 256");
        return ATTN_UNSUPPORTED;
    }
    TRY(buffer_alloc(be, bytes, &q->workspace, why));
    q->quantiser.workspace = q->workspace.data;
    return ATTN_OK;
}

void quantising_free(struct backend *be, struct quantising *q)
{
    tensor_set_free(be, &q->before);
    tensor_set_free(be, &q->to);
    buffer_free(be, &q->workspace);
}

enum attn_status inputs_make_before(struct backend *be, const struct plan_item *item, const char *input_dir,
                                    struct plan_item *before, struct tensor_set *set, struct attn_message *why)
{
    *before = item_before(item);
    return inputs_make(be, before, input_dir, set, why);
}

static enum attn_status fill_8_bit_inputs(struct backend *be, const struct plan_item *item, const char *input_dir,
                                          struct tensor_set *set, struct attn_message *why)
{
    struct tensor_set before;
    struct plan_item item_16_bits;
    set->quant_ms = NAN;
    if (!inputs_are_quantised(item, input_dir))
        return read_8_bit_inputs(be, item, input_dir, set, why);
    enum attn_status status = inputs_make_before(be, item, input_dir, &item_16_bits, &before, why);
    for (int i = 0; i < QUANTISED_COUNT && status == ATTN_OK; i++) /* a 16-bit Q of an 8-bit cache */
        if (!quantise_has(&item->problem, (enum quantised)i))
            status = be->ops->copy(be, set->buffers[quantised[i]].data, before.buffers[quantised[i]].data,
                                   before.buffers[quantised[i]].bytes, why);
    if (status == ATTN_OK)
        status = quantise_into(be, item, &before, set, why);
    tensor_set_free(be, &before);
    return status;
}

enum attn_status inputs_upload_arrays(struct backend *be, const struct plan_item *item, struct tensor_set *set,
                                      struct attn_message *why)
{
    for (int i = 0; i < ARRAY_COUNT; i++) {
        size_t bytes;
        const void *host = problem_array(&item->problem, item->arrays, (enum problem_array)i, &bytes);
        if (host)
            TRY(be->ops->upload(be, set->arrays[i].data, host, bytes, why));
    }
    return ATTN_OK;
}

enum attn_status inputs_arrays_hold(struct backend *be, const struct plan_item *item, const struct tensor_set *set,
                                    bool *holds, struct attn_message *why)
{
    *holds = true;
    for (int i = 0; i < ARRAY_COUNT && *holds; i++) {
        size_t bytes;
        const void *host = problem_array(&item->problem, item->arrays, (enum problem_array)i, &bytes);
        if (!set->arrays[i].base)
            continue;
        void *now = xmalloc(bytes);
        const enum attn_status status = be->ops->download(be, now, set->arrays[i].data, bytes, why);
        *holds = memcmp(now, host, bytes) == 0;
        free(now);
        TRY(status);
    }
    for (int i = 0; i < QUANTISED_COUNT && *holds; i++) {
        if (!set->scales[i].base)
            continue;
        void *now = xmalloc(set->scales[i].bytes);
        const enum attn_status status = be->ops->download(be, now, set->scales[i].data, set->scales[i].bytes, why);
        *holds = memcmp(now, set->scale_values[i], set->scales[i].bytes) == 0;
        free(now);
        TRY(status);
    }
    return ATTN_OK;
}

enum attn_status inputs_make(struct backend *be, const struct plan_item *item, const char *input_dir,
                             struct tensor_set *set, struct attn_message *why)
{
    TRY(inputs_allocate(be, item, set, why));
    return inputs_fill(be, item, input_dir, set, why);
}

enum attn_status inputs_fill(struct backend *be, const struct plan_item *item, const char *input_dir,
                             struct tensor_set *set, struct attn_message *why)
{
    TRY(inputs_upload_arrays(be, item, set, why));
    if (item->problem.bias_heads > 0)
        TRY(fill_input(be, item, TENSOR_BIAS, FILL_BIAS, input_dir, set, why));
    if (quantise_has(&item->problem, QUANTISED_K))
        return fill_8_bit_inputs(be, item, input_dir, set, why);
    TRY(fill_input(be, item, TENSOR_Q, FILL_Q, input_dir, set, why));
    TRY(fill_input(be, item, TENSOR_K, FILL_K, input_dir, set, why));
    TRY(fill_input(be, item, TENSOR_V, FILL_V, input_dir, set, why));
    if (item->dist == FILL_PEAK && !input_dir)
        TRY(plant_peaks(be, item, set, why));
    return item->mode == ATTN_FWD ? ATTN_OK : input_fill_dout(be, item, input_dir, set, why);
}

enum attn_status input_fill_dout(struct backend *be, const struct plan_item *item, const char *input_dir,
                                 struct tensor_set *set, struct attn_message *why)
{
    return fill_input(be, item, TENSOR_DO, FILL_DO, input_dir, set, why);
}

enum attn_status outputs_read(struct backend *be, const struct plan_item *item, const char *dir, struct tensor_set *set,
                              unsigned *found, enum problem_tensor *bad, struct attn_message *why)
{
    int count;
    const enum problem_tensor *outputs = problem_outputs(&item->problem, item->mode, &count);
    *found = 0;
    for (int i = 0; i < count; i++) {
        struct npy file;
        char *path = xasprintf("%s/%s.npy", dir, problem_tensor_name(outputs[i]));
        *bad = outputs[i];
        const bool is_left_out = outputs[i] == TENSOR_LSE && access(path, F_OK) != 0;
        const bool good = is_left_out || read_tensor(item, outputs[i], path, &file, why);
        free(path);
        if (!good)
            return ATTN_UNSUPPORTED;
        if (is_left_out)
            continue;
        TRY(upload_file(be, item, outputs[i], &file, set, why));
        *found |= problem_tensor_bit(outputs[i]);
    }
    return ATTN_OK;
}
