/* How fused_sm90's backward shares out its work (kernels/sm90/bwd/parts.h): the steps of each tile of keys against a
 * count of the tiles that the mask leaves, and the parts of all tiles of random problems. Needs no device. */
#include <stdlib.h>

#include "kernels/common/makespan.h"
#ifdef FABENCH_WITH_CUDA
#include "kernels/sm90/bwd/params.h"
#include "kernels/sm90/fused_sm90.h"
#endif
#include "tests/unit/kernels/bwd_work.h"

/* seen[kv_tile]: tiles of queries with a row that sees one of its keys, row by row. The caller frees it. */
static int *count_seen(const struct work *w)
{
    const struct attn_problem *p = &w->problem;
    const int64_t q_tile = w->tile->q.queries, kv_tiles = attn_tiles(p->kv_len, SM90_BWD_KV_TILE);
    int *seen = calloc((size_t)kv_tiles, sizeof *seen);
    int64_t *counted = calloc((size_t)kv_tiles, sizeof *counted); /* the last tile of queries that is, plus 1 */
    assert_true(seen && counted);
    for (int64_t row = 0; row < p->q_len; row++) {
        int64_t first, last;
        attn_visible(p, row, &first, &last);
        for (int64_t t = first / SM90_BWD_KV_TILE; first <= last && t <= last / SM90_BWD_KV_TILE; t++) {
            seen[t] += counted[t] != row / q_tile + 1;
            counted[t] = row / q_tile + 1;
        }
    }
    free(counted);
    return seen;
}

static void steps_are_the_tiles_that_the_mask_leaves(void **state)
{
    uint64_t random = 1;
    (void)state;
    for (int n = 0; n < PROBLEMS; n++) {
        const struct work w = drawn_work(&random);
        int *seen = count_seen(&w);
        assert_int_equal(w.shape.kv_tiles, attn_tiles(w.problem.kv_len, SM90_BWD_KV_TILE));
        for (int t = 0; t < w.shape.kv_tiles; t++)
            assert_int_equal(sm90_bwd_steps(&w.shape, t), seen[t] * w.shape.group);
        free(seen);
    }
}

/* The first tile of queries with a row that sees first_key or a key behind it; q_tiles where there is none. */
static int find_first_tile(const struct work *w, int64_t first_key)
{
    for (int64_t row = 0; row < w->problem.q_len; row++) {
        int64_t first, last;
        attn_visible(&w->problem, row, &first, &last);
        if (last >= first_key)
            return (int)(row / w->tile->q.queries);
    }
    return w->shape.q_tiles;
}

/* Each half of a tile of keys has a first tile of its own; the second half may lie behind all keys. */
static void halves_begin_where_the_mask_does(void **state)
{
    uint64_t random = 4;
    int behind = 0;
    (void)state;
    for (int n = 0; n < PROBLEMS; n++) {
        const struct work w = drawn_work(&random);
        const struct sm90_bwd_shape *s = &w.shape;
        for (int key = 0; key < s->kv_tiles * SM90_BWD_KV_TILE; key += SM90_BWD_KV_TILE / 2) {
            const int found =
                sm90_bwd_first_tile(key, s->causal, s->shift, s->q_len, s->kv_len, w.tile->q.queries, s->q_tiles);
            assert_int_equal(found, find_first_tile(&w, key));
            behind += found == s->q_tiles;
        }
    }
    assert_true(behind > 0);
}

static void many_tiles_have_one_part_each(void **state)
{
    (void)state;
    for (int n = 0; n < 8; n++) {
        const bool causal = n & 1, is_narrow = n & 2;
        struct work w = work_on_h200(4, is_narrow ? 32 : 16, is_narrow ? 32 : 16, 4096, is_narrow ? 64 : 128, causal);
        assert_int_equal(w.parts.max_parts, 1);
        assert_int_equal(w.parts.part_steps, sm90_bwd_steps(&w.shape, 0));
        w = work_on_h200(64, 16, 4, 4096, is_narrow ? 64 : 128, causal); /* a small group changes nothing */
        assert_int_equal(w.parts.max_parts, 1);
    }
}

static void few_tiles_are_shared_out(void **state)
{
    (void)state;
    for (int head_dim = 64; head_dim <= 128; head_dim += 64) {
        /* 32 tiles of keys for 132 multiprocessors. */
        struct work w = work_on_h200(1, 32, 1, 4096, head_dim, true);
        assert_in_range(w.parts.max_parts, 4, SM90_BWD_MOST_PARTS);
        w = work_on_h200(1, 32, 1, 4096, head_dim, false);
        assert_in_range(w.parts.max_parts, 4, SM90_BWD_MOST_PARTS);
        /* One tile, of more steps than the most parts could be given two each. */
        w = work_on_h200(1, 512, 1, 128, head_dim, false);
        assert_in_range(w.parts.max_parts, SM90_BWD_MOST_PARTS / 2, SM90_BWD_MOST_PARTS);
        /* One multiprocessor gains nothing. */
        assert_int_equal(work_of(w.problem, false, 1).parts.max_parts, 1);
        /* Steps that no two blocks can share. */
        assert_int_equal(work_on_h200(1, 1, 1, 64, head_dim, true).parts.max_parts, 1);
    }
}

/* One part after the other, none empty; deterministic, tiles that share a semaphore, two with 64 queries, are in the
 * same part. */
static void expect_parts(const struct work *w, int kv_tile, int count)
{
    const struct sm90_bwd_shape *s = &w->shape;
    const int steps = sm90_bwd_steps(s, kv_tile), head_steps = steps / s->group;
    const int semaphore_tiles = w->deterministic ? 128 / w->tile->q.queries : 1;
    int end = 0;
    for (int part = 0; part <= count; part++) {
        const int begin = sm90_bwd_part_begin(w->parts.kind, part, count, steps, w->parts.part_steps, head_steps,
                                              s->q_tiles, semaphore_tiles);
        assert_true(part == 0 ? begin == 0 : begin > end);
        assert_true(begin % head_steps == 0 || (s->q_tiles - begin % head_steps) % semaphore_tiles == 0);
        if (w->parts.kind == SM90_BWD_WHOLE_PARTS && part < count)
            assert_int_equal(begin, part * w->parts.part_steps);
        end = begin;
    }
    assert_int_equal(end, steps);
}

/* Causal, where all heads of the groups that run at the same time exceed the L2 twice: parts of a head, or of as much
 * of one as takes a third of it, also where tiles are many. 4 GB of sums at most.
 * docs/kernels/sm90_bwd.md, "Which tile". */
static void parts_are_short_where_blocks_drift_apart(void **state)
{
    (void)state;
    static const struct {
        int64_t batch, q_heads, kv_heads, len, head_dim;
        int part_steps;
    } rows[] = {
        {1, 16, 2, 16384, 128, 267}, {1, 64, 8, 16384, 128, 256},
        {1, 64, 4, 32768, 128, 256}, {2, 64, 8, 16384, 128, 256},
        {16, 32, 1, 4096, 128, 64},  {64, 32, 1, 4096, 128, 128},
        {4, 64, 4, 4096, 128, 64},   {4, 64, 8, 4096, 128, 128},
        {1, 32, 2, 32768, 64, 256},  {4, 32, 2, 65536, 64, 1024 /* shorter ones are too many */},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct attn_problem p = DENSE(rows[i].batch, rows[i].q_heads, rows[i].kv_heads, rows[i].len, rows[i].len,
                                      rows[i].head_dim, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.125f, 0);
        const struct work w = work_of(p, false, MULTIPROCESSORS);
        assert_int_equal(w.parts.part_steps, rows[i].part_steps);
        assert_int_equal(w.parts.max_parts, (sm90_bwd_steps(&w.shape, 0) - 1) / rows[i].part_steps + 1);
        assert_true(w.parts.kind == (w.shape.kv_tiles <= SM90_BWD_MOST_SEARCHED_TILES ? SM90_BWD_WHOLE_PARTS
                                                                                      : SM90_BWD_EQUAL_PARTS_IN_TURNS));
        for (int t = 0; t < w.shape.kv_tiles; t++) {
            const int count = sm90_bwd_part_count(sm90_bwd_steps(&w.shape, t), w.parts.part_steps);
            if (count > 1)
                expect_parts(&w, t, count);
        }
        const int64_t parts = (int64_t)w.parts.max_parts * w.shape.kv_tiles * w.shape.kv_heads_total;
        assert_true(sm90_bwd_sums_offset(1, 0, parts, (int)p.head_dim) <= INT64_C(1) << 30); /* floats */
        /* A loop is not faster: it has no parts. Without a mask, or in order, nothing of this holds. */
        const struct work loop = work_with(w.tile + 1, p, false, MULTIPROCESSORS);
        assert_true(loop.parts.max_parts == 1 && loop.parts.time > w.parts.time);
        assert_true(work_of(p, true, MULTIPROCESSORS).parts.kind == SM90_BWD_EQUAL_PARTS);
        p.causal = false;
        assert_true(work_of(p, false, MULTIPROCESSORS).parts.kind != SM90_BWD_EQUAL_PARTS_IN_TURNS);
    }
    /* Pairs drift apart as well: two tiles of keys of each run at the same time. (1.04: their time is that of steady
     * load, the others' that of bursts.) */
    for (int64_t len = 16384; len <= 32768; len *= 2) {
        const struct attn_problem p = DENSE(1, 64, 4, len, len, 64, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.125f, 0);
        const struct work once = work_of(p, false, MULTIPROCESSORS),
                          pair = work_with(&known_tiles[D64_PAIR], p, false, MULTIPROCESSORS);
        assert_true(once.parts.max_parts > 1 && 1.04 * pair.parts.time > once.parts.time);
    }
    /* Fewer tiles of keys than multiprocessors, whose groups exceed the L2 together. */
    const struct work few = work_on_h200(1, 64, 4, 4096, 128, true);
    assert_true(few.shape.query_l2s < 2 && few.parts.kind == SM90_BWD_EQUAL_PARTS_IN_TURNS);
    assert_int_equal(few.parts.part_steps, 95);
    /* Queries that see no key, ahead of those that see some, change nothing. */
    const struct attn_problem square = DENSE(4, 64, 8, 1024, 1024, 128, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.125f, 0);
    struct attn_problem tall = square;
    tall.q_len = 32768;
    const struct work of_square = work_of(square, false, MULTIPROCESSORS),
                      of_tall = work_of(tall, false, MULTIPROCESSORS);
    assert_int_equal(of_tall.parts.max_parts, of_square.parts.max_parts);
    assert_int_equal(of_tall.parts.part_steps, of_square.parts.part_steps);
    /* Few heads, or tiles of keys that have nearly as many steps as all that run at the same time: whole tiles. */
    assert_int_equal(work_on_h200(4, 32, 32, 131072, 64, true).parts.max_parts, 1);
    assert_int_equal(work_on_h200(1, 32, 8, 32768, 128, true).parts.max_parts, 1);
}

static void parts_cover_all_steps_and_none_is_empty(void **state)
{
    uint64_t random = 2;
    int shared_out = 0, with_both = 0, whole = 0;
    (void)state;
    for (int n = 0; n < PROBLEMS; n++) {
        const struct work w = drawn_work(&random);
        int most = 1, fewest = INT32_MAX, whole_parts = 0, all = 0;
        for (int t = 0; t < w.shape.kv_tiles; t++) {
            const int steps = sm90_bwd_steps(&w.shape, t);
            const int count = sm90_bwd_part_count(steps, w.parts.part_steps);
            assert_true((int64_t)count * w.parts.part_steps >= steps);
            if (count > 1)
                expect_parts(&w, t, count);
            most = count > most ? count : most;
            fewest = count < fewest ? count : fewest;
            whole_parts += steps / w.parts.part_steps;
            all += count;
        }
        assert_int_equal(most, w.parts.max_parts);
        assert_in_range(most, 1, SM90_BWD_MOST_PARTS);
        if (w.parts.kind == SM90_BWD_WHOLE_PARTS) {
            assert_true(!w.deterministic && w.shape.kv_tiles <= SM90_BWD_MOST_SEARCHED_TILES);
            assert_int_equal(w.parts.whole_parts, whole_parts);
            assert_int_equal(w.parts.head_works, all);
        } else {
            assert_int_equal(w.parts.head_works, sm90_bwd_work_tiles(&w.shape) * most);
        }
        shared_out += most > 1;
        with_both += most > 1 && fewest == 1;
        whole += w.parts.kind == SM90_BWD_WHOLE_PARTS;
    }
    assert_in_range(shared_out, PROBLEMS / 4, PROBLEMS * 3 / 4);
    assert_true(with_both > 0 && whole > 0);
}

/* Over all turns a tile of keys begins each of its parts once, in their order. */
static void a_part_begins_at_one_turn(void **state)
{
    (void)state;
    for (int max_parts = 1; max_parts <= SM90_BWD_MOST_PARTS; max_parts++)
        for (int parts = 1; parts <= max_parts; parts++) {
            int begun = 0;
            for (int turn = 0; turn < max_parts; turn++) {
                const int part = sm90_bwd_part_at_turn(turn, parts, max_parts);
                assert_true(part == begun || (part == parts && turn > 0));
                begun += part == begun && part < parts;
            }
            assert_int_equal(begun, parts);
        }
}

/* Parts of one size and what is left of the tiles balance causal problems with few key heads. At head_dim 128, where
 * 32 heads share one and their queries exceed the L2, parts are equal. docs/kernels/sm90_bwd.md, "Which tile". */
static void kinds_of_parts(void **state)
{
    (void)state;
    for (int head_dim = 64; head_dim <= 128; head_dim += 64) {
        struct work w = work_on_h200(1, 16, 2, 4096, head_dim, true);
        assert_int_equal(w.parts.kind, SM90_BWD_WHOLE_PARTS);
        assert_int_equal(work_of(w.problem, true, MULTIPROCESSORS).parts.kind, SM90_BWD_EQUAL_PARTS);
        w = work_on_h200(1, 32, 1, 2048, head_dim, true);
        assert_true(w.shape.query_l2s < 2);
        w = work_on_h200(1, 32, 1, 8192, head_dim, true);
        assert_true(w.shape.query_l2s > 2);
        assert_true(w.parts.kind == (head_dim == 64 ? SM90_BWD_WHOLE_PARTS : SM90_BWD_EQUAL_PARTS_IN_TURNS));
        assert_int_equal(work_of(w.problem, true, MULTIPROCESSORS).parts.kind, SM90_BWD_EQUAL_PARTS);
        assert_int_equal(work_on_h200(1, 32, 1, 8192, head_dim, false).parts.kind, SM90_BWD_WHOLE_PARTS);
    }
}

/* How many work tiles without parts run at the same time. */
static int clusters_of(const struct work *w) { return w->multiprocessors / w->tile->q.cluster; }

/* Sum of the times of all blocks, without parts, for each multiprocessor. */
static double even_time(const struct work *w)
{
    const struct sm90_bwd_shape *s = &w->shape;
    double sum = 0;
    for (int t = 0; t < s->kv_tiles; t += w->tile->q.cluster) /* the first tile of a pair has the most steps */
        sum += sm90_bwd_steps(s, t) * w->tile->q.step_time / 100.0 + w->tile->q.block_time / 100.0;
    return sum * s->kv_heads_total / clusters_of(w);
}

static void times_are_those_of_the_blocks(void **state)
{
    uint64_t random = 5;
    int with_few = 0;
    (void)state;
    for (int n = 0; n < PROBLEMS; n++) {
        const struct work w = drawn_work(&random);
        if (w.parts.max_parts > 1) { /* no block is shorter than without steps */
            assert_true(w.parts.time > w.tile->q.block_time / 100.0);
            continue;
        }
        const double longest = sm90_bwd_steps(&w.shape, 0) * w.tile->q.step_time / 100.0;
        const double start = w.tile->q.start_time / 100.0; /* of a block; of all work tiles where none is early */
        const double even = even_time(&w), one = longest + w.tile->q.block_time / 100.0 + start;
        const double most = even * (w.tile->q.block_time + w.tile->q.start_time) / w.tile->q.block_time + one;
        const int64_t works = (int64_t)sm90_bwd_work_tiles(&w.shape) * w.shape.kv_heads_total;
        assert_true(w.parts.time > even * 0.999 && w.parts.time < most * 1.001);
        if (works <= clusters_of(&w) && works <= 256) {
            assert_true(w.parts.time > one - 1e-9 && w.parts.time < one + 1e-9);
            with_few++;
        }
    }
    assert_true(with_few > 0);
    /* Many blocks, of which a sample is taken, and as many steps as the numbers allow. */
    for (int causal = 0; causal < 2; causal++) {
        const struct work w = work_on_h200(1, 32, 32, 1 << 17, 64, causal);
        assert_true(w.parts.time > even_time(&w) * 0.99 && w.parts.time < even_time(&w) * 1.01);
        const struct work longest = work_on_h200(1, 1, 1, INT32_MAX - 65536, 128, causal);
        assert_int_equal(longest.parts.max_parts, 1);
        assert_true(longest.parts.time > 1e12);
    }
}

/* The longest self-attention, of 32 heads of 32 sequences, that takes less time with short steps than with `other`;
 * none behind it does. */
static int64_t longest_with_short_steps(const struct tile *other, bool causal)
{
    int64_t longest = 0;
    for (int64_t len = 128; len <= 16384; len += 128) {
        const struct attn_problem p = DENSE(32, 32, 32, len, len, 64, ATTN_BF16, ATTN_BSHD, causal, -1, -1, 0.125f, 0);
        const struct work w = work_with(other, p, false, MULTIPROCESSORS),
                          with_short = work_with(&known_tiles[D64_SHORT], p, false, MULTIPROCESSORS);
        assert_int_equal(with_short.shape.q_tiles, 2 * w.shape.q_tiles);
        if (with_short.parts.time < w.parts.time) {
            assert_int_equal(longest, len - 128);
            longest = len;
        }
    }
    return longest;
}

/* A tile of keys takes N + 2 with N long steps, N + 1.6 with a loop over tiles of keys, and 2 N * 0.59 + 1.3 with short
 * steps, which is less up to N = 3.9 and 1.7. N is len / 128, causal (len / 128 + 1) / 2 on average. Measured on an
 * H200 (docs/kernels/sm90_bwd.md, "Which tile"): short steps are slower than a loop at 256 full and 512 causal, faster
 * at 256 causal; slower than long ones without a loop at 512 full, faster at 256 full and 512 causal. */
static void short_steps_are_for_short_problems(void **state)
{
    (void)state;
    assert_int_equal(longest_with_short_steps(&known_tiles[D64], false), 384);
    assert_int_equal(longest_with_short_steps(&known_tiles[D64], true), 768);
    assert_int_equal(longest_with_short_steps(&known_tiles[D64_LOOP], false), 128);
    assert_int_equal(longest_with_short_steps(&known_tiles[D64_LOOP], true), 256);
}

/* The shortest self-attention of the paper sweep from which on a pair takes less time than a loop. */
static int64_t shortest_with_pairs(const struct tile *loop, bool causal)
{
    int64_t shortest = INT64_MAX;
    for (int64_t len = 16384; len >= 1024; len /= 2) {
        const int64_t batch = 16384 / len, heads = 2048 / loop->head_dim;
        const struct attn_problem p =
            DENSE(batch, heads, heads, len, len, loop->head_dim, ATTN_BF16, ATTN_BSHD, causal, -1, -1, 0.125f, 0);
        const struct work w = work_with(loop, p, false, MULTIPROCESSORS),
                          pair = work_with(loop + 1, p, false, MULTIPROCESSORS);
        assert_int_equal(sm90_bwd_work_tiles(&pair.shape), (w.shape.kv_tiles + 1) / 2);
        if (pair.parts.time >= w.parts.time)
            break;
        shortest = len;
    }
    return shortest;
}

/* Under steady load pairs are faster; causal, where the second tile of a pair has a step less, from 4k on.
 * docs/kernels/sm90_bwd.md, "Which tile". */
static void pairs_are_for_long_problems(void **state)
{
    (void)state;
    for (int loop = D128_LOOP; loop <= D64_LOOP; loop += D64_LOOP - D128_LOOP) {
        assert_int_equal(shortest_with_pairs(&known_tiles[loop], false), 1024);
        assert_int_equal(shortest_with_pairs(&known_tiles[loop], true), 4096);
    }
}

/* Blocks that take one tile of keys after the other: early where others are left for all, and never in parts. */
static void early_tiles_leave_enough_behind_them(void **state)
{
    (void)state;
    for (int head_dim = 64; head_dim <= 128; head_dim += 64) {
        const struct tile *once = &known_tiles[head_dim == 64 ? D64 : D128], *loop = once + 1;
        const struct attn_problem causal =
            DENSE(4, 32, 32, 4096, 4096, head_dim, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.125f, 0);
        struct attn_problem full = causal, shared = causal;
        full.causal = false;
        shared.batch = shared.kv_heads = 1;
        const struct work w = work_with(loop, causal, false, MULTIPROCESSORS);
        assert_int_equal(sm90_bwd_early_tiles(&w.shape, 4096, MULTIPROCESSORS), 4096 - 2 * MULTIPROCESSORS);
        assert_int_equal(sm90_bwd_early_tiles(&w.shape, MULTIPROCESSORS, MULTIPROCESSORS), 0);
        const struct work all = work_with(loop, full, false, MULTIPROCESSORS);
        assert_int_equal(sm90_bwd_early_tiles(&all.shape, 4096, MULTIPROCESSORS), 4096);
        assert_int_equal(work_with(loop, shared, false, MULTIPROCESSORS).parts.max_parts, 1);
        assert_true(work_with(once, shared, false, MULTIPROCESSORS).parts.max_parts > 1);
    }
}

/* With no more tiles of keys than multiprocessors a loop takes as long as blocks of one tile each, and not less by a
 * rounding, so that the first of the table is chosen; longer where those have parts. From MAX_WAVES (bwd/parts.c) tiles
 * for each multiprocessor on it takes less. */
static void a_loop_gains_with_more_tiles_than_multiprocessors(void **state)
{
    uint64_t random = 6;
    int equal = 0, slower = 0, faster = 0;
    (void)state;
    for (int n = 0; n < PROBLEMS; n++) {
        const struct work drawn = drawn_work(&random);
        const struct tile *tile = &known_tiles[drawn.problem.head_dim == 64 ? D64 : D128];
        const struct work once = work_with(tile, drawn.problem, drawn.deterministic, drawn.multiprocessors),
                          loop = work_with(tile + 1, drawn.problem, drawn.deterministic, drawn.multiprocessors);
        const int64_t tiles = (int64_t)once.shape.kv_tiles * once.shape.kv_heads_total;
        const bool is_equal = loop.parts.time < once.parts.time + 1e-9;
        assert_int_equal(loop.parts.max_parts, 1);
        if (tiles <= drawn.multiprocessors && tiles <= ATTN_MAX_MULTIPROCESSORS) {
            assert_true(loop.parts.time >= once.parts.time);
            assert_int_equal(is_equal, once.parts.max_parts == 1);
            equal += is_equal;
            slower += !is_equal;
        } else if (tiles >= 8 * (int64_t)drawn.multiprocessors) {
            assert_true(loop.parts.time < once.parts.time);
            faster++;
        }
    }
    assert_true(equal > 0 && slower > 0 && faster > 0);
}

/* What the workspace must hold beside the parts' sums: two numbers for each row, dQ in fp32, semaphores. Each head has
 * whole blocks of 8192 floats of dQ. */
static int64_t other_bytes(const struct work *w)
{
    const int64_t heads = w->problem.batch * w->problem.q_heads, head_dim = w->problem.head_dim;
    const int64_t row_blocks = heads * attn_tiles(w->problem.q_len, sm90_bwd_row_block_rows(head_dim));
    return row_blocks * (sm90_bwd_row_block_rows(head_dim)) * (2 + head_dim) * (int64_t)sizeof(float) +
           (w->deterministic ? row_blocks * 4 * (int64_t)sizeof(int) : 0);
}

#ifdef FABENCH_WITH_CUDA
/* known_tiles are those of the kernels. */
static void the_tiles_are_known(void **state)
{
    size_t count = 0;
    (void)state;
    for (const struct attn_tile *each = NULL; (each = attn_next_tile(&fused_sm90_bwd_tiles, each)) != NULL;) {
        const struct fused_sm90_bwd_tile *tile = (const void *)each;
        if (!tile->is_dense || tile->has_softcap) /* no parts, or those of the same tile without a softcap */
            continue;
        assert_true(count < sizeof known_tiles / sizeof *known_tiles);
        const struct tile *known = &known_tiles[count++];
        assert_string_equal(tile->tile.shown.name, known->variant);
        assert_int_equal(tile->tile.head_dim, known->head_dim);
        assert_int_equal(tile->q.queries, known->q.queries);
        assert_int_equal(tile->q.step_time, known->q.step_time);
        assert_int_equal(tile->q.block_time, known->q.block_time);
        assert_int_equal(tile->q.start_time, known->q.start_time);
        assert_int_equal(tile->q.takes_more, known->q.takes_more);
        assert_int_equal(tile->q.cluster, known->q.cluster);
        assert_int_equal(tile->q.keeps_queries, known->q.keeps_queries);
    }
    assert_int_equal(count, sizeof known_tiles / sizeof *known_tiles);
}

static int64_t workspace_bytes(const struct work *w)
{
    const struct attn_device device = {.platform = ATTN_CUDA,
                                       .sm = 90,
                                       .multiprocessors = w->multiprocessors,
                                       .smem_per_block_bytes = 232448,
                                       .l2_bytes = L2_BYTES};
    const struct attn_request request = {.problem = &w->problem,
                                         .device = &device,
                                         .mode = ATTN_BWD,
                                         .deterministic = w->deterministic,
                                         .variant = w->tile->variant};
    struct attn_message why = {""};
    if (attn_fused_sm90.accepts(&request, &why) != ATTN_OK)
        fail_msg("%s", why.text);
    return (int64_t)attn_fused_sm90.workspace_bytes(&request);
}
#else
/* Without CUDA the size of the sums alone is there. */
static int64_t workspace_bytes(const struct work *w)
{
    const int64_t tiles = (int64_t)w->shape.kv_heads_total * w->shape.kv_tiles, max_parts = w->parts.max_parts;
    return other_bytes(w) +
           (max_parts > 1 ? sm90_bwd_sums_offset((int)max_parts, 0, tiles, (int)w->problem.head_dim) * 4 : 0);
}
#endif

/* Each part of each tile has its own place for its sums of dV and dK, and all are in the workspace. */
static void the_workspace_is_enough(void **state)
{
    uint64_t random = 3;
    (void)state;
    for (int n = 0; n < PROBLEMS; n++) {
        const struct work w = drawn_work(&random);
        const int64_t tiles = (int64_t)w.shape.kv_heads_total * w.shape.kv_tiles, bytes = workspace_bytes(&w);
        const int64_t one = 2 * SM90_BWD_KV_TILE * w.problem.head_dim;
        int64_t end = 0;
        for (int part = 0; part < w.parts.max_parts && w.parts.max_parts > 1; part++)
            for (int64_t tile = 0; tile < tiles; tile++) {
                const int64_t offset = sm90_bwd_sums_offset(part, tile, tiles, (int)w.problem.head_dim);
                assert_true(offset >= end);
                end = offset + one;
            }
        assert_int_equal(end, w.parts.max_parts > 1 ? w.parts.max_parts * tiles * one : 0);
        assert_true(bytes >= other_bytes(&w) + end * (int64_t)sizeof(float));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_the_tiles_that_the_mask_leaves),
        cmocka_unit_test(halves_begin_where_the_mask_does),
        cmocka_unit_test(many_tiles_have_one_part_each),
        cmocka_unit_test(parts_are_short_where_blocks_drift_apart),
        cmocka_unit_test(few_tiles_are_shared_out),
        cmocka_unit_test(parts_cover_all_steps_and_none_is_empty),
        cmocka_unit_test(a_part_begins_at_one_turn),
        cmocka_unit_test(kinds_of_parts),
        cmocka_unit_test(times_are_those_of_the_blocks),
        cmocka_unit_test(short_steps_are_for_short_problems),
        cmocka_unit_test(pairs_are_for_long_problems),
        cmocka_unit_test(early_tiles_leave_enough_behind_them),
        cmocka_unit_test(a_loop_gains_with_more_tiles_than_multiprocessors),
        cmocka_unit_test(the_workspace_is_enough),
#ifdef FABENCH_WITH_CUDA
        cmocka_unit_test(the_tiles_are_known),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
