/* `fabench gate` (cmd/gate/gate.h) on stored records: the verdict of each configuration, its reason, the exit code, and
 * what is not compared at all. The rows are synthetic. */
#include "tests/unit/unit_help.h"

#include "cmd/base/log.h"
#include "cmd/gate/gate.h"
#include "cmd/options/options.h"

/* The last run: its exit code, what it said, its verdicts.csv. */
static int code;
static char said[16384], verdicts[16384];

/* gate --baseline base.jsonl --current now.jsonl --out <folder>, and up to four more words. */
static void gate_with(const char *const more[4])
{
    char *words[12] = {"fabench", "gate", "--current", help_path("now.jsonl"), "--out", help_folder};
    int count = 6;
    struct options o;
    bool done = false;
    for (int i = 0; i < 4 && more[i]; i++)
        words[count++] = (char *)(uintptr_t)more[i];
    remove(help_path("verdicts.csv"));
    help_listen();
    code = options_parse(count, words, &o, &done);
    if (code == EXIT_OK) {
        code = gate_run(&o);
        options_free(&o);
    }
    snprintf(said, sizeof said, "%s", help_said());
    verdicts[0] = 0;
    if (access(help_path("verdicts.csv"), F_OK) == 0)
        snprintf(verdicts, sizeof verdicts, "%s", help_read(help_path("verdicts.csv")));
}

static void gate(const struct help_row *was, int was_count, const struct help_row *now, int now_count)
{
    char base[160];
    snprintf(base, sizeof base, "%s", help_record("base.jsonl", was, was_count));
    help_record("now.jsonl", now, now_count);
    gate_with((const char *const[4]){"--baseline", base});
}

static int verdict_lines(void)
{
    int lines = -1; /* the names of the columns */
    for (const char *at = verdicts; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    return lines;
}

/* One configuration in both records, and a second one that does not change. */
static void one_configuration_each(void **state)
{
    (void)state;
    static const struct {
        struct help_row was, now;
        const char *verdict;
        int code;
        const char *why;
    } cases[] = {{{.share = 50}, {.share = 50}, "pass", 0, ""},
                 {{.share = 50}, {.time_ms = 1.1, .share = 45}, "REGRESS", 3, "GEMM time"},
                 {{.share = 50}, {.time_ms = 0.9, .share = 56}, "IMPROVE", 0, ""},
                 {{.share = 50}, {.time_ms = 1.055, .share = 48.8}, "pass", 0, "the device was slower"},
                 {{.share = 50}, {.time_ms = 1.2, .share = 50}, "INCONCLUSIVE", 4, "the GEMM changed by"},
                 {{.share = 50},
                  {.time_ms = 1.1, .share = 45, .throttled_pct = 30},
                  "INCONCLUSIVE",
                  4,
                  "under thermal slowdown"},
                 {{0}, {.time_ms = 1.1}, "REGRESS", 3, "by its time alone: no GEMM ceiling here"},
                 {{0},
                  {.check = "fail", .more = ",\"err_tensor\":\"o\",\"err_used\":7.5"},
                  "FAIL",
                  1,
                  "o is 7.5 times its bound"},
                 {{.check = "fail"}, {0}, "FIXED", 0, "the baseline's check failed"},
                 {{0}, {.status = "unsupported", .more = ",\"reason\":\"not d64\""}, "LOST", 3, "unsupported: not d64"},
                 {{0}, {.status = "oom"}, "LOST", 3, "oom"},
                 {{0}, {.status = "error", .more = ",\"reason\":\"it broke\""}, "ERROR", 6, "error: it broke"},
                 {{0}, {.status = "timeout"}, "ERROR", 6, "timeout"},
                 {{.status = "unsupported"}, {0}, "NEW", 0, "the baseline: unsupported"},
                 {{0}, {.n = 512}, "ABSENT", 5, "in the baseline, not in the current record"},
                 {{.time_ms = -1}, {0}, "INCONCLUSIVE", 4, "it has no time in the baseline"},
                 {{0}, {.time_ms = -1}, "INCONCLUSIVE", 4, "it has no time in the current record"},
                 {{0}, {.check = "off"}, "UNCHECKED", 5, "its results were not checked in the current record"},
                 {{.check = "off"}, {0}, "UNCHECKED", 5, "its results were not checked in the baseline"},
                 {{.check = "off"}, {.time_ms = 0.5}, "UNCHECKED", 5, "in the baseline"},
                 {{0}, {.samples = 1}, "UNDECIDED", 4, "too few samples for an interval"},
                 {{.samples = 5}, {0}, "UNDECIDED", 4, "too few samples for an interval"},
                 {{0}, {.samples = 1, .time_ms = 2}, "UNDECIDED", 4, "too few samples for an interval"},
                 {{.half_width_pct = 1}, {.time_ms = 1.1, .half_width_pct = 1}, "REGRESS", 3, "by its time alone"},
                 {{.half_width_pct = 2.7},
                  {.time_ms = 1.06, .half_width_pct = 2.7},
                  "INCONCLUSIVE",
                  4,
                  "too noisy: the lower 99 % bound of the change, for 2 configurations, is below 0 (1 process of the "
                  "baseline, 1 now)"},
                 {{.share = 50},
                  {.time_ms = 1.04, .share = 48},
                  "INCONCLUSIVE",
                  4,
                  "too noisy for this limit: the times may vary by 2.0 % from process to process (1 process of the "
                  "baseline, 1 now); from 2.5 % on it could be decided"},
                 {{.asked = "fused"}, {.impl = "fused_newer", .asked = "fused"}, "pass", 0, "was fused_fake"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct help_row other = {.impl = "naive", .n = 256};
        const struct help_row was[] = {cases[i].was, other}, now[] = {cases[i].now, other};
        char line[40];
        gate(was, 2, now, 2);
        if (code != cases[i].code)
            fail_msg("case %zu: exit code %d, not %d: %s", i, code, cases[i].code, said);
        snprintf(line, sizeof line, "\n%s,", cases[i].verdict);
        assert_has(verdicts, line);
        assert_has(verdicts, cases[i].why);
        assert_has(verdicts, "\npass,");
    }
}

static void refused_in_both(void **state)
{
    (void)state;
    const struct help_row rows[] = {{0}, {.impl = "naive", .status = "unsupported"}};
    gate(rows, 2, rows, 2);
    assert_int_equal(code, EXIT_OK);
    assert_int_equal(verdict_lines(), 1);
    assert_has(said, "PASS: the only one passes");
}

/* cudnn is shown as the control and not judged, null not at all. */
static void rows_that_are_not_judged(void **state)
{
    (void)state;
    const struct help_row was[] = {{.share = 50}, {.impl = "cudnn", .share = 80}, {.impl = "null"}};
    const struct help_row now[] = {
        {.share = 50}, {.impl = "cudnn", .time_ms = 2, .share = 40}, {.impl = "null", .time_ms = 9}};
    gate(was, 3, now, 3);
    assert_int_equal(code, EXIT_OK);
    assert_int_equal(verdict_lines(), 1);
    assert_has(said, "cudnn, not judged: time +100.0 %, against the GEMM +100.0 % (geomeans of 1)");
}

/* Where the GEMM was not measured the line of the control says nothing about it. */
static void control_without_a_gemm(void **state)
{
    (void)state;
    const struct help_row was[] = {
        {.share = 50}, {.impl = "cudnn"}, {.impl = "cudnn", .n = 256, .share = 80}, {.share = 50, .n = 256}};
    const struct help_row now[] = {{.share = 50},
                                   {.impl = "cudnn", .time_ms = 2},
                                   {.impl = "cudnn", .n = 256, .time_ms = 2, .share = 40},
                                   {.share = 50, .n = 256}};
    gate(was, 2, now, 2);
    assert_int_equal(code, EXIT_OK);
    assert_has(said, "cudnn, not judged: time +100.0 % (geomean of 1)\n");
    assert_null(strstr(said, "nan"));
    gate(was, 4, now, 4);
    assert_has(said, "cudnn, not judged: time +100.0 % (geomean of 2), against the GEMM +100.0 % (of 1)\n");
}

/* Failed checks and errors count also where the baseline has no such row; refused rows do not. */
static void rows_without_a_baseline(void **state)
{
    (void)state;
    const struct help_row was[] = {{0}};
    const struct help_row now[] = {{0},
                                   {.n = 256},
                                   {.n = 512, .status = "unsupported"},
                                   {.n = 1024, .status = "error"},
                                   {.impl = "naive", .check = "off"}};
    gate(was, 1, now, 4);
    assert_int_equal(code, EXIT_DEVICE);
    assert_int_equal(verdict_lines(), 3);
    assert_has(verdicts, "\nNEW,");
    assert_has(verdicts, "not in the baseline");
    gate(was, 1, now, 5);
    assert_has(verdicts, "\nUNCHECKED,");
    assert_has(said, "1 not checked");
}

/* A record that contradicts itself is not compared at all, on either side. */
static void figures_that_contradict(void **state)
{
    (void)state;
    const struct help_row good[] = {{0}, {.n = 256, .share = 50}};
    const struct help_row bad[] = {{0}, {.n = 256, .time_ms = 2, .tflops = 0.008388608, .share = 50}};
    for (int is_baseline = 0; is_baseline < 2; is_baseline++) {
        gate(is_baseline ? bad : good, 2, is_baseline ? good : bad, 2);
        assert_int_equal(code, EXIT_NOT_COMPARABLE);
        assert_int_equal(verdict_lines(), 0);
        assert_has(said, is_baseline ? "base.jsonl, row 2 (" : "now.jsonl, row 2 (");
        assert_has(said, "its tflops is 0.00838861, its shape and its time_ms 2 make 0.0041943");
        assert_has(said, "NOT COMPARABLE: nothing was compared");
    }
}

static void options_that_select_a_subset(void **state)
{
    char base[160];
    (void)state;
    const struct help_row was[] = {{0}, {.n = 256}, {.n = 512}};
    snprintf(base, sizeof base, "%s", help_record("base.jsonl", was, 3));
    help_record("now.jsonl", was, 1);
    gate_with((const char *const[4]){"--baseline", base});
    assert_int_equal(code, EXIT_NOT_COMPARABLE);
    gate_with((const char *const[4]){"--baseline", base, "--subset"});
    assert_int_equal(code, EXIT_OK);
    assert_has(said, "; 2 more of the baseline are not in this record");
    const struct help_row slower = {.time_ms = 1.1};
    help_record("now.jsonl", &slower, 1);
    gate_with((const char *const[4]){"--baseline", base, "--subset", "--delta=15%"});
    assert_int_equal(code, EXIT_OK);
}

static void floors(void **state)
{
    char path[160];
    (void)state;
    const struct help_row now[] = {{.share = 50}, {.n = 256, .share = 40}};
    help_record("now.jsonl", now, 2);
    snprintf(path, sizeof path, "%s",
             help_write("floors.csv", "q_len,impl,min_pct_of_gemm\n128,fused,49\n256,fused,41\n"));
    gate_with((const char *const[4]){"--floors", path});
    assert_int_equal(code, EXIT_REGRESSION);
    assert_has(verdicts, "\nFLOOR,");
    assert_has(verdicts, "pct_of_gemm 40 is below 41 (line 3)");
    assert_has(verdicts, "\npass,");
    help_write("floors.csv", "q_len,impl,min_pct_of_gemm\n128,fused,49\n4096,fused,41\n");
    gate_with((const char *const[4]){"--floors", path});
    assert_int_equal(code, EXIT_NOT_COMPARABLE);
    assert_has(said, "line 3: no row of the current record matches it");
    help_write("floors.csv", "q_len\n128\n");
    gate_with((const char *const[4]){"--floors", path});
    assert_int_equal(code, EXIT_USAGE);
    assert_has(said, "fabench: --floors: ");
}

static void records_that_cannot_be_compared(void **state)
{
    (void)state;
    const struct help_row row = {0}, other = {.impl = "naive", .n = 512}, timeless = {.time_ms = -1};
    gate(&row, 1, &other, 1);
    assert_int_equal(code, EXIT_NOT_COMPARABLE);
    assert_has(verdicts, "\nABSENT,");
    gate(&timeless, 1, &row, 1);
    assert_int_equal(code, EXIT_NOT_COMPARABLE);
    assert_has(said, "base.jsonl: none of its rows has a time to compare with");
    assert_string_equal(verdicts + strcspn(verdicts, "\n"), verdict_lines() < 0 ? "" : "\n"); /* no line */
    gate(&row, 1, &row, 0);
    assert_int_equal(code, EXIT_NOT_COMPARABLE);
    assert_has(said, "now.jsonl has no rows");
    /* A complete record is needed: rows after the cut line are missing. */
    help_record("base.jsonl", (const struct help_row[]){{0}, {.n = 256}}, 2);
    assert_int_equal(truncate(help_path("base.jsonl"), (off_t)strlen(help_read(help_path("base.jsonl"))) - 20), 0);
    help_record("now.jsonl", &row, 1);
    char base[160];
    snprintf(base, sizeof base, "%s", help_path("base.jsonl"));
    gate_with((const char *const[4]){"--baseline", base});
    assert_int_equal(code, EXIT_NOT_COMPARABLE);
    assert_has(said, "base.jsonl: its last line is cut");
    gate_with((const char *const[4]){"--baseline", base, "--soft", "5"});
    assert_int_equal(code, EXIT_OK);
    assert_has(said, "replaced 5");
}

/* The current record has only rows that are not judged. */
static void nothing_in_common(void **state)
{
    (void)state;
    const struct help_row was[] = {{0}, {.impl = "cudnn"}}, now = {.impl = "cudnn"};
    char base[160];
    snprintf(base, sizeof base, "%s", help_record("base.jsonl", was, 2));
    help_record("now.jsonl", &now, 1);
    gate_with((const char *const[4]){"--baseline", base, "--subset"});
    assert_int_equal(code, EXIT_NOT_COMPARABLE);
    assert_has(said, "gate: no configuration of the baseline is in the current record; the baseline was made by: "
                     "fabench --seqlen 128");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_configuration_each),          cmocka_unit_test(refused_in_both),
        cmocka_unit_test(rows_that_are_not_judged),        cmocka_unit_test(control_without_a_gemm),
        cmocka_unit_test(rows_without_a_baseline),         cmocka_unit_test(figures_that_contradict),
        cmocka_unit_test(options_that_select_a_subset),    cmocka_unit_test(floors),
        cmocka_unit_test(records_that_cannot_be_compared), cmocka_unit_test(nothing_in_common)};
    unsetenv("GITHUB_ACTIONS");
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}
