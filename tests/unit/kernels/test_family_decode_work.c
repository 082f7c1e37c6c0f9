/* How the family's decode shares out keys to thread blocks (kernels/family/decode_work.h): every tile of keys of every
 * item once and in order, evenly, no slot of the workspace twice, query rows within their tile. Needs no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "kernels/family/decode_work.h"
#include "tests/dense.h"
#include "tests/drawn.h"

enum { PROBLEMS = 2000, MOST_BATCH = 40, MOST_BLOCKS = 200 };

static uint64_t random_state = 80;

static int between(int least, int most) { return least + (int)drawn(&random_state, most - least + 1) - 1; }

struct batch {
    struct family_decode_shape shape;
    int32_t used[MOST_BATCH];
    int64_t total; /* units of a row */
};

static struct batch draw_batch(void)
{
    static const int groups[] = {1, 2, 4, 5, 8, 32, 71}, rows[] = {16, 64};
    const int64_t kv_heads = between(1, 9), group = groups[between(0, 6)];
    struct attn_problem p = DENSE(between(1, MOST_BATCH), kv_heads * group, kv_heads, between(1, 16), between(1, 6000),
                                  128, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.125f, 0);
    struct batch b = {.total = 0};
    if (between(0, 3) == 0)
        p.window_left = between(0, 1000);
    b.shape = family_decode_shape_of(&p, 64 << between(0, 1), rows[between(0, 1)], between(1, MOST_BLOCKS),
                                     between(0, 2) ? 0 : between(1, 40));
    for (int i = 0; i < b.shape.batch; i++) {
        b.used[i] = between(0, 9) ? between(0, b.shape.kv_len) : 0;
        b.total += family_decode_units(&b.shape, b.used[i]);
    }
    return b;
}

/* What has been seen of an item. */
struct item {
    int parts, seen, next_tile;
};

/* Takes the parts of a block; returns its units. */
static int64_t take_block(const struct batch *b, int block, struct item *items, unsigned char *slots)
{
    struct family_decode_walk walk = family_decode_range(&b->shape, b->total, block);
    const int64_t units = walk.end - walk.next;
    struct family_decode_part part;
    walk.used = b->used[0];
    while (family_decode_next(&b->shape, b->used, &walk, &part)) {
        const struct family_decode_keys keys = family_decode_keys_of(&b->shape, b->used[part.sequence]);
        struct item *item = &items[part.sequence * b->shape.items + part.item];
        assert_in_range(part.item, 0, b->shape.items - 1);
        if (item->seen == 0)
            *item = (struct item){part.parts, 0, keys.first_tile};
        assert_true(part.parts == item->parts && part.number == item->seen++ && part.first_tile == item->next_tile);
        assert_true(part.keys_begin == keys.begin && part.keys_end == keys.end && part.tiles > 0);
        item->next_tile += part.tiles;
        if (item->seen == item->parts)
            assert_int_equal(item->next_tile, keys.first_tile + keys.tiles);
        if (part.parts > 1) {
            const int64_t slot = family_decode_slot(&part, part.number);
            assert_in_range(slot, 0, family_decode_slots(&b->shape) - 1);
            assert_false(slots[slot]++);
        }
    }
    assert_int_equal(walk.next, walk.end);
    return units;
}

static void every_tile_is_taken_once(void **state)
{
    (void)state;
    for (int i = 0; i < PROBLEMS; i++) {
        const struct batch b = draw_batch();
        const int item_count = b.shape.batch * b.shape.items;
        struct item *items = calloc((size_t)item_count, sizeof *items);
        unsigned char *slots = calloc((size_t)family_decode_slots(&b.shape), 1);
        int64_t sum = 0, most = 0, least = INT64_MAX;
        for (int block = 0; block < b.shape.blocks; block++) {
            const int64_t units = take_block(&b, block, items, slots);
            sum += units;
            most = units > most ? units : most;
            least = units < least ? units : least;
        }
        assert_int_equal(sum, b.shape.lanes * b.total);
        assert_true(most - least <= 1);
        for (int n = 0; n < item_count; n++)
            assert_true(items[n].seen > 0 && items[n].seen == items[n].parts);
        free(items);
        free(slots);
    }
}

/* The tiles of rows have as many rows as they may, and cover the group and the new tokens. */
static void rows_fit(void **state)
{
    (void)state;
    for (int rows = 16; rows <= 64; rows *= 4)
        for (int64_t group = 1; group <= 130; group++)
            for (int64_t q_len = 1; q_len <= 16; q_len++) {
                struct attn_problem p = DENSE(1, group, 1, q_len, 500, 64, ATTN_BF16, ATTN_BSHD, true, -1, -1, 1, 0);
                const struct family_decode_shape s = family_decode_shape_of(&p, 64, rows, 132, 0);
                assert_true(s.heads * s.tokens <= rows);
                assert_true(s.heads * s.head_tiles >= group && s.tokens * s.token_tiles >= q_len);
                if (group * q_len <= rows)
                    assert_int_equal(s.items, 1);
                assert_int_equal(s.items, s.head_tiles * s.token_tiles);
            }
}

/* Quotients in 32 and in 64 bits. */
static void portions_are_exact(void **state)
{
    (void)state;
    for (int64_t a = 1; a < INT64_C(1) << 40; a = a * 3 + 1)
        for (int64_t b = 0; b <= 256; b += 51)
            for (int64_t of = 1; of <= 256; of += 15)
                assert_int_equal(family_decode_portion(a, b, of), a * b / of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_is_taken_once),
        cmocka_unit_test(rows_fit),
        cmocka_unit_test(portions_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
