/* How keys are shared out in decode (kernels/family/decode_work.h) where sequences have different numbers of new rows,
 * and in the invariant mode. C and CUDA C++; needs no CUDA header. There is one lane.
 *
 * In the invariant mode nothing that is computed may depend on other sequences. There an item's keys are cut into
 * leaves, whose number follows from what its sequence has alone, and `fan` neighbouring leaves are a node. The result
 * of a leaf is computed from nothing; that of a node is the sum of its leaves, that of the item the sum of its nodes,
 * each added up from left to right: the same sums whoever has which leaf. A block has the leaves that begin in its
 * range of units, so no leaf is shared.
 *
 * Leaves have slots in regions of the workspace. Where there are few items each has a region. Otherwise a block has
 * two: one for items of which it has all leaves, one after the other; and one for the item that it begins and others
 * end. These need not be one: the others may write their leaves before the block has finished its own items. */
#ifndef FABENCH_SM90_DECODE_RAGGED_H
#define FABENCH_SM90_DECODE_RAGGED_H

#include "kernels/family/decode_work.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SM90_DECODE_ROWS = 64 }; /* of a tile of query rows: those of a wgmma */

enum {                                 /* of the invariant mode; none of them is the device's */
       SM90_DECODE_WAVE = 132,         /* leaves of a wave: the multiprocessors of an H100 and H200 */
       SM90_DECODE_MOST_WAVES = 8,     /* of a sequence that is long enough */
       SM90_DECODE_SHORT_LEAF = 4,     /* tiles of a leaf: with fewer a sequence has one wave, */
       SM90_DECODE_LONG_LEAF = 16,     /* from these on several */
       SM90_DECODE_MOST_LEAVES = 1024, /* of an item; nodes of 32 leaves and 32 nodes, which a warp adds up at once */
       SM90_DECODE_NODE_COUNTERS = 33  /* of a region: of an item's nodes, and its own */
};

/* Whose lengths the sequences have. cu_seqlens_q: NULL = each has q_len new rows. */
struct sm90_decode_lengths {
    const int32_t *seqused_k, *cu_seqlens_q;
};

struct sm90_decode_sequence {
    int q_first, q_len, used; /* q_first: of packed rows, where they begin */
};

ATTN_FUNCTION struct sm90_decode_sequence sm90_decode_sequence_at(const struct family_decode_shape *shape,
                                                                  const struct sm90_decode_lengths *lengths, int b)
{
    struct sm90_decode_sequence sequence = {0, shape->q_len, lengths->seqused_k[b]};

    if (lengths->cu_seqlens_q != NULL) {
        sequence.q_first = lengths->cu_seqlens_q[b];
        sequence.q_len = lengths->cu_seqlens_q[b + 1] - sequence.q_first;
    }
    return sequence;
}

ATTN_FUNCTION int sm90_decode_token_tiles(const struct family_decode_shape *shape, int q_len)
{
    return (q_len + shape->tokens - 1) / shape->tokens;
}

/* Items of a sequence. */
ATTN_FUNCTION int sm90_decode_items(const struct family_decode_shape *shape, int q_len)
{
    return shape->items / shape->token_tiles * sm90_decode_token_tiles(shape, q_len);
}

/* Units of a sequence. */
ATTN_FUNCTION int64_t sm90_decode_ragged_units(const struct family_decode_shape *shape,
                                               const struct sm90_decode_sequence *sequence)
{
    const int tiles = family_decode_keys_of_rows(shape, sequence->q_len, sequence->used).tiles;

    return (int64_t)sm90_decode_items(shape, sequence->q_len) * (shape->splits != 0 ? shape->splits : tiles);
}

/* Of an item of `tiles` tiles whose sequence has `items` of them, of `rows` query rows. A wave of leaves in all, so
 * that the sequence alone is spread over the device; where they can be long several whole waves, so that little is
 * lost beside others. */
ATTN_FUNCTION int sm90_decode_leaves(int items, int rows, int tiles)
{
    const int wave = SM90_DECODE_WAVE; /* 4 * 3 * 11 */
    const int common = (items % 4 == 0   ? 4
                        : items % 2 == 0 ? 2
                                         : 1) *
                       (items % 3 == 0 ? 3 : 1) * (items % 11 == 0 ? 11 : 1);
    const int even = wave / common; /* so many leaves of each item are whole waves */
    const int long_leaf = 2 * rows > SM90_DECODE_LONG_LEAF ? 2 * rows : SM90_DECODE_LONG_LEAF;

    if (tiles < even * SM90_DECODE_SHORT_LEAF || items >= SM90_DECODE_MOST_WAVES * wave) {
        const int64_t equal = ((int64_t)tiles * items + wave - 1) / wave;
        const int64_t least = rows > 16 ? 2 : 1, each = equal > least ? equal : least;
        return (int)((tiles + each - 1) / each);
    }
    if ((int64_t)even * items > 2 * SM90_DECODE_MOST_WAVES * wave)
        return (SM90_DECODE_MOST_WAVES * wave + items - 1) / items;
    const int most = SM90_DECODE_MOST_WAVES * wave / (even * items), most_waves = SM90_DECODE_MOST_LEAVES / even;
    int waves = tiles / (even * long_leaf);
    waves = waves < most ? waves : most;
    waves = waves < most_waves ? waves : most_waves;
    return even * (waves > 1 ? waves : 1);
}

/* The most leaves that an item can have, whatever the lengths of its sequence are. */
static inline int sm90_decode_most_leaves(const struct family_decode_shape *shape, bool rows_differ)
{
    const int tiles = (shape->kv_len + shape->tile_keys - 1) / shape->tile_keys;
    int most = 1;

    for (int t = rows_differ ? 1 : shape->token_tiles; t <= shape->token_tiles; t++) {
        const int items = shape->items / shape->token_tiles * t;
        const int wave = (SM90_DECODE_WAVE + items - 1) / items; /* of those that have a wave in all */
        const int of_longest = sm90_decode_leaves(items, rows_differ ? 1 : shape->heads * shape->tokens, tiles);
        most = most > wave ? most : wave;
        most = most > of_longest ? most : of_longest;
    }
    return most < tiles ? most : tiles;
}

/* The shape where rows differ, or of the invariant mode; there are no splits in that. */
static inline struct family_decode_shape sm90_decode_ragged_shape_of(const struct attn_problem *p, int tile_keys,
                                                                     int multiprocessors, int64_t splits,
                                                                     bool is_invariant)
{
    struct family_decode_shape shape = family_decode_shape_of(p, tile_keys, SM90_DECODE_ROWS, multiprocessors, splits);
    const int64_t each = splits != 0 ? splits : (p->kv_len + tile_keys - 1) / tile_keys;
    const int64_t most_units = p->batch * shape.items * each;

    shape.lanes = 1;
    shape.row_items = shape.items;
    shape.blocks = multiprocessors < FAMILY_DECODE_MOST_BLOCKS ? multiprocessors : FAMILY_DECODE_MOST_BLOCKS;
    if (shape.blocks > most_units)
        shape.blocks = (int)most_units;
    if (is_invariant)
        shape.most_leaves = sm90_decode_most_leaves(&shape, p->total_q != 0);
    return shape;
}

/* Has each item of the invariant mode a region? */
ATTN_FUNCTION bool sm90_decode_items_have_regions(const struct family_decode_shape *shape)
{
    return (int64_t)shape->batch * shape->items <= 2 * (int64_t)shape->blocks;
}

/* Regions of the workspace in the invariant mode: each has slots for most_leaves leaves, and NODE_COUNTERS counters. */
ATTN_FUNCTION int64_t sm90_decode_regions(const struct family_decode_shape *shape)
{
    return sm90_decode_items_have_regions(shape) ? (int64_t)shape->batch * shape->items : 2 * (int64_t)shape->blocks;
}

/* What is more about a part. */
struct sm90_decode_own {
    int q_first, q_len; /* of the sequence */
    /* The invariant mode: `number` of the part is its first leaf and `parts` the item's leaves. leaves: of the part, or
     * 1; fan: of a node. */
    int leaves, fan, item_first_tile, item_tiles;
};

/* In the invariant mode: where a leaf of the item begins, in tiles of the item. */
ATTN_FUNCTION int sm90_decode_leaf_begin(const struct sm90_decode_own *own, int item_leaves, int leaf)
{
    return (int)((int64_t)own->item_tiles * leaf / item_leaves);
}

/* The region of an item, some leaves of which the block has. */
ATTN_FUNCTION int64_t sm90_decode_region(const struct family_decode_shape *shape, const struct family_decode_walk *walk,
                                         int64_t item_first, const struct family_decode_part *part, bool is_whole)
{
    if (sm90_decode_items_have_regions(shape))
        return (int64_t)part->sequence * shape->items + part->item;
    return is_whole ? 2 * (int64_t)walk->block : 2 * (int64_t)family_decode_block_of(walk, item_first) + 1;
}

/* The block's leaves of an item, whose first unit is item_first; false: it has none. */
ATTN_FUNCTION bool sm90_decode_take_leaves(const struct family_decode_shape *shape, struct family_decode_walk *walk,
                                           int64_t item_first, struct family_decode_part *part,
                                           struct sm90_decode_own *own)
{
    const int tiles = own->item_tiles;
    const int rows = shape->heads * (own->q_len < shape->tokens ? own->q_len : shape->tokens);
    const int leaves = sm90_decode_leaves(sm90_decode_items(shape, own->q_len), rows, tiles);
    const int64_t item_end = item_first + tiles, within = walk->next - item_first;
    const int first = (int)((within * leaves + tiles - 1) / tiles);
    const int last = walk->end < item_end ? (int)(((walk->end - item_first) * leaves + tiles - 1) / tiles) : leaves;

    walk->next = walk->end < item_end ? walk->end : item_end;
    part->parts = leaves;
    part->number = first;
    own->leaves = last - first;
    own->fan = family_decode_fan(leaves);
    part->tiles = sm90_decode_leaf_begin(own, leaves, last) - sm90_decode_leaf_begin(own, leaves, first);
    part->first_tile = own->item_first_tile + sm90_decode_leaf_begin(own, leaves, first);
    part->first_slot = part->base_slot =
        sm90_decode_region(shape, walk, item_first, part, own->leaves == leaves) * shape->most_leaves;
    part->slot_step = 1;
    return last > first;
}

/* The part of an item that is its split `split`; false: there is none. */
ATTN_FUNCTION bool sm90_decode_take_split(const struct family_decode_shape *shape,
                                          const struct family_decode_keys *keys, int split,
                                          struct family_decode_part *part)
{
    const int each = shape->splits, parts = keys->tiles < each ? keys->tiles : each;
    const int begin = (int)((int64_t)keys->tiles * split / parts);

    part->parts = parts;
    part->number = split;
    part->tiles = (int)((int64_t)keys->tiles * (split + 1) / parts) - begin;
    part->first_tile = keys->first_tile + begin;
    part->first_slot = part->base_slot = ((int64_t)part->sequence * shape->items + part->item) * each;
    part->slot_step = 1;
    return split < parts;
}

/* The block's next part, as family_decode_next; the walk begins in the sequence that has its first unit. */
ATTN_FUNCTION bool sm90_decode_next_ragged(const struct family_decode_shape *shape,
                                           const struct sm90_decode_lengths *lengths, struct family_decode_walk *walk,
                                           struct family_decode_part *part, struct sm90_decode_own *own)
{
    while (walk->next < walk->end) {
        struct sm90_decode_sequence sequence = sm90_decode_sequence_at(shape, lengths, walk->sequence);
        while (walk->next >= walk->first + sm90_decode_ragged_units(shape, &sequence)) {
            walk->first += sm90_decode_ragged_units(shape, &sequence);
            sequence = sm90_decode_sequence_at(shape, lengths, ++walk->sequence);
        }
        const struct family_decode_keys keys = family_decode_keys_of_rows(shape, sequence.q_len, sequence.used);
        const int each = shape->splits != 0 ? shape->splits : keys.tiles; /* units of an item */
        const int64_t item = (walk->next - walk->first) / each;
        const int64_t item_first = walk->first + item * each;
        const int within = (int)(walk->next - item_first);

        part->sequence = walk->sequence;
        part->item = (int)item;
        part->keys_begin = keys.begin;
        part->keys_end = keys.end;
        part->number = 0;
        part->parts = own->leaves = own->fan = 1;
        own->q_first = sequence.q_first;
        own->q_len = sequence.q_len;
        own->item_first_tile = keys.first_tile;
        own->item_tiles = keys.tiles;
        if (shape->most_leaves != 0) {
            if (sm90_decode_take_leaves(shape, walk, item_first, part, own))
                return true;
            continue;
        }
        if (shape->splits == 0) {
            const int64_t left = walk->end - walk->next;
            part->tiles = left < keys.tiles - within ? (int)left : keys.tiles - within;
            part->first_tile = keys.first_tile + within;
            if (part->tiles < keys.tiles)
                family_decode_cut(walk, 1, item_first, keys.tiles, part);
            walk->next += part->tiles;
            return true;
        }
        ++walk->next;
        if (sm90_decode_take_split(shape, &keys, within, part))
            return true;
    }
    return false;
}

#ifdef __cplusplus
}
#endif
#endif
