/* --resume (cmd/run/resume.h): is a record of the same run, and which rows of the plan are there already? */
#include "tests/unit/unit_help.h"

#include "cmd/base/log.h"
#include "cmd/options/options_parse.h"
#include "cmd/run/resume.h"

enum { NAIVE = 1, FUSED = 2 }; /* bits of the slots below */
static const char *const slots[] = {"naive", "fused"};
static struct attn_message why;

/* The plan of two lengths, forward, and the options it was made from. */
static struct options options;
static struct plan plan;
static void make_plan(const char *lengths)
{
    char *words[] = {"fabench",   "--device", "cpu",     "--seqlen", (char *)(uintptr_t)lengths,
                     "--d",       "64",       "--batch", "1",        "--heads",
                     "1",         "--mode",   "fwd",     "--causal", "--out",
                     help_folder, "--resume"};
    bool done = false;
    assert_int_equal(options_parse(sizeof words / sizeof *words, words, &options, &done), EXIT_OK);
    assert_int_equal(plan_make(&options, ATTN_CPU, &plan), EXIT_OK);
}

static void drop_plan(void)
{
    plan_free(&plan);
    options_free(&options);
}

/* resume_match of a record with these rows. */
static bool match(const struct help_row *rows, int count, unsigned *done, unsigned *companions)
{
    struct resume r = {.writer = NULL};
    why.text[0] = 0;
    if (!record_read(help_record("run.jsonl", rows, count), &r.file, &why))
        fail_msg("%s", why.text);
    const bool good = resume_match(&r, &plan, slots, 2, done, companions, &why);
    resume_close(&r);
    return good;
}

static void rows_find_their_places(void **state)
{
    unsigned done[3], companions[3];
    (void)state;
    make_plan("64,128,256");
    assert_int_equal(plan.count, 3);
    assert_true(match(NULL, 0, done, companions)); /* a header alone */
    assert_int_equal(done[0] | done[1] | done[2] | companions[0] | companions[1] | companions[2], 0);
    const struct help_row rows[] = {
        {.impl = "naive", .n = 64}, {.impl = "fused_cpu", .asked = "fused", .n = 64}, {.impl = "naive", .n = 128}};
    assert_true(match(rows, 3, done, companions));
    assert_int_equal(done[0], NAIVE | FUSED);
    assert_int_equal(companions[0], 0); /* that problem is whole: nobody runs again */
    assert_int_equal(done[1], NAIVE);
    assert_int_equal(companions[1], NAIVE); /* runs beside `fused` again, without a row */
    assert_int_equal(done[2], 0);
    assert_true(match(rows, 3, NULL, NULL)); /* only whether they fit */
    const struct help_row refused[] = {{.impl = "naive", .n = 64, .status = "unsupported"}};
    assert_true(match(refused, 1, done, companions));
    assert_int_equal(done[0], NAIVE);
    assert_int_equal(companions[0], 0); /* what did not run is no company */
    drop_plan();
}

/* A plan with the same problem twice has two places for its rows. */
static void a_problem_twice(void **state)
{
    unsigned done[2];
    (void)state;
    make_plan("64");
    const struct plan_item again = plan.items[0];
    plan_add(&plan, &again);
    const struct help_row rows[] = {{.impl = "naive", .n = 64}, {.impl = "naive", .n = 64}, {.impl = "naive", .n = 64}};
    assert_true(match(rows, 2, done, NULL));
    assert_int_equal(done[0], NAIVE);
    assert_int_equal(done[1], NAIVE);
    assert_false(match(rows, 3, done, NULL));
    assert_has(why.text, "run.jsonl: row 3 (naive fwd d64 n=64) occurs twice");
    drop_plan();
}

static void rows_of_other_runs(void **state)
{
    unsigned done[2];
    (void)state;
    make_plan("64,128");
    static const struct {
        struct help_row row;
        const char *words;
    } refused[] = {
        {{.impl = "naive", .n = 512}, "row 2 (naive fwd d64 n=512) is not part of what these options run"},
        {{.impl = "naive", .n = 64, .mode = "bwd"}, "row 2 (naive bwd d64 n=64) is not part of what these options run"},
        {{.impl = "cudnn", .n = 64}, "row 2 (cudnn fwd d64 n=64) is of an implementation that was not asked for"},
        {{.impl = "naive", .n = 64, .run_id = "other"}, "row 2 (naive fwd d64 n=64) is of another run than the header"},
        {{.impl = "naive", .n = 128}, "row 2 (naive fwd d64 n=128) occurs twice"}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const struct help_row rows[] = {{.impl = "naive", .n = 128}, refused[i].row};
        assert_false(match(rows, 2, done, NULL));
        assert_has(why.text, refused[i].words);
    }
    drop_plan();
}

static void headers_that_fit(void **state)
{
    (void)state;
    static const struct {
        const char *object, *key, *was, *is, *words;
    } cases[] = {{"device", "name", "\"A\"", "\"A\"", NULL},
                 {"device", "name", "\"A\"", "\"B\"", "is of another run: its device.name is \"A\", here it is \"B\""},
                 {"device", "uuid", "\"A\"", "\"B\"", "device.uuid"},
                 {"device", "driver", "\"580.1\"", "\"580.2\"", "device.driver"},
                 {"tool", "commit", "\"abc\"", "\"abd\"", "tool.commit"},
                 {"policy", "options", "\"--d 64\"", "\"--d 128\"", "policy.options"},
                 {"policy", "timeout_s", "120", "60", "its policy.timeout_s is 120, here it is 60"},
                 {"policy", "round_members", "[\"fused\"]", "[\"fused\",\"naive\"]", "policy.round_members"},
                 {"environment", "OMP_NUM_THREADS", "\"2\"", "\"4\"", "environment.OMP_NUM_THREADS"},
                 {"environment", "LANG", "\"C\"", "\"de\"", NULL}, /* times do not depend on it */
                 {"device", "clock_mhz", "1500", "1600", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *headers[2];
        for (int h = 0; h < 2; h++) {
            char text[200];
            snprintf(text, sizeof text, "{\"%s\":{\"%s\":%s}}", cases[i].object, cases[i].key,
                     h ? cases[i].is : cases[i].was);
            headers[h] = json_loads(text, 0, NULL);
            assert_non_null(headers[h]);
        }
        struct resume r = {.file = {.path = help_path("run.jsonl"), .header = headers[0]}};
        why.text[0] = 0;
        assert_int_equal(resume_fits(&r, headers[1], &why), cases[i].words == NULL);
        assert_has(why.text, cases[i].words ? cases[i].words : "");
        json_decref(headers[0]);
        json_decref(headers[1]);
    }
}

/* The file of --out, locked while it is continued. */
static void the_file_is_opened(void **state)
{
    struct resume first, second;
    (void)state;
    make_plan("64");
    remove(help_path("run.jsonl"));
    help_listen();
    int code = resume_open(&first, &options);
    assert_has(help_said(), "fabench: --resume: ");
    assert_int_equal(code, EXIT_NOT_COMPARABLE);
    help_write("run.jsonl", "no record\n");
    help_listen();
    code = resume_open(&first, &options);
    assert_has(help_said(), "run.jsonl");
    assert_int_equal(code, EXIT_NOT_COMPARABLE);
    const struct help_row row = {.impl = "naive", .n = 64};
    help_record("run.jsonl", &row, 1);
    assert_int_equal(resume_open(&first, &options), EXIT_OK);
    assert_int_equal(first.file.count, 1);
    help_listen();
    code = resume_open(&second, &options);
    assert_has(help_said(), "fabench: --resume: ");
    assert_int_equal(code, EXIT_NOT_COMPARABLE);
    resume_close(&first);
    assert_int_equal(resume_open(&second, &options), EXIT_OK);
    resume_close(&second);
    drop_plan();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_find_their_places), cmocka_unit_test(a_problem_twice),
                                       cmocka_unit_test(rows_of_other_runs), cmocka_unit_test(headers_that_fit),
                                       cmocka_unit_test(the_file_is_opened)};
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}
