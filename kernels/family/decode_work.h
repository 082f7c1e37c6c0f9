/* How the keys of all sequences are shared out to thread blocks in decode. The number of blocks is the host's, from
 * shapes alone; which keys a block has it finds itself, from the lengths of the caches, so that a captured graph serves
 * lengths that grow. C and CUDA C++; needs no CUDA header.
 *
 * An item is a kv head of a sequence with a tile of query rows (head_tiles and token_tiles below). Its keys are tiles
 * of tile_keys keys. All tiles of all items, one item after the other, are a row of units, which is cut into equal
 * ranges, one for each block. A part is what a block has of an item. The parts of an item of more than one have slots
 * in the workspace for their results; who finishes last adds them up. Of a block's parts the first one and the last
 * one may be such: it has two slots, one for an item that other blocks have begun and one for an item that it begins.
 *
 * Where the items of a sequence divide the blocks well, each of them is a lane of its own: there are as many rows of
 * units, all alike, and each is cut for its own share of the blocks. Neighbouring blocks then read the same keys of
 * all heads at about the same time, and these lie together in device memory.
 *
 * With a wish for a number of splits each item has so many parts, or as many as it has tiles; a slot for each. */
#ifndef FABENCH_FAMILY_DECODE_WORK_H
#define FABENCH_FAMILY_DECODE_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FAMILY_DECODE_MOST_SPLITS = 256, /* that may be asked for */
    FAMILY_DECODE_MOST_BLOCKS = 256, /* of a launch */
    FAMILY_DECODE_FEW_PARTS = 16     /* so many are added up at once, more in two steps */
};

struct family_decode_shape {
    int batch, q_len, kv_len, tile_keys;
    int heads, tokens;           /* of a tile of query rows: heads of a group, new tokens; heads * tokens <= its rows */
    int head_tiles, token_tiles; /* of a group and of q_len */
    int items;                   /* of a sequence: kv_heads * head_tiles * token_tiles */
    int lanes, row_items;        /* rows of units: items, or 1; items of a sequence in a row */
    int blocks, splits;          /* blocks: a multiple of lanes; splits: 0 = units are shared out evenly */
    int window_left;             /* -1 = none */
    int most_leaves;             /* of an item in the invariant mode of sm_90 (ragged.h); 0 = another mode */
};

/* From shapes alone. tile_keys, tile_rows: of the kernel. */
static inline struct family_decode_shape family_decode_shape_of(const struct attn_problem *p, int tile_keys,
                                                                int tile_rows, int multiprocessors, int64_t splits)
{
    const int64_t group = p->q_heads / p->kv_heads;
    const int heads = (int)(group < tile_rows ? group : tile_rows), most = tile_rows / heads;
    const int tokens = (int)(p->q_len < most ? p->q_len : most);
    const int head_tiles = (int)((group + heads - 1) / heads), token_tiles = (int)((p->q_len + tokens - 1) / tokens);
    struct family_decode_shape shape = {
        .batch = (int)p->batch,
        .q_len = (int)p->q_len,
        .kv_len = (int)p->kv_len,
        .tile_keys = tile_keys,
        .heads = heads,
        .tokens = tokens,
        .head_tiles = head_tiles,
        .token_tiles = token_tiles,
        .items = (int)p->kv_heads * head_tiles * token_tiles,
        .lanes = 1,
        .row_items = 0, /* below */
        .blocks = multiprocessors < FAMILY_DECODE_MOST_BLOCKS ? multiprocessors : FAMILY_DECODE_MOST_BLOCKS,
        .splits = (int)splits,
        .window_left = (int)(p->window_left < p->kv_len ? p->window_left : p->kv_len),
        .most_leaves = 0};
    const int64_t each = splits != 0 ? splits : (p->kv_len + tile_keys - 1) / tile_keys;
    const int64_t most_units = p->batch * shape.items * each;
    const int together = shape.blocks - shape.blocks % shape.items;

    if (10 * together >= 9 * shape.blocks) {
        shape.lanes = shape.items;
        shape.blocks = together;
    }
    shape.row_items = shape.items / shape.lanes;
    if (shape.blocks > most_units)
        shape.blocks = (int)most_units;
    return shape;
}

/* Slots of the workspace. */
ATTN_FUNCTION int64_t family_decode_slots(const struct family_decode_shape *shape)
{
    return shape->splits != 0 ? (int64_t)shape->batch * shape->items * shape->splits : 2 * (int64_t)shape->blocks;
}

/* The keys of a sequence that one of its rows or more see, and the tiles that they lie in. One tile where there is
 * none: the rows are written all the same. */
struct family_decode_keys {
    int begin, end, first_tile, tiles;
};

/* q_len: new rows of the sequence. */
ATTN_FUNCTION struct family_decode_keys family_decode_keys_of_rows(const struct family_decode_shape *shape, int q_len,
                                                                   int used)
{
    const int end = used < 0 ? 0 : used < shape->kv_len ? used : shape->kv_len;
    const int first = shape->window_left < 0 ? 0 : end - q_len - shape->window_left;
    const int begin = first < 0 ? 0 : first;
    const int first_tile = begin / shape->tile_keys, tiles = (end + shape->tile_keys - 1) / shape->tile_keys;
    struct family_decode_keys keys = {begin, end, first_tile, 1};

    if (tiles > first_tile)
        keys.tiles = tiles - first_tile;
    return keys;
}

ATTN_FUNCTION struct family_decode_keys family_decode_keys_of(const struct family_decode_shape *shape, int used)
{
    return family_decode_keys_of_rows(shape, shape->q_len, used);
}

/* What a thread block computes at a time. */
struct family_decode_part {
    int sequence, item, keys_begin, keys_end; /* of the whole item */
    int first_tile, tiles;                    /* of the part */
    int number, parts;                        /* which part of the item, and how many it has; 1: no slot */
    int64_t first_slot, base_slot;            /* see family_decode_slot */
    int slot_step;
};

/* The slot of a part of the item. */
ATTN_FUNCTION int64_t family_decode_slot(const struct family_decode_part *part, int number)
{
    return number == 0 ? part->first_slot : part->base_slot + (int64_t)number * part->slot_step;
}

/* Where a block is in its row of units (with splits: of parts). */
struct family_decode_walk {
    int64_t total;     /* units of all sequences */
    int64_t next, end; /* of the block: those still to come */
    int64_t first;     /* unit of `sequence` */
    int lane;
    int block, blocks; /* of the lane; blocks: that have units */
    int sequence, used;
};

/* The part of its row that a block has, but not yet the sequence that it begins in: family_decode_seek, or kernels in
 * their own way, go there from the first one. total: units of all sequences in a row. */
ATTN_FUNCTION struct family_decode_walk family_decode_range(const struct family_decode_shape *shape, int64_t total,
                                                            int block)
{
    const int64_t share = shape->blocks / shape->lanes, blocks = total < share ? total : share;
    struct family_decode_walk walk = {total, 0, 0, 0, block % shape->lanes, block / shape->lanes, (int)blocks, 0, 0};

    if (walk.block < blocks) {
        walk.next = total * walk.block / blocks;
        walk.end = total * (walk.block + 1) / blocks;
    }
    return walk;
}

/* Units of a sequence in a row. */
ATTN_FUNCTION int64_t family_decode_units(const struct family_decode_shape *shape, int used)
{
    return (int64_t)shape->row_items * (shape->splits != 0 ? shape->splits : family_decode_keys_of(shape, used).tiles);
}

/* Goes to the sequence of the next unit, of which there is one. */
ATTN_FUNCTION void family_decode_seek(const struct family_decode_shape *shape, const int32_t *seqused,
                                      struct family_decode_walk *walk)
{
    while (walk->next >= walk->first + family_decode_units(shape, walk->used)) {
        walk->first += family_decode_units(shape, walk->used);
        walk->used = seqused[++walk->sequence];
    }
}

/* The block of the lane that has a unit. */
ATTN_FUNCTION int family_decode_block_of(const struct family_decode_walk *walk, int64_t unit)
{
    return (int)(((unit + 1) * walk->blocks - 1) / walk->total);
}

/* A part of an item whose n tiles are cut by the ranges of blocks. */
ATTN_FUNCTION void family_decode_cut(const struct family_decode_walk *walk, int lanes, int64_t item_first, int tiles,
                                     struct family_decode_part *part)
{
    const int first_block = family_decode_block_of(walk, item_first);

    part->parts = family_decode_block_of(walk, item_first + tiles - 1) - first_block + 1;
    part->number = walk->block - first_block;
    part->base_slot = 2 * ((int64_t)first_block * lanes + walk->lane);
    part->first_slot = part->base_slot + 1;
    part->slot_step = 2 * lanes;
}

/* The block's next part; false: it has no more. `seqused` is read where a sequence begins. */
ATTN_FUNCTION bool family_decode_next(const struct family_decode_shape *shape, const int32_t *seqused,
                                      struct family_decode_walk *walk, struct family_decode_part *part)
{
    while (walk->next < walk->end) {
        family_decode_seek(shape, seqused, walk);
        const struct family_decode_keys keys = family_decode_keys_of(shape, walk->used);
        const int each = shape->splits != 0 ? shape->splits : keys.tiles; /* units of an item */
        const int64_t item = shape->row_items == 1 ? 0 : (walk->next - walk->first) / each;
        const int64_t item_first = walk->first + item * each;
        const int within = (int)(walk->next - item_first);

        part->sequence = walk->sequence;
        part->item = (int)item * shape->lanes + walk->lane;
        part->keys_begin = keys.begin;
        part->keys_end = keys.end;
        part->number = 0;
        part->parts = 1;
        if (shape->splits == 0) {
            const int64_t left = walk->end - walk->next;
            part->tiles = left < keys.tiles - within ? (int)left : keys.tiles - within;
            part->first_tile = keys.first_tile + within;
            if (part->tiles < keys.tiles)
                family_decode_cut(walk, shape->lanes, item_first, keys.tiles, part);
            walk->next += part->tiles;
            return true;
        }
        ++walk->next;
        part->parts = keys.tiles < each ? keys.tiles : each;
        if (within < part->parts) {
            const int begin = (int)((int64_t)keys.tiles * within / part->parts);
            part->tiles = (int)((int64_t)keys.tiles * (within + 1) / part->parts) - begin;
            part->first_tile = keys.first_tile + begin;
            part->number = within;
            part->first_slot = part->base_slot = ((int64_t)walk->sequence * shape->items + part->item) * each;
            part->slot_step = 1;
            return true;
        }
    }
    return false;
}

/* How many neighbouring parts are added up together first; all of them where they are few. */
ATTN_FUNCTION int family_decode_fan(int parts)
{
    int fan = 1;

    if (parts <= FAMILY_DECODE_FEW_PARTS)
        return parts;
    while (fan * fan < parts)
        ++fan;
    return fan;
}

#ifdef __cplusplus
}
#endif
#endif
