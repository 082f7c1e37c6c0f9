/* The choice of a tile: every direction of a kernel has a table of tiles, each compiled for itself, best first. */
#ifndef FABENCH_TILES_H
#define FABENCH_TILES_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The head of a row in a table of tiles; the last row of a table has no name. */
struct attn_tile {
    struct attn_variant shown;
    int head_dim;
    int blocks_per_sm; /* thread blocks that should share a multiprocessor */
    size_t smem_bytes; /* of one block */
};

struct attn_tile_table {
    const char *direction; /* "forward" or "backward", for messages */
    const void *rows;      /* of row_bytes each; every row begins with struct attn_tile */
    size_t row_bytes;
    /* Estimated time of a tile, in any unit. NULL: the rows are in the order of preference. */
    double (*time)(const struct attn_request *, const struct attn_tile *);
};

/* The row that the request forces, or else the best of its head_dim: the one of the shortest estimated time; or the
 * first of which blocks_per_sm blocks fit on a multiprocessor, or else the first of which one fits. NULL with the
 * reason when there is none. */
const void *attn_choose_tile(const struct attn_tile_table *, const struct attn_request *, struct attn_message *why);

/* The name of that row, NULL when there is none. */
const char *attn_chosen_variant(const struct attn_tile_table *, const struct attn_request *);

static inline int64_t attn_round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

static inline int64_t attn_tiles(int64_t len, int64_t tile) { return (len + tile - 1) / tile; }

#ifdef __cplusplus
}
#endif
#endif
