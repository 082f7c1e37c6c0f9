/* The family on the host (family.c), for both directions of fused_sm80. `is_keys`: a block's tile is of keys, as in the
 * backward, and not of rows; own_tile: how many. */
#ifndef FABENCH_SM80_FAMILY_HOST_H
#define FABENCH_SM80_FAMILY_HOST_H

#include "kernels/sm80/family.h"

static const float SM80_LOG2_E = 1.44269504088896340736f;

/* Whether the request has more than dense attention at head dim 64 or 128. */
bool sm80_needs_family(const struct attn_request *);

/* Refuses lengths that the family's kernels do not take. */
enum attn_status sm80_check_family(const struct attn_request *, struct attn_message *why);

/* Tiles of one head over all sequences; of packed ones at most so many. */
int64_t sm80_work_tiles(const struct attn_problem *, bool is_keys, int own_tile);

/* Blocks of SM80_ROW_BLOCK rows of all packed sequences, each of which begins with a new one; 0 of others. */
int64_t sm80_row_blocks(const struct attn_problem *);

/* Bytes of workspace for the lists of packed sequences, a multiple of 256; 0 of others. */
size_t sm80_schedule_bytes(const struct attn_problem *, bool is_keys, int own_tile);

/* The kernels' parameters; `workspace` is where the lists go. */
struct fused_sm80_family sm80_family_of(const struct attn_request *, const struct attn_tensors *, void *workspace,
                                        bool is_keys, int own_tile);

/* Launches the kernel that makes the lists, for packed sequences. In the backward it is a pass. */
enum attn_status sm80_launch_schedule(const struct attn_request *, const struct fused_sm80_family *, bool is_keys,
                                      int own_tile, int other_tile, const struct attn_run *, struct attn_message *why);

#endif
