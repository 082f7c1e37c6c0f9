/* The last work tiles of fused_sm90's forward, whose keys may be shared out to several thread blocks: what the host,
 * which chooses how many, and the kernels must compute alike. C and CUDA C++; needs no CUDA header, so that it is
 * tested where there is no CUDA. */
#ifndef FABENCH_SM90_FWD_TAIL_H
#define FABENCH_SM90_FWD_TAIL_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Without a mask all work tiles take as long, and where their number is no multiple of that of the multiprocessors some
 * of these have nothing to do at the end. So the last work tiles may have parts: ranges of their blocks of keys, which
 * are taken like work tiles. The parts come behind the other work tiles: the first one of each, then the second one of
 * each, and so on. The first `longer` parts have a block more than the others. Each stores its O and what the softmax
 * needs to know of its rows in its slot of the workspace; a kernel behind puts them together. The slot is the part's
 * number from `first` on. */
struct sm90_fwd_tail {
    int first; /* the number of the first such work tile; INT32_MAX: there is none */
    int works; /* how many */
    int parts; /* of each; 1 where there is none */
    int part_blocks, longer;
};

/* The first block of keys of a part; of part `parts`, how many there are. */
ATTN_FUNCTION int sm90_fwd_part_begin(const struct sm90_fwd_tail *tail, int part)
{
    return part * tail->part_blocks + (part < tail->longer ? part : tail->longer);
}

/* What the choice needs to know of a tile of the kernel (tiles.cuh). */
struct sm90_fwd_tail_tile {
    int block_m, block_n; /* rows, and keys of a block */
    double start;         /* time of a work tile apart from its keys, in keys */
    bool has_parts;       /* the kernel has code for them */
};

struct sm90_fwd_full_work {
    struct sm90_fwd_tail tail;
    double keys; /* estimated time: the keys that a multiprocessor goes through, `start` included */
};

/* The work of a problem of any size without a mask. Causal problems have no parts, and no estimate here: keys is 0. */
struct sm90_fwd_full_work sm90_fwd_full_work_of(const struct attn_problem *, const struct sm90_fwd_tail_tile *,
                                                int64_t multiprocessors);

/* Where the workspace has what, in bytes; params.h says what it is. */
struct sm90_fwd_workspace {
    int64_t tile_counter, part_o, part_max, part_sum, bytes; /* bytes: of all */
};

struct sm90_fwd_workspace sm90_fwd_workspace_of(const struct sm90_fwd_tail *, int64_t block_m, int64_t head_dim);

#ifdef __cplusplus
}
#endif
#endif
