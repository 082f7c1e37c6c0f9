/* How fused_sm90's backward shares out its work to thread blocks: what follows from the problem, how many blocks share
 * the steps of a tile of keys, and the time that this takes, by which a tile of queries is chosen. C; needs no CUDA
 * header, so that it is tested where there is no CUDA. */
#ifndef FABENCH_SM90_BWD_PARTS_H
#define FABENCH_SM90_BWD_PARTS_H

#include "kernels/sm90/bwd/geometry.h"

enum { SM90_BWD_MOST_PARTS = 64 }; /* of a tile of keys */

/* Lengths in rows, and counts. */
struct sm90_bwd_shape {
    int shift; /* kv_len - q_len */
    int q_len, kv_len;
    int group; /* query heads for each kv head */
    struct sm90_bwd_q_tile q_tile;
    int q_tiles;        /* of a query head */
    int kv_tiles;       /* of a kv head */
    int kv_heads_total; /* batch * kv_heads */
    int section_heads;  /* kv heads whose blocks run at the same time */
    double query_l2s;   /* Q, dO and the sums of dQ of a kv head, as a multiple of the L2 */
    /* Of head_dim 64: so many tiles of keys for so few queries that blocks mostly wait for each other's additions to
     * the same dQ. A pair of blocks makes half as many. */
    bool contended;
    bool causal;
    bool in_order; /* deterministic: blocks wait for those of the tiles of keys before, so that parts go tile by tile */
};

struct sm90_bwd_parts {
    int part_steps; /* a tile of keys with more steps than this is shared out */
    int max_parts;  /* of a tile; 1: none is shared out */
    enum sm90_bwd_part_kind kind;
    int whole_parts; /* SM90_BWD_WHOLE_PARTS: those of a kv head with part_steps steps */
    int head_works;  /* work tiles of a kv head; where parts of a tile are equal, max_parts of each tile of keys, or of
                        each cluster's */
    double time;     /* estimated, of the main kernel and of adding up parts, in long steps */
};

/* Of a problem whose tiles attn_check_grid has accepted. */
struct sm90_bwd_shape sm90_bwd_shape_of(const struct attn_problem *, const struct sm90_bwd_q_tile *, bool deterministic,
                                        const struct attn_device *);

/* Steps of a tile of keys: tiles of queries that see any of its keys, of all heads of the group. */
int sm90_bwd_steps(const struct sm90_bwd_shape *, int kv_tile);

/* Whether the tile of queries can have the problem: one that has to be the only one of a kv head may not be. */
bool sm90_bwd_fits(const struct sm90_bwd_shape *);

/* Work tiles of a kv head without parts: one for each cluster of tiles of keys. */
int sm90_bwd_work_tiles(const struct sm90_bwd_shape *);

/* How many of the work tiles, from the first one on, leave so many behind them that their blocks may take the next one
 * early. Blocks that take one late balance the lengths of causal work tiles better. clusters: how many have a work tile
 * at the same time. */
int sm90_bwd_early_tiles(const struct sm90_bwd_shape *, int64_t work_tiles, int clusters);

/* The choice with the shortest estimated time. */
struct sm90_bwd_parts sm90_bwd_choose_parts(const struct sm90_bwd_shape *, int head_dim, int multiprocessors);

/* The order of work tiles. stagger 0: section by section; otherwise sections, which divide the kv heads, start one
 * after the other (sm90_bwd_staggered_place). */
struct sm90_bwd_order {
    int section_heads, stagger;
};

struct sm90_bwd_order sm90_bwd_order_of(const struct sm90_bwd_shape *, const struct sm90_bwd_parts *,
                                        int multiprocessors);

/* The last work tiles, where parts of them shorten the estimated time. clusters: as many work tiles are computed at the
 * same time. */
struct sm90_bwd_tail sm90_bwd_tail_of(const struct sm90_bwd_shape *, const struct sm90_bwd_parts *, int head_dim,
                                      int clusters);

/* Who writes the zeros in dq_sum. row_blocks: of preprocess, in a query head; clusters: as many work tiles are computed
 * at the same time; gap: work tiles from the last one that writes for a section to that section's first one. */
struct sm90_bwd_zeros sm90_bwd_zeros_of(const struct sm90_bwd_shape *, const struct sm90_bwd_parts *, int row_blocks,
                                        int clusters, int gap);
/* The gap where a block looks for its next work tile while it computes the last steps of one; or, where these are few,
 * all the time: nobody is to wait then for one that a block has taken and not begun. */
int sm90_bwd_zeros_gap(bool is_short, int clusters);

#endif
