/* fused_sm90: the kernels for compute capability 9.0. */
#include "kernels/sm90/fused_sm90.h"

#include "kernels/common/checks.h"

enum { MASK_BLOCK = 128 }; /* rows and keys of the tiles for block masks */

static enum attn_status check_device(const struct attn_request *request, struct attn_message *why)
{
    const int sm = request->device->sm;

    if (sm != 90) /* sm_90a code runs on 9.0 and on nothing else */
        return attn_fail(why, ATTN_UNSUPPORTED, "needs compute capability 9.0, this device has %d.%d", sm / 10,
                         sm % 10);
    return ATTN_OK;
}

/* Which block masks there are kernels for. */
static enum attn_status check_mask(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;

    if (p->mask_block % MASK_BLOCK != 0)
        return attn_fail(why, ATTN_UNSUPPORTED, "a block mask of %lld rows and keys: takes multiples of %d",
                         (long long)p->mask_block, (int)MASK_BLOCK);
    if (p->mask_block != 0 &&
        (attn_attributes(request) & (ATTN_WITH_WINDOW | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_SOFTCAP)) != 0)
        return attn_fail(why, ATTN_UNSUPPORTED,
                         "a block mask beside a window, packed sequences or a softcap: takes it without these");
    return ATTN_OK;
}

static enum attn_status check(const struct attn_request *request, struct attn_message *why)
{
    const enum attn_status status = check_device(request, why);

    return status == ATTN_OK ? check_mask(request, why) : status;
}

static const struct attn_dispatch dispatch = {
    .check_device = check,
    .directions = {&fused_sm90_fwd, &fused_sm90_bwd, &fused_sm90_decode, &fused_sm90_fp8},
    .ranges = {
        {ATTN_WITH_WINDOW | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_BLOCK_MASK | ATTN_WITH_SOFTCAP | ATTN_WITH_SINK, 0},
        {ATTN_WITH_WINDOW | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_BLOCK_MASK | ATTN_WITH_SOFTCAP, 0},
        {ATTN_WITH_CACHE | ATTN_WITH_PAGES | ATTN_WITH_SPLITS | ATTN_WITH_WINDOW | ATTN_WITH_SINK |
             ATTN_WITH_CACHE_DTYPE | ATTN_WITH_PACKED_ROWS | ATTN_WITH_INVARIANT,
         256},
        {ATTN_WITH_8_BIT | ATTN_WITH_FAST | ATTN_WITH_FEWER_OUTPUTS, 0}}};
ATTN_DISPATCH_FUNCTIONS(dispatch)

const struct attn_impl attn_fused_sm90 = {
    .abi = ATTN_ABI,
    .name = "fused_sm90",
    .summary =
        "wgmma and TMA, warp-specialised, 16 bits, forward 8 bits too, head_dim 64 and 128, compute capability 9.0",
    .platform = ATTN_CUDA,
    /* dQ is summed in the order in which blocks get there unless request.deterministic asks for a fixed one. */
    .repeatable = {ATTN_O | ATTN_LSE, ATTN_DK | ATTN_DV},
    .repeatable_deterministic = {ATTN_O | ATTN_LSE, ATTN_DQ | ATTN_DK | ATTN_DV},
    .invariant = {ATTN_O | ATTN_LSE, 0}, /* decode, which alone accepts it */
    ATTN_DISPATCH_MEMBERS,
    .work = fused_sm90_work,
};
