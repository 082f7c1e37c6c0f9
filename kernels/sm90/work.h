/* What fused_sm90 says of its work (attn_work in kernels/attention.h). */
#ifndef FABENCH_SM90_WORK_H
#define FABENCH_SM90_WORK_H

#include "kernels/attention.h"

/* Tiles of the tile configuration that the request gets; FLOPs of dense attention, not of windows and packed
 * lengths. */
void fused_sm90_work(const struct attn_request *, struct attn_work *);

#endif
