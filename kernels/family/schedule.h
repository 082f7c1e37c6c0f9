/* What runs ahead of a main kernel: lists of work tiles (packed sequences) and of the tiles that a block mask shows.
 * The host cannot make them, as lengths and masks are in device memory. C and CUDA C++. */
#ifndef FABENCH_FAMILY_SCHEDULE_H
#define FABENCH_FAMILY_SCHEDULE_H

#include "kernels/attention.h"
#include "kernels/family/block_mask.h"
#include "kernels/family/lengths.h"
#include "kernels/family/tile_lists.h"
#include "kernels/family/window.h"
#include "kernels/family/work_order.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FAMILY_SCHEDULE_THREADS = 1024,
    FAMILY_LISTS_THREADS = 256 /* a warp for each list */
};

/* The parameter of the kernels (schedule.cu): of own tiles, each with `own_tile` rows (keys where own_is_keys, for the
 * backward) of a sequence, and tiles of `other_tile` on the other side that they visit. */
struct family_schedule {
    struct family_lengths lengths;
    struct family_window window;
    struct family_block_mask mask;
    struct family_work_order order;
    struct family_tile_lists lists;
    int32_t own_tile, other_tile;
    int32_t longest_own, longest_other; /* the largest lengths of both sides */
    bool own_is_keys;
    int32_t row_block;        /* own_is_keys, packed: rows of a block of order.row_blocks */
    bool tiles_are_in_blocks; /* a tile lies in one block of the mask; what follows is of fixed lengths with lists */
    int32_t list_count;       /* all of them */
    int32_t mask_heads;
    int32_t own_tiles, heads;         /* of a head, and own heads of a sequence: kv heads where own_is_keys */
    int32_t group, list_group;        /* own heads that share keys stay in one section; lists of one work tile */
    int32_t head_groups;              /* groups of all sequences */
    int32_t section_groups, sections; /* groups of a section; the last section has all that are left */
};

typedef void (*family_schedule_kernel)(struct family_schedule);
extern const family_schedule_kernel family_schedule_work, family_list_tiles, family_sort_work;

/* On the host (schedule.c), for both directions. */

/* The tiling of a main kernel. */
struct family_tiling {
    bool is_keys; /* a block's own tile is of keys, as in the backward, and not of rows */
    int own_tile, other_tile;
    bool has_lists;       /* the kernel goes over lists of the tiles that a block mask shows */
    int row_block;        /* is_keys: rows of a row block of packed sequences (family_row_blocks) */
    bool has_plain_lists; /* has_lists: those are plain (tile_lists.h) */
};

/* Tiles of one head over all sequences; of packed ones at most so many. */
int64_t family_work_tiles(const struct attn_problem *, bool is_keys, int own_tile);

/* attn_check_grid for blocks that each have one of these tiles of one of `heads` heads, and for the lists. */
enum attn_status family_check_grid(const struct attn_problem *, const struct family_tiling *, int64_t heads,
                                   struct attn_message *why);

/* Bytes of workspace for work tiles and lists, a multiple of 256; 0 where there are none. */
size_t family_schedule_bytes(const struct attn_problem *, const struct family_tiling *);

/* The main kernel's view of them; `workspace` is where they go. */
struct family_work_order family_work_order_of(const struct attn_problem *, const struct family_tiling *,
                                              void *workspace);
struct family_tile_lists family_tile_lists_of(const struct attn_problem *, const struct family_tiling *,
                                              void *workspace);

/* Sections of the order of blocks where there are lists: each but the last one has section_groups key heads (groups),
 * the last one all that are left; in each the work tiles are sorted. */
int64_t family_list_sections(const struct attn_request *, const struct family_tiling *, int64_t section_groups,
                             int blocks_per_sm);

/* Launches the kernels that list work tiles (packed sequences) and visible tiles (a block mask), if there are any.
 * section_groups: of fixed lengths, key heads whose blocks run at the same time; blocks_per_sm: of the main kernel. In
 * the backward they are a pass. */
enum attn_status family_launch_schedule(const struct attn_request *, const struct attn_tensors *,
                                        const struct family_tiling *, int64_t section_groups, int blocks_per_sm,
                                        const struct attn_run *, struct attn_message *why);

/* ---- work tiles in order ---- */

/* The list for kernels whose blocks wait for those of the tiles before in the same sequence: tile by tile, first the
 * first one of each sequence. */
enum { FAMILY_MOST_TILES_IN_ORDER = FAMILY_SCHEDULE_THREADS }; /* of a sequence */

extern const family_schedule_kernel family_schedule_work_in_order;

/* In place of family_launch_schedule. */
enum attn_status family_launch_schedule_in_order(const struct attn_request *, const struct attn_tensors *,
                                                 const struct family_tiling *, const struct attn_run *,
                                                 struct attn_message *why);

#ifdef __cplusplus
}
#endif
#endif
