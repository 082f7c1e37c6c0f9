/* How many thread blocks of fused_sm90's backward share the steps of a tile of keys. C. */
#ifndef FABENCH_SM90_BWD_PARTS_H
#define FABENCH_SM90_BWD_PARTS_H

#include "kernels/sm90/bwd_params.h"

struct sm90_bwd_parts {
    int part_steps; /* a tile of keys with more steps than this is shared out */
    int max_parts;  /* of a tile; 1: none is shared out */
};

/* The choice with the shortest estimated time. Reads the lengths, tiles, heads, mask and section_heads of the
 * parameters. */
struct sm90_bwd_parts sm90_bwd_choose_parts(const struct fused_sm90_bwd_params *, int head_dim, int multiprocessors);

#endif
