/* The lists of the tiles that a block mask shows, one for each own tile of each mask, which a kernel ahead makes
 * (schedule.h). An own tile is one of a thread block's, of rows in the forward and of keys in the backward; its list
 * has tiles of the other side. C and CUDA C++. */
#ifndef FABENCH_FAMILY_TILE_LISTS_H
#define FABENCH_FAMILY_TILE_LISTS_H

#include "kernels/attention.h"

enum {
    FAMILY_LIST_TILES = 256, /* tiles of one section of a list (tile_lists.cuh) */
    FAMILY_LIST_CHUNK = 8    /* entries of 16 bytes; a section is whole chunks */
};

/* Own tile `tile` of query head `head` of sequence `sequence` has list sequence * batch_stride + head * head_stride +
 * tile; where sequences are packed, the number of the work tile takes the place of the tile. */
struct family_tile_lists {
    uint16_t *entries;                 /* device, [lists][sections][chunks * FAMILY_LIST_CHUNK]; NULL: there are none */
    int32_t *visible;                  /* device, [lists]: tiles in each */
    int64_t batch_stride, head_stride; /* in lists; 0 where all share one mask */
    int32_t sections, chunks;
    /* A list is the numbers of its tiles alone, ascending, without gaps between sections and without an end: the
     * `visible` first ones. */
    bool is_plain;
};

enum { FAMILY_MOST_PLAIN_TILES = 1 << 16 }; /* that a plain list has numbers for */

#endif
