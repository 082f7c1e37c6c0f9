/* What a problem has beyond dense attention at head dims 64 and 128, as the kernels of fused_sm80 see it, and the list
 * of work tiles of packed sequences. C and CUDA C++. */
#ifndef FABENCH_SM80_FAMILY_H
#define FABENCH_SM80_FAMILY_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SM80_FAMILY_MAX_LEN = 1 << 29, /* so that row + window and the like stay within an int */
    SM80_ROW_BLOCK = 64,           /* packed: rows of the tables of row blocks (fused_sm80_schedule.cu) */
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
    int32_t *row_blocks;   /* packed, backward: the sequence of every SM80_ROW_BLOCK rows of stats and dq_sum */
    int64_t total_q;       /* packed: rows of a head in LSE */
    uint64_t dropout_seed; /* attn_dropout_bits */
    uint32_t dropout_threshold; /* an element is dropped where its bits are below; 0 = none is */
    float keep_factor;          /* 1 / (1 - dropout) */
    float softcap_inner;        /* scale / softcap: the argument of tanh is this times Q K^T; 0 = no softcap */
    int32_t window_left, window_right; /* keys left and right of the diagonal: unbounded is more than any length */
    int32_t head_dim, batch;
    int32_t work_tiles;                               /* packed: room in `work`, at least the tiles there are */
    int32_t mask_block, mask_row_blocks, mask_key_blocks; /* rows and keys of a block, blocks of the longest lengths */
    int64_t mask_batch_stride, mask_head_stride;          /* 0 where all share one */
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

#ifdef __cplusplus
}
#endif
#endif
