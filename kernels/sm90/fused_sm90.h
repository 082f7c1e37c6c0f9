/* fused_sm90: its entry in the registry (fused_sm90.c) and its directions (fwd/host.c,
 * bwd/host.c, decode/host.c, fwd/fp8/host.c). */
#ifndef FABENCH_FUSED_SM90_H
#define FABENCH_FUSED_SM90_H

#include "kernels/attention.h"
#include "kernels/common/dispatch.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct attn_direction fused_sm90_fwd, fused_sm90_bwd, fused_sm90_decode, fused_sm90_fp8;
extern const struct attn_impl attn_fused_sm90;

#ifdef __cplusplus
}
#endif
#endif
