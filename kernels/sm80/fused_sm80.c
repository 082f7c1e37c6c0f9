/* fused_sm80: the kernels for compute capability 8.0 and newer. */
#include "kernels/sm80/fused_sm80.h"

#include "kernels/common/checks.h"

static enum attn_status check_device(const struct attn_request *request, struct attn_message *why)
{
    const int sm = request->device->sm;

    if (sm < 80)
        return attn_fail(why, ATTN_UNSUPPORTED, "needs compute capability 8.0 or newer, this device has %d.%d", sm / 10,
                         sm % 10);
    return ATTN_OK;
}

/* Beyond dense attention: forward and backward; decode. */
enum {
    KNOWN = ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_BLOCK_MASK |
            ATTN_WITH_SINK | ATTN_WITH_ALIBI | ATTN_WITH_BIAS | ATTN_WITH_V_HEAD_DIM,
    OF_DECODE = ATTN_WITH_CACHE | ATTN_WITH_PAGES | ATTN_WITH_SPLITS | ATTN_WITH_WINDOW | ATTN_WITH_SINK
};
static const struct attn_dispatch dispatch = {
    .check_device = check_device,
    .directions = {&fused_sm80_fwd, &fused_sm80_bwd, &fused_sm80_decode},
    .ranges = {{KNOWN, 256}, {KNOWN | ATTN_WITH_DSINK | ATTN_WITH_DBIAS, 256}, {OF_DECODE, 256}}};
ATTN_DISPATCH_FUNCTIONS(dispatch)

const struct attn_impl attn_fused_sm80 = {
    .abi = ATTN_ABI,
    .name = "fused_sm80",
    .summary = "FlashAttention-2's algorithm on mma.sync and cp.async, fp16 and bf16, head_dim 8 to 256, sm_80+",
    .platform = ATTN_CUDA,
    /* dQ is summed by atomics unless request.deterministic asks for a fixed order. */
    .repeatable = {ATTN_O | ATTN_LSE, ATTN_DK | ATTN_DV | ATTN_DSINK},
    .repeatable_deterministic = {ATTN_O | ATTN_LSE, ATTN_DQ | ATTN_DK | ATTN_DV | ATTN_DSINK | ATTN_DBIAS},
    ATTN_DISPATCH_MEMBERS,
    .work = fused_sm80_work,
};
