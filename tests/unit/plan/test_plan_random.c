/* The drawing of `verify --random`: all attributes and edges occur, the same seed draws the same problems, each row
 * of the table changes something, and the command of a problem makes it again. */
#include "tests/unit/plan/plan_of.h"

enum { PROBLEMS = 3000 };

static struct plan verify_plan(const char *line, enum attn_platform platform)
{
    struct options o = parse(line);
    struct plan plan;
    assert_int_equal(plan_make_verify(&o, platform, &plan), EXIT_OK);
    options_free(&o);
    return plan;
}

static void the_same_seed_draws_the_same_problems(void **state)
{
    (void)state;
    struct plan one = verify_plan("fabench verify --random 400 --seed 7", ATTN_CUDA);
    struct plan more = verify_plan("fabench verify --random 500 --seed 7", ATTN_CUDA);
    struct plan other = verify_plan("fabench verify --random 400 --seed 8", ATTN_CUDA);
    int equal = 0;
    assert_int_equal(one.count, 400);
    assert_int_equal(more.count, 500);
    for (int i = 0; i < one.count; i++) {
        assert_true(is_same_item(&one.items[i], &more.items[i]));
        equal += one.items[i].seed == other.items[i].seed;
        for (int j = 0; j < i; j++)
            equal += one.items[i].seed == one.items[j].seed || strcmp(one.items[i].name, one.items[j].name) == 0;
    }
    assert_int_equal(equal, 0);
    plan_free(&one);
    plan_free(&more);
    plan_free(&other);
}

/* What the problems of a device have between them; counted, so that the message says what is missing. */
struct seen {
    int modes[2], causal[2], layouts[2], dists[FILL_DISTS], dtypes[5], strides[PLAN_OWN_STRIDES + 1];
    int mha, gqa, mqa, groups[17], edges[3], native, odd_dim, shorter, longer, blind, gap;
    int left, left_zero, left_beyond, right, both, dropout, wide_seed, softcap, scaled, logit_std, deterministic, graph;
    int packed, zero_length, drawn_lengths, mask, packed_mask;
    int new_tokens[RANDOM_NEW_TOKENS + 1], cache_lengths[4], pages[2], splits[2], cache_dropout, cache_8_bits,
        whole_page, chunks, no_row, narrow[2];
    int out_dtypes[2], scales[3], hadamard[2], odd_block, block_beyond, packed_8_bits, masked_8_bits;
};

static void look_at_cache(const struct plan_item *item, struct seen *s)
{
    static const char *const kinds[] = {"", "list", "uniform", "lognormal"};
    const struct attn_problem *p = &item->problem;
    for (int i = 0; i < 4; i++)
        s->cache_lengths[i] += strncmp(item->arrays->lengths, kinds[i], i ? strlen(kinds[i]) : 1) == 0;
    for (int64_t b = 0; b < p->batch; b++) {
        const int32_t *const rows = item->arrays->cu_seqlens_q;
        assert_in_range(item->arrays->seqused_k[b], rows ? rows[b + 1] - rows[b] : p->q_len, p->kv_len);
        s->no_row += rows && rows[b + 1] == rows[b];
        s->whole_page += p->page_size > 0 && item->arrays->seqused_k[b] % p->page_size == 0;
    }
    if (p->total_q == 0)
        s->new_tokens[p->q_len]++;
    s->chunks += p->total_q > 0 && p->q_len > RANDOM_NEW_TOKENS && p->q_len < p->kv_len;
    s->pages[p->page_size > 0]++;
    s->splits[item->splits > 0]++;
    s->cache_dropout += p->dropout > 0;
    s->cache_8_bits += attn_dtype_is_8_bit(p->dtype);
    s->narrow[p->cache_dtype == ATTN_E4M3] += p->cache_dtype != ATTN_FP32;
    assert_true(item->mode == ATTN_FWD && p->mask_block == 0 && p->page_size % 8 == 0 && p->batch > 0);
}

static void look_at_8_bits(const struct plan_item *item, struct seen *s)
{
    const struct attn_problem *p = &item->problem;
    assert_true(item->mode == ATTN_FWD && p->quant_scale >= ATTN_SCALE_TENSOR);
    assert_true((p->quant_scale == ATTN_SCALE_BLOCK) == (p->scale_block > 0));
    assert_true(!item->hadamard || (p->head_dim & (p->head_dim - 1)) == 0);
    s->out_dtypes[p->out_dtype == ATTN_FP16]++;
    s->scales[p->quant_scale - ATTN_SCALE_TENSOR]++;
    s->hadamard[item->hadamard]++;
    s->odd_block += p->scale_block % 2;
    s->block_beyond += p->scale_block > p->kv_len;
    s->packed_8_bits += p->lengths == ATTN_PACKED;
    s->masked_8_bits += p->mask_block > 0;
}

static void look_at_lengths(const struct plan_item *item, struct seen *s)
{
    const struct attn_problem *p = &item->problem;
    s->packed += p->lengths == ATTN_PACKED;
    s->mask += p->mask_block > 0;
    s->packed_mask += p->lengths == ATTN_PACKED && p->mask_block > 0;
    s->drawn_lengths += p->lengths == ATTN_PACKED && strncmp(item->arrays->lengths, "list", 4) != 0;
    for (int64_t b = 0; p->lengths == ATTN_PACKED && b < p->batch; b++)
        s->zero_length += item->arrays->cu_seqlens_q[b] == item->arrays->cu_seqlens_q[b + 1];
}

static void look_at(const struct plan_item *item, struct seen *s)
{
    static const int64_t around[] = {64, 128, 256};
    const struct attn_problem *p = &item->problem;
    const int64_t group = p->q_heads / p->kv_heads;
    s->modes[item->mode]++;
    s->causal[p->causal]++;
    s->layouts[p->layout]++;
    s->dists[item->dist]++;
    s->dtypes[p->dtype] += p->cache_dtype == ATTN_FP32;
    s->strides[item->strides]++;
    s->mha += group == 1 && p->kv_heads > 1;
    s->gqa += group > 1 && p->kv_heads > 1;
    s->mqa += group > 1 && p->kv_heads == 1;
    s->groups[group]++;
    for (int i = 0; i < 3; i++)
        for (int side = -1; side <= 1; side++)
            s->edges[side + 1] += p->q_len == around[i] + side || p->kv_len == around[i] + side;
    s->native +=
        p->head_dim == 64 || p->head_dim == 96 || p->head_dim == 128 || p->head_dim == 192 || p->head_dim == 256;
    s->odd_dim += p->head_dim % 16 == 8;
    s->shorter += p->q_len < p->kv_len;
    s->longer += p->q_len > p->kv_len;
    s->blind += problem_has_blind_rows(p);
    s->gap += item->batch_gap > 0;
    s->left += p->window_left >= 0;
    s->left_zero += p->window_left == 0;
    s->left_beyond += p->window_left >= p->kv_len;
    s->right += p->window_right > 0;
    s->both += p->window_left >= 0 && p->window_right >= 0;
    s->dropout += p->dropout > 0;
    s->wide_seed += p->dropout_seed >> 32 != 0;
    s->softcap += p->softcap > 0;
    s->scaled += fabs((double)p->scale * sqrt((double)p->head_dim) - 1) > 0.1;
    s->logit_std += item->logit_std > 0;
    s->deterministic += item->deterministic;
    s->graph += item->is_captured;
    look_at_lengths(item, s);
    if (p->lengths == ATTN_CACHE)
        look_at_cache(item, s);
    if (attn_dtype_is_8_bit(p->dtype))
        look_at_8_bits(item, s);
}

static void assert_all(const int *counts, int count, const char *what)
{
    for (int i = 0; i < count; i++)
        if (counts[i] == 0)
            fail_msg("%s: number %d does not occur", what, i);
}

static void assert_occurs(const struct seen *s, enum attn_platform platform)
{
    assert_all(s->modes, 2, "modes");
    assert_all(s->causal, 2, "causal");
    assert_all(s->layouts, 2, "layouts");
    assert_all(s->dists, FILL_DISTS, "dists");
    assert_all(s->strides, 3, "strides");
    assert_all(s->groups + 1, platform == ATTN_CPU ? 8 : 16, "groups");
    assert_all(s->edges, 3, "edges of tiles");
    const int single[] = {s->mha,       s->gqa,         s->mqa,           s->native,    s->odd_dim,
                          s->shorter,   s->longer,      s->blind,         s->gap,       s->left,
                          s->left_zero, s->left_beyond, s->right,         s->both,      s->dropout,
                          s->wide_seed, s->softcap,     s->scaled,        s->logit_std, s->deterministic,
                          s->packed,    s->zero_length, s->drawn_lengths, s->mask,      s->packed_mask};
    assert_all(single, (int)(sizeof single / sizeof single[0]), "attributes, in the order of the list");
    assert_all(s->new_tokens + 1, RANDOM_NEW_TOKENS, "new tokens less one");
    assert_all(s->cache_lengths, 4, "lengths of caches: fixed, list, uniform, lognormal");
    assert_all(s->out_dtypes, 2, "types of O");
    assert_all(s->scales, 3, "scales");
    const int of_caches[] = {s->pages[0],      s->pages[1],          s->splits[0],         s->splits[1],
                             s->cache_dropout, s->cache_8_bits,      s->whole_page,        s->hadamard[0],
                             s->hadamard[1],   s->odd_block,         s->block_beyond,      s->packed_8_bits,
                             s->masked_8_bits, s->dtypes[ATTN_E4M3], s->dtypes[ATTN_E5M2], s->chunks,
                             s->no_row,        s->narrow[0],         s->narrow[1]};
    assert_all(of_caches, (int)(sizeof of_caches / sizeof of_caches[0]), "caches and 8 bits, in the order of the list");
    assert_true(platform == ATTN_CPU ? s->graph == 0 : s->graph > 0);
    assert_true(platform == ATTN_CPU ? s->dtypes[ATTN_FP32] && !s->dtypes[ATTN_FP16] && !s->dtypes[ATTN_BF16]
                                     : !s->dtypes[ATTN_FP32] && s->dtypes[ATTN_FP16] && s->dtypes[ATTN_BF16]);
}

static void every_attribute_and_its_edges_occur(void **state)
{
    (void)state;
    for (int platform = ATTN_CPU; platform <= ATTN_CUDA; platform++) {
        char line[64];
        snprintf(line, sizeof line, "fabench verify --random %d --seed 1 --repeats 2", PROBLEMS);
        struct plan plan = verify_plan(line, (enum attn_platform)platform);
        struct seen seen = {0};
        const int64_t longest = platform == ATTN_CPU ? RANDOM_LEN_CPU : RANDOM_LEN_CUDA;
        int64_t least = INT64_MAX, most = 0;
        for (int i = 0; i < plan.count; i++) {
            const struct plan_item *item = &plan.items[i];
            const struct attn_problem *p = &item->problem;
            look_at(item, &seen);
            least = p->q_len < least ? p->q_len : least;
            most = p->q_len > most ? p->q_len : most;
            assert_true(plan_shape_fits(p) && p->q_heads % p->kv_heads == 0 && p->head_dim % 8 == 0);
            assert_true((item->arrays && strstr(item->arrays->lengths, "normal")) || p->lengths == ATTN_PACKED ||
                        (p->q_len <= longest && p->kv_len <= longest));
            assert_false(p->causal && p->window_right > 0);
            assert_true(item->strides != PLAN_PACKED_QKV || (p->q_len == p->kv_len && p->layout == ATTN_BSHD));
            assert_int_equal(item->repeats, 2);
        }
        assert_occurs(&seen, (enum attn_platform)platform);
        assert_int_equal(least, 1);
        assert_true(most >= longest);
        plan_free(&plan);
    }
}

/* Does the row draw different values into this item or the texts of its arrays? */
static bool row_differs(const struct options *o, const struct random_attribute *row, const struct attn_problem *problem)
{
    struct random_draw first = {0}, now;
    struct plan_item first_item = {.mode = ATTN_FWD}, item;
    bool differs = false;
    for (uint64_t seed = 0; seed < 400 && !differs; seed++) {
        item = (struct plan_item){.problem = *problem};
        now = (struct random_draw){.options = o, .platform = ATTN_CUDA, .seed = seed * 977, .item = &item};
        plan_random_draw(&now, row);
        if (seed == 0) {
            first = now;
            first_item = item;
        }
        differs = memcmp(&item, &first_item, sizeof item) != 0 || strcmp(now.lengths, first.lengths) != 0 ||
                  strcmp(now.block_mask, first.block_mask) != 0 || now.bias != first.bias;
    }
    return differs;
}

/* Each row of the table draws at least two different values for a dense problem, for one with a cache, or for one of 8
 * bits with a cache. */
static void each_row_changes_something(void **state)
{
    (void)state;
    int count;
    const struct random_attribute *rows = plan_random_attributes(&count);
    struct options o = parse("fabench verify --random 1");
    struct attn_problem dense = {
        .head_dim = 64, .q_len = 65, .kv_len = 65, .q_heads = 2, .kv_heads = 2, .window_left = -1, .window_right = -1};
    dense.scale = 0.125f;
    struct attn_problem cache = dense;
    cache.lengths = ATTN_CACHE;
    struct attn_problem narrow = cache;
    narrow.dtype = ATTN_E4M3;
    narrow.quant_scale = ATTN_SCALE_BLOCK;
    for (int r = 0; r < count; r++) {
        if (!row_differs(&o, &rows[r], &dense) && !row_differs(&o, &rows[r], &cache) &&
            !row_differs(&o, &rows[r], &narrow))
            fail_msg("row %s always draws the same", rows[r].name);
        for (int other = 0; other < r; other++)
            assert_string_not_equal(rows[other].name, rows[r].name);
    }
    options_free(&o);
}

/* The row's numbers depend on the problem and its own name, not on the rows before it. */
static void rows_do_not_disturb_each_other(void **state)
{
    (void)state;
    int count;
    const struct random_attribute *rows = plan_random_attributes(&count);
    struct options o = parse("fabench verify --random 1");
    struct plan_item all = {.mode = ATTN_FWD}, alone = {.mode = ATTN_FWD};
    struct random_draw d = {.options = &o, .platform = ATTN_CUDA, .seed = 12345, .item = &all};
    for (int r = 0; r < count; r++) {
        plan_random_draw(&d, &rows[r]);
        if (strcmp(rows[r].name, "softcap") == 0) {
            struct random_draw only = d;
            only.item = &alone;
            only.state = 99;
            plan_random_draw(&only, &rows[r]);
            assert_true(all.problem.softcap == alone.problem.softcap);
        }
    }
    options_free(&o);
}

static void the_options_limit_the_drawing(void **state)
{
    (void)state;
    struct plan plan = verify_plan(
        "fabench verify --random 200 --mode bwd --causal --dtype bf16 --d 40,72 --scale 0.5 --deterministic", ATTN_CPU);
    for (int i = 0; i < plan.count; i++) {
        const struct plan_item *item = &plan.items[i];
        assert_true(item->mode == ATTN_BWD && item->problem.causal && item->problem.dtype == ATTN_BF16);
        assert_true(item->problem.head_dim == 40 || item->problem.head_dim == 72);
        assert_true(item->problem.scale == 0.5f && item->deterministic);
    }
    plan_free(&plan);
    plan = verify_plan("fabench verify --random 200 --mode decode --dtype e5m2 --out-dtype fp16 --fp8-scale block "
                       "--scale-block 48 --hadamard",
                       ATTN_CPU);
    for (int i = 0; i < plan.count; i++) {
        const struct attn_problem *p = &plan.items[i].problem;
        assert_true(p->lengths == ATTN_CACHE && p->dtype == ATTN_E5M2 && p->out_dtype == ATTN_FP16);
        assert_true(p->quant_scale == ATTN_SCALE_BLOCK && p->scale_block == 48 && plan.items[i].hadamard);
    }
    plan_free(&plan);
    plan = verify_plan("fabench verify --random 200 --mode fwd --dtype fp32,e4m3", ATTN_CPU);
    int narrow = 0;
    for (int i = 0; i < plan.count; i++) {
        assert_true(plan.items[i].problem.lengths != ATTN_CACHE && plan.items[i].problem.dtype != ATTN_E5M2);
        narrow += plan.items[i].problem.dtype == ATTN_E4M3;
    }
    assert_in_range(narrow, 50, 150);
    plan_free(&plan);
}

/* A problem whose attributes all have options is a sweep; the others are a verify of their number alone. */
static void the_command_makes_the_same_problem(void **state)
{
    (void)state;
    int sweeps = 0, others = 0, caches = 0, narrow_ones = 0;
    for (int platform = ATTN_CPU; platform <= ATTN_CUDA; platform++) {
        struct options o = parse("fabench verify --random 400 --seed 3 --repeats 0 --dtype fp32,bf16,e4m3,e5m2");
        struct plan plan, again;
        assert_int_equal(plan_make_verify(&o, (enum attn_platform)platform, &plan), EXIT_OK);
        for (int i = 0; i < plan.count; i++) {
            char *command = plan_repro(&o, &plan.items[i], "naive");
            struct options narrow = parse(command);
            const bool is_verify = narrow.command == COMMAND_VERIFY;
            const int code = is_verify ? plan_make_verify(&narrow, (enum attn_platform)platform, &again)
                                       : plan_make(&narrow, (enum attn_platform)platform, &again);
            assert_int_equal(code, EXIT_OK);
            assert_int_equal(again.count, 1);
            if (!is_verify)
                memcpy(again.items[0].name, plan.items[i].name, sizeof plan.items[i].name);
            if (!is_same_item(&again.items[0], &plan.items[i]))
                fail_msg("%s makes another problem than %s", command, plan.items[i].name);
            *(is_verify ? &others : &sweeps) += 1;
            caches += !is_verify && plan.items[i].problem.page_size > 0 && plan.items[i].splits > 0;
            narrow_ones += !is_verify && plan.items[i].problem.quant_scale == ATTN_SCALE_BLOCK;
            plan_free(&again);
            options_free(&narrow);
            free(command);
        }
        plan_free(&plan);
        options_free(&o);
    }
    assert_true(sweeps > 100 && others > 100 && caches > 5 && narrow_ones > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_draws_the_same_problems),
        cmocka_unit_test(every_attribute_and_its_edges_occur),
        cmocka_unit_test(each_row_changes_something),
        cmocka_unit_test(rows_do_not_disturb_each_other),
        cmocka_unit_test(the_options_limit_the_drawing),
        cmocka_unit_test(the_command_makes_the_same_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
