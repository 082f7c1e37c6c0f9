/* What the host, which chooses how fused_sm90's backward shares out its work, and the kernels must compute alike: the
 * tiles of queries that a tile of keys meets, its parts, where their sums lie. C and CUDA C++; needs no CUDA header. */
#ifndef FABENCH_SM90_BWD_GEOMETRY_H
#define FABENCH_SM90_BWD_GEOMETRY_H

#include "kernels/attention.h"

enum {
    SM90_BWD_KV_TILE = 128, /* keys of a tile, which is the work of one block, or of one for each of its parts */
    SM90_BWD_ROW_WARPS =
        8, /* of a block of preprocess and of convert; slabs of 16 rows of 64 columns of a tile of keys are as many */
    SM90_BWD_MOST_SEARCHED_TILES = 384, /* tiles of keys of a kv head with SM90_BWD_WHOLE_PARTS: a thread for each */
};

/* Queries of a row block, which is what a block of the kernels before and after has: their dQ in fp32 is 32 KB. The
 * main kernel has one tile of so many queries, or two of half of it. */
enum { SM90_BWD_ROW_BLOCK_ROWS_D64 = 128, SM90_BWD_ROW_BLOCK_ROWS_D128 = 64 };

ATTN_FUNCTION int sm90_bwd_row_block_rows(int64_t head_dim)
{
    return head_dim == 64 ? SM90_BWD_ROW_BLOCK_ROWS_D64 : SM90_BWD_ROW_BLOCK_ROWS_D128;
}

/* A tile of queries of the main kernel, which is one step of a block, and what an estimate needs to know about it.
 * Times are in per cent of that of a long step: one of a whole row block. */
struct sm90_bwd_q_tile {
    int queries;
    int step_time;
    int block_time;     /* of a work tile beside its steps: loading K and V, the first P, storing dK and dV */
    int start_time;     /* of the first work tile of a block, beside that */
    bool takes_more;    /* a block goes on to another work tile when it has finished one */
    int cluster;        /* thread blocks that have a work tile together: 1, or 2 with a tile of keys each */
    bool keeps_queries; /* a kv head has one step, this tile of queries, which a block keeps for its tiles of keys */
};

/* The first of the q_tiles tiles of q_tile queries that sees a key from first_key on; all behind it do, too. q_tiles
 * where there is none. shift: kv_len - q_len. */
ATTN_FUNCTION int sm90_bwd_first_tile(int first_key, bool causal, int shift, int q_len, int kv_len, int q_tile,
                                      int q_tiles)
{
    const int first_query = causal && first_key > shift ? first_key - shift : 0;

    return first_key < kv_len && first_query < q_len ? first_query / q_tile : q_tiles;
}

/* How many blocks that keep their queries run: as many for each head, where that leaves a tenth of the multiprocessors
 * without work at most. Heads then go through their keys together, so that rows of several heads that lie beside each
 * other in device memory are read at the same time. */
ATTN_FUNCTION int sm90_bwd_blocks_of_heads(int heads, int multiprocessors)
{
    const int blocks = multiprocessors / heads * heads;

    return blocks >= multiprocessors - multiprocessors / 10 ? blocks : multiprocessors;
}

/* The first of `tiles` that a block has, where `blocks` have about as many each; of block `blocks`, how many there
 * are. */
ATTN_FUNCTION int sm90_bwd_equal_range(int tiles, int blocks, int block)
{
    const int each = tiles / blocks, more = tiles - each * blocks;

    return block * each + (block < more ? block : more);
}

/* The first of the tiles of keys, counted over all heads, that a block goes over which keeps its queries; of block
 * `blocks`, how many there are. Each head has blocks of its own, if there are as many for each. */
ATTN_FUNCTION int sm90_bwd_first_key_tile(int heads, int kv_tiles, int blocks, int block)
{
    const int each = blocks / heads, head = each > 0 ? block / each : 0;

    return each * heads == blocks ? head * kv_tiles + sm90_bwd_equal_range(kv_tiles, each, block - head * each)
                                  : sm90_bwd_equal_range(heads * kv_tiles, blocks, block);
}

/* How many parts a tile of keys has that is shared out where it has more than part_steps steps. A step is a tile of
 * queries of one query head. steps + part_steps is at most INT_MAX. */
ATTN_FUNCTION int sm90_bwd_part_count(int steps, int part_steps)
{
    return steps <= part_steps ? 1 : (steps + part_steps - 1) / part_steps;
}

/* How the steps of a tile of keys are shared out to its parts, and in which order these go (work.cuh). */
enum sm90_bwd_part_kind {
    SM90_BWD_EQUAL_PARTS,          /* parts of a tile are equal; tile by tile */
    SM90_BWD_EQUAL_PARTS_IN_TURNS, /* the same, but parts that are as far in their tiles follow one another */
    SM90_BWD_WHOLE_PARTS           /* parts have part_steps steps, the last one of a tile, its rest, what is left; first
                                      those of part_steps in turns, then the rests, the longest first */
};

/* Which part a tile of keys with `parts` parts begins at a turn, of max_parts; `parts` where it begins none. parts is
 * at most max_parts. */
ATTN_FUNCTION int sm90_bwd_part_at_turn(int turn, int parts, int max_parts)
{
    const int part = turn * parts / max_parts;

    return turn > 0 && (turn - 1) * parts / max_parts == part ? parts : part;
}

/* The first step of a part of a tile of keys with this many steps and parts, counted over the tile's; of part `parts`,
 * all steps. Deterministic, tiles of queries that share a semaphore are not divided (a head, which has head_steps, is
 * gone through from its last tile, q_tiles - 1, on): then the part begins a step later; otherwise semaphore_tiles is
 * 1. */
ATTN_FUNCTION int sm90_bwd_part_begin(enum sm90_bwd_part_kind kind, int part, int parts, int steps, int part_steps,
                                      int head_steps, int q_tiles, int semaphore_tiles)
{
    const int most = steps / parts, rest = steps - most * parts;
    const int equal = most * part + rest * part / parts; /* steps * part / parts, without a division in 64 bits */
    const int begin = kind == SM90_BWD_WHOLE_PARTS && part < parts ? part * part_steps : equal;
    const int within = begin % head_steps;

    return begin + (within > 0 && (q_tiles - within) % semaphore_tiles > 0);
}

/* Deterministic: whether a tile of keys behind kv_tile adds to a tile of queries that shares its semaphore with `tile`,
 * so that the semaphore has to be released for it. semaphore_tiles: a power of two. The rest as in
 * sm90_bwd_first_tile. */
ATTN_FUNCTION bool sm90_bwd_has_successor(int kv_tile, int tile, int semaphore_tiles, bool causal, int shift, int q_len,
                                          int kv_len, int q_tile, int q_tiles)
{
    const int last = tile | (semaphore_tiles - 1), most = q_tiles - 1; /* the last tile with that semaphore */

    return sm90_bwd_first_tile((kv_tile + 1) * SM90_BWD_KV_TILE, causal, shift, q_len, kv_len, q_tile, q_tiles) <=
           (last < most ? last : most);
}

/* Where a work tile is in the order of work: its kv head, and its place among those of that head. */
struct sm90_bwd_place {
    int head, place;
};

/* The order of work of deterministic causal problems without parts. Sections of kv heads, all of section_heads, start
 * one after the other: each is `stagger` work tiles further than the one that starts behind it, and work tiles at the
 * same time are those of one section after the other. So blocks that run at the same time differ in length and do not
 * start or end together; a work tile starts when that of the tile of keys before it, of the same head, which it follows
 * at each tile of queries, is a step or more ahead.
 *
 * A turn goes on by `stagger` places in each section that has begun and is not done. sections of section_heads heads
 * with `works` work tiles each; stagger: 1 to works. number: below sections * section_heads * works. */
ATTN_FUNCTION struct sm90_bwd_place sm90_bwd_staggered_place(int number, int section_heads, int sections, int works,
                                                             int stagger)
{
    const int turns = (works + stagger - 1) / stagger;     /* that a section takes */
    const int last_places = works - (turns - 1) * stagger; /* of its last turn */
    const int alike = sections - turns + 1; /* turns with all ages, if there are any; the first one is turns - 1 */
    const int before = stagger * (turns * (turns - 1) / 2); /* in work tiles of a head, then */
    int rest = number / section_heads;                      /* of the turn, in work tiles of a head */
    int turn = 0, oldest, newest, whole; /* oldest, newest: how many turns a section of this turn has had before */

    if (alike > 0 && rest >= before) {
        const int passed = (rest - before) / works < alike ? (rest - before) / works : alike;
        turn = turns - 1 + passed;
        rest -= before + passed * works;
    }
    for (;; ++turn) {
        oldest = turn < turns - 1 ? turn : turns - 1;
        newest = turn < sections ? 0 : turn - sections + 1;
        whole = oldest == turns - 1 ? last_places : stagger; /* places of the turn at which the oldest is not done */
        const int size = (oldest - newest + 1) * whole + (oldest - newest) * (stagger - whole);
        if (rest < size)
            break;
        rest -= size;
    }
    int under_way = oldest - newest + 1, step = 0;
    if (rest >= under_way * whole) { /* the oldest section is done */
        rest -= under_way * whole;
        step = whole;
        --under_way;
        --oldest;
    }
    step += rest / under_way;
    const int age = oldest - rest % under_way;
    const struct sm90_bwd_place at = {(turn - age) * section_heads + number % section_heads, age * stagger + step};

    return at;
}

/* Who writes the zeros in dq_sum: preprocess those of the first sections of kv heads; for the others the work tiles
 * of a section from first_work to end_work those of the section that comes `ahead` later, in shares of equal size. */
struct sm90_bwd_zeros {
    int sections;       /* of the problem */
    int all_row_blocks; /* of preprocess */
    int row_blocks;     /* of them, in a section; the last one may have fewer */
    int preprocessed;   /* sections of preprocess; all of them where no work tile writes zeros */
    int ahead;
    int first_work, end_work; /* counted in their section */
    int share;                /* row blocks of a work tile, at most */
};

/* Row blocks of one section, counted over all. */
struct sm90_bwd_zero_share {
    int section, first, count;
};

/* How many row blocks a section has. */
ATTN_FUNCTION int sm90_bwd_section_row_blocks(const struct sm90_bwd_zeros *zeros, int section)
{
    const int left = zeros->all_row_blocks - section * zeros->row_blocks;
    return left < zeros->row_blocks ? left : zeros->row_blocks;
}

/* The share of a work tile, the work-th of its section; count is 0 where it has none. */
ATTN_FUNCTION struct sm90_bwd_zero_share sm90_bwd_zero_share_of(const struct sm90_bwd_zeros *zeros, int section,
                                                                int work)
{
    const int to = section + zeros->ahead, first = (work - zeros->first_work) * zeros->share;
    struct sm90_bwd_zero_share share = {to, 0, 0};

    if (to < zeros->preprocessed || to >= zeros->sections || work < zeros->first_work || work >= zeros->end_work)
        return share;
    const int left = sm90_bwd_section_row_blocks(zeros, to) - first;
    share.first = to * zeros->row_blocks + first;
    share.count = left < 0 ? 0 : left < zeros->share ? left : zeros->share;
    return share;
}

/* How many work tiles have a share of a section that preprocess has none of. */
ATTN_FUNCTION int sm90_bwd_zero_shares(const struct sm90_bwd_zeros *zeros, int section)
{
    return (sm90_bwd_section_row_blocks(zeros, section) + zeros->share - 1) / zeros->share;
}

/* Where blocks take one work tile after the other: the last work tiles, of the last section, may have parts, so that
 * all blocks finish at about the same time. The parts come behind the other work tiles: the first one of each, then the
 * second one of each, and so on. */
struct sm90_bwd_tail {
    int first; /* the first such work tile: the number of all where there is none */
    int works; /* how many */
    int parts; /* of each; 1 where there is none */
};

/* Whether a problem whose tiles of keys have at most max_parts parts has so many that the last kernel has a block for a
 * slab, 16 rows of 64 columns of dK or dV of a tile, and not a warp. With two and three parts a warp is faster. */
ATTN_FUNCTION bool sm90_bwd_has_many_parts(int max_parts) { return max_parts > 4; }

/* Where a part's sums of dV and dK of a tile of keys lie, in floats: [part][tile][2][128 x head_dim]. tile: one of the
 * `tiles` of all kv heads. The offset of part max_parts and tile 0 is the size of all. */
ATTN_FUNCTION int64_t sm90_bwd_sums_offset(int part, int64_t tile, int64_t tiles, int head_dim)
{
    return (part * tiles + tile) * (2 * SM90_BWD_KV_TILE * head_dim);
}

#endif
