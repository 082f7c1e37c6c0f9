/* Who writes the zeros in dq_sum of fused_sm80's backward (kernels/sm80/bwd/zero_shares.h). Needs no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "cmd/base/numbers.h"
#include "kernels/sm80/bwd/zero_shares.h"

enum { SHAPES = 2000 };

/* 1 .. most */
static int64_t drawn(uint64_t *random, int64_t most)
{
    return 1 + (int64_t)(number_mix(*random += NUMBER_MIX_STEP) % (uint64_t)most);
}

/* The last section has more heads than the others where it takes those of what would be another one. */
static struct fused_sm80_bwd_zeros_shape drawn_shape(uint64_t *random)
{
    const int64_t section_heads = drawn(random, 6), sections = drawn(random, 8), kv_tiles = drawn(random, 40);
    const struct fused_sm80_bwd_zeros_shape shape = {
        .sections = sections,
        .section_heads = section_heads,
        .heads = (sections - 1) * section_heads + drawn(random, 3 * section_heads),
        .head_rows = drawn(random, 100) * SM80_BWD_ROW_STEP,
        .section_blocks = section_heads * kv_tiles,
        .running_blocks = drawn(random, 300),
        .by_blocks = drawn(random, 8) > 1,
    };
    return shape;
}

/* The zeros that the blocks of the section before write for this one. */
static void count_shares(const struct fused_sm80_bwd_zeros_shape *shape, const struct fused_sm80_bwd_zeros *zeros,
                         int32_t section, unsigned char *written)
{
    const struct fused_sm80_bwd_section_zeros of = fused_sm80_bwd_zeros_of_section(zeros, section);
    int32_t shares = 0;

    for (int32_t number = 0; number < shape->section_blocks; ++number) {
        const struct fused_sm80_bwd_zero_share share = fused_sm80_bwd_zero_share_of(zeros, section - 1, number);
        if (share.count == 0)
            continue;
        assert_true(2 * number <= shape->section_blocks);
        assert_in_range(share.count, 1, of.share);
        assert_true(share.first >= 0 && share.first + share.count <= zeros->all_row_blocks);
        for (int32_t i = 0; i < share.count; ++i)
            written[share.first + i]++;
        ++shares;
    }
    assert_int_equal(shares, of.shares);
}

/* Every row block is written once: by preprocess, or by a block of the section before its own. */
static void check_writers(const struct fused_sm80_bwd_zeros_shape *shape, const struct fused_sm80_bwd_zeros *zeros)
{
    const int64_t row_blocks = shape->heads * shape->head_rows / SM80_BWD_ROW_STEP;
    unsigned char *written = calloc((size_t)row_blocks, 1);

    assert_non_null(written);
    assert_int_equal(zeros->all_row_blocks, row_blocks);
    assert_in_range(zeros->preprocessed, 1, zeros->sections - 1);
    for (int64_t i = 0; i < zeros->preprocessed_rows / SM80_BWD_ROW_STEP; ++i)
        written[i]++;
    for (int32_t section = 1; section < zeros->preprocessed; ++section)
        for (int32_t number = 0; number < shape->section_blocks; ++number)
            assert_int_equal(fused_sm80_bwd_zero_share_of(zeros, section - 1, number).count, 0);
    for (int32_t section = zeros->preprocessed; section < zeros->sections; ++section)
        count_shares(shape, zeros, section, written);
    for (int32_t number = 0; number < shape->section_blocks; ++number)
        assert_int_equal(fused_sm80_bwd_zero_share_of(zeros, zeros->sections - 1, number).count, 0);
    for (int64_t i = 0; i < row_blocks; ++i)
        assert_int_equal(written[i], 1);
    free(written);
}

static void every_row_block_is_written_once(void **state)
{
    uint64_t random = 80;
    int by_blocks = 0;
    (void)state;
    for (int i = 0; i < SHAPES; ++i) {
        const struct fused_sm80_bwd_zeros_shape shape = drawn_shape(&random);
        const struct fused_sm80_bwd_zeros zeros = fused_sm80_bwd_zeros_of(&shape);
        if (zeros.sections == 0) {
            assert_true(zeros.preprocessed_rows == shape.heads * shape.head_rows);
            continue;
        }
        assert_true(shape.by_blocks);
        check_writers(&shape, &zeros);
        ++by_blocks;
    }
    assert_in_range(by_blocks, SHAPES / 20, SHAPES);
}

/* 16384 tokens on an H100: blocks write for all sections but the first one. A block mask's last section has more heads,
 * where blocks of different length are to end together. */
static void preprocess_writes_one_section(void **state)
{
    static const struct {
        struct fused_sm80_bwd_zeros_shape shape;
        int share, last_share;
    } rows[] = {
        {{10, 3, 32, 16384, 3 * 128, 264, true}, 4, 7},  /* head_dim 64, mask */
        {{14, 1, 16, 16384, 128, 132, true}, 4, 12},     /* 128, mask */
        {{6, 6, 32, 16384, 6 * 128, 264, true}, 4, 2},   /* 64, dense */
        {{4, 100, 400, 1024, 100 * 8, 264, true}, 4, 4}, /* short ones */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        const struct fused_sm80_bwd_zeros zeros = fused_sm80_bwd_zeros_of(&rows[i].shape);
        assert_int_equal(zeros.sections, rows[i].shape.sections);
        assert_int_equal(zeros.preprocessed, 1);
        assert_int_equal(zeros.each.share, rows[i].share);
        assert_int_equal(zeros.last.share, rows[i].last_share);
        check_writers(&rows[i].shape, &zeros);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_block_is_written_once),
        cmocka_unit_test(preprocess_writes_one_section),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
