/* In which order fused_sm90's backward takes its work (sm90/bwd/parts.h, geometry.h): the heads that run at
 * the same time, the order of deterministic work tiles, the ranges of blocks that keep their queries. Needs no
 * device. */
#include <stdlib.h>

#include "tests/unit/kernels/bwd_work.h"

/* Heads whose blocks run at the same time: few, or, causal or contended, all where Q, dO and the sums of dQ stay in the
 * L2. */
static void heads_of_a_section(void **state)
{
    (void)state;
    static const struct {
        int64_t batch, q_heads, kv_heads, len, head_dim;
        bool causal, deterministic;
        int heads;
    } rows[] = {
        /* Up to eight query heads in a third of the L2, two at least: one of 16384 tokens has 8 or 16 MB. */
        {16, 16, 16, 1024, 128, true, false, 8},
        {16, 32, 32, 1024, 64, true, false, 8},
        {4, 32, 32, 4096, 64, true, false, 8},
        {4, 16, 16, 4096, 128, false, false, 5},
        {2, 32, 32, 8192, 64, false, false, 5},
        {1, 32, 32, 16384, 64, true, false, 2},
        {1, 16, 16, 16384, 128, false, false, 2},
        {1, 32, 8, 2048, 64, true, false, 8},
        {1, 32, 8, 8192, 64, true, false, 1},
        {1, 64, 8, 16384, 128, true, false, 1},
        {1, 64, 1, 8192, 64, true, false, 1},
        /* Causal, all in two thirds. */
        {2, 12, 12, 1024, 64, true, false, 24},
        {2, 12, 12, 1024, 128, true, false, 24},
        {2, 12, 12, 1024, 64, false, false, 8},
        /* Causal: a number that leaves a full last section, not 5 with two of 32 or one of 16 heads behind. */
        {1, 32, 32, 8192, 64, true, false, 4},
        {4, 16, 16, 4096, 128, true, false, 4},
        /* Causal, few heads: as many as keep the multiprocessors busy while the longest block runs: 8 at 4096. */
        {1, 16, 16, 4096, 128, true, false, 8},
        {1, 20, 20, 4096, 128, true, false, 10},
        {1, 16, 16, 8192, 128, true, false, 6},
        /* Deterministic, causal: up to 64 query heads in two thirds, 32 at least. */
        {4, 32, 32, 4096, 64, true, true, 32},
        {16, 32, 32, 1024, 64, true, true, 64},
        /* Deterministic, full: up to 32 in a third, 8 at least. */
        {8, 32, 32, 512, 64, false, true, 32},
        {8, 32, 32, 1024, 64, false, true, 32},
        {8, 32, 32, 2048, 64, false, true, 20},
        {8, 32, 32, 4096, 64, false, true, 10},
        {8, 32, 8, 1024, 64, false, true, 8},
        {8, 32, 8, 8192, 64, false, true, 2},
        {8, 32, 32, 1024, 128, false, true, 20},
        {8, 32, 1, 1024, 64, false, true, 1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        const struct work w = work_on_h200(rows[i].batch, rows[i].q_heads, rows[i].kv_heads, rows[i].len,
                                           rows[i].head_dim, rows[i].causal);
        assert_int_equal(work_of(w.problem, rows[i].deterministic, MULTIPROCESSORS).shape.section_heads, rows[i].heads);
    }
}

static struct sm90_bwd_order order_of(const struct work *w)
{
    return sm90_bwd_order_of(&w->shape, &w->parts, w->multiprocessors);
}

/* Deterministic, causal: so many heads at the same time that some steps are between the starts of two work tiles of a
 * head, in eight sections where there are as many tiles of keys; of few and long heads eight, in four sections. */
static void causal_sections_start_one_after_the_other(void **state)
{
    static const struct {
        int64_t batch, len, head_dim;
        int section_heads, stagger;
    } known[] = {{32, 512, 64, 16, 1},  {16, 1024, 64, 8, 1},  {8, 2048, 64, 4, 2},   {4, 4096, 64, 4, 4},
                 {2, 8192, 64, 2, 8},   {16, 1024, 128, 4, 1}, {1, 16384, 64, 2, 32}, {4, 1024, 64, 64, 0},
                 {2, 8192, 128, 2, 16}, {1, 16384, 128, 16, 0}};
    uint64_t random = 7;
    int staggered = 0;
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i) {
        const int64_t heads = 2048 / known[i].head_dim;
        const struct work free = work_on_h200(known[i].batch, heads, heads, known[i].len, known[i].head_dim, true);
        const struct work w =
            work_with(&known_tiles[known[i].head_dim == 64 ? D64_LOOP : D128], free.problem, true, MULTIPROCESSORS);
        assert_int_equal(order_of(&free).stagger, 0);
        assert_int_equal(order_of(&free).section_heads, free.shape.section_heads);
        assert_int_equal(order_of(&w).section_heads, known[i].section_heads);
        assert_int_equal(order_of(&w).stagger, known[i].stagger);
    }
    for (int n = 0; n < PROBLEMS; n++) {
        struct work w = drawn_work(&random);
        w.problem.batch *= 64;
        w = work_with(w.tile, w.problem, w.deterministic, w.multiprocessors);
        const struct sm90_bwd_order order = order_of(&w);
        if (order.stagger == 0) {
            assert_int_equal(order.section_heads, w.shape.section_heads);
            continue;
        }
        assert_true(w.deterministic && w.problem.causal && w.parts.max_parts == 1);
        assert_in_range(order.stagger, 1, w.parts.head_works - 1);
        assert_int_equal(w.shape.kv_heads_total % order.section_heads, 0);
        staggered++;
    }
    assert_true(staggered > 0);
}

/* Each work tile has one number, those of a head are in the order of their keys, and no section is further ahead of the
 * next one than `stagger`. */
static void staggered_places_are_in_order(void **state)
{
    uint64_t random = 8;
    (void)state;
    for (int n = 0; n < PROBLEMS; n++) {
        const int works = (int)drawn(&random, 40), stagger = 1 + (int)(number_mix(random) % (uint64_t)works);
        const int sections = (int)drawn(&random, 40), section_heads = (int)drawn(&random, 5);
        int *done = calloc((size_t)(sections * section_heads), sizeof *done), at = 0;
        assert_true(done);
        for (int number = 0; number < sections * section_heads * works; number++) {
            const struct sm90_bwd_place place =
                sm90_bwd_staggered_place(number, section_heads, sections, works, stagger);
            assert_in_range(place.head, 0, sections * section_heads - 1);
            assert_int_equal(place.place, done[place.head]);
            done[place.head]++;
            const int time = place.head / section_heads * stagger + place.place;
            assert_true(time >= at);
            at = time;
        }
        for (int head = 0; head < sections * section_heads; head++)
            assert_int_equal(done[head], works);
        free(done);
    }
}

/* A semaphore is released for others if, and only if, a tile of keys behind this one sees a tile of queries of it. */
static void semaphores_are_released_for_those_behind(void **state)
{
    uint64_t random = 9;
    int with = 0, without = 0;
    (void)state;
    for (int n = 0; n < PROBLEMS; n++) {
        const struct work w = drawn_work(&random);
        const struct sm90_bwd_shape *s = &w.shape;
        const int q_tile = s->q_tile.queries, count = 128 / q_tile;
        for (int kv_tile = 0; kv_tile < s->kv_tiles; kv_tile++) {
            for (int tile = s->q_tiles - sm90_bwd_steps(s, kv_tile) / s->group; tile < s->q_tiles; tile++) {
                bool others = false;
                for (int behind = kv_tile + 1; behind < s->kv_tiles; behind++)
                    others |= (s->q_tiles - sm90_bwd_steps(s, behind) / s->group) / count <= tile / count &&
                              sm90_bwd_steps(s, behind) > 0;
                assert_int_equal(sm90_bwd_has_successor(kv_tile, tile, count, s->causal, s->shift, s->q_len, s->kv_len,
                                                        q_tile, s->q_tiles),
                                 others);
                with += others;
                without += !others;
            }
        }
    }
    assert_true(with > 0 && without > 0);
}

/* Many tiles of keys for few queries: from 16 for each 128 queries of a key head and 16 more on, with head_dim 64. All
 * heads are one section then, unless their queries do not stay in the L2, and blocks that are no pairs take longer. */
static void few_queries_are_contended(void **state)
{
    static const struct {
        int64_t q_len, kv_len, q_heads, kv_heads, head_dim;
        bool contended;
    } shapes[] = {{128, 4096, 16, 16, 64, true},    {128, 3968, 16, 16, 64, false}, {1, 3969, 16, 16, 64, true},
                  {129, 4096, 16, 16, 64, false},   {256, 6144, 16, 16, 64, true},  {512, 16384, 16, 16, 64, true},
                  {1024, 16384, 16, 16, 64, false}, {128, 4096, 16, 8, 64, false},  {128, 6144, 16, 8, 64, true},
                  {128, 16384, 16, 16, 128, false}, {4096, 4096, 16, 16, 64, false}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
        const struct attn_problem p = DENSE(2, shapes[i].q_heads, shapes[i].kv_heads, shapes[i].q_len, shapes[i].kv_len,
                                            shapes[i].head_dim, ATTN_BF16, ATTN_BSHD, false, -1, -1, 0.125f, 0);
        const int few = (int)(8 * shapes[i].kv_heads / shapes[i].q_heads);
        const struct work w = work_of(p, false, MULTIPROCESSORS);
        assert_int_equal(w.shape.contended, shapes[i].contended);
        assert_int_equal(w.shape.section_heads, shapes[i].contended ? 2 * shapes[i].kv_heads : few);
    }
    /* Q, dO and the sums of dQ of 16384 heads take 1 GB, which does not stay in the L2. */
    const struct attn_problem many = DENSE(256, 64, 64, 128, 4096, 64, ATTN_BF16, ATTN_BSHD, false, -1, -1, 0.125f, 0);
    const struct work w = work_of(many, false, MULTIPROCESSORS);
    assert_true(w.shape.contended);
    assert_int_equal(w.shape.section_heads, 8);
    struct sm90_bwd_shape uncontended = w.shape;
    uncontended.contended = false;
    assert_true(sm90_bwd_choose_parts(&uncontended, 64, MULTIPROCESSORS).time < w.parts.time);
    struct work pair = work_with(&known_tiles[D64_PAIR], many, false, MULTIPROCESSORS);
    const double time = pair.parts.time;
    pair.shape.contended = false;
    assert_true(sm90_bwd_choose_parts(&pair.shape, 64, MULTIPROCESSORS).time == time);
}

/* Blocks that keep the queries of a head: for one tile of queries of one query head. Each has a range of the tiles of
 * keys of all heads, none more than one tile longer than another. */
static void blocks_that_keep_queries(void **state)
{
    static const struct {
        int64_t q_len, q_heads, kv_heads;
        bool fits;
    } shapes[] = {{1, 4, 4, true}, {128, 4, 4, true}, {129, 4, 4, false}, {128, 4, 2, false}, {64, 4, 1, false}};
    static const int tiles[] = {1, 7, 131, 132, 133, 4096, 65536 * 512 + 3}, blocks[] = {1, 16, 132};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
        const struct attn_problem p = DENSE(2, shapes[i].q_heads, shapes[i].kv_heads, shapes[i].q_len, 4096, 64,
                                            ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.125f, 0);
        const struct work w = work_with(&known_tiles[D64_FEW], p, false, MULTIPROCESSORS);
        assert_int_equal(sm90_bwd_fits(&w.shape), shapes[i].fits);
        const struct work others = work_of(p, false, MULTIPROCESSORS);
        assert_true(sm90_bwd_fits(&others.shape));
        if (shapes[i].fits) {
            assert_int_equal(w.parts.max_parts, 1);
            assert_int_equal(w.parts.head_works, w.shape.kv_tiles);
        }
    }
    /* 32, 12 and 300 heads on 132 multiprocessors; 48, of which 96 blocks would leave 36 without work. */
    assert_int_equal(sm90_bwd_blocks_of_heads(32, 132), 128);
    assert_int_equal(sm90_bwd_blocks_of_heads(12, 132), 132);
    assert_int_equal(sm90_bwd_blocks_of_heads(24, 132), 120);
    assert_int_equal(sm90_bwd_blocks_of_heads(300, 132), 132);
    assert_int_equal(sm90_bwd_blocks_of_heads(48, 132), 132);
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; ++i)
        for (size_t j = 0; j < sizeof blocks / sizeof blocks[0] && blocks[j] <= tiles[i]; ++j) {
            const int least = tiles[i] / blocks[j];
            int first = 0;
            for (int block = 0; block < blocks[j]; ++block) {
                assert_int_equal(sm90_bwd_equal_range(tiles[i], blocks[j], block), first);
                const int next = sm90_bwd_equal_range(tiles[i], blocks[j], block + 1);
                assert_in_range(next - first, least, least + (tiles[i] % blocks[j] > 0));
                first = next;
            }
            assert_int_equal(first, tiles[i]);
        }
    /* Four blocks for each of 32 heads: none has tiles of two heads, though 130 tiles are not a multiple of 4. */
    static const int begins[] = {0, 33, 66, 98};
    for (int block = 0; block <= 128; ++block)
        assert_int_equal(sm90_bwd_first_key_tile(32, 130, 128, block), block / 4 * 130 + begins[block % 4]);
    /* 12 heads of 12 tiles on 132 blocks have eleven each, 90 of 6 share them. */
    assert_int_equal(sm90_bwd_first_key_tile(12, 12, 132, 12), 14);
    assert_int_equal(sm90_bwd_first_key_tile(90, 6, 132, 12), 60);
    assert_int_equal(sm90_bwd_first_key_tile(90, 6, 132, 132), 540);
    /* 4 blocks of each of 32 heads with 8 tiles each, and a quarter of a head more that begins later. */
    const struct attn_problem p = DENSE(2, 16, 16, 128, 4096, 64, ATTN_BF16, ATTN_BSHD, false, -1, -1, 0.125f, 0);
    const struct work w = work_with(&known_tiles[D64_FEW], p, false, MULTIPROCESSORS);
    assert_float_equal(w.parts.time, 0.56 + 0.78 * 32 / 128 + 8 * 1.7, 1e-9);
}

/* Without a mask the last work tiles have parts where that fills the multiprocessors: the paper's grid has 2048 work
 * tiles of head_dim 128 on 132, 68 more than a multiple, and as many of 64 on 66 pairs, two more. */
static void last_work_tiles_have_parts(void **state)
{
    static const struct {
        int64_t len, head_dim;
        bool causal;
        int tile, works, parts;
    } rows[] = {{1024, 128, false, D128_LOOP, 0, 1},   {4096, 128, false, D128_LOOP, 68, 3},
                {16384, 128, false, D128_LOOP, 68, 7}, {16384, 128, true, D128_LOOP, 0, 1},
                {4096, 64, false, D64_PAIR, 2, 16},    {16384, 64, false, D64_PAIR, 2, 32},
                {16384, 64, false, D64, 0, 1}};
    uint64_t random = 5;
    int with_parts = 0;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        const int64_t heads = 2048 / rows[i].head_dim;
        const struct work w = work_with(
            &known_tiles[rows[i].tile],
            work_on_h200(16384 / rows[i].len, heads, heads, rows[i].len, rows[i].head_dim, rows[i].causal).problem,
            false, MULTIPROCESSORS);
        const struct sm90_bwd_tail tail =
            sm90_bwd_tail_of(&w.shape, &w.parts, w.tile->head_dim, MULTIPROCESSORS / w.tile->q.cluster);
        assert_int_equal(tail.works, rows[i].works);
        assert_int_equal(tail.parts, rows[i].parts);
    }
    /* Shapes of `fabench verify`, which has them for this. */
    static const struct {
        int64_t q_heads, q_len;
    } verified[] = {{8, 2100}, {24, 700}};
    for (size_t i = 0; i < sizeof verified / sizeof verified[0]; ++i)
        for (int tile = 0; tile < 2; ++tile) {
            const struct attn_problem p = DENSE(1, verified[i].q_heads, 8, verified[i].q_len, 2150, 128, ATTN_BF16,
                                                ATTN_BSHD, false, -1, -1, 0.125f, 0);
            const struct work w = work_with(&known_tiles[tile == 0 ? D128_LOOP : D128_PAIR], p, false, MULTIPROCESSORS);
            const struct sm90_bwd_tail tail =
                sm90_bwd_tail_of(&w.shape, &w.parts, w.tile->head_dim, MULTIPROCESSORS / w.tile->q.cluster);
            assert_int_equal(tail.works, tile == 0 ? 4 : 6);
            assert_true(tail.parts > 1);
        }
    for (int i = 0; i < 3 * PROBLEMS; ++i) {
        const struct work w = drawn_work(&random);
        const int clusters = 2 + i % 15, all = w.shape.kv_heads_total * w.parts.head_works;
        const struct sm90_bwd_tail tail = sm90_bwd_tail_of(&w.shape, &w.parts, w.tile->head_dim, clusters);
        assert_int_equal(tail.first + tail.works, all);
        if (tail.parts == 1) {
            assert_int_equal(tail.works, 0);
            continue;
        }
        ++with_parts;
        assert_true(w.tile->q.takes_more && !w.shape.causal && !w.deterministic && w.parts.max_parts == 1);
        assert_int_equal(tail.works, all % clusters);
        assert_true(tail.first >= clusters); /* the first work tiles of all are whole */
        /* All in the last section: they write zeros for no other. */
        assert_true(tail.first >=
                    (w.shape.kv_heads_total - 1) / w.shape.section_heads * w.shape.section_heads * w.parts.head_works);
        const int steps = sm90_bwd_steps(&w.shape, 0);
        for (int part = 0; part < tail.parts; ++part)
            assert_true(sm90_bwd_part_begin(SM90_BWD_EQUAL_PARTS, part, tail.parts, steps, steps, w.shape.q_tiles,
                                            w.shape.q_tiles, 1) +
                            2 <=
                        sm90_bwd_part_begin(SM90_BWD_EQUAL_PARTS, part + 1, tail.parts, steps, steps, w.shape.q_tiles,
                                            w.shape.q_tiles, 1));
    }
    assert_in_range(with_parts, PROBLEMS / 100, PROBLEMS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_of_a_section),
        cmocka_unit_test(causal_sections_start_one_after_the_other),
        cmocka_unit_test(staggered_places_are_in_order),
        cmocka_unit_test(semaphores_are_released_for_those_behind),
        cmocka_unit_test(few_queries_are_contended),
        cmocka_unit_test(blocks_that_keep_queries),
        cmocka_unit_test(last_work_tiles_have_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
