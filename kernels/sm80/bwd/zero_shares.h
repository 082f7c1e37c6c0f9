/* Who writes the zeros of dq_sum, the fp32 sums of dQ of fused_sm80's backward. preprocess, bound by device memory,
 * writes those of the first sections of kv heads; while a section is computed, its first blocks write those of the next
 * section, where that is hidden (zeros.cuh). Launches with pieces have them in these (places.h). C and CUDA
 * C++. */
#ifndef FABENCH_SM80_BWD_ZERO_SHARES_H
#define FABENCH_SM80_BWD_ZERO_SHARES_H

#include "kernels/attention.h"

enum { SM80_BWD_ROW_STEP = 64 }; /* stats and dq_sum are padded to a multiple of this many queries, a row block */

/* The zeros of one section: that of each but the last one, or that of the last one. */
struct fused_sm80_bwd_section_zeros {
    int32_t share;  /* row blocks that a block writes, at most */
    int32_t shares; /* blocks that write any */
};

struct fused_sm80_bwd_zeros {
    int32_t sections;          /* of kv heads, in the order of the blocks; the last one has all heads that are left. 0
                                  where preprocess writes all zeros */
    int32_t preprocessed;      /* the first ones, whose zeros preprocess writes, 1 at least */
    int64_t preprocessed_rows; /* of dq_sum, the first ones, whose zeros preprocess writes */
    int32_t row_blocks;        /* of each section but the last one */
    int32_t all_row_blocks;
    struct fused_sm80_bwd_section_zeros each, last;
};

/* Row blocks from `first` on, counted over all sections; count is 0 where there are none. */
struct fused_sm80_bwd_zero_share {
    int32_t first, count;
};

/* What the section's blocks wait for, and how those before it divide it. */
ATTN_FUNCTION struct fused_sm80_bwd_section_zeros
fused_sm80_bwd_zeros_of_section(const struct fused_sm80_bwd_zeros *zeros, int32_t section)
{
    return section == zeros->sections - 1 ? zeros->last : zeros->each;
}

/* The share of the number-th block of a section in the zeros of the next one. */
ATTN_FUNCTION struct fused_sm80_bwd_zero_share fused_sm80_bwd_zero_share_of(const struct fused_sm80_bwd_zeros *zeros,
                                                                            int32_t section, int32_t number)
{
    const int32_t to = section + 1;
    struct fused_sm80_bwd_zero_share share = {0, 0};

    if (to < zeros->preprocessed || to >= zeros->sections)
        return share;
    const struct fused_sm80_bwd_section_zeros of = fused_sm80_bwd_zeros_of_section(zeros, to);
    if (number >= of.shares)
        return share;
    const int32_t end = to == zeros->sections - 1 ? zeros->all_row_blocks : (to + 1) * zeros->row_blocks;
    share.first = to * zeros->row_blocks + number * of.share;
    share.count = end - share.first < of.share ? end - share.first : of.share;
    return share;
}

/* Row blocks of a section, divided among so many blocks at most. */
ATTN_FUNCTION struct fused_sm80_bwd_section_zeros fused_sm80_bwd_divide_zeros(int64_t row_blocks, int64_t writers)
{
    const int64_t share = (row_blocks + writers - 1) / writers;
    const struct fused_sm80_bwd_section_zeros zeros = {(int32_t)share, (int32_t)((row_blocks + share - 1) / share)};
    return zeros;
}

/* What the division among preprocess and blocks depends on. */
struct fused_sm80_bwd_zeros_shape {
    int64_t sections, section_heads, heads; /* kv heads of each section but the last one, and of all */
    int64_t head_rows;                      /* of dq_sum for a kv head, a multiple of SM80_BWD_ROW_STEP */
    int64_t section_blocks;                 /* of each section but the last one */
    int64_t running_blocks;                 /* that the device runs at the same time */
    bool by_blocks;                         /* whether blocks may write zeros */
};

/* The first half of a section's blocks write, so that all is written well before the next section begins. preprocess
 * writes for the sections all of whose blocks begin together with the kernel; the first blocks of the section behind
 * them may wait for its zeros. Where a section has fewer blocks than half of what runs at the same time, a block would
 * begin hardly later than those that write for it: preprocess writes all. */
ATTN_FUNCTION struct fused_sm80_bwd_zeros fused_sm80_bwd_zeros_of(const struct fused_sm80_bwd_zeros_shape *shape)
{
    const int64_t row_blocks = shape->head_rows / SM80_BWD_ROW_STEP,
                  begun = shape->running_blocks / shape->section_blocks;
    const int64_t last_heads = shape->heads - (shape->sections - 1) * shape->section_heads;
    struct fused_sm80_bwd_zeros zeros = {0, 0, shape->heads * shape->head_rows, 0, 0, {0, 0}, {0, 0}};

    if (!shape->by_blocks || 2 * shape->section_blocks < shape->running_blocks || shape->sections < 2 ||
        begun >= shape->sections)
        return zeros;
    zeros.sections = (int32_t)shape->sections;
    const int64_t writers = (shape->section_blocks + 1) / 2;
    zeros.preprocessed = begun < 1 ? 1 : (int32_t)begun;
    zeros.preprocessed_rows = zeros.preprocessed * shape->section_heads * shape->head_rows;
    zeros.row_blocks = (int32_t)(shape->section_heads * row_blocks);
    zeros.all_row_blocks = (int32_t)(shape->heads * row_blocks);
    zeros.each = fused_sm80_bwd_divide_zeros(zeros.row_blocks, writers);
    zeros.last = fused_sm80_bwd_divide_zeros(last_heads * row_blocks, writers);
    return zeros;
}

#endif
