/* The presets full and decode: what their slices cover, what typed options make of them, and the command that repeats
 * one problem. */
#include "tests/unit/plan/plan_of.h"

#include "cmd/problem/problem.h"
#include "cmd/problem/problem_key.h"

/* No problem is there twice. */
static void expect_different(const struct plan *plan)
{
    for (int i = 0; i < plan->count; i++)
        for (int j = 0; j < i; j++) {
            const struct problem_key a = plan_item_key(&plan->items[i], L2_COLD);
            const struct problem_key b = plan_item_key(&plan->items[j], L2_COLD);
            if (problem_key_compare(&a, &b, false) == 0)
                fail_msg("%s twice", plan->items[i].name);
        }
}

/* Beside the bits of attn_attributes. */
enum { HAS_GROUPS = 1 << 24, HAS_OTHER_LENGTHS = 1 << 25, HAS_DENSE = 1 << 26, HAS_RIGHT = 1 << 27 };

static unsigned kinds_of(const struct plan_item *item)
{
    const struct attn_problem *p = &item->problem;
    const struct attn_request request = {.problem = p, .mode = item->mode};
    const unsigned found = attn_attributes(&request) | (p->kv_heads < p->q_heads ? HAS_GROUPS : 0) |
                           (p->q_len != p->kv_len ? HAS_OTHER_LENGTHS : 0) | (p->window_right > 0 ? HAS_RIGHT : 0);
    return found ? found : HAS_DENSE;
}

static unsigned kinds_of_plan(const struct plan *plan)
{
    unsigned found = 0;
    for (int i = 0; i < plan->count; i++)
        found |= kinds_of(&plan->items[i]);
    return found;
}

static const unsigned everywhere = ATTN_WITH_WINDOW | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_BLOCK_MASK |
                                   ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | HAS_GROUPS | HAS_OTHER_LENGTHS | HAS_DENSE;

/* Every attribute in each direction under each mask; every head dim; and no more than can be waited for. */
static void slices_cover_what_kernels_take(void **state)
{
    static const int64_t dims[] = {32, 64, 96, 128, 192, 256};
    (void)state;
    for (int platform = ATTN_CPU; platform <= ATTN_CUDA; platform++) {
        struct plan plan = plan_of("fabench --preset full", (enum attn_platform)platform);
        unsigned found[4] = {0}, dims_found[4] = {0}, dtypes = 0;
        for (int i = 0; i < plan.count; i++) {
            const struct plan_item *item = &plan.items[i];
            const int kind = item->mode + 2 * item->problem.causal;
            found[kind] |= kinds_of(item);
            dtypes |= 1u << item->problem.dtype;
            for (int d = 0; d < 6; d++)
                dims_found[kind] |= item->problem.head_dim == dims[d] ? 1u << d : 0;
        }
        for (int kind = 0; kind < 4; kind++) {
            assert_int_equal(found[kind], everywhere | (kind < 2 ? HAS_RIGHT : 0));
            assert_int_equal(dims_found[kind], 63);
        }
        assert_int_equal(dtypes, platform == ATTN_CPU ? 1u << ATTN_FP32 : 1u << ATTN_FP16 | 1u << ATTN_BF16);
        assert_in_range(plan.count, 50, platform == ATTN_CPU ? 60 : 300);
        assert_string_equal(plan.preset, "full");
        expect_different(&plan);
        plan_free(&plan);
    }
}

/* A typed option holds in every slice; one that a slice is about leaves that slice out, so that nothing runs twice. */
static void typed_options_hold_in_every_slice(void **state)
{
    (void)state;
    struct plan plan = plan_of("fabench --preset full --d 72 --mode bwd --causal", ATTN_CUDA);
    assert_int_equal(kinds_of_plan(&plan), everywhere);
    for (int i = 0; i < plan.count; i++)
        assert_true(plan.items[i].problem.head_dim == 72 && plan.items[i].mode == ATTN_BWD &&
                    plan.items[i].problem.causal);
    expect_different(&plan);
    plan_free(&plan);
    plan = plan_of("fabench --preset full --dropout 0.2 --dtype fp16 --softcap 5 --window-left 99 --block-mask local:3 "
                   "--shape 8x4",
                   ATTN_CUDA);
    for (int i = 0; i < plan.count; i++) {
        const struct attn_problem *p = &plan.items[i].problem;
        assert_true(p->dropout == 0.2f && p->softcap == 5 && p->dtype == ATTN_FP16 && p->window_left == 99);
        assert_true(p->mask_block == 128 && p->q_heads == 8 && p->kv_heads == 4);
    }
    assert_in_range(plan.count, 20, 200);
    expect_different(&plan);
    plan_free(&plan);
}

/* With lengths, caches, 8 bits or a batch the options are crossed as they are in other presets. */
static void other_problems_are_crossed(void **state)
{
    static const struct {
        const char *line;
        int count;
        unsigned kinds;
    } cases[] = {
        {"fabench --preset full --seqlen 4k --dtype bf16", 8, HAS_DENSE},
        {"fabench --preset full --seqlen 4k --dtype bf16 --window-left 9", 8, ATTN_WITH_WINDOW},
        {"fabench --preset full --lengths uniform:1:99 --dtype bf16", 8, ATTN_WITH_PACKED_LENGTHS},
        {"fabench --preset full --batch 3 --dtype bf16", 2 * 2 * 2 * 3, HAS_DENSE},
        {"fabench --preset full --dtype e4m3", 2 * 2 * 3, ATTN_WITH_8_BIT},
        {"fabench --preset full --mode decode --dtype bf16", 2 * 3, ATTN_WITH_CACHE | HAS_OTHER_LENGTHS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct plan plan = plan_of(cases[i].line, ATTN_CUDA);
        assert_int_equal(plan.count, cases[i].count);
        assert_int_equal(kinds_of_plan(&plan), cases[i].kinds);
        plan_free(&plan);
    }
}

static void repro_makes_one_problem(void **state)
{
    (void)state;
    for (int n = 0; n < 4; n++) {
        const int platform = n % 2 ? ATTN_CUDA : ATTN_CPU;
        struct options o = parse(n < 2 ? "fabench --preset full" : "fabench --preset decode");
        struct plan plan;
        assert_int_equal(plan_make(&o, (enum attn_platform)platform, &plan), EXIT_OK);
        for (int i = 0; i < plan.count; i++) {
            char *command = plan_repro(&o, &plan.items[i], "naive");
            struct plan again = plan_of(command, (enum attn_platform)platform);
            assert_int_equal(again.count, 1);
            const struct problem_key a = plan_item_key(&plan.items[i], L2_COLD);
            const struct problem_key b = plan_item_key(&again.items[0], L2_COLD);
            assert_int_equal(problem_key_compare(&a, &b, false), 0);
            assert_true(again.min_time_ms == plan.min_time_ms);
            plan_free(&again);
            free(command);
        }
        plan_free(&plan);
        options_free(&o);
    }
}

/* Batches x caches x heads that fit, the unequal ones of two head counts less, each in three kinds of caches. */
static void decode_has_caches_that_fit(void **state)
{
    (void)state;
    struct plan plan = plan_of("fabench --preset decode", ATTN_CUDA);
    int of_pages[3] = {0}, unequal = 0, one_key_head = 0;
    for (int i = 0; i < plan.count; i++) {
        const struct attn_problem *p = &plan.items[i].problem;
        const int32_t *used = plan.items[i].arrays->seqused_k;
        assert_true(p->lengths == ATTN_CACHE && p->causal && p->head_dim == 128 && p->q_len == 1);
        assert_true(p->dtype == ATTN_BF16 && plan.items[i].mode == ATTN_FWD);
        assert_true(p->page_size == 0 || p->page_size == 16 || p->page_size == 64);
        assert_true(512 * p->batch * p->kv_len * p->kv_heads <= INT64_C(32) << 30);
        of_pages[p->page_size == 0 ? 0 : p->page_size == 16 ? 1 : 2]++;
        unequal += strncmp(plan.items[i].arrays->lengths, "list:", 5) == 0;
        one_key_head += p->kv_heads == 1;
        if (strcmp(plan.items[i].arrays->lengths, "list:128k:4k*31") == 0)
            assert_true(p->batch == 32 && used[0] == 131072 && used[1] == 4096 && used[31] == 4096);
    }
    assert_int_equal(plan.count, 3 * (2 * 15 + 13 + 16 + 4));
    for (int i = 0; i < 3; i++)
        assert_int_equal(of_pages[i], plan.count / 3);
    assert_int_equal(unequal, 12);
    assert_int_equal(one_key_head, 3 * 16);
    expect_different(&plan);
    plan_free(&plan);
}

/* What is typed takes the place of the preset's own. */
static void decode_takes_typed_options(void **state)
{
    static const struct {
        const char *line;
        int count;
    } cases[] = {
        {"fabench --preset decode --batch 8", 3 * 4 * 4},
        {"fabench --preset decode --batch 8 --page-size 0", 4 * 4},
        {"fabench --preset decode --batch 8,64 --kv-len 1k --page-size 32 --shape 16x2", 2},
        {"fabench --preset decode --batch 3 --kv-len 1m --shape 32x32 --page-size 0", 1}, /* 51 GB, asked for */
        {"fabench --preset decode --kv-len 1m --shape 32x32", 3},                         /* batch 1 alone fits */
        {"fabench --preset decode --lengths list:9:5*2 --heads 4 --kv-heads 2", 3},
        {"fabench --preset decode --seqlen 1,4 --batch 1 --kv-len 8k --shape 32x8 --dtype fp16", 6},
        {"fabench --preset decode --mode decode --points 0,5", 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct plan plan = plan_of(cases[i].line, ATTN_CUDA);
        if (plan.count != cases[i].count)
            fail_msg("%s: %d problems", cases[i].line, plan.count);
        expect_different(&plan);
        plan_free(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_cover_what_kernels_take), cmocka_unit_test(typed_options_hold_in_every_slice),
        cmocka_unit_test(other_problems_are_crossed),     cmocka_unit_test(repro_makes_one_problem),
        cmocka_unit_test(decode_has_caches_that_fit),     cmocka_unit_test(decode_takes_typed_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
