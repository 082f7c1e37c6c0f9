/* The naive implementations, peers and `null` of this build. A new peer is one row here, beside its file. */
#include "reference/registry.h"

#ifdef FABENCH_WITH_CUDNN
#include "reference/peers/cudnn_peer.h"
#endif

const struct attn_impl *const *reference_registry(void)
{
    static const struct attn_impl *const table[] = {
#ifdef FABENCH_WITH_CUDA
        &attn_naive_cuda,
#endif
        &attn_naive_cpu,
#ifdef FABENCH_WITH_CUDNN
        &attn_cudnn,
#endif
#ifdef FABENCH_WITH_CUDA
        &attn_null_cuda,
#endif
        &attn_null_cpu,   NULL,
    };
    return table;
}
