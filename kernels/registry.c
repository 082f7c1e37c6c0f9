/* The only list of implementations. Among the fused ones the order is the preference: `fused` means the first that
 * accepts. Adding a kernel is one file and one line. */
#include "kernels/attention.h"

extern const struct attn_impl attn_naive_cpu, attn_fused_cpu, attn_null_cpu;
#ifdef FABENCH_WITH_CUDA
extern const struct attn_impl attn_naive_cuda, attn_fused_sm80, attn_fused_sm90, attn_null_cuda;
#ifdef FABENCH_WITH_CUDNN
extern const struct attn_impl attn_cudnn;
#endif
#endif

const struct attn_impl *const *attn_registry(void)
{
    static const struct attn_impl *const table[] = {
#ifdef FABENCH_WITH_CUDA
        &attn_naive_cuda,
        &attn_fused_sm90,
        &attn_fused_sm80,
#ifdef FABENCH_WITH_CUDNN
        &attn_cudnn,
#endif
        &attn_null_cuda,
#endif
        &attn_naive_cpu,
        &attn_fused_cpu,
        &attn_null_cpu,
        NULL,
    };
    return table;
}
