/* What a problem has beyond dense attention at head dims 64 and 128, as the kernels of fused_sm80 see it, and what the
 * kernels ahead of them list (schedule.cu). C and CUDA C++. */
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
    SM80_ROW_BLOCK = 64,            /* packed: rows of the tables of row blocks (schedule.cu) */
    SM80_SCHEDULE_THREADS = 1024,
    SM80_LISTS_THREADS = 256, /* a warp for each list */
    SM80_LIST_TILES = 256,    /* tiles of one section of a list (tile_list.cuh) */
    SM80_LIST_CHUNK = 8       /* entries of 16 bytes; a section is whole chunks */
};

/* One work tile: which tile of which head of which sequence. Of packed sequences it stands for all heads, the first
 * of which is `head` = 0. */
struct fused_sm80_work {
    int32_t sequence, head, tile;
};

/* The lists of the tiles that a block mask shows, one for each own tile of each mask: own tile `tile` of query head
 * `head` of sequence `sequence` has list sequence * batch_stride + head * head_stride + tile; where sequences are
 * packed, the number of the work tile takes the place of the tile. */
struct fused_sm80_lists {
    uint16_t *entries;                 /* [lists][sections][chunks * SM80_LIST_CHUNK]; NULL: there are none */
    int32_t *visible;                  /* [lists]: tiles in each */
    int64_t batch_stride, head_stride; /* in lists; 0 where all share one mask */
    int32_t sections, chunks;
};

/* Every field is set, also where the attribute is absent. */
struct fused_sm80_family {
    const int32_t *cu_seqlens_q, *cu_seqlens_k; /* NULL: all sequences have the longest lengths */
    const uint8_t *block_mask;                  /* NULL: none */
    struct fused_sm80_work *work; /* packed, and of a block mask that has lists: work tiles, the longest first (with a
                                     mask in each section of heads); packed: those behind the last one have sequence
                                     -1. NULL: block numbers say what a block computes */
    int32_t *row_blocks;          /* packed, backward: the sequence of every SM80_ROW_BLOCK rows of stats and dq_sum */
    int64_t total_q;              /* packed: rows of a head in LSE */
    struct attn_philox_keys dropout_keys; /* of the seed, see attn_dropout_bits */
    uint32_t dropout_threshold;           /* an element is dropped where its bits are below; 0 = none is */
    uint32_t last_dropped;                /* the largest 32 bits whose upper half is dropped */
    float keep_factor, keep_share;        /* 1 / (1 - dropout), without its power of two in the main kernel of the
                                             backward where P has that (bwd/params.h); 1 - dropout */
    float softcap_inner;               /* scale / softcap: the argument of tanh is this times Q K^T; 0 = no softcap */
    int32_t window_left, window_right; /* keys left and right of the diagonal: unbounded is more than any length */
    int32_t head_dim, batch;
    int32_t work_tiles;                                   /* packed: room in `work`, at least the tiles there are */
    int32_t mask_block, mask_row_blocks, mask_key_blocks; /* rows and keys of a block, blocks of the longest lengths */
    int64_t mask_batch_stride, mask_head_stride;          /* 0 where all share one */
    struct divisor mask_block_by;                         /* mask_block; 1 without a mask */
    struct divisor work_heads;                            /* heads that an entry of `work` stands for */
    struct fused_sm80_lists lists;
};

/* What the kernels ahead are told: of own tiles, each with `own_tile` rows (keys for the backward) of a sequence, and
 * tiles of `other_tile` on the other side that they visit. */
struct fused_sm80_schedule {
    struct fused_sm80_family family;
    int32_t own_tile, other_tile;
    int32_t longest_own, longest_other; /* the largest lengths of both sides */
    bool own_is_keys;
    int32_t lists;            /* all of them */
    bool tiles_are_in_blocks; /* a tile lies in one block of the mask; the rest is of fixed lengths with lists */
    int32_t mask_heads;
    int32_t own_tiles, heads;         /* of a head, and own heads of a sequence: kv heads where own_is_keys */
    int32_t group, list_group;        /* own heads that share keys stay in one section; lists of one work tile */
    int32_t head_groups;              /* groups of all sequences */
    int32_t section_groups, sections; /* groups of a section; the last section has all that are left */
};

typedef void (*fused_sm80_schedule_kernel)(struct fused_sm80_schedule);
extern const fused_sm80_schedule_kernel fused_sm80_schedule_work, fused_sm80_list_tiles, fused_sm80_sort_work;

/* Which kernels a request needs, the attributes of family.cuh. */
enum sm80_kind {
    SM80_DENSE,          /* dense attention at head dim 64 or 128 */
    SM80_SPARSE,         /* what remains without dropout and softcap */
    SM80_SPARSE_DROPOUT, /* what remains without softcap; a tile that has no kernel of the kind, or is wider than the
                            head_dim, takes both kinds with its kernel of the family */
    SM80_FAMILY,
    SM80_WINDOW, /* forward: what of SM80_SPARSE has neither packed lengths nor a block mask */
    SM80_KINDS
};

/* On the host (family.c), for both directions. `is_keys`: a block's tile is of keys, as in the backward, and not of
 * rows; own_tile: how many. */

struct sm80_tiling {
    bool is_keys;
    int own_tile, other_tile;
    bool has_lists; /* of the tiles that a block mask shows: kernels Sparse and SparseDropout go over them */
};

/* The tiling of a kernel of that kind. */
struct sm80_tiling sm80_tiling_of(const struct attn_problem *, enum sm80_kind, bool is_keys, int own_tile,
                                  int other_tile);

enum sm80_kind sm80_kind_of(const struct attn_request *);

/* Refuses lengths that the family's kernels do not take. */
enum attn_status sm80_check_family(const struct attn_request *, struct attn_message *why);

/* Tiles of one head over all sequences; of packed ones at most so many. */
int64_t sm80_work_tiles(const struct attn_problem *, bool is_keys, int own_tile);

/* attn_check_grid for blocks that each have one of these tiles of one of `heads` heads, and for the lists. */
enum attn_status sm80_check_grid(const struct attn_problem *, const struct sm80_tiling *, int64_t heads,
                                 struct attn_message *why);

/* Blocks of SM80_ROW_BLOCK rows of all packed sequences, each of which begins with a new one; 0 of others. */
int64_t sm80_row_blocks(const struct attn_problem *);

/* Bytes of workspace for work tiles and lists, a multiple of 256; 0 where there are none. */
size_t sm80_schedule_bytes(const struct attn_problem *, const struct sm80_tiling *);

/* The kernels' parameters; `workspace` is where work tiles and lists go. */
struct fused_sm80_family sm80_family_of(const struct attn_request *, const struct attn_tensors *, void *workspace,
                                        const struct sm80_tiling *);

/* Sections of the order of blocks where there are lists: each but the last one has section_groups key heads (groups),
 * the last one all that are left; in each the work tiles are sorted. */
int64_t sm80_list_sections(const struct attn_request *, const struct sm80_tiling *, int64_t section_groups,
                           int blocks_per_sm);

/* Launches the kernels that list work tiles (packed sequences) and visible tiles (a block mask). section_groups: of
 * fixed lengths, key heads whose blocks run at the same time; blocks_per_sm: of the main kernel. In the backward they
 * are a pass. */
enum attn_status sm80_launch_schedule(const struct attn_request *, const struct fused_sm80_family *,
                                      const struct sm80_tiling *, int64_t section_groups, int blocks_per_sm,
                                      const struct attn_run *, struct attn_message *why);

#ifdef __cplusplus
}
#endif
#endif
