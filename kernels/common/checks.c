#include "kernels/common/checks.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

enum { VECTOR_BYTES = 16 };

enum attn_status attn_fail(struct attn_message *why, enum attn_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return status;
}

static enum attn_status check_shape(const struct attn_problem *p, const struct attn_range *range,
                                    struct attn_message *why)
{
    if (p->batch < 1 || p->q_heads < 1 || p->kv_heads < 1 || p->q_len < 1 || p->kv_len < 1 || p->q_len > INT32_MAX ||
        p->kv_len > INT32_MAX || p->batch > INT32_MAX || p->q_heads > INT32_MAX)
        return attn_fail(why, ATTN_UNSUPPORTED, "batch, heads and lengths must be from 1 to 2147483647");
    if (p->q_heads % p->kv_heads != 0)
        return attn_fail(why, ATTN_UNSUPPORTED, "kv_heads %lld does not divide q_heads %lld", (long long)p->kv_heads,
                         (long long)p->q_heads);
    if (range->max_head_dim == 0 && p->head_dim != 64 && p->head_dim != 128)
        return attn_fail(why, ATTN_UNSUPPORTED, "head_dim %lld: takes 64 and 128", (long long)p->head_dim);
    if (range->max_head_dim != 0 && (p->head_dim < 8 || p->head_dim > range->max_head_dim || p->head_dim % 8 != 0))
        return attn_fail(why, ATTN_UNSUPPORTED, "head_dim %lld: takes multiples of 8 from 8 to %d",
                         (long long)p->head_dim, range->max_head_dim);
    return ATTN_OK;
}

/* The values of attributes that the implementation computes. */
static enum attn_status check_values(const struct attn_problem *p, struct attn_message *why)
{
    if (!(p->dropout >= 0.0f && p->dropout < 1.0f))
        return attn_fail(why, ATTN_UNSUPPORTED, "dropout %g: takes 0 to below 1", (double)p->dropout);
    if (!(p->softcap >= 0.0f) || !isfinite(p->softcap))
        return attn_fail(why, ATTN_UNSUPPORTED, "softcap %g: takes finite values from 0 on", (double)p->softcap);
    if (p->mask_block < 0 || p->mask_block > INT32_MAX || p->mask_block % 8 != 0)
        return attn_fail(why, ATTN_UNSUPPORTED, "block mask of %lld rows and keys: takes multiples of 8",
                         (long long)p->mask_block);
    return ATTN_OK;
}

enum attn_status attn_check_request(const struct attn_request *request, const struct attn_range *range,
                                    struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    enum attn_status status = attn_check_attributes(request, range->attributes, why);

    if (status == ATTN_OK)
        status = check_shape(p, range, why);
    if (status == ATTN_OK)
        status = check_values(p, why);
    if (status != ATTN_OK)
        return status;
    if (request->device->platform != ATTN_CUDA)
        return attn_fail(why, ATTN_UNSUPPORTED, "runs on CUDA devices only");
    if (p->dtype != ATTN_FP16 && p->dtype != ATTN_BF16 && !attn_dtype_is_8_bit(p->dtype)) /* 8 bits: an attribute */
        return attn_fail(why, ATTN_UNSUPPORTED, "takes fp16 and bf16 only");
    if (!(p->scale > 0.0f) || !isfinite(p->scale))
        return attn_fail(why, ATTN_UNSUPPORTED, "scale %g: takes finite scales above 0", (double)p->scale);
    return ATTN_OK;
}

/* A dimension of length 1 is never stepped over, so its stride does not matter. */
static bool is_aligned(const struct attn_tensor *t, enum attn_dtype dtype, int64_t batch, int64_t heads, int64_t len)
{
    const int64_t elements = VECTOR_BYTES / (int64_t)attn_dtype_bytes(dtype);

    return (uintptr_t)t->data % VECTOR_BYTES == 0 && (batch == 1 || t->stride_batch % elements == 0) &&
           (heads == 1 || t->stride_head % elements == 0) && (len == 1 || t->stride_row % elements == 0);
}

enum attn_status attn_check_tensors(const struct attn_request *request, const struct attn_tensors *tensors,
                                    struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const bool packed = p->lengths == ATTN_PACKED, packed_q = attn_rows_are_packed(p),
               paged = p->lengths == ATTN_CACHE && p->page_size != 0;
    const struct {
        const char *name;
        const struct attn_tensor *tensor;
        bool is_kv, is_backward;
    } used[] = {
        {"q", &tensors->q, false, false}, {"k", &tensors->k, true, false},       {"v", &tensors->v, true, false},
        {"o", &tensors->o, false, false}, {"dout", &tensors->dout, false, true}, {"dq", &tensors->dq, false, true},
        {"dk", &tensors->dk, true, true}, {"dv", &tensors->dv, true, true},
    };

    for (size_t i = 0; i < sizeof used / sizeof used[0]; ++i) {
        if (used[i].is_backward && request->mode == ATTN_FWD)
            continue;
        if (used[i].tensor->data == NULL)
            return attn_fail(why, ATTN_UNSUPPORTED, "tensor %s is missing", used[i].name);
        const bool is_paged = paged && used[i].is_kv;
        const bool is_output = used[i].tensor == &tensors->o, is_packed = used[i].is_kv ? packed : packed_q;
        if (!is_aligned(used[i].tensor,
                        is_output       ? attn_output_dtype(p)
                        : used[i].is_kv ? attn_kv_dtype(p)
                                        : p->dtype,
                        is_packed  ? 1
                        : is_paged ? p->pages
                                   : p->batch,
                        used[i].is_kv ? p->kv_heads : p->q_heads,
                        is_packed       ? INT64_MAX
                        : is_paged      ? p->page_size
                        : used[i].is_kv ? p->kv_len
                                        : p->q_len))
            return attn_fail(why, ATTN_UNSUPPORTED, "tensor %s: its pointer and strides must be multiples of %d bytes",
                             used[i].name, VECTOR_BYTES);
    }
    if (attn_dtype_is_8_bit(p->dtype) &&
        (tensors->scale_q == NULL || tensors->scale_k == NULL || tensors->scale_v == NULL))
        return attn_fail(why, ATTN_UNSUPPORTED, "scale_q, scale_k or scale_v is missing");
    const bool needs_lse = request->mode == ATTN_BWD || attn_wanted_outputs(request) & ATTN_LSE;
    if ((needs_lse && tensors->lse == NULL) || (uintptr_t)tensors->lse % sizeof(float) != 0)
        return attn_fail(why, ATTN_UNSUPPORTED, "lse is missing or not on a 4-byte boundary");
    if (packed && (tensors->cu_seqlens_q == NULL || tensors->cu_seqlens_k == NULL))
        return attn_fail(why, ATTN_UNSUPPORTED, "cu_seqlens_q or cu_seqlens_k is missing");
    if (packed_q && tensors->cu_seqlens_q == NULL)
        return attn_fail(why, ATTN_UNSUPPORTED, "cu_seqlens_q is missing");
    if (p->cache_dtype != ATTN_FP32 && (tensors->scale_k == NULL || tensors->scale_v == NULL))
        return attn_fail(why, ATTN_UNSUPPORTED, "scale_k or scale_v is missing");
    if (p->lengths == ATTN_CACHE && tensors->seqused_k == NULL)
        return attn_fail(why, ATTN_UNSUPPORTED, "seqused_k is missing");
    if (paged && tensors->page_table == NULL)
        return attn_fail(why, ATTN_UNSUPPORTED, "page_table is missing");
    if (p->has_sink && tensors->sink == NULL)
        return attn_fail(why, ATTN_UNSUPPORTED, "sink is missing");
    if (p->has_sink && attn_wanted_outputs(request) & ATTN_DSINK && tensors->dsink == NULL)
        return attn_fail(why, ATTN_UNSUPPORTED, "dsink is missing");
    if (p->has_alibi && tensors->alibi_slopes == NULL)
        return attn_fail(why, ATTN_UNSUPPORTED, "alibi_slopes is missing");
    if (p->bias_heads != 0 && tensors->bias.data == NULL)
        return attn_fail(why, ATTN_UNSUPPORTED, "bias is missing");
    if (p->bias_heads != 0 && attn_wanted_outputs(request) & ATTN_DBIAS && tensors->dbias.data == NULL)
        return attn_fail(why, ATTN_UNSUPPORTED, "dbias is missing");
    if (p->mask_block != 0 && tensors->block_mask == NULL)
        return attn_fail(why, ATTN_UNSUPPORTED, "block_mask is missing");
    return ATTN_OK;
}

enum attn_status attn_check_grid(int64_t row_tiles, int64_t heads, int64_t batch, struct attn_message *why)
{
    if (heads > INT32_MAX / batch || row_tiles > INT32_MAX / (heads * batch))
        return attn_fail(why, ATTN_UNSUPPORTED,
                         "%lld row tiles x %lld heads x batch %lld are more than 2147483647 blocks",
                         (long long)row_tiles, (long long)heads, (long long)batch);
    return ATTN_OK;
}

enum attn_status attn_check_workspace(const struct attn_run *run, size_t needed, struct attn_message *why)
{
    if (run->workspace_bytes < needed || (needed > 0 && run->workspace == NULL))
        return attn_fail(why, ATTN_ERROR, "workspace of %zu bytes where %zu are needed", run->workspace_bytes, needed);
    return ATTN_OK;
}
