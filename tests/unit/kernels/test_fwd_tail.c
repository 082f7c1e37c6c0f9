/* The last work tiles of fused_sm90's forward, whose keys are shared out to parts (kernels/sm90/fwd/tail.h). Needs no
 * device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "kernels/attention.h"
#include "kernels/common/dispatch.h"
#ifdef FABENCH_WITH_CUDA
#include "kernels/sm90/fwd/params.h"
#endif
#include "kernels/sm90/fwd/tail.h"
#include "tests/dense.h"
#include "tests/drawn.h"

enum { PROBLEMS = 3000, MULTIPROCESSORS = 132 };

/* As in the table of tiles (fwd/tiles.cuh): rows of a work tile, which a pair of thread blocks has together, and the
 * time apart from the keys, a quarter of that of causal tiles. */
enum { D128, D128_PAIR, D128_SPLIT, D64_192, D64_256, D64_256_PAIR, D64_128_SPLIT, D64_64_SPLIT, TILES };
static const struct tile {
    int head_dim;
    struct sm90_fwd_tail_tile tail;
} tiles[TILES] = {[D128] = {128, {128, 128, 32.5, true}},        [D128_PAIR] = {128, {256, 128, 43.75, true}},
                  [D128_SPLIT] = {128, {64, 128, 80, false}},    [D64_192] = {64, {192, 128, 42.5, true}},
                  [D64_256] = {64, {256, 64, 40, true}},         [D64_256_PAIR] = {64, {512, 64, 49.25, true}},
                  [D64_128_SPLIT] = {64, {128, 128, 80, false}}, [D64_64_SPLIT] = {64, {64, 128, 47.5, false}}};

static struct attn_problem problem_of(int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len, int64_t head_dim,
                                      bool causal)
{
    return (struct attn_problem)DENSE(batch, heads, heads, q_len, kv_len, head_dim, ATTN_BF16, ATTN_BSHD, causal, -1,
                                      -1, 0.125f, 0);
}

static int64_t work_tiles_of(const struct attn_problem *p, const struct tile *tile)
{
    return attn_tiles(p->q_len, tile->tail.block_m) * p->batch * p->q_heads;
}

/* Every block of keys of every work tile is taken once, by a number, and parts differ by one block at most. The order
 * of numbers as in sm90/fwd/work.cuh. */
static void check_cover(const struct sm90_fwd_tail *tail, int64_t work_tiles, int key_blocks)
{
    const int64_t numbers = work_tiles + (int64_t)tail->works * (tail->parts - 1);
    unsigned char *taken = calloc((size_t)(work_tiles * key_blocks), 1);

    assert_true(taken);
    for (int64_t number = 0; number < numbers; number++) {
        int64_t work_tile = number;
        int begin = 0, end = key_blocks;
        if (number >= tail->first) {
            const int part = (int)((number - tail->first) / tail->works);
            assert_in_range(part, 0, tail->parts - 1);
            work_tile = number - (int64_t)part * tail->works;
            begin = sm90_fwd_part_begin(tail, part);
            end = sm90_fwd_part_begin(tail, part + 1);
            assert_in_range(end - begin, key_blocks / tail->parts, attn_tiles(key_blocks, tail->parts));
        }
        assert_in_range(work_tile, 0, work_tiles - 1);
        assert_true(begin < end && end <= key_blocks);
        for (int block = begin; block < end; block++)
            assert_int_equal(taken[work_tile * key_blocks + block]++, 0);
    }
    for (int64_t i = 0; i < work_tiles * key_blocks; i++)
        assert_int_equal(taken[i], 1);
    free(taken);
}

static void check_workspace(const struct sm90_fwd_tail *tail, const struct tile *tile)
{
    const struct sm90_fwd_workspace space = sm90_fwd_workspace_of(tail, tile->tail.block_m, tile->head_dim);
    const int64_t slots = tail->parts > 1 ? (int64_t)tail->works * tail->parts : 0, rows = slots * tile->tail.block_m;

    assert_true(space.tile_counter == 0 && space.part_o >= (int64_t)sizeof(int));
    assert_true(space.part_max - space.part_o >= rows * tile->head_dim * (int64_t)sizeof(float));
    assert_true(space.part_sum - space.part_max >= rows * (int64_t)sizeof(float));
    assert_true(space.bytes - space.part_sum >= rows * (int64_t)sizeof(float));
    assert_true(space.part_o % 256 == 0 && space.part_max % 256 == 0 && space.part_sum % 256 == 0);
    if (slots == 0)
        assert_in_range(space.bytes, sizeof(int), 4096);
}

/* The paper's grid: 16384 tokens, 2048 work tiles of 128 rows of head_dim 128 or of 256 of 64, 68 more than a multiple
 * of 132; those of 192 rows are 112 more from 8k on. */
static void known_choices(void **state)
{
    static const struct {
        int tile;
        int64_t len;
        int works, parts;
    } rows[] = {{D128, 1024, 0, 1},     {D128, 2048, 0, 1},      {D128, 4096, 68, 3},   {D128, 8192, 68, 5},
                {D128, 16384, 68, 7},   {D64_256, 1024, 0, 1},   {D64_256, 2048, 0, 1}, {D64_256, 4096, 68, 3},
                {D64_256, 8192, 68, 5}, {D64_256, 16384, 68, 7}, {D64_192, 16384, 0, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        const struct tile *tile = &tiles[rows[i].tile];
        const struct attn_problem p =
            problem_of(16384 / rows[i].len, 2048 / tile->head_dim, rows[i].len, rows[i].len, tile->head_dim, false);
        const struct sm90_fwd_tail tail = sm90_fwd_full_work_of(&p, &tile->tail, MULTIPROCESSORS).tail;
        assert_int_equal(tail.works, rows[i].works);
        assert_int_equal(tail.parts, rows[i].parts);
        assert_int_equal(tail.first, rows[i].works > 0 ? work_tiles_of(&p, tile) - rows[i].works : INT32_MAX);
        check_workspace(&tail, tile);
    }
}

/* Shapes of verify (cmd/plan/plan_verify.c) whose last work tiles have parts. */
static void verified_choices(void **state)
{
    static const struct {
        int tile;
        int64_t q_len;
        int works, parts;
    } rows[] = {{D128, 1960, 24, 4}, {D64_256, 1960, 12, 11}, {D128, 2100, 42, 3}, {D64_192, 2100, 66, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        const struct tile *tile = &tiles[rows[i].tile];
        const struct attn_problem p = problem_of(1, 18, rows[i].q_len, 1300, tile->head_dim, false);
        const struct sm90_fwd_tail tail = sm90_fwd_full_work_of(&p, &tile->tail, MULTIPROCESSORS).tail;
        assert_int_equal(tail.works, rows[i].works);
        assert_int_equal(tail.parts, rows[i].parts);
        check_cover(&tail, work_tiles_of(&p, tile), (int)attn_tiles(p.kv_len, tile->tail.block_n));
    }
}

static void random_problems(void **state)
{
    static const int counts[] = {1, 7, 16, 108, 132, 300};
    uint64_t random = 11;
    int with_parts = 0;
    (void)state;
    for (int n = 0; n < PROBLEMS; n++) {
        const uint64_t bits = number_mix(random += NUMBER_MIX_STEP);
        const struct tile *tile = &tiles[bits % TILES];
        const int multiprocessors = counts[(bits >> 8) % (sizeof counts / sizeof *counts)];
        const bool causal = (bits >> 16) % 8 == 0;
        const int64_t batch = drawn(&random, 4), heads = drawn(&random, 48);
        const struct attn_problem p =
            problem_of(batch, heads, drawn(&random, 5000), drawn(&random, 20000), tile->head_dim, causal);
        const struct sm90_fwd_full_work work = sm90_fwd_full_work_of(&p, &tile->tail, multiprocessors);
        const struct sm90_fwd_full_work again = sm90_fwd_full_work_of(&p, &tile->tail, multiprocessors);
        const struct sm90_fwd_tail *tail = &work.tail;
        const int64_t work_tiles = work_tiles_of(&p, tile);
        const int key_blocks = (int)attn_tiles(p.kv_len, tile->tail.block_n);

        assert_true(tail->first == again.tail.first && tail->works == again.tail.works &&
                    tail->parts == again.tail.parts && tail->part_blocks == again.tail.part_blocks &&
                    tail->longer == again.tail.longer && work.keys == again.keys);
        check_workspace(tail, tile);
        check_cover(tail, work_tiles, key_blocks);
        const double whole =
            ceil((double)work_tiles / multiprocessors) * ((double)key_blocks * tile->tail.block_n + tile->tail.start);
        if (tail->parts == 1) {
            assert_int_equal(tail->works, 0);
            assert_int_equal(tail->first, INT32_MAX);
            assert_true(causal ? work.keys == 0 : work.keys == whole);
            continue;
        }
        ++with_parts;
        assert_true(!causal && tile->tail.has_parts);
        assert_true(work.keys < whole * 0.995);
        assert_int_equal(tail->works, work_tiles % multiprocessors);
        assert_int_equal(tail->first + tail->works, work_tiles);
        assert_true(tail->first >= multiprocessors); /* the first work tiles of all blocks are whole */
    }
    assert_in_range(with_parts, PROBLEMS / 50, PROBLEMS / 2);
}

/* Numbers of work tiles beyond an int, lengths and heads at their limits. */
static void largest_problems(void **state)
{
    static const int64_t lengths[] = {1, INT32_MAX - 65536};
    (void)state;
    for (int i = 0; i < TILES * 16; ++i) {
        const struct tile *tile = &tiles[i % TILES];
        const int64_t heads = i / TILES & 4 ? INT32_MAX : 1, batch = i / TILES & 8 ? INT32_MAX : 1;
        const struct attn_problem p =
            problem_of(batch, heads, lengths[i / TILES & 1], lengths[i / TILES >> 1 & 1], tile->head_dim, false);
        const struct sm90_fwd_tail tail = sm90_fwd_full_work_of(&p, &tile->tail, MULTIPROCESSORS).tail;
        if (tail.parts > 1)
            assert_in_range(tail.first, MULTIPROCESSORS, 200 * MULTIPROCESSORS);
        check_workspace(&tail, tile);
    }
}

#ifdef FABENCH_WITH_CUDA
/* `tiles` are those of the kernels. */
static void the_tiles_are_known(void **state)
{
    int count = 0;
    (void)state;
    for (const struct attn_tile *each = NULL; (each = attn_next_tile(&fused_sm90_fwd_tiles, each)) != NULL;) {
        const struct fused_sm90_fwd_tile *tile = (const void *)each;
        if (!tile->is_dense || tile->has_softcap) /* no parts, or those of the same tile without a softcap */
            continue;
        assert_true(count < TILES);
        const struct tile *known = &tiles[count++];
        assert_int_equal(tile->tile.head_dim, known->head_dim);
        assert_int_equal(tile->block_m * tile->cluster, known->tail.block_m);
        assert_int_equal(tile->block_n, known->tail.block_n);
        assert_true(tile->start == 4 * known->tail.start);
        assert_int_equal(tile->has_parts, known->tail.has_parts);
    }
    assert_int_equal(count, TILES);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_choices),       cmocka_unit_test(verified_choices),
        cmocka_unit_test(random_problems),     cmocka_unit_test(largest_problems),
#ifdef FABENCH_WITH_CUDA
        cmocka_unit_test(the_tiles_are_known),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
