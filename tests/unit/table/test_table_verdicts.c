/* The terminal table: failures, refusals, noise, and the verdict of its last line. */
#include "tests/unit/table/table_output.h"

#include "cmd/table/summary.h"

static void failure_says_where(void **state)
{
    (void)state;
    struct table *t = begin(110, true, "cudnn", false);
    a_row("fused_sm90", 16384);
    fail_row();
    table_row(t, &row);
    table_close(t, NULL, 9, EXIT_CHECK_FAILED);
    char *text = end();
    assert_width(text, 110);
    assert_has(text, "4.197       -   0.4%      -        -        -   \033[1;31mFAIL\033[0m    >999 dK");
    assert_has(text, "FAIL fused_sm90 bwd causal d128 n=16k bf16: dk fails, dq 0.44 of its bound\n");
    assert_has(text, "  dk b=0 h=3 row=127 col=64: got 0 want 0.0042; 0.78 % of elements, in all 16 heads,");
    assert_has(text, "  dk: rel. RMS 0.0041, bound 0.01; worst 64 rows 1, bound 0.02\n");
    assert_has(text,
               "  4.197 ms is kept, TFLOPS withheld. Again, with the tensors as .npy:\n"
               "  fabench --impl mine --mode bwd --causal --d 128 --seqlen 16k --dtype bf16 --seed 1 --dump bad/\n");
    assert_has(text, "1 of 1 rows checked (full), 0 pass, 1 FAIL.\n");
    assert_has(text, "FAILED: 1 of 1 rows");
    assert_has(text, "9.0 s, exit 1\n");
    assert_lacks(text, "geomean");
    assert_lacks(text, "nearest");
}

static void status_stands_for_numbers(void **state)
{
    (void)state;
    static const char *const statuses[] = {"oom", "unsupported", "error", "timeout", "skipped"};
    struct table *t = begin(99, false, "cudnn", false);
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        a_row("naive", 8192);
        row.status = index_of(record_status_names, statuses[i]);
        row.check = CHECKED_OFF;
        memset(row.reason, 'x', sizeof row.reason - 1); /* longer than any line */
        row.tflops = row.time_ms = NAN;
        table_row(t, &row);
    }
    table_close(t, NULL, 300, EXIT_DEVICE);
    char *text = end();
    assert_width(text, 99);
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        char word[40];
        snprintf(word, sizeof word, "%s: xxx", statuses[i]);
        assert_has(text, word);
    }
    assert_int_equal(count(text, "xxx...\n"), 5);
    assert_int_equal(count(text, " 8k"), 1);
    assert_has(text, "0 of 5 rows checked, 1 oom, 1 skipped, 1 unsupported, 1 error, 1 timeout.\n");
    assert_has(text, "ERROR: 2 of 5 rows did not finish");
    assert_has(text, "5 min 00 s, exit 6");
}

/* verify: a line for each reason in the place of the rows that were refused. */
static void refusals_are_counted(void **state)
{
    (void)state;
    for (int is_verbose = 0; is_verbose < 2; is_verbose++) {
        struct table *t = begin(110, false, NULL, true);
        table_group_refusals(t);
        if (is_verbose)
            table_verbose(t);
        for (int i = 0; i < 5; i++) {
            a_row("mine", 1024);
            row.status = i == 0 ? STATUS_OK : i == 4 ? STATUS_OOM : STATUS_UNSUPPORTED;
            row.check = i == 0 ? CHECKED_PASS : CHECKED_OFF;
            snprintf(row.reason, sizeof row.reason, "%s", i == 0 ? "" : i < 3 ? "takes no window" : "needs more");
            row.tflops = row.time_ms = NAN;
            table_row(t, &row);
        }
        char *text = closed(t, EXIT_OK);
        assert_int_equal(count(text, "unsupported: takes no window"), is_verbose ? 3 : 1);
        assert_has(text, "\n  2 x mine unsupported: takes no window\n");
        assert_has(text, " oom: needs more\n");
        assert_has(text, "\nPASS: 1 row, 1 out of memory, 3 refused: 2 window, 1 needs more ");
    }
}

/* Of five failures two are shown; the rest is a count, and a sweep keeps their rows. */
static void failures_are_limited(void **state)
{
    (void)state;
    for (int verify = 0; verify < 2; verify++) {
        struct table *t = begin(110, false, "cudnn", verify);
        table_max_failures(t, 2);
        for (int i = 0; i < 5; i++) {
            a_row("fused_sm90", 1024 * (i + 1));
            if (i != 1)
                fail_row();
            table_row(t, &row);
        }
        a_row("fused_sm90", 8192);
        row.status = STATUS_TIMEOUT;
        row.check = -1;
        FILL(row.reason, "no answer");
        table_row(t, &row);
        table_close(t, &(struct summary_files){.dir = "/nowhere", .jsonl = "/nowhere/run.jsonl"}, 1, EXIT_CHECK_FAILED);
        char *text = end();
        assert_int_equal(count(text, "\nFAIL fused_sm90 "), 2);
        assert_int_equal(count(text, "no answer"), verify ? 0 : 1);
        assert_has(text, "5 failures, the first 2 are shown (--max-failures); the record has all of them\n");
        assert_has(text, "FAILED: 4 of 6 rows");
    }
}

static void next_command(void **state)
{
    (void)state;
    struct table *t = begin(110, false, "cudnn", false);
    a_row("mine", 1024);
    table_row(t, &row);
    table_next(t, "fabench --d 64 --out 'a b' --resume");
    char *text = closed(t, EXIT_INTERRUPTED);
    assert_has(text, "\nnext: fabench --d 64 --out 'a b' --resume\n");
}

static void verdicts_are_told_apart(void **state)
{
    (void)state;
    const struct {
        const char *status, *check;
        int exit_code;
        const char *verdict;
    } cases[] = {
        {"ok", "pass", EXIT_OK, "PASS: 1 of 1 rows"},
        {"ok", "off", EXIT_OK, "NOT CHECKED: 1 of 1 rows"},
        {"ok", "pass", EXIT_INTERRUPTED, "INTERRUPTED: 1 row is whole"},
        {"ok", "pass", EXIT_DEVICE, "INCOMPLETE: 1 of 1 rows ran"},
        {"ok", "pass", EXIT_NOT_COMPARABLE, "NOT COMPARED: 1 of 1 rows passed"},
        {"ok", "fail", EXIT_CHECK_FAILED, "FAILED: 1 of 1 rows"},
        {"oom", "off", EXIT_OK, "NOTHING RAN: 0 of 1 rows"},
        {"unsupported", "off", EXIT_DEVICE, "NOTHING RAN: 1 row, all refused: 1 window "},
        {"timeout", "off", EXIT_DEVICE, "ERROR: 1 of 1 rows did not finish"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct table *t = begin(110, false, "cudnn", false);
        a_row("mine", 1024);
        row.status = index_of(record_status_names, cases[i].status);
        row.check = index_of(record_check_names, cases[i].check);
        snprintf(row.reason, sizeof row.reason, "%s", row.status == STATUS_UNSUPPORTED ? "takes no window" : "");
        table_row(t, &row);
        char *text = closed(t, cases[i].exit_code), last[64];
        assert_has(text, cases[i].verdict);
        snprintf(last, sizeof last, "1.0 s, exit %d\n", cases[i].exit_code);
        assert_string_equal(text + strlen(text) - strlen(last), last);
    }
}

/* An unchecked row must be marked as such; null has nothing to check. */
static void unchecked_is_said(void **state)
{
    (void)state;
    struct table *t = begin(110, false, "cudnn", false);
    a_row("mine", 1024);
    row.check = CHECKED_OFF;
    row.err_used = NAN;
    table_row(t, &row);
    char *text = closed(t, EXIT_OK);
    assert_has(text, "   off          -");
    assert_has(text, "(NOT CHECKED)");
    t = begin(110, false, "cudnn", false);
    a_row("mine", 1024);
    table_row(t, &row);
    a_row("null", 1024);
    row.check = CHECKED_OFF;
    row.tflops = row.err_used = NAN;
    table_row(t, &row);
    text = closed(t, EXIT_OK);
    assert_lacks(text, "NOT CHECKED");
    assert_has(text, "PASS: 1 of 2 rows");
}

/* A row that is noisier than asked is marked; --verbose says of each row how it was sampled. */
static void noise_is_marked(void **state)
{
    (void)state;
    struct table *t = begin(110, true, "cudnn", false);
    table_noise(t, 0.5);
    table_verbose(t);
    a_row("calm", 1024);
    row.samples = 30;
    FILL(row.stop, "noise");
    table_row(t, &row);
    a_row("wild", 1024);
    row.samples = 30;
    row.time_ms_ci_lo = 0.53 * row.time_ms;
    row.time_ms_ci_hi = 1.47 * row.time_ms;
    FILL(row.stop, "limit");
    table_row(t, &row);
    char *text = closed(t, EXIT_OK);
    assert_has(text, "  \033[33m!47%\033[0m  ");
    assert_has(text, "   0.4%  ");
    assert_lacks(text, "!0.4%");
    assert_has(text, "          calm: 30 samples, stop: noise\n");
    assert_has(text, "          wild: 30 samples, stop: limit (the time limit of the sampling; ");
    assert_has(text, "\033[32mPASS: 2 of 2 rows\033[0m; \033[33mNOISY: 1 of 2, up to 47 % (asked: 0.5 %)");
}

/* --quiet: nothing of a row that passed. */
static void quiet_says_failures_alone(void **state)
{
    (void)state;
    struct table *t = begin(110, false, "cudnn", false);
    table_quiet(t);
    table_header_line(t, "NVIDIA H200 141 GB");
    a_row("good", 1024);
    table_row(t, &row);
    char *text = closed(t, EXIT_OK);
    assert_string_equal(text, "");
    t = begin(110, false, "cudnn", false);
    table_quiet(t);
    a_row("wrong", 1024);
    fail_row();
    table_row(t, &row);
    text = closed(t, EXIT_CHECK_FAILED);
    assert_int_equal(strncmp(text, "FAIL wrong ", 11), 0);
    assert_lacks(text, "rows checked");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failure_says_where),
        cmocka_unit_test(status_stands_for_numbers),
        cmocka_unit_test(refusals_are_counted),
        cmocka_unit_test(failures_are_limited),
        cmocka_unit_test(next_command),
        cmocka_unit_test(verdicts_are_told_apart),
        cmocka_unit_test(unchecked_is_said),
        cmocka_unit_test(noise_is_marked),
        cmocka_unit_test(quiet_says_failures_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
