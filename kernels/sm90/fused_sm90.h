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

/* What it says of its work (attn_work in kernels/attention.h; count_work.c): tiles of the tile configuration that the
 * request gets; FLOPs of dense attention, not of windows and packed lengths. */
void fused_sm90_work(const struct attn_request *, struct attn_work *);

#ifdef __cplusplus
}
#endif
#endif
