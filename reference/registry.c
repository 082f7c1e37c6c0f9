/* The naive implementations, peers and `null` of this build. A new peer is one row here, beside its file. */
#include "reference/registry.h"

#include "reference/harness/null_impl.h"
#include "reference/naive/naive.h"
#ifdef FABENCH_WITH_CUDNN
#include "reference/peers/cudnn_peer.h"
#endif

const struct reference_row *reference_registry(void)
{
    static const struct reference_row table[] = {
#ifdef FABENCH_WITH_CUDA
        {&attn_naive_cuda, ROLE_NAIVE},
#endif
        {&attn_naive_cpu, ROLE_NAIVE},
#ifdef FABENCH_WITH_CUDNN
        {&attn_cudnn, ROLE_PEER},
#endif
#ifdef FABENCH_WITH_CUDA
        {&attn_null_cuda, ROLE_NULL},
#endif
        {&attn_null_cpu, ROLE_NULL},    {NULL, ROLE_NULL},
    };
    return table;
}
