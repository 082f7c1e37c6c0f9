/* What a problem has beyond dense attention at head dims 64 and 128, as the kernels of fused_sm80 see it, and the list
 * of work tiles of packed sequences. C and CUDA C++. */
#ifndef FABENCH_SM80_FAMILY_H
#define FABENCH_SM80_FAMILY_H

#include "kernels/attention.h"
#include "kernels/common/divisor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SM80_FAMILY_MAX_LEN = 1 << 29,  /* so that row + window and the like stay within an int */
    SM80_FAMILY_MAX_SOFTCAP = 2048, /* a logit's error is up to 2^-22 times the softcap */
    SM80_ROW_BLOCK = 64,            /* packed: rows of the tables of row blocks (fused_sm80_schedule.cu) */
    SM80_SCHEDULE_THREADS = 1024
};

/* One work tile of packed sequences: which sequence, which tile of it. */
struct fused_sm80_work {
    int32_t sequence, tile;
};

/* Every field is set, also where the attribute is absent. */
struct fused_sm80_family {
    const int32_t *cu_seqlens_q, *cu_seqlens_k; /* NULL: all sequences have the longest lengths */
    const uint8_t *block_mask;                  /* NULL: none */
    struct fused_sm80_work *work;               /* packed: work tiles, the longest first; those behind the last one have
                                                   sequence -1 */
    int32_t *row_blocks; /* packed, backward: the sequence of every SM80_ROW_BLOCK rows of stats and dq_sum */
    int64_t total_q;     /* packed: rows of a head in LSE */
    struct attn_philox_keys dropout_keys; /* of the seed, see attn_dropout_bits */
    uint32_t dropout_threshold;           /* an element is dropped where its bits are below; 0 = none is */
    uint32_t last_dropped;                /* the largest 32 bits whose upper half is dropped */
    float keep_factor, keep_share;        /* 1 / (1 - dropout), without its power of two in the main kernel of the
                                             backward where P has that (bwd_params.h); 1 - dropout */
    float softcap_inner;               /* scale / softcap: the argument of tanh is this times Q K^T; 0 = no softcap */
    int32_t window_left, window_right; /* keys left and right of the diagonal: unbounded is more than any length */
    int32_t head_dim, batch;
    int32_t work_tiles;                                   /* packed: room in `work`, at least the tiles there are */
    int32_t mask_block, mask_row_blocks, mask_key_blocks; /* rows and keys of a block, blocks of the longest lengths */
    int64_t mask_batch_stride, mask_head_stride;          /* 0 where all share one */
    struct divisor mask_block_by;                         /* mask_block; 1 without a mask */
};

/* What the kernel that makes the list of work tiles is told: of own tiles, each with `own_tile` rows (keys for the
 * backward) of a sequence, and tiles of `other_tile` on the other side that they visit. */
struct fused_sm80_schedule {
    struct fused_sm80_family family;
    int32_t own_tile, other_tile;
    int32_t longest_other; /* the largest length of the other side */
    bool own_is_keys;
};

typedef void (*fused_sm80_schedule_kernel)(struct fused_sm80_schedule);
extern const fused_sm80_schedule_kernel fused_sm80_schedule_work;

/* Which kernels a request needs, the attributes of family.cuh. */
enum sm80_kind {
    SM80_DENSE,          /* dense attention at head dim 64 or 128 */
    SM80_SPARSE,         /* what remains without dropout and softcap */
    SM80_SPARSE_DROPOUT, /* what remains without softcap; a tile that has no kernel of the kind, or is wider than the
                            head_dim, takes both kinds with its kernel of the family */
    SM80_FAMILY,
    SM80_KINDS
};

/* On the host (family.c), for both directions. `is_keys`: a block's tile is of keys, as in the backward, and not of
 * rows; own_tile: how many. */

enum sm80_kind sm80_kind_of(const struct attn_request *);

/* Refuses lengths that the family's kernels do not take. */
enum attn_status sm80_check_family(const struct attn_request *, struct attn_message *why);

/* Tiles of one head over all sequences; of packed ones at most so many. */
int64_t sm80_work_tiles(const struct attn_problem *, bool is_keys, int own_tile);

/* attn_check_grid for blocks that each have one of these tiles of one of `heads` heads. */
enum attn_status sm80_check_grid(const struct attn_problem *, bool is_keys, int own_tile, int64_t heads,
                                 struct attn_message *why);

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

#ifdef __cplusplus
}
#endif
#endif
