/* How decode shares out keys to thread blocks (kernels/family/decode_work.h): every tile of keys of every
 * item once, evenly, and no slot of the workspace twice. Needs no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "kernels/family/decode_work.h"
#include "tests/dense.h"
#include "tests/drawn.h"

enum { PROBLEMS = 3000, MOST_BATCH = 40, MOST_BLOCKS = 200 };

static uint64_t random_state = 58;

static int between(int least, int most) { return least + (int)drawn(&random_state, most - least + 1) - 1; }

static bool one_in(int of) { return number_mix(random_state += NUMBER_MIX_STEP) % (uint64_t)of == 0; }

struct drawn_case {
    struct family_decode_shape shape;
    int32_t seqused[MOST_BATCH];
    int64_t total; /* units of a row */
};

/* Lengths of a batch: all alike, ragged, or a long one among short ones; some empty. */
static void draw_lengths(struct drawn_case *c)
{
    const int kind = between(0, 2);
    c->total = 0;
    for (int b = 0; b < c->shape.batch; b++) {
        const int most = kind == 2 && b != c->shape.batch / 2 ? c->shape.kv_len / 20 : c->shape.kv_len;
        c->seqused[b] = kind == 0 ? c->shape.kv_len : one_in(10) ? 0 : between(0, most);
        c->total += family_decode_units(&c->shape, c->seqused[b]);
    }
}

static struct drawn_case draw_case(void)
{
    static const int groups[] = {1, 2, 4, 5, 8, 32, 71}, tile_rows[] = {16, 64};
    const int64_t kv_heads = between(1, 6), group = groups[between(0, 6)];
    struct attn_problem p = DENSE(between(1, MOST_BATCH), kv_heads * group, kv_heads, between(1, 16), between(1, 6000),
                                  128, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.125f, 0);
    struct drawn_case c;
    if (one_in(4))
        p.window_left = between(0, 1000);
    c.shape = family_decode_shape_of(&p, one_in(2) ? 64 : 128, tile_rows[between(0, 1)], between(1, MOST_BLOCKS),
                                     one_in(3) ? between(1, 40) : 0);
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

static void take_part(const struct drawn_case *c, const struct family_decode_part *part, struct cover *cover)
{
    const struct family_decode_keys keys = family_decode_keys_of(&c->shape, c->seqused[part->sequence]);
    struct item *item = &cover->items[part->sequence * c->shape.items + part->item];
    assert_in_range(part->item, 0, c->shape.items - 1);
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
    item->seen++;
    assert_true(item->next_tile <= keys.first_tile + keys.tiles);
    if (item->seen == item->parts)
        assert_int_equal(item->next_tile, keys.first_tile + keys.tiles);
    if (part->parts == 1)
        return;
    const int64_t slot = family_decode_slot(part, part->number);
    assert_in_range(slot, 0, family_decode_slots(&c->shape) - 1);
    assert_false(cover->slots[slot]++);
}

static int64_t walk_block(const struct drawn_case *c, int block, struct cover *cover)
{
    struct family_decode_walk walk = family_decode_range(&c->shape, c->total, block);
    const int64_t units = walk.end - walk.next;
    struct family_decode_part part;
    walk.used = c->seqused[0];
    while (family_decode_next(&c->shape, c->seqused, &walk, &part))
        take_part(c, &part, cover);
    assert_int_equal(walk.next, walk.end);
    return units;
}

static void check_case(const struct drawn_case *c)
{
    const int items = c->shape.batch * c->shape.items;
    struct cover cover = {calloc((size_t)items, sizeof *cover.items),
                          calloc((size_t)family_decode_slots(&c->shape), 1)};
    int64_t sum = 0, most = 0, least = INT64_MAX;
    assert_true(cover.items && cover.slots);
    for (int block = 0; block < c->shape.blocks; block++) {
        const int64_t units = walk_block(c, block, &cover);
        sum += units;
        most = units > most ? units : most;
        least = units < least ? units : least;
    }
    assert_int_equal(sum, c->shape.lanes * c->total);
    assert_true(most - least <= 1);
    for (int i = 0; i < items; i++) {
        assert_true(cover.items[i].seen > 0);
        assert_int_equal(cover.items[i].seen, cover.items[i].parts);
    }
    free(cover.items);
    free(cover.slots);
}

static void every_tile_is_taken_once(void **state)
{
    (void)state;
    for (int i = 0; i < PROBLEMS; i++) {
        const struct drawn_case c = draw_case();
        check_case(&c);
    }
}

/* One cache of 128K keys beside 31 of 4K, 8 kv heads: no multiprocessor has more than a tile above the average, and the
 * long one's heads have many. */
static void one_long_cache_is_shared(void **state)
{
    struct attn_problem p = DENSE(32, 32, 8, 1, 131072, 128, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.125f, 0);
    struct drawn_case c = {.shape = family_decode_shape_of(&p, 64, 64, 132, 0)};
    (void)state;
    for (int b = 0; b < 32; b++) {
        c.seqused[b] = b == 5 ? 131072 : 4096;
        c.total += family_decode_units(&c.shape, c.seqused[b]);
    }
    assert_int_equal(c.shape.blocks, 128);
    assert_int_equal(c.shape.lanes, 8);
    assert_int_equal(c.total, 2048 + 31 * 64);
    check_case(&c);
}

/* Neighbouring blocks begin with the same keys of all heads where that leaves a tenth of the blocks idle or less. */
static void heads_are_read_side_by_side(void **state)
{
    static const struct {
        int kv_heads, lanes, blocks;
    } expected[] = {{1, 1, 132},   {8, 8, 128},   {10, 10, 130}, {32, 32, 128},
                    {24, 24, 120}, {25, 25, 125}, {27, 1, 132},  {71, 1, 132}};
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct attn_problem p = DENSE(4, expected[i].kv_heads, expected[i].kv_heads, 1, 8192, 128, ATTN_BF16, ATTN_BSHD,
                                      true, -1, -1, 1, 0);
        const struct family_decode_shape shape = family_decode_shape_of(&p, 64, 64, 132, 0);
        assert_int_equal(shape.lanes, expected[i].lanes);
        assert_int_equal(shape.blocks, expected[i].blocks);
        if (shape.lanes > 1) {
            const struct family_decode_walk first = family_decode_range(&shape, 4 * 128, 0);
            const struct family_decode_walk second = family_decode_range(&shape, 4 * 128, 1);
            assert_int_equal(first.next, second.next);
            assert_int_equal(second.lane, 1);
        }
    }
}

/* The keys that are counted are those that a row of the mask sees. */
static void windows_begin_with_the_first_row(void **state)
{
    struct attn_problem p = DENSE(1, 4, 4, 3, 1000, 128, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.125f, 0);
    (void)state;
    for (int64_t window = 0; window < 1010; window += 7)
        for (int used = 0; used <= 1000; used += 13) {
            struct attn_problem one = p;
            int64_t first, last;
            p.window_left = one.window_left = window;
            one.kv_len = used;
            attn_visible(&one, 0, &first, &last);
            const struct family_decode_shape shape = family_decode_shape_of(&p, 64, 64, 132, 0);
            const struct family_decode_keys keys = family_decode_keys_of(&shape, used);
            assert_int_equal(keys.begin, first);
            assert_int_equal(keys.end, used);
            assert_true(keys.first_tile * 64 <= keys.begin && keys.begin < (keys.first_tile + 1) * 64);
            assert_true((keys.first_tile + keys.tiles) * 64 >= used);
        }
}

/* Query rows fit into the tile, and the tiles cover them. */
static void rows_fit(void **state)
{
    (void)state;
    for (int rows = 16; rows <= 64; rows *= 4)
        for (int group = 1; group <= 200; group++)
            for (int q_len = 1; q_len <= 16; q_len++) {
                struct attn_problem p =
                    DENSE(1, 2 * group, 2, q_len, 100, 128, ATTN_BF16, ATTN_BSHD, true, -1, -1, 1, 0);
                const struct family_decode_shape shape = family_decode_shape_of(&p, 64, rows, 132, 0);
                assert_true(shape.heads * shape.tokens <= rows);
                assert_true(shape.heads * shape.head_tiles >= group && shape.heads * (shape.head_tiles - 1) < group);
                assert_true(shape.tokens * shape.token_tiles >= q_len &&
                            shape.tokens * (shape.token_tiles - 1) < q_len);
                assert_int_equal(shape.items, 2 * shape.head_tiles * shape.token_tiles);
                if (group * q_len <= rows)
                    assert_int_equal(shape.items, 2);
            }
}

/* Two steps are enough for all parts, and neither adds up more than the square root of their number, rounded up. */
static void two_steps_add_up_all(void **state)
{
    (void)state;
    for (int parts = 2; parts <= 2000; parts++) {
        const int fan = family_decode_fan(parts), groups = (parts + fan - 1) / fan;
        assert_true(fan >= 1 && fan * groups >= parts && fan * (groups - 1) < parts);
        assert_true(groups == 1 ? parts <= FAMILY_DECODE_FEW_PARTS : groups <= fan && (fan - 1) * (fan - 1) < parts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_is_taken_once),
        cmocka_unit_test(one_long_cache_is_shared),
        cmocka_unit_test(heads_are_read_side_by_side),
        cmocka_unit_test(windows_begin_with_the_first_row),
        cmocka_unit_test(rows_fit),
        cmocka_unit_test(two_steps_add_up_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
