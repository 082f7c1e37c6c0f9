/* Who writes the zeros in dq_sum of fused_sm90's backward (kernels/sm90/bwd/parts.h, sm90/bwd/geometry.h). Needs no
 * device. */
#include <stdlib.h>

#include "tests/unit/kernels/bwd_work.h"

static int row_blocks_of(const struct work *w)
{
    return (int)attn_tiles(w->shape.q_len, sm90_bwd_row_block_rows(w->tile->head_dim));
}

static struct sm90_bwd_zeros zeros_of(const struct work *w, bool is_short)
{
    const int clusters = w->multiprocessors / w->tile->q.cluster;

    return sm90_bwd_zeros_of(&w->shape, &w->parts, row_blocks_of(w), clusters, sm90_bwd_zeros_gap(is_short, clusters));
}

/* Every row block is written once: by preprocess, or by a work tile that begins before all work tiles of the section,
 * and is half as many before the first of them as run at the same time; where they are short, twice as many. */
static void check_writers_of(const struct work *w, bool is_short)
{
    const struct sm90_bwd_zeros zeros = zeros_of(w, is_short);
    const int clusters = w->multiprocessors / w->tile->q.cluster, gap = is_short ? 2 * clusters : clusters / 2;
    const int works = w->shape.section_heads * w->parts.head_works;
    const int64_t all_works = (int64_t)w->shape.kv_heads_total * w->parts.head_works;
    unsigned char *written = calloc((size_t)zeros.all_row_blocks, 1);

    assert_non_null(written);
    assert_int_equal(zeros.all_row_blocks, w->problem.batch * w->problem.q_heads * row_blocks_of(w));
    assert_int_equal(zeros.sections, (w->shape.kv_heads_total + w->shape.section_heads - 1) / w->shape.section_heads);
    for (int section = 0; section < zeros.preprocessed; ++section)
        for (int i = 0; i < sm90_bwd_section_row_blocks(&zeros, section); ++i)
            written[section * zeros.row_blocks + i]++;
    if (zeros.preprocessed < zeros.sections)
        assert_true((int64_t)zeros.preprocessed * works >= clusters); /* the first work tiles wait for nothing */
    for (int section = zeros.preprocessed; section < zeros.sections; ++section) {
        int shares = 0;
        for (int64_t number = 0; number < all_works; ++number) {
            const struct sm90_bwd_zero_share share =
                sm90_bwd_zero_share_of(&zeros, (int)(number / works), (int)(number % works));
            if (share.section != section || share.count == 0)
                continue;
            assert_true(number + gap <= (int64_t)section * works);
            assert_in_range(share.count, 1, zeros.share);
            for (int i = 0; i < share.count; ++i)
                written[share.first + i]++;
            ++shares;
        }
        assert_int_equal(shares, sm90_bwd_zero_shares(&zeros, section));
    }
    for (int i = 0; i < zeros.all_row_blocks; ++i)
        assert_int_equal(written[i], 1);
    free(written);
}

static void check_writers(const struct work *w)
{
    check_writers_of(w, false);
    check_writers_of(w, true);
}

static void every_row_block_is_written_once(void **state)
{
    uint64_t random = 12;
    int by_work_tiles = 0;
    (void)state;
    for (int i = 0; i < PROBLEMS; ++i) {
        struct work w = drawn_work(&random);
        check_writers(&w);
        /* As the L2 holds these small problems whole: more heads, in sections, on a small device. */
        w.problem.batch = drawn(&random, 50);
        w.shape.kv_heads_total = (int)(w.problem.batch * w.problem.kv_heads);
        w.shape.section_heads = (int)drawn(&random, w.shape.kv_heads_total);
        w.multiprocessors = (int)drawn(&random, 12) * w.tile->q.cluster;
        check_writers(&w);
        const struct sm90_bwd_zeros zeros = zeros_of(&w, false);
        by_work_tiles += zeros.preprocessed < zeros.sections;
        if (w.deterministic || !w.tile->q.takes_more)
            assert_int_equal(zeros.preprocessed, zeros.sections);
    }
    assert_in_range(by_work_tiles, PROBLEMS / 20, PROBLEMS);
}

/* A shape of `fabench verify` in which work tiles of every such kernel write zeros. */
static void verify_has_zeros_of_work_tiles(void **state)
{
    static const int tiles[] = {D128_LOOP, D128_PAIR, D64_LOOP, D64_PAIR};
    (void)state;
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; ++i) {
        const struct tile *tile = &known_tiles[tiles[i]];
        const struct attn_problem p =
            DENSE(5, 30, 30, 330, 430, tile->head_dim, ATTN_BF16, ATTN_BSHD, false, -1, -1, 0.125f, 0);
        const struct work w = work_with(tile, p, false, MULTIPROCESSORS);
        const struct sm90_bwd_zeros zeros = zeros_of(&w, false);
        assert_true(zeros.preprocessed < zeros.sections);
    }
}

/* Problems of the paper's grid: how much of the zeros preprocess has left, in sections. */
static void few_sections_are_left_to_preprocess(void **state)
{
    static const struct {
        int64_t batch, len, head_dim;
        int tile, sections, preprocessed;
    } rows[] = {{16, 1024, 128, D128_LOOP, 32, 3}, {4, 4096, 128, D128_LOOP, 13, 1}, {1, 16384, 128, D128_LOOP, 8, 1},
                {16, 1024, 64, D64_LOOP, 64, 3},   {4, 4096, 64, D64_PAIR, 16, 1},   {1, 16384, 64, D64_PAIR, 16, 1},
                {4, 4096, 64, D64, 16, 16}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        const int64_t heads = 2048 / rows[i].head_dim;
        const struct attn_problem p = DENSE(rows[i].batch, heads, heads, rows[i].len, rows[i].len, rows[i].head_dim,
                                            ATTN_BF16, ATTN_BSHD, false, -1, -1, 0.125f, 0);
        const struct work w = work_with(&known_tiles[rows[i].tile], p, false, MULTIPROCESSORS);
        const struct sm90_bwd_zeros zeros = zeros_of(&w, false);
        assert_int_equal(zeros.sections, rows[i].sections);
        assert_int_equal(zeros.preprocessed, rows[i].preprocessed);
        check_writers(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_block_is_written_once),
        cmocka_unit_test(few_sections_are_left_to_preprocess),
        cmocka_unit_test(verify_has_zeros_of_work_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
