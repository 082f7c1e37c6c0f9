/* `null` computes nothing: its row is what the harness itself costs per sample. It accepts every problem, with whatever
 * attributes, and promises nothing, and does not touch the outputs. On CUDA its launch enqueues nothing, so the two
 * events around a sample stand next to each other in the stream. */
#include "reference/registry.h"

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    return attn_check_attributes(request, ~0u, why);
}

static size_t workspace_bytes(const struct attn_request *request)
{
    (void)request;
    return 0;
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    (void)request;
    (void)tensors;
    (void)run;
    (void)why;
    return ATTN_OK;
}

#define NULL_IMPL(on) \
    { \
        .abi = ATTN_ABI, .name = "null", .summary = "computes nothing: the harness' own overhead", .platform = (on), \
        .accepts = accepts, .workspace_bytes = workspace_bytes, .launch = launch, .role = ATTN_ROLE_NOTHING, \
    }

const struct attn_impl attn_null_cpu = NULL_IMPL(ATTN_CPU);
#ifdef FABENCH_WITH_CUDA
const struct attn_impl attn_null_cuda = NULL_IMPL(ATTN_CUDA);
#endif
