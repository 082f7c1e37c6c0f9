/* The order of work where a thread block's work cannot be told from its number: a list of work tiles, which a kernel
 * ahead makes (schedule.h). C and CUDA C++. */
#ifndef FABENCH_FAMILY_WORK_ORDER_H
#define FABENCH_FAMILY_WORK_ORDER_H

#include "kernels/attention.h"
#include "kernels/common/divisor.h"

/* One work tile: which tile of which head of which sequence. Of packed sequences it stands for all heads, the first
 * of which is `head` = 0. */
struct family_work {
    int32_t sequence, head, tile;
};

struct family_work_order {
    struct family_work *work; /* device; packed sequences, and block masks that have lists of tiles: work tiles, the
                                 longest first (with a mask in each section of heads); packed: those behind the last one
                                 have sequence -1. NULL: block numbers say what a block computes */
    int32_t *row_blocks;      /* device; packed, backward: the sequence of every row block (family_row_blocks) */
    int32_t work_tiles;       /* packed: room in `work`, at least the tiles there are */
    int32_t *count;           /* device; packed: the tiles there are, and a 0 (the forward on sm_90 counts with it) */
    struct divisor heads;     /* heads that an entry of `work` stands for */
};

#endif
