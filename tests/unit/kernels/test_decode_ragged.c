/* How fused_sm90's decode shares out keys where sequences have different numbers of new rows, and in the invariant mode
 * (kernels/sm90/decode/ragged.h): every tile of keys of every item once, and no slot of the workspace twice; in the
 * invariant mode each sequence alone decides how its keys are cut. Needs no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "kernels/sm90/decode/ragged.h"
#include "tests/dense.h"
#include "tests/drawn.h"

enum { PROBLEMS = 3000, MOST_BATCH = 40, MOST_BLOCKS = 200 };

static uint64_t random_state = 59;

static int between(int least, int most) { return least + (int)drawn(&random_state, most - least + 1) - 1; }

static bool one_in(int of) { return number_mix(random_state += NUMBER_MIX_STEP) % (uint64_t)of == 0; }

struct drawn_case {
    struct attn_problem problem;
    struct family_decode_shape shape;
    int32_t seqused[MOST_BATCH], cu_seqlens_q[MOST_BATCH + 1];
    bool is_packed;
    int64_t total; /* units */
};

static struct sm90_decode_lengths lengths_of(const struct drawn_case *c)
{
    return (struct sm90_decode_lengths){c->seqused, c->is_packed ? c->cu_seqlens_q : NULL};
}

static struct sm90_decode_sequence sequence_of(const struct drawn_case *c, int b)
{
    const struct sm90_decode_lengths lengths = lengths_of(c);
    return sm90_decode_sequence_at(&c->shape, &lengths, b);
}

static int64_t count_units(const struct drawn_case *c)
{
    int64_t total = 0;
    for (int b = 0; b < c->shape.batch; b++) {
        const struct sm90_decode_sequence sequence = sequence_of(c, b);
        total += sm90_decode_ragged_units(&c->shape, &sequence);
    }
    return total;
}

/* Lengths of a batch: all alike, ragged, or a long one among short ones; some empty. */
static void draw_lengths(struct drawn_case *c)
{
    const int kind = between(0, 2);
    for (int b = 0; b < c->shape.batch; b++) {
        const int most = kind == 2 && b != c->shape.batch / 2 ? c->shape.kv_len / 20 : c->shape.kv_len;
        c->seqused[b] = kind == 0 ? c->shape.kv_len : one_in(10) ? 0 : between(0, most);
        c->cu_seqlens_q[b + 1] = c->cu_seqlens_q[b] + (one_in(8) ? 0 : between(1, c->shape.q_len));
    }
    c->total = count_units(c);
}

static struct drawn_case draw_case(bool is_invariant)
{
    static const int groups[] = {1, 2, 4, 5, 8, 32, 71};
    const int64_t kv_heads = between(1, 6), group = groups[between(0, 6)];
    const int kv_len = is_invariant && one_in(5) ? between(1, 300000) : between(1, 6000);
    struct attn_problem p =
        DENSE(between(1, MOST_BATCH), kv_heads * group, kv_heads, one_in(10) ? between(17, 512) : between(1, 16),
              kv_len, 128, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.125f, 0);
    struct drawn_case c = {.is_packed = one_in(3)};
    p.total_q = c.is_packed ? 1 : 0; /* what counts here is that there are some */
    if (one_in(4))
        p.window_left = between(0, 1000);
    c.problem = p;
    c.shape = sm90_decode_ragged_shape_of(&p, one_in(2) ? 64 : 128, between(1, MOST_BLOCKS),
                                          !is_invariant && one_in(3) ? between(1, 40) : 0, is_invariant);
    draw_lengths(&c);
    return c;
}

/* What the parts of an item have to agree on. */
struct item {
    int seen, parts; /* parts so far, and in all */
    int next_tile;
};

struct cover {
    struct item *items;
    unsigned char *slots; /* taken */
};

static void take_part(const struct drawn_case *c, const struct family_decode_part *part,
                      const struct sm90_decode_own *own, struct cover *cover)
{
    const struct sm90_decode_sequence sequence = sequence_of(c, part->sequence);
    const struct family_decode_keys keys = family_decode_keys_of_rows(&c->shape, sequence.q_len, sequence.used);
    struct item *item = &cover->items[part->sequence * c->shape.items + part->item];
    assert_in_range(part->item, 0, sm90_decode_items(&c->shape, sequence.q_len) - 1);
    assert_int_equal(own->q_first, sequence.q_first);
    assert_int_equal(own->q_len, sequence.q_len);
    assert_int_equal(part->keys_begin, keys.begin);
    assert_int_equal(part->keys_end, keys.end);
    assert_int_equal(part->number, item->seen);
    if (item->seen == 0) {
        item->parts = part->parts;
        item->next_tile = keys.first_tile;
    }
    assert_int_equal(part->parts, item->parts);
    assert_int_equal(part->first_tile, item->next_tile);
    assert_true(part->tiles >= 1);
    item->next_tile += part->tiles;
    item->seen += own->leaves;
    assert_true(item->next_tile <= keys.first_tile + keys.tiles);
    if (item->seen == item->parts)
        assert_int_equal(item->next_tile, keys.first_tile + keys.tiles);
    if (part->parts == 1 || c->shape.most_leaves != 0)
        return;
    const int64_t slot = family_decode_slot(part, part->number);
    assert_in_range(slot, 0, family_decode_slots(&c->shape) - 1);
    assert_false(cover->slots[slot]++);
}

/* One part of a block. */
struct taken {
    struct family_decode_part part;
    struct sm90_decode_own own;
};

static bool next_part(const struct drawn_case *c, struct family_decode_walk *walk, struct taken *taken)
{
    const struct sm90_decode_lengths lengths = lengths_of(c);
    return sm90_decode_next_ragged(&c->shape, &lengths, walk, &taken->part, &taken->own);
}

static void check_case(const struct drawn_case *c)
{
    const int items = c->shape.batch * c->shape.items;
    struct cover cover = {calloc((size_t)items, sizeof *cover.items),
                          calloc((size_t)family_decode_slots(&c->shape), 1)};
    int64_t sum = 0;
    assert_true(cover.items && cover.slots);
    for (int block = 0; block < c->shape.blocks; block++) {
        struct family_decode_walk walk = family_decode_range(&c->shape, c->total, block);
        struct taken taken = {0};
        sum += walk.end - walk.next;
        while (next_part(c, &walk, &taken))
            take_part(c, &taken.part, &taken.own, &cover);
        assert_int_equal(walk.next, walk.end);
    }
    assert_int_equal(sum, c->total);
    for (int i = 0; i < items; i++) {
        const struct sm90_decode_sequence sequence = sequence_of(c, i / c->shape.items);
        const bool exists = i % c->shape.items < sm90_decode_items(&c->shape, sequence.q_len);
        assert_int_equal(cover.items[i].seen > 0, exists);
        assert_int_equal(cover.items[i].seen, cover.items[i].parts);
    }
    free(cover.items);
    free(cover.slots);
}

static void every_tile_is_taken_once(void **state)
{
    (void)state;
    for (int i = 0; i < PROBLEMS; i++) {
        const struct drawn_case c = draw_case(false);
        check_case(&c);
    }
}

/* ---- the invariant mode ---- */

/* A region of the workspace: who writes its slots and counters. */
struct region {
    int item;  /* that several blocks have a part of, + 1 */
    int block; /* that has all leaves of items, + 1 */
};

/* Nothing orders the blocks: each writes its leaves of an item as early or late as it likes. So a region has one item
 * that several blocks have a part of, or items that one block has, one after the other; never both. */
static void take_region(const struct drawn_case *c, const struct taken *taken, int block, struct region *regions)
{
    const int64_t first = family_decode_slot(&taken->part, 0), number = first / c->shape.most_leaves;
    const int item = taken->part.sequence * c->shape.items + taken->part.item;
    struct region *region = &regions[number];
    assert_in_range(number, 0, sm90_decode_regions(&c->shape) - 1);
    assert_int_equal(first, number * c->shape.most_leaves);
    assert_int_equal(family_decode_slot(&taken->part, taken->part.parts - 1), first + taken->part.parts - 1);
    if (taken->own.leaves < taken->part.parts) {
        assert_true(region->block == 0 && (region->item == 0 || region->item == item + 1));
        region->item = item + 1;
    } else {
        assert_true(region->item == 0 && (region->block == 0 || region->block == block + 1));
        region->block = block + 1;
    }
}

/* A block's range is within one leaf of its share. */
static void check_leaves(const struct drawn_case *c)
{
    struct region *regions = calloc((size_t)sm90_decode_regions(&c->shape), sizeof *regions);
    int64_t *slots = calloc((size_t)(c->shape.batch * c->shape.items), sizeof *slots); /* of an item, + 1 */
    assert_true(regions && slots);
    for (int block = 0; block < c->shape.blocks; block++) {
        struct family_decode_walk walk = family_decode_range(&c->shape, c->total, block);
        const int64_t share = walk.end - walk.next;
        int64_t tiles = 0, longest = 0;
        struct taken taken = {0};
        while (next_part(c, &walk, &taken)) {
            const struct family_decode_part *part = &taken.part;
            const struct sm90_decode_own *own = &taken.own;
            int64_t *slot = &slots[part->sequence * c->shape.items + part->item];
            tiles += part->tiles;
            assert_in_range(part->parts, 1, c->shape.most_leaves);
            assert_in_range(own->leaves, 1, part->parts);
            assert_true(own->fan <= 32 && (part->parts + own->fan - 1) / own->fan <= 32);
            for (int leaf = part->number; leaf < part->number + own->leaves; leaf++) {
                const int leaf_tiles =
                    sm90_decode_leaf_begin(own, part->parts, leaf + 1) - sm90_decode_leaf_begin(own, part->parts, leaf);
                assert_true(leaf_tiles >= 1);
                longest = leaf_tiles > longest ? leaf_tiles : longest;
            }
            assert_true(*slot == 0 || *slot == family_decode_slot(part, 0) + 1); /* all blocks look at the same ones */
            *slot = family_decode_slot(part, 0) + 1;
            take_region(c, &taken, block, regions);
        }
        assert_true(tiles <= share + (longest > 0 ? longest - 1 : 0));
    }
    free(regions);
    free(slots);
}

/* The leaves of the first item of a sequence: that they do not change is what is tested. */
struct cut {
    int parts, fan, first_tile, tiles;
};

static struct cut cut_of(const struct drawn_case *c, int b)
{
    for (int block = 0; block < c->shape.blocks; block++) {
        struct family_decode_walk walk = family_decode_range(&c->shape, c->total, block);
        struct taken taken = {0};
        while (next_part(c, &walk, &taken))
            if (taken.part.sequence == b)
                return (struct cut){taken.part.parts, taken.own.fan, taken.own.item_first_tile, taken.own.item_tiles};
    }
    return (struct cut){0};
}

/* The sequence in a batch of its own, with its lengths as the longest ones, on another device. */
static void check_alone(const struct drawn_case *c, int b)
{
    const struct sm90_decode_sequence sequence = sequence_of(c, b);
    struct drawn_case alone = {.problem = c->problem, .seqused = {sequence.used}};
    alone.problem.batch = 1;
    alone.problem.q_len = sequence.q_len;
    alone.problem.kv_len = sequence.used > 0 ? sequence.used : 1;
    alone.problem.total_q = 0;
    alone.shape = sm90_decode_ragged_shape_of(&alone.problem, c->shape.tile_keys, between(1, MOST_BLOCKS), 0, true);
    alone.total = count_units(&alone);
    check_leaves(&alone);
    const struct cut ours = cut_of(&alone, 0), theirs = cut_of(c, b);
    assert_memory_equal(&ours, &theirs, sizeof ours);
}

static void leaves_are_of_the_sequence_alone(void **state)
{
    (void)state;
    for (int i = 0; i < PROBLEMS; i++) {
        const struct drawn_case c = draw_case(true);
        const int b = between(0, c.shape.batch - 1);
        check_case(&c);
        check_leaves(&c);
        if (sequence_of(&c, b).q_len > 0)
            check_alone(&c, b);
    }
}

/* Shapes of one and of many sequences on 132 multiprocessors: how much longer than the average the longest block is. */
static void leaves_are_balanced(void **state)
{
    static const int kv_heads[] = {1, 8, 32}, groups[] = {32, 4, 1}, lens[] = {1024, 8192, 32768, 131072};
    (void)state;
    for (int h = 0; h < 3; h++)
        for (int len = 0; len < 4; len++)
            for (int batch = 1; batch <= 40; batch += 13) {
                struct attn_problem p = DENSE(batch, kv_heads[h] * groups[h], kv_heads[h], 1, lens[len], 128, ATTN_BF16,
                                              ATTN_BSHD, true, -1, -1, 0.125f, 0);
                struct drawn_case c = {.shape = sm90_decode_ragged_shape_of(&p, 64, 132, 0, true)};
                int64_t most = 0;
                for (int b = 0; b < batch; b++)
                    c.seqused[b] = lens[len];
                c.total = count_units(&c);
                for (int block = 0; block < c.shape.blocks; block++) {
                    struct family_decode_walk walk = family_decode_range(&c.shape, c.total, block);
                    struct taken taken = {0};
                    int64_t tiles = 0;
                    while (next_part(&c, &walk, &taken))
                        tiles += taken.part.tiles;
                    most = tiles > most ? tiles : most;
                }
                assert_true(most <= 2 || (double)most <= 1.06 * (double)c.total / 132 + 1);
            }
}

/* Three sequences with 1, 49 and 1 new rows, and the batch of 186 and 420 rows twice: of both batches blocks have whole
 * items and the beginning of one that others end. */
static void packed_rows_on_an_h200(void **state)
{
    static const int rows[2][4] = {{1, 49, 1, 0}, {186, 420, 186, 420}};
    static const int keys[2][4] = {{15, 1374, 361, 0}, {529, 4097, 529, 4097}};
    const struct attn_problem problems[2] = {DENSE(3, 105, 7, 49, 1374, 256, ATTN_BF16, ATTN_BHSD, true, -1, -1, 1, 0),
                                             DENSE(4, 6, 6, 420, 4097, 256, ATTN_BF16, ATTN_BSHD, false, -1, -1, 1, 0)};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct attn_problem p = problems[i];
        struct drawn_case c = {.is_packed = true};
        p.total_q = 1;
        c.problem = p;
        c.shape = sm90_decode_ragged_shape_of(&p, 64, 132, 0, true);
        for (int b = 0; b < p.batch; b++) {
            c.seqused[b] = keys[i][b];
            c.cu_seqlens_q[b + 1] = c.cu_seqlens_q[b] + rows[i][b];
        }
        c.total = count_units(&c);
        check_case(&c);
        check_leaves(&c);
    }
}

/* The keys that are counted are those that a row of the mask sees, whatever the others' rows are. */
static void windows_are_of_own_rows(void **state)
{
    struct attn_problem p = DENSE(1, 4, 4, 16, 1000, 128, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.125f, 0);
    (void)state;
    for (int64_t window = 0; window < 1010; window += 7)
        for (int used = 0; used <= 1000; used += 13) {
            struct attn_problem one = p;
            int64_t first, last;
            p.window_left = one.window_left = window;
            one.q_len = 3;
            one.kv_len = used;
            attn_visible(&one, 0, &first, &last);
            const struct family_decode_shape shape = sm90_decode_ragged_shape_of(&p, 64, 132, 0, false);
            const struct family_decode_keys keys = family_decode_keys_of_rows(&shape, 3, used);
            assert_int_equal(keys.begin, first);
            assert_int_equal(keys.end, used);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_is_taken_once), cmocka_unit_test(leaves_are_of_the_sequence_alone),
        cmocka_unit_test(leaves_are_balanced),      cmocka_unit_test(packed_rows_on_an_h200),
        cmocka_unit_test(windows_are_of_own_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
