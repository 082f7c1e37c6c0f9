/* The front of fused_sm80: the attn_impl, what both directions refuse alike, and the way to the one that is asked.
 * The kernels are in fused_sm80_fwd.cu and fused_sm80_bwd.cu; nothing here calls CUDA. */
#include "kernels/fused_sm80.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

enum { VECTOR_BYTES = 16, MAX_VARIANTS = 32 };

enum attn_status fused_sm80_fail(struct attn_message *why, enum attn_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return status;
}

static enum attn_status check_device(const struct attn_device *d, struct attn_message *why)
{
    if (d->platform != ATTN_CUDA)
        return fused_sm80_fail(why, ATTN_UNSUPPORTED, "runs on CUDA devices only");
    if (d->sm < 80)
        return fused_sm80_fail(why, ATTN_UNSUPPORTED, "needs compute capability 8.0 or newer, this device has %d.%d",
                               d->sm / 10, d->sm % 10);
    return ATTN_OK;
}

static enum attn_status check_shape(const struct attn_problem *p, struct attn_message *why)
{
    if (p->batch < 1 || p->q_heads < 1 || p->kv_heads < 1 || p->q_len < 1 || p->kv_len < 1 || p->q_len > INT32_MAX
        || p->kv_len > INT32_MAX || p->batch > INT32_MAX || p->q_heads > INT32_MAX)
        return fused_sm80_fail(why, ATTN_UNSUPPORTED, "batch, heads and lengths must be from 1 to 2147483647");
    if (p->q_heads % p->kv_heads != 0)
        return fused_sm80_fail(why, ATTN_UNSUPPORTED, "kv_heads %lld does not divide q_heads %lld",
                               (long long)p->kv_heads, (long long)p->q_heads);
    if (p->head_dim != 64 && p->head_dim != 128)
        return fused_sm80_fail(why, ATTN_UNSUPPORTED, "head_dim %lld: takes 64 and 128", (long long)p->head_dim);
    return ATTN_OK;
}

enum attn_status fused_sm80_check_request(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    enum attn_status status = check_device(request->device, why);

    if (status == ATTN_OK)
        status = check_shape(p, why);
    if (status != ATTN_OK)
        return status;
    if (p->dtype != ATTN_FP16 && p->dtype != ATTN_BF16)
        return fused_sm80_fail(why, ATTN_UNSUPPORTED, "takes fp16 and bf16 only");
    if (p->window_left >= 0 || p->window_right >= 0)
        return fused_sm80_fail(why, ATTN_UNSUPPORTED, "takes no window (left %lld, right %lld)",
                               (long long)p->window_left, (long long)p->window_right);
    if (p->dropout != 0.0f)
        return fused_sm80_fail(why, ATTN_UNSUPPORTED, "takes no dropout (%g)", (double)p->dropout);
    if (!(p->scale > 0.0f) || !isfinite(p->scale))
        return fused_sm80_fail(why, ATTN_UNSUPPORTED, "scale %g: takes finite scales above 0", (double)p->scale);
    return ATTN_OK;
}

/* A dimension of length 1 is never stepped over, so its stride does not matter. */
static bool is_aligned(const struct attn_tensor *t, int64_t batch, int64_t heads, int64_t len)
{
    const int64_t elements = VECTOR_BYTES / 2;

    return (uintptr_t)t->data % VECTOR_BYTES == 0 && (batch == 1 || t->stride_batch % elements == 0)
           && (heads == 1 || t->stride_head % elements == 0) && (len == 1 || t->stride_row % elements == 0);
}

enum attn_status fused_sm80_check_tensors(const struct attn_request *request, const struct attn_tensors *tensors,
                                          struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct {
        const char *name;
        const struct attn_tensor *tensor;
        bool is_kv, is_backward;
    } used[] = {
        {"q", &tensors->q, false, false},  {"k", &tensors->k, true, false},   {"v", &tensors->v, true, false},
        {"o", &tensors->o, false, false},  {"dout", &tensors->dout, false, true},
        {"dq", &tensors->dq, false, true}, {"dk", &tensors->dk, true, true},  {"dv", &tensors->dv, true, true},
    };

    for (size_t i = 0; i < sizeof used / sizeof used[0]; ++i) {
        if (used[i].is_backward && request->mode == ATTN_FWD)
            continue;
        if (used[i].tensor->data == NULL)
            return fused_sm80_fail(why, ATTN_UNSUPPORTED, "tensor %s is missing", used[i].name);
        if (!is_aligned(used[i].tensor, p->batch, used[i].is_kv ? p->kv_heads : p->q_heads,
                        used[i].is_kv ? p->kv_len : p->q_len))
            return fused_sm80_fail(why, ATTN_UNSUPPORTED,
                                   "tensor %s: its pointer and strides must be multiples of %d bytes", used[i].name,
                                   VECTOR_BYTES);
    }
    if (tensors->lse == NULL || (uintptr_t)tensors->lse % sizeof(float) != 0)
        return fused_sm80_fail(why, ATTN_UNSUPPORTED, "lse is missing or not on a 4-byte boundary");
    return ATTN_OK;
}

enum attn_status fused_sm80_check_grid(int64_t row_tiles, int64_t heads, int64_t batch, struct attn_message *why)
{
    if (heads > INT32_MAX / batch || row_tiles > INT32_MAX / (heads * batch))
        return fused_sm80_fail(why, ATTN_UNSUPPORTED,
                               "%lld row tiles x %lld heads x batch %lld are more than 2147483647 blocks",
                               (long long)row_tiles, (long long)heads, (long long)batch);
    return ATTN_OK;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const enum attn_status status = fused_sm80_check_request(request, why);

    if (status != ATTN_OK)
        return status;
    return request->mode == ATTN_FWD ? fused_sm80_fwd_accepts(request, why) : fused_sm80_bwd_accepts(request, why);
}

static size_t workspace_bytes(const struct attn_request *request)
{
    return request->mode == ATTN_FWD ? fused_sm80_fwd_workspace_bytes(request)
                                     : fused_sm80_bwd_workspace_bytes(request);
}

static const char *variant(const struct attn_request *request)
{
    return request->mode == ATTN_FWD ? fused_sm80_fwd_variant(request) : fused_sm80_bwd_variant(request);
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    enum attn_status status = accepts(request, why);

    if (status == ATTN_OK)
        status = fused_sm80_check_tensors(request, tensors, why);
    if (status != ATTN_OK)
        return status;
    if (run->workspace_bytes < workspace_bytes(request))
        return fused_sm80_fail(why, ATTN_ERROR, "workspace of %zu bytes where %zu are needed", run->workspace_bytes,
                               workspace_bytes(request));
    return request->mode == ATTN_FWD ? fused_sm80_fwd_launch(request, tensors, run, why)
                                     : fused_sm80_bwd_launch(request, tensors, run, why);
}

/* The rows of both directions one after the other. The contract wants one array and C cannot join two files' arrays
 * before the program runs, so this is done once when the program (or library) is loaded, and never changed after. */
static struct attn_variant variants[MAX_VARIANTS];

__attribute__((constructor)) static void join_variants(void)
{
    size_t count = 0;

    for (size_t i = 0; fused_sm80_fwd_variants[i].name != NULL && count + 1 < MAX_VARIANTS; ++i)
        variants[count++] = fused_sm80_fwd_variants[i];
    for (size_t i = 0; fused_sm80_bwd_variants[i].name != NULL && count + 1 < MAX_VARIANTS; ++i)
        variants[count++] = fused_sm80_bwd_variants[i];
}

const struct attn_impl attn_fused_sm80 = {
    .abi = ATTN_ABI,
    .name = "fused_sm80",
    .summary = "FlashAttention-2's algorithm on mma.sync and cp.async, fp16 and bf16, head_dim 64 and 128, sm_80+",
    .platform = ATTN_CUDA,
    /* dQ is summed by atomics unless request.deterministic asks for a fixed order. */
    .repeatable = {ATTN_O | ATTN_LSE, ATTN_DK | ATTN_DV},
    .repeatable_deterministic = {ATTN_O | ATTN_LSE, ATTN_DQ | ATTN_DK | ATTN_DV},
    .accepts = accepts,
    .workspace_bytes = workspace_bytes,
    .variant = variant,
    .launch = launch,
    .variants = variants,
};
