/* The front of fused_sm80: the attn_impl, what both directions refuse alike, and the way to the one that is asked.
 * The kernels are in fused_sm80_fwd.cu and fused_sm80_bwd.cu; nothing here calls CUDA. */
#include "kernels/sm80/fused_sm80.h"

#include "kernels/common/checks.h"

enum { MAX_VARIANTS = 32 };

static const struct attn_direction directions[] = {
    [ATTN_FWD] = {fused_sm80_fwd_accepts, fused_sm80_fwd_workspace_bytes, fused_sm80_fwd_variant, fused_sm80_fwd_launch},
    [ATTN_BWD] = {fused_sm80_bwd_accepts, fused_sm80_bwd_workspace_bytes, fused_sm80_bwd_variant, fused_sm80_bwd_launch},
};

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const enum attn_status status = attn_check_request(request, why);
    const int sm = request->device->sm;

    if (status != ATTN_OK)
        return status;
    if (sm < 80)
        return attn_fail(why, ATTN_UNSUPPORTED, "needs compute capability 8.0 or newer, this device has %d.%d", sm / 10,
                         sm % 10);
    return directions[request->mode].accepts(request, why);
}

static size_t workspace_bytes(const struct attn_request *request)
{
    return directions[request->mode].workspace_bytes(request);
}

static const char *variant(const struct attn_request *request) { return directions[request->mode].variant(request); }

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    enum attn_status status = accepts(request, why);

    if (status == ATTN_OK)
        status = attn_check_run(&directions[request->mode], request, tensors, run, why);
    return status == ATTN_OK ? directions[request->mode].launch(request, tensors, run, why) : status;
}

static struct attn_variant variants[MAX_VARIANTS];

/* Once, when the program (or library) is loaded, and never changed after. */
__attribute__((constructor)) static void join_variants(void)
{
    attn_join_variants(variants, MAX_VARIANTS, fused_sm80_fwd_variants, fused_sm80_bwd_variants);
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
