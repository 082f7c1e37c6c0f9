/* `fabench ab` (cmd/gate/ab.h) with the fake program of tests/fake/fake_fabench.c as both programs: checked runs, pairs
 * in their order, verdicts and exit codes. Nothing is measured. */
#include "tests/unit/unit_help.h"

#include "cmd/base/log.h"
#include "cmd/gate/ab.h"
#include "cmd/gate/ab_report.h"
#include "cmd/gate/verdicts.h"
#include "cmd/options/options_parse.h"

static int code;
static char said[16384], verdicts[16384], log_old[4096], log_new[4096];

/* Text of a file of the folder; "" where there is none. */
static void take(const char *name, char *text, size_t size)
{
    text[0] = 0;
    if (access(help_path(name), F_OK) == 0)
        snprintf(text, size, "%s", help_read(help_path(name)));
}

/* ab OLD NEW --device cpu --pairs 2,3 of two fake programs with these settings, and one more argument. */
static void ab(const char *old_settings, const char *new_settings, const char *more)
{
    char old[160], new[160], runs[160];
    snprintf(old, sizeof old, "%s", help_path("old"));
    snprintf(new, sizeof new, "%s", help_path("new"));
    snprintf(runs, sizeof runs, "%s", help_path("runs"));
    char *words[] = {
        "fabench", "ab", old, new, "--device", "cpu", "--pairs", "2,3", "--out", runs, (char *)(uintptr_t)more};
    struct options o;
    bool done = false;
    help_write("old.conf", old_settings);
    help_write("new.conf", new_settings);
    remove(help_path("old.log"));
    remove(help_path("new.log"));
    assert_int_equal(options_parse((int)(sizeof words / sizeof *words) - (more ? 0 : 1), words, &o, &done), EXIT_OK);
    help_listen();
    code = ab_run(&o);
    snprintf(said, sizeof said, "%s", help_said());
    options_free(&o);
    take("runs/verdicts.csv", verdicts, sizeof verdicts);
    take("old.log", log_old, sizeof log_old);
    take("new.log", log_new, sizeof log_new);
}

static int count(const char *text, const char *words)
{
    int n = 0;
    for (; (text = strstr(text, words)) != NULL; text += strlen(words))
        n++;
    return n;
}

static void the_same_twice(void **state)
{
    (void)state;
    ab("", "", NULL);
    assert_int_equal(code, EXIT_OK);
    assert_has(said, "PASS: all 3 pass");
    assert_has(said, "naive, in both");
    assert_int_equal(count(verdicts, "\npass,"), 3);
    assert_int_equal(count(log_old, "\n"), 3); /* one checked process and two of pairs */
    assert_int_equal(count(log_new, "\n"), 3);
    assert_int_equal(count(log_old, "--check=full"), 1);
    assert_int_equal(count(log_old, "--check=off"), 2);
    assert_int_equal(count(log_old, "--preset=quick"), 3);             /* no preset on the command line */
    assert_int_equal(count(log_old, "--points="), 0);                  /* all points are undecided */
    assert_int_equal(access(help_path("runs/03-OLD.jsonl"), F_OK), 0); /* ABBA: OLD NEW, NEW OLD */
    assert_int_equal(access(help_path("runs/04-NEW.jsonl"), F_OK), 0);
    assert_int_equal(access(help_path("runs/05-NEW.jsonl"), F_OK), 0);
    assert_int_equal(access(help_path("runs/06-OLD.jsonl"), F_OK), 0);
}

static void verdicts_and_codes(void **state)
{
    (void)state;
    static const struct {
        const char *old, *new, *verdict;
        int code;
        const char *words;
    } cases[] = {{"", "times=(1.0 2.4 3.0) shares=(50 33.3 30)", "REGRESS", 3, "REGRESSION: 1 slower of 3"},
                 {"", "times=(0.8 2.0 3.0) shares=(62.5 40 30)", "IMPROVE", 0, "IMPROVE"},
                 {"shares=()", "shares=() times=(1.0 2.4 3.0)", "REGRESS", 3, "REGRESSION"},
                 {"", "control_share=15 times=(1.0 2.4 3.0) shares=(50 33.3 30)", "INCONCLUSIVE", 4, "CHANGED"},
                 {"", "throttled=7", "INCONCLUSIVE", 4, "thermal slowdown"},
                 {"", "checks=(pass fail pass)", "FAIL", 1, "NEW fails its check: o is 7.5 times its bound"},
                 {"checks=(pass fail pass)", "", "FIXED", 0, "OLD fails its check, NEW passes"},
                 {"", "statuses=(ok unsupported ok)", "LOST", 3, "unsupported on purpose"},
                 {"statuses=(ok unsupported ok)", "", "NEW", 0, "NEW"},
                 {"", "statuses=(ok error ok)", "ERROR", 6, "error on purpose"},
                 {"impl=fused_ancient", "impl=fused_modern", "pass", 0, "all 3 pass"},
                 {"", "control=", "pass", 0, "gemm"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[40];
        ab(cases[i].old, cases[i].new, NULL);
        if (code != cases[i].code)
            fail_msg("case %zu: exit code %d, not %d: %s", i, code, cases[i].code, said);
        snprintf(line, sizeof line, "\n%s,", cases[i].verdict);
        assert_has(verdicts, line);
        assert_has(said, cases[i].words);
    }
}

/* Pairs after the minimum have only the undecided points. */
static void more_pairs_of_open_points(void **state)
{
    (void)state;
    ab("shares=()", "shares=() times=(1.0 2.1 3.0) shifts=(0 0.6 0)", NULL);
    assert_int_equal(code, EXIT_INCONCLUSIVE);
    assert_int_equal(count(log_new, "--check=off"), 3);
    assert_int_equal(count(log_new, "--points=1 "), 1);
    ab("shares=()", "shares=() times=(1.0 2.1 3.0) shifts=(0 0.6 0)", "--soft=4");
    assert_int_equal(code, EXIT_OK);
    assert_has(said, "replaced 4");
}

static void programs_that_cannot_be_compared(void **state)
{
    (void)state;
    static const struct {
        const char *old, *new;
        int code;
        const char *words;
    } cases[] = {
        {"", "method=2", 5, "timing method '2', the first with '1': they cannot be compared"},
        {"", "device=\"Another GPU\"", 5, "device 'Another GPU', the first with 'Fake GPU'"},
        {"", "schema=999", 5, "wrote no record that this program reads"},
        {"", "always_instead=\"echo no record\"", 5, "wrote no record that this program reads"},
        {"", "run_instead=\"head -c 300 $(dirname $0)/old.conf\"", 5, "wrote no record"},
        {"", "run=\"echo fabench: no device here >&2; exit 6\"", 6, "process 4 ended with code 6: no device here"},
        {"", "run=\"kill -SEGV $$\"", 6, "signal 11"},
        {"always_instead=\"echo fabench: --points: no such option >&2; exit 2\"", "", 5,
         "refuses these options: --points: no such option"},
        {"always_instead=\"exit 2\"", "always_instead=\"exit 2\"", 2, "refuses these options"},
        {"statuses=(unsupported unsupported unsupported)", "statuses=(unsupported unsupported unsupported)", 6,
         "ab: neither OLD nor NEW runs any of this: unsupported on purpose"},
        {"", "version=\"something else\"", 2, "is no fabench program: --version answers something else"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ab(cases[i].old, cases[i].new, NULL);
        if (code != cases[i].code)
            fail_msg("case %zu: exit code %d, not %d: %s", i, code, cases[i].code, said);
        assert_has(said, cases[i].words);
    }
}

static void verdicts_of_checked_runs(void **state)
{
    (void)state;
    static const struct {
        enum ab_outcome old, new;
        int verdict;
    } cases[] = {{OUTCOME_PASS, OUTCOME_PASS, VERDICT_PASS},
                 {OUTCOME_FAIL, OUTCOME_PASS, VERDICT_FIXED},
                 {OUTCOME_ERROR, OUTCOME_PASS, VERDICT_FIXED},
                 {OUTCOME_REFUSED, OUTCOME_PASS, VERDICT_NEW},
                 {OUTCOME_NONE, OUTCOME_PASS, VERDICT_NEW},
                 {OUTCOME_PASS, OUTCOME_FAIL, VERDICT_FAIL},
                 {OUTCOME_FAIL, OUTCOME_FAIL, VERDICT_FAIL},
                 {OUTCOME_PASS, OUTCOME_ERROR, VERDICT_ERROR},
                 {OUTCOME_REFUSED, OUTCOME_ERROR, VERDICT_ERROR},
                 {OUTCOME_PASS, OUTCOME_REFUSED, VERDICT_LOST},
                 {OUTCOME_FAIL, OUTCOME_NONE, VERDICT_LOST},
                 {OUTCOME_REFUSED, OUTCOME_REFUSED, -1},
                 {OUTCOME_NONE, OUTCOME_REFUSED, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct ab_config c = {.outcome = {cases[i].old, cases[i].new}};
        assert_int_equal(ab_untimed_verdict(&c), cases[i].verdict);
    }
}

static int copy_fake_programs(void **state)
{
    char command[600];
    if (help_make_folder(state) != 0)
        return -1;
    snprintf(command, sizeof command, "cp '%s' '%s/old' && cp '%s' '%s/new'", FAKE_FABENCH, help_folder, FAKE_FABENCH,
             help_folder);
    setenv("FABENCH_LOCK_DIR", help_folder, 1);
    unsetenv("GITHUB_ACTIONS");
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_twice), cmocka_unit_test(verdicts_and_codes),
                                       cmocka_unit_test(more_pairs_of_open_points),
                                       cmocka_unit_test(programs_that_cannot_be_compared),
                                       cmocka_unit_test(verdicts_of_checked_runs)};
    return cmocka_run_group_tests(tests, copy_fake_programs, help_remove_folder);
}
