/* Which blocks of fused_sm80's sparse backward have keys, and which have pieces of the passes before and after
 * (kernels/sm80/bwd/places.h). Needs no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "cmd/base/numbers.h"
#include "kernels/sm80/bwd/places.h"

enum { SHAPES = 2000, ROW_STEP = SM80_BWD_ROW_STEP };

/* 1 .. most */
static int64_t drawn(uint64_t *random, int64_t most)
{
    return 1 + (int64_t)(number_mix(*random += NUMBER_MIX_STEP) % (uint64_t)most);
}

/* The last section has more heads than the others where it takes those of what would be another one, or fewer. */
static struct fused_sm80_bwd_pieces_shape drawn_shape(uint64_t *random)
{
    const int64_t section_heads = drawn(random, 6), sections = drawn(random, 8);
    const struct fused_sm80_bwd_pieces_shape shape = {
        .sections = sections,
        .section_heads = section_heads,
        .heads = (sections - 1) * section_heads + drawn(random, 3 * section_heads),
        .head_rows = drawn(random, 100) * ROW_STEP,
        .head_blocks = drawn(random, 40),
        .running_blocks = drawn(random, 300),
        .piece_row_blocks = drawn(random, 40),
    };
    return shape;
}

/* What has been seen of a launch, block by block. */
struct seen {
    unsigned char *stats, *dq; /* of each row block: how often */
    int32_t keys;              /* blocks with keys */
    int32_t *told;             /* of each section: blocks of pieces for its lse2 and -D */
};

static void count_rows(unsigned char *rows, const struct fused_sm80_bwd_place *place, int32_t all)
{
    assert_true(place->count >= 0 && (place->count == 0 || (place->first >= 0 && place->first + place->count <= all)));
    for (int32_t i = 0; i < place->count; ++i)
        rows[place->first + i]++;
}

static void see_block(struct seen *seen, const struct fused_sm80_bwd_pieces *p,
                      const struct fused_sm80_bwd_pieces_shape *shape, int32_t section, int32_t number)
{
    const struct fused_sm80_bwd_place place = fused_sm80_bwd_place_in(p, section, number);

    switch (place.role) {
    case SM80_BWD_KEYS: /* in ascending order, and the section is theirs */
        assert_int_equal(place.number, seen->keys++);
        assert_int_equal(place.section, section);
        assert_true(place.number >= section * p->key_blocks);
        assert_true(section == p->sections - 1 || place.number < (section + 1) * p->key_blocks);
        break;
    case SM80_BWD_STATS: /* ahead of all keys of the section before */
        assert_int_equal(place.section, section + 1);
        assert_int_equal(seen->keys, section * p->key_blocks);
        seen->told[place.section]++;
        count_rows(seen->stats, &place, p->all_row_blocks);
        break;
    case SM80_BWD_DQ: /* behind the keys of its sections, by as many blocks as run at the same time and more */
        count_rows(seen->dq, &place, p->all_row_blocks);
        if (place.count > 0) {
            const int32_t last = (place.first + place.count - 1) / p->row_blocks;
            assert_true(last < p->converted);
            assert_true(seen->keys - (last + 1) * p->key_blocks >= shape->running_blocks);
        }
        break;
    }
}

/* Keys are in all blocks that the kernel without pieces has; every row block has its lse2, -D and zeros from preprocess
 * or from a piece, and its dQ from a piece or from convert_dq. */
static void check_launch(const struct fused_sm80_bwd_pieces_shape *shape, const struct fused_sm80_bwd_pieces *p)
{
    struct seen seen = {calloc((size_t)p->all_row_blocks, 1), calloc((size_t)p->all_row_blocks, 1), 0,
                        calloc((size_t)p->sections, sizeof *seen.told)};
    const int64_t launched = fused_sm80_bwd_launched_blocks(p);

    assert_true(seen.stats != NULL && seen.dq != NULL && seen.told != NULL);
    assert_int_equal(p->all_row_blocks, shape->heads * shape->head_rows / ROW_STEP);
    assert_in_range(p->preprocessed, 1, p->sections - 1);
    for (int64_t block = 0; block < launched; ++block) {
        const int64_t quotient = block / p->launched.value;
        const int32_t section = (int32_t)(quotient < p->sections ? quotient : p->sections - 1);
        see_block(&seen, p, shape, section, (int32_t)(block - section * (int64_t)p->launched.value));
    }
    assert_int_equal(seen.keys, shape->heads * shape->head_blocks);
    for (int32_t section = 1; section < p->sections; ++section)
        assert_int_equal(seen.told[section], p->pieces);
    for (int32_t i = 0; i < p->all_row_blocks; ++i) {
        assert_int_equal(seen.stats[i], i >= p->preprocessed * p->row_blocks);
        assert_int_equal(seen.dq[i], i < p->converted * p->row_blocks);
    }
    free(seen.stats);
    free(seen.dq);
    free(seen.told);
}

static void every_row_block_is_done_once(void **state)
{
    uint64_t random = 81;
    int with_pieces = 0;
    (void)state;
    for (int i = 0; i < SHAPES; ++i) {
        const struct fused_sm80_bwd_pieces_shape shape = drawn_shape(&random);
        const struct fused_sm80_bwd_pieces pieces = fused_sm80_bwd_pieces_of(&shape);
        if (pieces.sections == 0)
            continue;
        check_launch(&shape, &pieces);
        ++with_pieces;
    }
    assert_in_range(with_pieces, SHAPES / 20, SHAPES);
}

/* 16384 tokens on an H100, unless said. */
static void most_is_done_by_pieces(void **state)
{
    static const struct {
        struct fused_sm80_bwd_pieces_shape shape;
        int behind, converted, pieces;
    } rows[] = {
        {{10, 3, 32, 16384, 128, 264, 32}, 2, 8, 24},  /* head_dim 64, block mask: 24 of 32 heads */
        {{14, 1, 16, 16384, 128, 132, 16}, 2, 13, 16}, /* 128, block mask: 13 of 16 */
        {{6, 6, 32, 16384, 128, 264, 32}, 1, 4, 48},   /* 64, window: 24 of 32 */
        {{6, 3, 16, 16384, 128, 132, 16}, 1, 4, 48},   /* 128, window: 12 of 16 */
        /* The shape of `fabench verify` that is meant for this. */
        {{5, 102, 416, 1024, 3, 264, 32}, 2, 2, 51}, /* 64 */
        {{9, 51, 416, 1024, 3, 132, 16}, 2, 7, 51},  /* 128 */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        const struct fused_sm80_bwd_pieces pieces = fused_sm80_bwd_pieces_of(&rows[i].shape);
        assert_int_equal(pieces.sections, rows[i].shape.sections);
        assert_int_equal(pieces.preprocessed, 1);
        assert_int_equal(pieces.behind, rows[i].behind);
        assert_int_equal(pieces.converted, rows[i].converted);
        assert_int_equal(pieces.pieces, rows[i].pieces);
        check_launch(&rows[i].shape, &pieces);
    }
}

/* A section alone, or sections that are all begun at once, have nothing to run beside. */
static void small_launches_have_none(void **state)
{
    static const struct fused_sm80_bwd_pieces_shape shapes[] = {
        {1, 16, 16, 1024, 8, 132, 16},
        {4, 2, 8, 1024, 8, 132, 16},
        {2, 8, 16, 1024, 8, 132, 16},
    };
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i)
        assert_int_equal(fused_sm80_bwd_pieces_of(&shapes[i]).sections, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_block_is_done_once),
        cmocka_unit_test(most_is_done_by_pieces),
        cmocka_unit_test(small_launches_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
