/* fused_sm80: its entry in the registry (fused_sm80.c) and its two directions (fused_sm80_fwd_host.c,
 * fused_sm80_bwd_host.c). */
#ifndef FABENCH_FUSED_SM80_H
#define FABENCH_FUSED_SM80_H

#include "kernels/attention.h"
#include "kernels/common/dispatch.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct attn_direction fused_sm80_fwd, fused_sm80_bwd;
extern const struct attn_impl attn_fused_sm80;

#ifdef __cplusplus
}
#endif
#endif
