/* How fused_sm90's backward shares out its work (kernels/sm90/bwd_parts.h): the steps of each tile of keys against a
 * count of the tiles that the mask leaves, and the parts of all tiles of random problems. Needs no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "cmd/base/numbers.h"
#include "kernels/attention.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/makespan.h"
#include "kernels/sm90/bwd_parts.h"
#ifdef FABENCH_WITH_CUDA
#include "kernels/sm90/bwd_params.h"
#include "kernels/sm90/fused_sm90.h"
#endif
#include "tests/dense.h"

enum { PROBLEMS = 600, MOST_ROWS = 2500, MULTIPROCESSORS = 132, L2_BYTES = 60 << 20 };

/* As in the table of tiles (bwd_tiles.cuh), with the variant of each. A loop is behind the same tile without one, a
 * pair behind that. */
enum { D128, D128_LOOP, D128_PAIR, D64, D64_LOOP, D64_PAIR, D64_SHORT, D64_FEW };
static const struct tile {
    const char *variant;
    int head_dim;
    struct sm90_bwd_q_tile q;
} known_tiles[] = {[D128] = {"bwd_d128_k128q64", 128, {64, 100, 200, 0, false, 1, false}},
                   [D128_LOOP] = {"bwd_d128_k128q64_loop", 128, {64, 100, 160, 40, true, 1, false}},
                   [D128_PAIR] = {"bwd_d128_k128q64_pair", 128, {64, 103, 160, 40, true, 2, false}},
                   [D64] = {"bwd_d64_k128q128", 64, {128, 100, 200, 0, false, 1, false}},
                   [D64_LOOP] = {"bwd_d64_k128q128_loop", 64, {128, 100, 160, 40, true, 1, false}},
                   [D64_PAIR] = {"bwd_d64_k128q128_pair", 64, {128, 98, 220, 60, true, 2, false}},
                   [D64_SHORT] = {"bwd_d64_k128q64", 64, {64, 59, 130, 0, false, 1, false}},
                   [D64_FEW] = {"bwd_d64_k128q128_few", 64, {128, 100, 70, 56, false, 1, true}}};

/* What is shared out: the problem, as a tile of queries sees it. */
struct work {
    struct attn_problem problem;
    const struct tile *tile;
    bool deterministic;
    int multiprocessors;
    struct sm90_bwd_shape shape;
    struct sm90_bwd_parts parts;
};

static struct work work_with(const struct tile *tile, struct attn_problem problem, bool deterministic,
                             int multiprocessors)
{
    struct work w = {
        .problem = problem, .tile = tile, .deterministic = deterministic, .multiprocessors = multiprocessors};
    assert_int_equal(tile->head_dim, problem.head_dim);
    w.shape = sm90_bwd_shape_of(&problem, &tile->q, deterministic, L2_BYTES);
    w.parts = sm90_bwd_choose_parts(&w.shape, tile->head_dim, multiprocessors);
    const struct sm90_bwd_parts again = sm90_bwd_choose_parts(&w.shape, tile->head_dim, multiprocessors); /* kept */
    assert_true(again.part_steps == w.parts.part_steps && again.kind == w.parts.kind && again.time == w.parts.time);
    return w;
}

/* With the first tile of the head_dim. */
static struct work work_of(struct attn_problem problem, bool deterministic, int multiprocessors)
{
    return work_with(&known_tiles[problem.head_dim == 64 ? D64 : D128], problem, deterministic, multiprocessors);
}

static struct work work_on_h200(int64_t batch, int64_t q_heads, int64_t kv_heads, int64_t len, int64_t head_dim,
                                bool causal)
{
    const struct attn_problem p =
        DENSE(batch, q_heads, kv_heads, len, len, head_dim, ATTN_BF16, ATTN_BSHD, causal, -1, -1, 0.125f, 0);
    return work_of(p, false, MULTIPROCESSORS);
}

/* 1 .. most, small numbers as often as large ones. */
static int64_t drawn(uint64_t *random, int64_t most)
{
    const uint64_t bits = number_mix(*random += NUMBER_MIX_STEP);
    const int64_t limit = most >> bits % 8;
    return 1 + (int64_t)((bits >> 8) % (uint64_t)(limit > 0 ? limit : 1));
}

/* Half of the problems have as many keys as queries. */
static struct work drawn_work(uint64_t *random)
{
    static const int multiprocessors[] = {1, 16, 108, 132, 256, 400};
    const int64_t q_len = drawn(random, MOST_ROWS), other_len = drawn(random, MOST_ROWS), batch = drawn(random, 3);
    const int64_t kv_heads = drawn(random, 4), q_heads = kv_heads * drawn(random, 48);
    const uint64_t bits = number_mix(*random += NUMBER_MIX_STEP);
    const struct attn_problem p = DENSE(batch, q_heads, kv_heads, q_len, bits & 1 ? q_len : other_len,
                                        bits & 2 ? 64 : 128, ATTN_BF16, ATTN_BSHD, bits & 4, -1, -1, 0.125f, 0);
    const int count = multiprocessors[(bits >> 8) % (sizeof multiprocessors / sizeof *multiprocessors)];
    static const int tiles[2][8] = {{D128, D128, D128, D128, D128, D128, D128_LOOP, D128_PAIR},
                                    {D64, D64, D64, D64_LOOP, D64_PAIR, D64_SHORT, D64_SHORT, D64_SHORT}};
    const struct tile *tile = &known_tiles[tiles[bits >> 1 & 1][bits >> 4 & 7]];
    if (tile->q.cluster > count)
        tile--;
    return work_with(tile, p, bits & 8 && tile->q.cluster == 1, count); /* pairs are not deterministic */
}

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
        w = work_on_h200(64, 32, 1, 4096, is_narrow ? 64 : 128, causal); /* a group changes nothing */
        assert_int_equal(w.parts.max_parts, 1);
    }
}

/* Heads whose blocks run at the same time: few, or, causal or contended, all where Q, dO and the sums of dQ stay in the
 * L2. */
static void heads_of_a_section(void **state)
{
    (void)state;
    /* Causal or not, up to eight in a third of the L2, two at least: one head of 16384 has 8 or 16 MB. */
    assert_int_equal(work_on_h200(16, 16, 16, 1024, 128, true).shape.section_heads, 8);
    assert_int_equal(work_on_h200(4, 32, 32, 4096, 64, true).shape.section_heads, 8);
    assert_int_equal(work_on_h200(4, 16, 16, 4096, 128, false).shape.section_heads, 5);
    assert_int_equal(work_on_h200(2, 32, 32, 8192, 64, false).shape.section_heads, 5);
    assert_int_equal(work_on_h200(1, 32, 32, 16384, 64, true).shape.section_heads, 2);
    assert_int_equal(work_on_h200(1, 16, 16, 16384, 128, false).shape.section_heads, 2);
    assert_int_equal(work_on_h200(2, 12, 12, 1024, 64, true).shape.section_heads, 24);
    assert_int_equal(work_on_h200(2, 12, 12, 1024, 128, true).shape.section_heads, 24);
    assert_int_equal(work_on_h200(1, 32, 8, 2048, 64, true).shape.section_heads, 8);
    assert_int_equal(work_on_h200(1, 32, 8, 8192, 64, true).shape.section_heads, 1);
    assert_int_equal(work_on_h200(1, 64, 8, 16384, 128, true).shape.section_heads, 1);
    assert_int_equal(work_on_h200(2, 12, 12, 1024, 64, false).shape.section_heads, 8);
    assert_int_equal(work_on_h200(1, 64, 1, 8192, 64, true).shape.section_heads, 1);
    const struct work w = work_on_h200(4, 32, 32, 4096, 64, true);
    assert_int_equal(work_of(w.problem, true, MULTIPROCESSORS).shape.section_heads, 32);
    const struct work short_heads = work_on_h200(16, 32, 32, 1024, 64, true);
    assert_int_equal(short_heads.shape.section_heads, 8);
    assert_int_equal(work_of(short_heads.problem, true, MULTIPROCESSORS).shape.section_heads, 64);
    /* Deterministic, full: up to 32 query heads in a third of the L2. */
    static const struct {
        int64_t len, group, head_dim;
        int heads;
    } full[] = {{512, 1, 64, 32}, {1024, 1, 64, 32}, {2048, 1, 64, 20},  {4096, 1, 64, 10},
                {1024, 4, 64, 8}, {8192, 4, 64, 2},  {1024, 1, 128, 20}, {1024, 32, 64, 1}};
    for (size_t i = 0; i < sizeof full / sizeof full[0]; ++i) {
        const struct work few = work_on_h200(8, 32, 32 / full[i].group, full[i].len, full[i].head_dim, false);
        assert_int_equal(work_of(few.problem, true, MULTIPROCESSORS).shape.section_heads, full[i].heads);
    }
}

static struct sm90_bwd_order order_of(const struct work *w)
{
    return sm90_bwd_order_of(&w->shape, &w->parts, w->multiprocessors);
}

/* Deterministic, causal: so many heads at the same time that some steps are between the starts of two work tiles of a
 * head, in eight sections where there are as many tiles of keys. */
static void causal_sections_start_one_after_the_other(void **state)
{
    static const struct {
        int64_t batch, len, head_dim;
        int section_heads, stagger;
    } known[] = {{32, 512, 64, 16, 1}, {16, 1024, 64, 8, 1},  {8, 2048, 64, 4, 2},   {4, 4096, 64, 4, 4},
                 {2, 8192, 64, 2, 8},  {16, 1024, 128, 4, 1}, {1, 16384, 64, 32, 0}, {4, 1024, 64, 64, 0}};
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

/* Parts of one size and what is left of the tiles balance causal problems with few key heads. Where 32 heads share one
 * and their queries exceed the L2, parts at the same heads run together. docs/kernels/sm90_bwd.md, step 40. */
static void kinds_of_parts(void **state)
{
    (void)state;
    for (int head_dim = 64; head_dim <= 128; head_dim += 64) {
        struct work w = work_on_h200(1, 16, 2, 4096, head_dim, true);
        assert_int_equal(w.parts.kind, SM90_BWD_WHOLE_PARTS);
        assert_int_equal(work_of(w.problem, true, MULTIPROCESSORS).parts.kind, SM90_BWD_EQUAL_PARTS);
        w = work_on_h200(1, 32, 1, 2048, head_dim, true);
        assert_false(w.shape.exceeds_l2_twice);
        w = work_on_h200(1, 32, 1, 8192, head_dim, true);
        assert_true(w.shape.exceeds_l2_twice);
        assert_int_equal(w.parts.kind, SM90_BWD_EQUAL_PARTS_IN_TURNS);
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

/* Under steady load pairs are faster at head_dim 64: full from 4k on, causal, where the second tile of a pair has a
 * step less, at 16k. At head_dim 128 they cost too much in bursts. docs/kernels/sm90_bwd.md, step 38. */
static void pairs_are_for_long_problems(void **state)
{
    (void)state;
    assert_int_equal(shortest_with_pairs(&known_tiles[D64_LOOP], false), 4096);
    assert_int_equal(shortest_with_pairs(&known_tiles[D64_LOOP], true), 16384);
    assert_true(shortest_with_pairs(&known_tiles[D128_LOOP], false) == INT64_MAX);
    assert_true(shortest_with_pairs(&known_tiles[D128_LOOP], true) == INT64_MAX);
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
 * rounding, so that the first of the table is chosen; longer where those have parts. From MAX_WAVES (bwd_parts.c) tiles
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
    const int64_t row_blocks = heads * attn_tiles(w->problem.q_len, SM90_BWD_ROW_BLOCK_FLOATS / head_dim);
    return row_blocks * (SM90_BWD_ROW_BLOCK_FLOATS / head_dim) * (2 + head_dim) * (int64_t)sizeof(float) +
           (w->deterministic ? row_blocks * 4 * (int64_t)sizeof(int) : 0);
}

#ifdef FABENCH_WITH_CUDA
/* known_tiles are those of the kernels. */
static void the_tiles_are_known(void **state)
{
    size_t count = 0;
    (void)state;
    for (const struct fused_sm90_bwd_tile *tile = fused_sm90_bwd_tiles; tile->tile.shown.name != NULL; tile++) {
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
        cmocka_unit_test(heads_of_a_section),
        cmocka_unit_test(causal_sections_start_one_after_the_other),
        cmocka_unit_test(staggered_places_are_in_order),
        cmocka_unit_test(semaphores_are_released_for_those_behind),
        cmocka_unit_test(few_queries_are_contended),
        cmocka_unit_test(blocks_that_keep_queries),
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
