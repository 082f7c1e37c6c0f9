/* How fused_sm90's backward shares out a problem, for the tests of it (kernels/sm90/bwd/parts.h): the tiles that it
 * chooses from, and random problems. */
#ifndef FABENCH_TEST_BWD_WORK_H
#define FABENCH_TEST_BWD_WORK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/attention.h"
#include "kernels/common/dispatch.h"
#include "kernels/sm90/bwd/parts.h"
#include "tests/dense.h"
#include "tests/drawn.h"

enum { PROBLEMS = 600, MOST_ROWS = 2500, MULTIPROCESSORS = 132, L2_BYTES = 60 << 20 };

/* As in the table of tiles (bwd/tiles.cuh), with the variant of each. A loop is behind the same tile without one, a
 * pair behind that. */
enum { D128, D128_LOOP, D128_PAIR, D64, D64_LOOP, D64_PAIR, D64_SHORT, D64_FEW };
static const struct tile {
    const char *variant;
    int head_dim;
    struct sm90_bwd_q_tile q;
} known_tiles[] = {[D128] = {"bwd_d128_k128q64", 128, {64, 100, 200, 0, false, 1, false}},
                   [D128_LOOP] = {"bwd_d128_k128q64_loop", 128, {64, 100, 160, 40, true, 1, false}},
                   [D128_PAIR] = {"bwd_d128_k128q64_pair", 128, {64, 96, 160, 40, true, 2, false}},
                   [D64] = {"bwd_d64_k128q128", 64, {128, 100, 200, 0, false, 1, false}},
                   [D64_LOOP] = {"bwd_d64_k128q128_loop", 64, {128, 100, 160, 40, true, 1, false}},
                   [D64_PAIR] = {"bwd_d64_k128q128_pair", 64, {128, 94, 180, 60, true, 2, false}},
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

static inline struct work work_with(const struct tile *tile, struct attn_problem problem, bool deterministic,
                                    int multiprocessors)
{
    struct work w = {
        .problem = problem, .tile = tile, .deterministic = deterministic, .multiprocessors = multiprocessors};
    assert_int_equal(tile->head_dim, problem.head_dim);
    const struct attn_device device = {.multiprocessors = multiprocessors, .l2_bytes = L2_BYTES};
    w.shape = sm90_bwd_shape_of(&problem, &tile->q, deterministic, &device);
    w.parts = sm90_bwd_choose_parts(&w.shape, tile->head_dim, multiprocessors);
    const struct sm90_bwd_parts again = sm90_bwd_choose_parts(&w.shape, tile->head_dim, multiprocessors); /* kept */
    assert_true(again.part_steps == w.parts.part_steps && again.kind == w.parts.kind && again.time == w.parts.time);
    return w;
}

/* With the first tile of the head_dim. */
static inline struct work work_of(struct attn_problem problem, bool deterministic, int multiprocessors)
{
    return work_with(&known_tiles[problem.head_dim == 64 ? D64 : D128], problem, deterministic, multiprocessors);
}

static inline struct work work_on_h200(int64_t batch, int64_t q_heads, int64_t kv_heads, int64_t len, int64_t head_dim,
                                       bool causal)
{
    const struct attn_problem p =
        DENSE(batch, q_heads, kv_heads, len, len, head_dim, ATTN_BF16, ATTN_BSHD, causal, -1, -1, 0.125f, 0);
    return work_of(p, false, MULTIPROCESSORS);
}

/* Half of the problems have as many keys as queries. */
static inline struct work drawn_work(uint64_t *random)
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

#endif
