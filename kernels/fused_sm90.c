/* The front of fused_sm90: the attn_impl, and what is refused before a kernel is asked. The kernel is in
 * fused_sm90_fwd.cu; nothing here calls CUDA. */
#include "kernels/fused_sm90.h"

#include "kernels/checks.h"

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const enum attn_status status = attn_check_request(request, why);
    const int sm = request->device->sm;

    if (status != ATTN_OK)
        return status;
    if (sm != 90) /* sm_90a code runs on 9.0 and on nothing else */
        return attn_fail(why, ATTN_UNSUPPORTED, "needs compute capability 9.0, this device has %d.%d", sm / 10,
                         sm % 10);
    if (request->mode != ATTN_FWD)
        return attn_fail(why, ATTN_UNSUPPORTED, "has no backward");
    return fused_sm90_fwd_accepts(request, why);
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    enum attn_status status = accepts(request, why);

    if (status == ATTN_OK)
        status = attn_check_tensors(request, tensors, why);
    if (status != ATTN_OK)
        return status;
    if (run->workspace_bytes < fused_sm90_fwd_workspace_bytes(request))
        return attn_fail(why, ATTN_ERROR, "workspace of %zu bytes where %zu are needed", run->workspace_bytes,
                         fused_sm90_fwd_workspace_bytes(request));
    return fused_sm90_fwd_launch(request, tensors, run, why);
}

const struct attn_impl attn_fused_sm90 = {
    .abi = ATTN_ABI,
    .name = "fused_sm90",
    .summary = "wgmma and TMA, warp-specialised, fp16 and bf16, head_dim 64 and 128, forward, compute capability 9.0",
    .platform = ATTN_CUDA,
    .repeatable = {ATTN_O | ATTN_LSE, 0},
    .repeatable_deterministic = {ATTN_O | ATTN_LSE, 0},
    .accepts = accepts,
    .workspace_bytes = fused_sm90_fwd_workspace_bytes,
    .variant = fused_sm90_fwd_variant,
    .launch = launch,
    .variants = fused_sm90_fwd_variants,
};
