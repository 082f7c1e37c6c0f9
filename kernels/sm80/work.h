/* What fused_sm80 says of its work (attn_work in kernels/attention.h): count_work.c. */
#ifndef FABENCH_SM80_WORK_H
#define FABENCH_SM80_WORK_H

#include "kernels/attention.h"

/* Tiles of the tile configuration that the request gets; FLOPs of dense attention with head_dim 64 and 128, backward
 * not of request.deterministic, which has another kernel for dQ. */
void fused_sm80_work(const struct attn_request *, struct attn_work *);

#endif
