/* The problems of `verify` and `selftest`: the hard shapes, an attribute each for the faults, the command that makes a
 * problem again, and --only, which chooses among them by their keys. */
#include "tests/unit/plan/plan_of.h"

#include "cmd/problem/problem.h"

static void verify_has_the_hard_shapes(void **state)
{
    (void)state;
    struct options o = parse("fabench verify --repeats 7");
    struct plan plan;
    bool blind = false, one = false, gqa = false, far = false, huge = false;
    assert_int_equal(plan_make_verify(&o, ATTN_CUDA, &plan), EXIT_OK);
    for (int i = 0; i < plan.count; i++) {
        const struct plan_item *item = &plan.items[i];
        blind |= problem_has_blind_rows(&item->problem);
        one |= item->problem.q_len == 1 && item->problem.kv_len == 1;
        gqa |= item->problem.kv_heads < item->problem.q_heads;
        far |= item->batch_gap > INT64_C(1) << 31;
        huge |= item->dist == FILL_HUGE;
        assert_int_equal(item->repeats, 7);
        if (i > 0)
            assert_int_not_equal(item->seed, plan.items[i - 1].seed);
    }
    assert_true(blind && one && gqa && far && huge);
    plan_free(&plan);
    options_free(&o);
}

/* What one item asks of packed sequences and of block masks; its bits. */
enum {
    HAS_EMPTY = 1,   /* a sequence without rows and keys */
    HAS_ONE = 2,     /* a sequence of one token */
    HAS_LONG = 4,    /* one that is longer than all others together */
    HAS_UNEQUAL = 8, /* q_len unequal kv_len, and one of them 0 in another sequence */
    HAS_WINDOW = 16, /* packed, with a window */
    HAS_BLIND = 32,  /* a row of blocks without a key */
    HAS_SINGLE = 64, /* one visible block in the mask */
    HAS_HEADS = 128, /* a mask for each head */
    HAS_REST = 256,  /* lengths that are no multiple of the block */
    HAS_BOTH = 512,  /* packed, with a block mask */
    HAS_ALL = 1023
};

static unsigned packed_kinds(const struct plan_item *item)
{
    const struct attn_problem *p = &item->problem;
    const struct problem_arrays *a = item->arrays;
    unsigned found = p->window_left >= 0 ? HAS_WINDOW : 0;
    bool is_unequal = false, has_half = false;
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t q_len = a->cu_seqlens_q[b + 1] - a->cu_seqlens_q[b];
        const int64_t kv_len = a->cu_seqlens_k[b + 1] - a->cu_seqlens_k[b];
        found |= q_len == 0 && kv_len == 0 ? HAS_EMPTY : 0;
        found |= q_len == 1 && kv_len == 1 ? HAS_ONE : 0;
        found |= p->batch > 5 && 2 * kv_len > p->total_k ? HAS_LONG : 0;
        is_unequal |= q_len && kv_len && q_len != kv_len;
        has_half |= (q_len == 0) != (kv_len == 0);
    }
    return found | (is_unequal && has_half ? HAS_UNEQUAL : 0) | (p->mask_block ? HAS_BOTH : 0);
}

static unsigned mask_kinds(const struct plan_item *item)
{
    const struct attn_problem *p = &item->problem;
    const int64_t rows = (p->q_len + p->mask_block - 1) / p->mask_block;
    const int64_t keys = (p->kv_len + p->mask_block - 1) / p->mask_block;
    int64_t visible = 0, blind = 0;
    for (int64_t row = 0; row < p->mask_batch * p->mask_heads * rows; row++) {
        int64_t in_row = 0;
        for (int64_t key = 0; key < keys; key++)
            in_row += item->arrays->mask[row * keys + key];
        visible += in_row;
        blind += in_row == 0;
    }
    return (blind ? HAS_BLIND : 0) | (visible == 1 && rows * keys > 1 ? HAS_SINGLE : 0) |
           (p->mask_heads > 1 ? HAS_HEADS : 0) | (p->q_len % p->mask_block && p->kv_len % p->mask_block ? HAS_REST : 0);
}

/* In each direction and under each mask. */
static void verify_has_packed_sequences_and_block_masks(void **state)
{
    (void)state;
    struct options o = parse("fabench verify");
    struct plan plan;
    unsigned found[4] = {0};
    assert_int_equal(plan_make_verify(&o, ATTN_CPU, &plan), EXIT_OK);
    for (int i = 0; i < plan.count; i++) {
        const struct plan_item *item = &plan.items[i];
        const bool is_packed = item->problem.lengths == ATTN_PACKED;
        const int kind = item->mode + 2 * item->problem.causal;
        if (is_packed || item->problem.mask_block)
            found[kind] |= (is_packed ? packed_kinds(item) : 0) | (item->problem.mask_block ? mask_kinds(item) : 0);
    }
    for (int kind = 0; kind < 4; kind++)
        assert_int_equal(found[kind], HAS_ALL);
    plan_free(&plan);
    options_free(&o);
}

/* All that the faults need: each set of attributes at each length, dtype, mask and direction that there is. */
static void selftest_has_a_problem_for_every_attribute(void **state)
{
    static const unsigned wide[] = {0,
                                    ATTN_WITH_WINDOW,
                                    ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT,
                                    ATTN_WITH_PACKED_LENGTHS,
                                    ATTN_WITH_BLOCK_MASK,
                                    ATTN_WITH_V_HEAD_DIM,
                                    ATTN_WITH_SINK,
                                    ATTN_WITH_ALIBI,
                                    ATTN_WITH_BIAS};
    const int families = sizeof wide / sizeof wide[0];
    (void)state;
    struct options o = parse("fabench selftest --seqlen 128,384,16k,1024k");
    struct plan plan;
    int count[2][4] = {{0}}, caches = 0, mixed = 0, i = 0; /* wide and 8-bit by direction and mask */
    int large_blocks = 0;                                  /* beside the small ones, at 16k alone */
    assert_int_equal(plan_make_selftest(&o, &plan), EXIT_OK);
    for (i = 0; i < plan.count; i++) {
        const struct plan_item *item = &plan.items[i];
        const struct attn_problem *p = &item->problem;
        const struct attn_request request = {.problem = p, .mode = item->mode};
        const unsigned attributes = attn_attributes(&request);
        const int kind = item->mode + 2 * p->causal;
        if (attributes == (ATTN_WITH_CACHE | ATTN_WITH_PAGES))
            caches++;
        else if (attributes == (ATTN_WITH_CACHE | ATTN_WITH_PAGES | ATTN_WITH_PACKED_ROWS))
            mixed++;
        else if (attributes == ATTN_WITH_8_BIT)
            count[1][kind]++;
        else if (p->mask_block == 128)
            large_blocks += attributes == ATTN_WITH_BLOCK_MASK && p->kv_len == 16384;
        else
            assert_int_equal(attributes, wide[count[0][kind]++ % families]);
        assert_true(p->kv_len >= 128 && plan_shape_fits(p));
    }
    for (int kind = 0; kind < 4; kind++) {
        assert_int_equal(count[0][kind], 3 * 4 * families);
        assert_int_equal(count[1][kind], kind % 2 ? 0 : 2 * 4);
    }
    assert_int_equal(caches, 3 * 4);
    assert_int_equal(mixed, 3 * 4);
    assert_int_equal(large_blocks, 3 * 4);
    plan_free(&plan);
    options_free(&o);
}

static int selftest_count(const char *line, unsigned attribute)
{
    struct options o = parse(line);
    struct plan plan;
    int count = 0;
    assert_int_equal(plan_make_selftest(&o, &plan), EXIT_OK);
    for (int i = 0; i < plan.count; i++) {
        const struct attn_request request = {.problem = &plan.items[i].problem};
        count += attribute == 0 || attn_attributes(&request) & attribute;
    }
    plan_free(&plan);
    options_free(&o);
    return count;
}

/* A direction or a dtype that is asked for is all there is. */
static void selftest_keeps_to_the_options(void **state)
{
    (void)state;
    assert_int_equal(selftest_count("fabench selftest --seqlen 128 --mode decode --dtype bf16", 0), 2);
    assert_int_equal(selftest_count("fabench selftest --seqlen 128 --mode fwd", ATTN_WITH_CACHE), 0);
    assert_int_equal(selftest_count("fabench selftest --seqlen 128 --dtype bf16", ATTN_WITH_CACHE), 2);
    assert_int_equal(selftest_count("fabench selftest --seqlen 128 --dtype bf16", ATTN_WITH_8_BIT), 0);
    assert_int_equal(selftest_count("fabench selftest --seqlen 128 --dtype e5m2", 0), 2);
    assert_int_equal(selftest_count("fabench selftest --seqlen 128 --dtype e5m2 --causal", 0), 1);
}

/* A repro as a verify command makes the same case again, among others, wherever the seed begins. */
static void verify_makes_the_same_case_again(void **state)
{
    static const char *const lines[] = {"fabench verify", "fabench verify --seed 9223372036854775800 --scale 1e-6",
                                        "fabench verify --preset quick --mode bwd --dtype bf16 --d 128,8 --seed 0"};
    (void)state;
    for (size_t n = 0; n < sizeof lines / sizeof lines[0]; n++)
        for (int platform = ATTN_CPU; platform <= ATTN_CUDA; platform++) {
            struct options o = parse(lines[n]);
            struct plan plan, again;
            assert_int_equal(plan_make_verify(&o, (enum attn_platform)platform, &plan), EXIT_OK);
            for (int i = 0; i < plan.count; i += 7) {
                char *command = plan_repro_verify(&o, &plan.items[i], "naive");
                struct options narrow = parse(command);
                int found = 0;
                assert_int_equal(plan_make_verify(&narrow, (enum attn_platform)platform, &again), EXIT_OK);
                for (int j = 0; j < again.count; j++)
                    found += is_same_item(&again.items[j], &plan.items[i]);
                assert_int_equal(found, 1);
                plan_free(&again);
                options_free(&narrow);
                free(command);
            }
            plan_free(&plan);
            options_free(&o);
        }
}

/* Keys name folders and are what --only takes: no two are equal. */
static void every_problem_has_a_key_of_its_own(void **state)
{
    static const char *const lines[] = {"fabench verify --dtype fp16,bf16,fp32", "fabench --preset full",
                                        "fabench --seqlen 1k,1000 --kv-len 64,65"};
    (void)state;
    for (size_t n = 0; n < sizeof lines / sizeof lines[0]; n++) {
        struct options o = parse(lines[n]);
        struct plan plan;
        assert_int_equal(n ? plan_make(&o, ATTN_CUDA, &plan) : plan_make_verify(&o, ATTN_CUDA, &plan), EXIT_OK);
        for (int i = 0; i < plan.count; i++) {
            assert_true(strlen(plan.items[i].name) + 1 < sizeof plan.items[i].name);
            assert_int_equal(strcspn(plan.items[i].name, " =/"), strlen(plan.items[i].name));
            for (int j = 0; j < i; j++)
                if (strcmp(plan.items[i].name, plan.items[j].name) == 0)
                    fail_msg("%s twice in %s", plan.items[i].name, lines[n]);
        }
        plan_free(&plan);
        options_free(&o);
    }
}

/* A key and --seed name one problem with one set of inputs, whatever else was asked for. */
static void a_key_names_the_data(void **state)
{
    static const char *const lines[] = {"fabench verify --preset quick", "fabench verify --mode fwd",
                                        "fabench verify --dtype bf16,fp32", "fabench verify --causal=yes --d 128",
                                        "fabench verify --invariance"};
    struct options all_options = parse("fabench verify --dtype fp16,bf16,fp32"), other_options;
    struct plan all, some;
    (void)state;
    assert_int_equal(plan_make_verify(&all_options, ATTN_CUDA, &all), EXIT_OK);
    for (size_t n = 0; n < sizeof lines / sizeof lines[0]; n++) {
        struct options o = parse(lines[n]);
        int same = 0, found = 0;
        assert_int_equal(plan_make_verify(&o, ATTN_CUDA, &some), EXIT_OK);
        for (int i = 0; i < some.count; i++)
            for (int j = 0; j < all.count; j++)
                if (strcmp(some.items[i].name, all.items[j].name) == 0) {
                    found++;
                    same += is_same_item(&some.items[i], &all.items[j]);
                }
        assert_int_equal(same, found);
        assert_true(found > 20);
        plan_free(&some);
        options_free(&o);
    }
    /* Another key or another --seed has other inputs. */
    other_options = parse("fabench verify --dtype fp16,bf16,fp32 --seed 2");
    assert_int_equal(plan_make_verify(&other_options, ATTN_CUDA, &some), EXIT_OK);
    for (int i = 0; i < all.count; i++) {
        assert_string_equal(some.items[i].name, all.items[i].name);
        assert_true(some.items[i].seed != all.items[i].seed && all.items[i].seed <= INT64_MAX);
        for (int j = 0; j < i; j++)
            assert_true(all.items[j].seed != all.items[i].seed);
    }
    plan_free(&some);
    plan_free(&all);
    options_free(&all_options);
    options_free(&other_options);
}

/* --only: the whole key, or words that follow each other in it. */
static void only_chooses_by_key(void **state)
{
    (void)state;
    struct options all_options = parse("fabench verify");
    struct plan all, some;
    assert_int_equal(plan_make_verify(&all_options, ATTN_CUDA, &all), EXIT_OK);
    for (int i = 0; i < all.count; i += 31) {
        char line[200];
        snprintf(line, sizeof line, "fabench verify --only %s", all.items[i].name);
        struct options o = parse(line);
        assert_int_equal(plan_make_verify(&o, ATTN_CUDA, &some), EXIT_OK);
        assert_int_equal(some.count, 1);
        assert_true(is_same_item(&some.items[0], &all.items[i]));
        plan_free(&some);
        options_free(&o);
    }
    struct options o = parse("fabench verify --only fwd-causal-d-64 --dtype fp16");
    int expected = 0;
    assert_int_equal(plan_make_verify(&o, ATTN_CUDA, &some), EXIT_OK);
    for (int i = 0; i < all.count; i++)
        expected += problem_mode_of(&all.items[i].problem, all.items[i].mode) == MODE_FWD &&
                    all.items[i].problem.causal && all.items[i].problem.head_dim == 64 &&
                    all.items[i].problem.dtype == ATTN_FP16;
    assert_int_equal(some.count, expected);
    plan_free(&some);
    options_free(&o);
    static const char *const absent[] = {"fabench verify --only d-6", "fabench verify --only usal",
                                         "fabench verify --only peak-bshd-x"};
    for (size_t n = 0; n < sizeof absent / sizeof absent[0]; n++) {
        o = parse(absent[n]);
        assert_int_equal(plan_make_verify(&o, ATTN_CUDA, &some), EXIT_USAGE);
        options_free(&o);
    }
    plan_free(&all);
    options_free(&all_options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verify_has_the_hard_shapes),
        cmocka_unit_test(verify_has_packed_sequences_and_block_masks),
        cmocka_unit_test(selftest_has_a_problem_for_every_attribute),
        cmocka_unit_test(selftest_keeps_to_the_options),
        cmocka_unit_test(verify_makes_the_same_case_again),
        cmocka_unit_test(every_problem_has_a_key_of_its_own),
        cmocka_unit_test(a_key_names_the_data),
        cmocka_unit_test(only_chooses_by_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
