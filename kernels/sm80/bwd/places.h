/* What each block of the sparse kernels of fused_sm80's backward does. Beside those with keys there are pieces of
 * preprocess and convert_dq (pieces.cuh) in blocks of their own, so that these passes, bound by device memory,
 * run while other blocks multiply. The blocks of the launch, section by section of kv heads:
 *
 *   pieces          lse2, -D and zeros in dq_sum for the section behind this one; the last one has none of these
 *   half            of the blocks with keys of this section
 *   pieces          dQ of the section `behind` back, by when all blocks that add to it have ended; in the last section
 *                   of all that are left of those that pieces convert
 *   the other half
 *
 * preprocess is left with the first section or two, convert_dq with the last ones. C and CUDA C++. */
#ifndef FABENCH_SM80_BWD_PLACES_H
#define FABENCH_SM80_BWD_PLACES_H

#include "kernels/attention.h"
#include "kernels/common/divisor.h"
#include "kernels/sm80/bwd/zero_shares.h"

struct fused_sm80_bwd_pieces {
    int32_t sections;                    /* 0 where there are no pieces: all blocks have keys */
    int32_t preprocessed;                /* the first ones, whose lse2, -D and zeros preprocess writes, 1 at least */
    int32_t converted;                   /* the first ones, whose dQ pieces convert; never the last one */
    int32_t behind;                      /* 1 or more */
    int32_t pieces;                      /* blocks of each of both kinds in a section */
    int32_t key_blocks, last_key_blocks; /* with keys, of each section but the last one, and of that */
    int32_t row_blocks, all_row_blocks;  /* of all query heads: of each section but the last one, and of all */
    struct divisor launched;             /* blocks of each section but the last one, with pieces */
};

enum fused_sm80_bwd_role { SM80_BWD_KEYS, SM80_BWD_STATS, SM80_BWD_DQ };

/* What a block of the launch does. */
struct fused_sm80_bwd_place {
    enum fused_sm80_bwd_role role;
    int32_t number;       /* keys: among the blocks that have keys */
    int32_t section;      /* keys: its own; stats: of its rows */
    int32_t first, count; /* stats, dq: row blocks, counted over all sections; count may be 0 */
};

/* What the blocks depend on. */
struct fused_sm80_bwd_pieces_shape {
    int64_t sections, section_heads, heads; /* kv heads of each section but the last one, and of all */
    int64_t head_rows;                      /* of dq_sum for a kv head, a multiple of SM80_BWD_ROW_STEP */
    int64_t head_blocks;                    /* with keys of a kv head */
    int64_t running_blocks;                 /* that the device runs at the same time */
    int64_t piece_row_blocks;               /* of a piece, about so many */
};

/* The number-th of so many parts of the row blocks from `first` to before `end`. */
ATTN_FUNCTION struct fused_sm80_bwd_zero_share fused_sm80_bwd_part_of(int32_t first, int32_t end, int32_t number,
                                                                      int32_t parts)
{
    const int32_t each = (end - first + parts - 1) / parts, own = first + number * each,
                  left = own + each < end ? each : end - own;
    const struct fused_sm80_bwd_zero_share part = {own, left < 0 ? 0 : left};
    return part;
}

/* The number-th block of those that a section has in the launch. */
ATTN_FUNCTION struct fused_sm80_bwd_place fused_sm80_bwd_place_in(const struct fused_sm80_bwd_pieces *p,
                                                                  int32_t section, int32_t number)
{
    const bool is_last = section == p->sections - 1;
    const int32_t half = (is_last ? p->last_key_blocks : p->key_blocks) / 2, ahead = is_last ? 0 : p->pieces;
    struct fused_sm80_bwd_place place = {SM80_BWD_KEYS, 0, section, 0, 0};
    struct fused_sm80_bwd_zero_share part = {0, 0};

    if (number < ahead) {
        const int32_t first = section + 1 < p->preprocessed ? p->preprocessed : section + 1;
        const int32_t end = section + 2 < p->sections ? (section + 2) * p->row_blocks : p->all_row_blocks;
        place.role = SM80_BWD_STATS;
        place.section = section + 1;
        part = fused_sm80_bwd_part_of(first * p->row_blocks, end, number, p->pieces);
    } else if (number - ahead >= half && number - ahead < half + p->pieces) {
        const int32_t first = section < p->behind ? 0 : section - p->behind;
        const int32_t end = is_last ? p->converted : section < p->behind ? 0 : first + 1;
        place.role = SM80_BWD_DQ;
        part = fused_sm80_bwd_part_of(first * p->row_blocks, end * p->row_blocks, number - ahead - half, p->pieces);
    } else {
        place.number = section * p->key_blocks + number - ahead - (number - ahead < half ? 0 : p->pieces);
    }
    place.first = part.first;
    place.count = part.count;
    return place;
}

/* Blocks of all sections, with pieces. */
ATTN_FUNCTION int64_t fused_sm80_bwd_launched_blocks(const struct fused_sm80_bwd_pieces *p)
{
    return (p->sections - 1) * (int64_t)p->launched.value + p->last_key_blocks + p->pieces;
}

/* No pieces where a section has fewer blocks than half of what runs at the same time: there a block would begin hardly
 * later than the pieces that it waits for. Blocks of a section have ended when a quarter more blocks than run at the
 * same time have begun behind them; where some have not, pieces wait. */
static inline struct fused_sm80_bwd_pieces fused_sm80_bwd_pieces_of(const struct fused_sm80_bwd_pieces_shape *shape)
{
    const int64_t section_rows = shape->section_heads * shape->head_rows, row_blocks = section_rows / SM80_BWD_ROW_STEP,
                  pieces = (row_blocks + shape->piece_row_blocks - 1) / shape->piece_row_blocks;
    const int64_t key_blocks = shape->section_heads * shape->head_blocks,
                  last_key_blocks = shape->heads * shape->head_blocks - (shape->sections - 1) * key_blocks;
    const int64_t begun = shape->running_blocks / key_blocks, ended = shape->running_blocks * 5 / 4;
    const int64_t launched = shape->heads * shape->head_blocks + 2 * pieces * shape->sections;
    struct fused_sm80_bwd_pieces p = {0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0, 0}};

    if (shape->sections < 2 || 2 * key_blocks < shape->running_blocks || begun >= shape->sections ||
        launched > INT32_MAX)
        return p;
    p.sections = (int32_t)shape->sections;
    p.preprocessed = begun < 1 ? 1 : (int32_t)begun;
    p.behind = 1;
    while (key_blocks / 2 + (p.behind - 1) * key_blocks < ended)
        ++p.behind;
    /* Behind section c are sections - 2 - c whole ones and half of the last one. */
    while (p.converted < p.sections - 1 && last_key_blocks / 2 + (p.sections - 2 - p.converted) * key_blocks >= ended)
        ++p.converted;
    p.pieces = (int32_t)pieces;
    p.key_blocks = (int32_t)key_blocks;
    p.last_key_blocks = (int32_t)last_key_blocks;
    p.row_blocks = (int32_t)row_blocks;
    p.all_row_blocks = (int32_t)(shape->heads * shape->head_rows / SM80_BWD_ROW_STEP);
    p.launched = divisor_of(key_blocks + 2 * pieces);
    return p;
}

#endif
