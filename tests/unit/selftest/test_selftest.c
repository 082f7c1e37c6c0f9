/* The verdict of `selftest`, which requires the named rule in the right tensor; its lies about work; its plan and the
 * command that it names. */
#include "tests/unit/unit_help.h"

#include "cmd/base/log.h"
#include "cmd/base/text.h"
#include "cmd/device/inputs.h"
#include "cmd/plan/plan.h"
#include "cmd/selftest/selftest.h"
#include "cmd/selftest/selftest_report.h"
#include "tests/dense.h"
#include "tests/unit/selftest/fault_called.h"

static struct attn_problem problem_of(bool causal)
{
    return (struct attn_problem)DENSE(1, 3, 3, 300, 300, 8, ATTN_FP32, ATTN_BSHD, causal, -1, -1, 0.35f, 0);
}

/* ---- the verdict ---- */

struct said {
    struct record_tensor tensors[3];
    double by_rule[3][JUDGE_RULES];
};

/* dq dk dv, every rule at a tenth of its bound. */
static struct said nothing_said(void)
{
    static const char *const names[] = {"dq", "dk", "dv"};
    struct said s;
    memset(&s, 0, sizeof s);
    for (int t = 0; t < 3; t++) {
        strcpy(s.tensors[t].name, names[t]);
        strcpy(s.tensors[t].rule, "element");
        s.tensors[t].used = 0.1;
        for (int r = 0; r < JUDGE_RULES; r++)
            s.by_rule[t][r] = r == RULE_LSE || r == RULE_NAIVE ? NAN : 0.1;
    }
    return s;
}

static void say(struct said *s, int t, enum judge_rule rule, double used)
{
    s->tensors[t].used = used;
    strcpy(s->tensors[t].rule, judge_rule_name(rule));
    if (rule < JUDGE_RULES)
        s->by_rule[t][rule] = used;
}

static bool is_good(const char *fault, int tensor, struct said *s)
{
    struct selftest_verdict v;
    selftest_decide(fault ? fault_called(fault) : NULL, tensor, ATTN_BWD, s->tensors, 3, s->by_rule, &v);
    return v.is_good;
}

static void a_fault_is_caught_by_its_rule_alone(void **state)
{
    (void)state;
    struct said s = nothing_said();
    assert_false(is_good("dK off by 1 %", TENSOR_DK, &s));
    say(&s, 1, RULE_GAIN, 1);
    assert_false(is_good("dK off by 1 %", TENSOR_DK, &s)); /* at the bound is within it */
    say(&s, 1, RULE_GAIN, 1.01);
    assert_true(is_good("dK off by 1 %", TENSOR_DK, &s));
    s = nothing_said();
    say(&s, 1, RULE_ELEMENT, 50);
    assert_false(is_good("dK off by 1 %", TENSOR_DK, &s)); /* another rule than the one that is there for it */
    s = nothing_said();
    say(&s, 0, RULE_GAIN, 50);
    assert_false(is_good("dK off by 1 %", TENSOR_DK, &s)); /* another tensor */
    assert_false(is_good("swapped heads", -1, &s));
    say(&s, 2, RULE_RMS, 2);
    assert_true(is_good("swapped heads", -1, &s)); /* any tensor */
    say(&s, 2, RULE_NONFINITE, NAN);
    assert_false(is_good("NaN row", TENSOR_DV, &s)); /* a share that is NaN does not count as caught */
}

static void a_broken_guard_is_one_of_its_tensor(void **state)
{
    (void)state;
    struct said s = nothing_said();
    assert_false(is_good("one element past the end", TENSOR_DQ, &s));
    say(&s, 1, RULE_GUARD, 999);
    assert_false(is_good("one element past the end", TENSOR_DQ, &s));
    say(&s, 0, RULE_GUARD, 999);
    assert_true(is_good("one element past the end", TENSOR_DQ, &s));
}

static void the_right_result_must_pass(void **state)
{
    (void)state;
    struct said s = nothing_said();
    struct selftest_verdict v;
    assert_true(is_good(NULL, -1, &s));
    say(&s, 2, RULE_BLOCK_RMS, 1.5);
    assert_false(is_good(NULL, -1, &s));
    say(&s, 2, RULE_BLOCK_RMS, NAN);
    assert_false(is_good(NULL, -1, &s));
    selftest_decide(NULL, -1, ATTN_BWD, s.tensors, 0, s.by_rule, &v); /* nothing was judged */
    assert_false(v.is_good);
}

static bool report_of(int good_faults, int bad_faults, bool correct_passes)
{
    struct said s = nothing_said();
    struct selftest_verdict v;
    const struct plan_item item = {.problem = problem_of(true), .mode = ATTN_BWD};
    const struct selftest_problem problem = {&item, "made_up", ATTN_FP32, "fabench selftest"};
    struct selftest_report *r = selftest_report_open(NULL, false, false, 20, NULL, NULL);
    selftest_report_heading(r, "made up", 1);
    selftest_report_begin(r, &problem);
    for (int i = 0; i < good_faults + bad_faults; i++) {
        s = nothing_said();
        if (i < good_faults)
            say(&s, 1, RULE_GAIN, 9);
        selftest_decide(fault_called("dK off by 1 %"), TENSOR_DK, ATTN_BWD, s.tensors, 3, s.by_rule, &v);
        assert_int_equal(selftest_report_add(r, &v, NULL), EXIT_OK);
    }
    s = nothing_said();
    if (!correct_passes)
        say(&s, 0, RULE_ELEMENT, 2);
    selftest_decide(NULL, -1, ATTN_BWD, s.tensors, 3, s.by_rule, &v);
    assert_int_equal(selftest_report_add(r, &v, NULL), EXIT_OK);
    selftest_report_end(r);
    const bool good = selftest_report_is_good(r);
    selftest_report_close(r, 0, NULL, good ? EXIT_OK : EXIT_IO);
    return good;
}

static void one_that_gets_through_spoils_all(void **state)
{
    (void)state;
    assert_true(report_of(3, 0, true));
    assert_false(report_of(3, 1, true));
    assert_false(report_of(3, 0, false));
    assert_false(report_of(0, 0, true)); /* nothing was tried */
}

/* ---- lies about work ---- */

static struct lie_verdict lie_verdict_of(const struct lie *lie, int timed, int idle, double used, bool was_idle)
{
    struct lie_verdict v = {.lie = lie, .timed = timed, .idle = idle, .tensor_count = 1};
    strcpy(v.tensors[0].name, "o");
    strcpy(v.tensors[0].rule, used > 1 ? "work" : "element");
    v.tensors[0].used = used;
    lie_decide(&v, was_idle);
    return v;
}

static bool is_lie_caught(const char *name, int idle, double used, bool was_idle)
{
    int i = 0;
    while (lie_at(i) && strcmp(lie_name(lie_at(i)), name))
        i++;
    assert_non_null(lie_at(i));
    return lie_verdict_of(lie_at(i), 9, idle, used, was_idle).is_good;
}

static void a_lie_is_caught_by_a_finding_or_has_computed(void **state)
{
    (void)state;
    assert_true(is_lie_caught("every second call", 4, 999, false));
    assert_false(is_lie_caught("every second call", 4, 0.5, false)); /* it keeps its time */
    assert_false(is_lie_caught("every second call", 0, 0.5, false)); /* it did not lie: nothing is shown */
    assert_false(is_lie_caught("every second call", 0, 999, false)); /* found, though each launch computed */
    assert_true(is_lie_caught("lazy on valid output", 0, 0.5, true));
    assert_false(is_lie_caught("lazy on valid output", 0, 0.5, false)); /* it never returned early: it is no lie */
    assert_false(is_lie_caught("lazy on valid output", 0, 999, true));
    assert_false(is_lie_caught("lazy on valid output", 1, 0.5, true));
    assert_false(is_lie_caught("lazy on valid output", 1, 999, true)); /* it found a result: outputs kept theirs */
    assert_true(lie_verdict_of(NULL, 9, 0, 0.5, false).is_good);
    assert_false(lie_verdict_of(NULL, 9, 0, 1.5, false).is_good);
    assert_false(lie_verdict_of(NULL, 9, 0, (double)NAN, false).is_good);
    struct lie_verdict unchecked = {.timed = 9};
    lie_decide(&unchecked, false);
    assert_false(unchecked.is_good);
}

static const struct attn_impl *cpu_kernel(void)
{
    const struct attn_impl *const *kernels = attn_registry();
    while (*kernels && (*kernels)->platform != ATTN_CPU)
        kernels++;
    assert_non_null(*kernels);
    return *kernels;
}

static int launches;
static bool writes_nothing;

static enum attn_status counted(const struct attn_request *request, const struct attn_tensors *t,
                                const struct attn_run *run, struct attn_message *why)
{
    launches++;
    return writes_nothing ? ATTN_OK : cpu_kernel()->launch(request, t, run, why);
}

struct found {
    struct lie_verdict verdicts[16];
    int count, depth;
};

static void calling(void *context, bool begins)
{
    struct found *found = context;
    found->depth += begins ? 1 : -1;
    assert_true(found->depth == 0 || found->depth == 1);
}

static void keep(void *context, const struct lie_verdict *v)
{
    struct found *found = context;
    assert_true(found->count < 16);
    found->verdicts[found->count++] = *v;
}

/* The way of the lies with a kernel of this program on the CPU. */
static struct found lies_of(enum attn_mode mode)
{
    struct found found = {.count = 0};
    struct backend be;
    struct attn_message why = {""};
    struct attn_impl impl = *cpu_kernel();
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    const struct plan_item item = {.problem = problem_of(true), .mode = mode, .seed = 4};
    impl.launch = counted;
    const struct lies_job job = {
        .backend = &be, .item = &item, .impl = &impl, .calling = calling, .found = keep, .context = &found};
    launches = 0;
    if (lies_run(&job, &why) != ATTN_OK)
        fail_msg("%s", why.text);
    assert_int_equal(found.depth, 0);
    be.ops->close(&be);
    return found;
}

static void each_lie_goes_the_way_of_a_timed_kernel(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        const struct found found = lies_of((enum attn_mode)mode);
        const struct lie_verdict *honest = &found.verdicts[0];
        int computed = 0;
        assert_true(honest->lie == NULL && honest->is_good && honest->idle == 0 && honest->timed > LIE_SAMPLES);
        for (int i = 0; i < found.count; i++) {
            const struct lie_verdict *v = &found.verdicts[i];
            const char *name = i ? lie_name(v->lie) : "honest";
            if (!v->is_good || v->timed <= LIE_SAMPLES)
                fail_msg("%s: %d timed launches, %d without work", name, v->timed, v->idle);
            if (i > 0)
                assert_ptr_equal(v->lie, lie_at(i - 1));
            if (i > 0 && strcmp(name, "lazy on valid output"))
                assert_true(v->idle > 0);
            computed += v->timed - v->idle;
        }
        assert_null(lie_at(found.count - 1));
        assert_true(launches >= computed + found.count); /* the kernel was called, and in each checked launch */
    }
}

static void a_kernel_that_is_wrong_proves_nothing_about_lies(void **state)
{
    (void)state;
    writes_nothing = true;
    const struct found found = lies_of(ATTN_FWD);
    writes_nothing = false;
    assert_int_equal(found.count, 1);
    assert_null(found.verdicts[0].lie);
    assert_false(found.verdicts[0].is_good);
}

static bool report_with_lie(const struct lie *lie, int idle, double used)
{
    struct said s = nothing_said();
    struct selftest_verdict v;
    const struct plan_item item = {.problem = problem_of(true), .mode = ATTN_BWD};
    const struct selftest_problem problem = {&item, "made_up", ATTN_FP32, "fabench selftest"};
    struct selftest_report *r = selftest_report_open(NULL, false, false, 20, NULL, NULL);
    struct record_row row = {.repro = NULL};
    selftest_report_begin(r, &problem);
    say(&s, 1, RULE_GAIN, 9);
    selftest_decide(fault_called("dK off by 1 %"), TENSOR_DK, ATTN_BWD, s.tensors, 3, s.by_rule, &v);
    assert_int_equal(selftest_report_add(r, &v, NULL), EXIT_OK);
    struct lie_verdict found = lie_verdict_of(lie, 9, idle, used, false);
    found.item = &item;
    assert_int_equal(selftest_report_add_lie(r, &found, &row), EXIT_OK);
    const bool good = selftest_report_is_good(r);
    selftest_report_close(r, 0, NULL, good ? EXIT_OK : EXIT_IO);
    return good;
}

static void a_lie_that_gets_through_spoils_all(void **state)
{
    (void)state;
    assert_true(report_with_lie(lie_at(1), 9, 999));
    assert_false(report_with_lie(lie_at(1), 9, 0.5));
    assert_true(report_with_lie(NULL, 0, 0.5));
    assert_false(report_with_lie(NULL, 0, 999));
}

static void the_plan_has_every_dtype_mask_and_length(void **state)
{
    (void)state;
    struct plan plan;
    int64_t lens[] = {512};
    struct options o = {.modes = {true, true}, .causal = {true, true}};
    assert_int_equal(plan_make_selftest(&o, &plan), EXIT_OK);
    /* Dense, with a window, with dropout too; packed, with a block mask; V's head dim, a sink, ALiBi, a bias; a mask of
     * large blocks; forward of two 8-bit types; caches with one new token each, and with chunks. */
    assert_int_equal(plan.count, 3 * 2 * 2 * 2 * 10 + 2 * 2 * 2 + 3 * 2 * 2);
    unsigned seen[3] = {0};
    for (int i = 0, n = 0; i < plan.count; i++) {
        const struct attn_problem *p = &plan.items[i].problem;
        const struct attn_request request = {.problem = p};
        if (attn_attributes(&request) & ~(unsigned)(ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT))
            continue;
        assert_true(p->q_len == p->kv_len && (p->q_len == 1024 || p->q_len == 16384) && p->q_heads == 2);
        const int kind = (p->window_left >= 0) + (p->dropout > 0);
        assert_true(kind == n++ % 3 && (p->window_right >= 0) == (kind > 0 && !p->causal));
        seen[kind] |= 1u << ((int)p->dtype * 8 + (int)plan.items[i].mode * 4 + p->causal * 2 + (p->q_len > 1024));
    }
    for (int kind = 0; kind < 3; kind++)
        assert_int_equal(seen[kind], 0xFFFFFF);
    plan_free(&plan);
    o = (struct options){.modes = {false, true},
                         .causal = {false, true},
                         .dtypes_given = true,
                         .selftest_heads = 4,
                         .dtypes = {[ATTN_BF16] = true},
                         .q_lens = {lens, 1}};
    assert_int_equal(plan_make_selftest(&o, &plan), EXIT_OK);
    assert_int_equal(plan.count, 9 + 2);
    assert_int_equal(plan.items[0].problem.dtype, ATTN_BF16);
    assert_int_equal(plan.items[0].problem.kv_heads, 4);
    assert_int_equal(plan.items[0].problem.q_len, 512);
    plan_free(&plan);
}

/* The command of a problem: long paths whole, quoted for a shell, and what follows them. */
static void the_command_names_what_was_tried(void **state)
{
    (void)state;
    char first[200], second[200];
    struct options o = {.device = DEVICE_CPU};
    const struct plan_item item = {.problem = problem_of(true), .mode = ATTN_BWD, .dist = FILL_CONSTANT, .seed = 7};
    memset(first, 'a', sizeof first);
    memset(second, 'b', sizeof second);
    strcpy(first + 190, "/one.so");
    strcpy(second + 190, "'s/two.so");
    const char *const given[] = {"--impl-lib", first, "--impl-lib", second, "--impl", "one", "--device", "cpu"};
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
        name_list_add(&o.given, given[i]);
    name_list_add(&o.impls, "one");
    char *line = selftest_repro(&o, &item, "one");
    struct name_list words = {0};
    assert_true(text_split_shell(line, &words));
    const char *const expected[] = {
        "fabench", "selftest", "--impl-lib", first,     "--impl-lib", second,         "--device", "cpu", "--impl",
        "one",     "--mode",   "bwd",        "--dtype", "fp32",       "--causal=yes", "--heads",  "3",   "--seqlen",
        "300",     "--d",      "8",          "--dist",  "constant",   "--seed",       "7"};
    assert_int_equal(words.count, sizeof expected / sizeof expected[0]);
    for (int i = 0; i < words.count; i++)
        assert_string_equal(words.names[i], expected[i]);
    free(line);
    name_list_free(&words);
    name_list_free(&o.given);
    name_list_free(&o.impls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_is_caught_by_its_rule_alone),
        cmocka_unit_test(a_broken_guard_is_one_of_its_tensor),
        cmocka_unit_test(the_right_result_must_pass),
        cmocka_unit_test(one_that_gets_through_spoils_all),
        cmocka_unit_test(a_lie_is_caught_by_a_finding_or_has_computed),
        cmocka_unit_test(each_lie_goes_the_way_of_a_timed_kernel),
        cmocka_unit_test(a_kernel_that_is_wrong_proves_nothing_about_lies),
        cmocka_unit_test(a_lie_that_gets_through_spoils_all),
        cmocka_unit_test(the_plan_has_every_dtype_mask_and_length),
        cmocka_unit_test(the_command_names_what_was_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
