/* The fused kernels of this build, and only these: naive implementations, peers and `null` are in
 * reference/registry.c. The order is the preference: `fused` means the first one that accepts. A new kernel is one row
 * here, beside its files. */
#include "kernels/attention.h"

extern const struct attn_impl attn_fused_cpu;
#ifdef FABENCH_WITH_CUDA
extern const struct attn_impl attn_fused_sm80, attn_fused_sm90, attn_fused_v1;
#endif

const struct attn_impl *const *attn_registry(void)
{
    static const struct attn_impl *const table[] = {
#ifdef FABENCH_WITH_CUDA
        &attn_fused_sm90, &attn_fused_sm80,
        &attn_fused_v1,
#endif
        &attn_fused_cpu,  NULL,
    };
    return table;
}
