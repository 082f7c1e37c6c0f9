/* Verdict lines and their outputs: terminal, JUnit, CSV, annotations; keys of problems. The lines are synthetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/gate/verdicts.h"

static struct verdict_line line(enum verdict verdict, const char *label, double change)
{
    struct verdict_line l = {.verdict = verdict,
                             .from_ms = 1,
                             .to_ms = 1 + change / 100,
                             .change_pct = change,
                             .low_pct = NAN,
                             .high_pct = NAN,
                             .relative_change_pct = NAN,
                             .raw_change_pct = NAN,
                             .impl = "fused"};
    snprintf(l.configuration, sizeof l.configuration, "%s", label);
    return l;
}

static const char *caught(void (*print)(const struct verdict_report *, FILE *), const struct verdict_report *r)
{
    static char text[8192];
    FILE *file = tmpfile();
    print(r, file);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void print_110(const struct verdict_report *r, FILE *out) { verdicts_print(r, out, 110, false); }

static void assert_has(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("no '%s' in:\n%s", words, text);
}

static void worst_first(void **state)
{
    (void)state;
    struct verdict_line lines[] = {
        line(VERDICT_PASS, "d", 0.5),    line(VERDICT_IMPROVE, "e", -5), line(VERDICT_REGRESS, "b", 3),
        line(VERDICT_REGRESS, "a", 7.5), line(VERDICT_FIXED, "f", NAN),  line(VERDICT_INCONCLUSIVE, "c", 1),
        line(VERDICT_PASS, "g", NAN),    line(VERDICT_LOST, "z", NAN),
    };
    char order[20] = "", text[200];
    verdicts_sort(lines, 8);
    for (int i = 0; i < 8; i++)
        strcat(order, lines[i].configuration);
    assert_string_equal(order, "zabcdgef");
    assert_int_equal(verdicts_exit(lines, 8), EXIT_REGRESSION);
    assert_string_equal(verdicts_count(lines, 8, text, sizeof text),
                        "1 lost, 2 slower, 1 undecided, 1 faster, 1 fixed of 8");
    assert_string_equal(verdicts_count(&lines[4], 1, text, sizeof text), "the only one passes");
}

static void exit_codes(void **state)
{
    (void)state;
    static const struct {
        enum verdict verdict;
        int code;
    } codes[] = {{VERDICT_ERROR, 6},     {VERDICT_FAIL, 1},      {VERDICT_LOST, 3},         {VERDICT_FLOOR, 3},
                 {VERDICT_REGRESS, 3},   {VERDICT_ABSENT, 5},    {VERDICT_INCONCLUSIVE, 4}, {VERDICT_PASS, 0},
                 {VERDICT_UNCHECKED, 5}, {VERDICT_UNDECIDED, 4}, {VERDICT_IMPROVE, 0},      {VERDICT_FIXED, 0},
                 {VERDICT_NEW, 0}};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        assert_int_equal(verdict_exit(codes[i].verdict), codes[i].code);
    struct verdict_line both[] = {line(VERDICT_INCONCLUSIVE, "a", 0), line(VERDICT_ABSENT, "b", 0)};
    assert_int_equal(verdicts_exit(both, 2), EXIT_NOT_COMPARABLE);
    assert_int_equal(verdicts_exit(both, 0), EXIT_OK);
}

static void the_terminal(void **state)
{
    (void)state;
    struct verdict_line lines[] = {line(VERDICT_REGRESS, "bwd causal d128 16k bf16", 3.4),
                                   line(VERDICT_LOST, "fwd full   d64  1k  fp16", NAN)};
    lines[0].low_pct = 2.6;
    lines[0].high_pct = 4.2;
    lines[0].raw_change_pct = -1.5;
    strcpy(lines[0].bound, ">= +2.6 (99%)");
    lines[0].pairs = 6;
    lines[1].to_ms = NAN;
    snprintf(lines[1].why, sizeof lines[1].why, "NEW refuses: %0150d", 0);
    const struct verdict_report r = {.view = VERDICTS_AB,
                                     .lines = lines,
                                     .count = 2,
                                     .decider = "vs cudnn",
                                     .control = "quiet",
                                     .summary = "REGRESSION: of two",
                                     .exit_code = 3};
    const char *text = caught(print_110, &r);
    assert_has(text, "REGRESS       bwd causal d128 16k bf16");
    assert_has(text, "+3.4 %");
    /* The change that decides stands under its own name, beside the raw one and the bound that decided. */
    assert_has(text, "     raw  vs cudnn  decided by, %  pairs  why\n");
    assert_has(text, "  -1.5 %    +3.4 %  >= +2.6 (99%)      6\n");
    assert_has(text, "\n              NEW refuses:"); /* a long reason goes to the next line */
    assert_has(text, "\ncontrol       quiet\n");
    assert_has(text, "\nREGRESSION: of two\n");
    assert_null(strstr(text, "impl")); /* no column for a single implementation */
    for (const char *at = text; *at; at += strcspn(at, "\n") + 1)
        if (strcspn(at, "\n") > 110 && !strstr(at, "000000"))
            fail_msg("%zu columns", strcspn(at, "\n"));
}

static void soft_exit(void **state)
{
    (void)state;
    struct verdict_line one = line(VERDICT_INCONCLUSIVE, "a", 1);
    const struct verdict_report r = {
        .view = VERDICTS_GATE, .lines = &one, .count = 1, .summary = "INCONCLUSIVE: x", .soft_code = 4};
    assert_has(caught(print_110, &r), "exit 0: --soft replaced 4 (INCONCLUSIVE)");
    setenv("GITHUB_ACTIONS", "true", 1);
    const char *text = caught(verdicts_annotate, &r);
    assert_has(text, "::warning title=fabench gate%3A INCONCLUSIVE a::fused +1.00 %25");
    assert_null(strstr(text, "::error"));
    unsetenv("GITHUB_ACTIONS");
    assert_string_equal(caught(verdicts_annotate, &r), "");
}

static void annotations_are_one_line_each(void **state)
{
    (void)state;
    struct verdict_line lines[] = {line(VERDICT_FAIL, "fwd full   d64  1k", NAN), line(VERDICT_PASS, "b", 0)};
    strcpy(lines[0].why, "two\nlines: 100 %");
    const struct verdict_report r = {
        .view = VERDICTS_AB, .lines = lines, .count = 2, .summary = "CHECK FAILED: x", .exit_code = 1};
    setenv("GITHUB_ACTIONS", "true", 1);
    const char *text = caught(verdicts_annotate, &r);
    unsetenv("GITHUB_ACTIONS");
    assert_has(text, "::error title=fabench ab%3A FAIL fwd full d64 1k::fused two%0Alines: 100 %25\n");
    assert_has(text, "::error title=fabench ab::CHECK FAILED: x\n");
    int count = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        count++;
    assert_int_equal(count, 2);
}

static const char *file_text(const char *path)
{
    static char text[8192];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void files(void **state)
{
    (void)state;
    char path[] = "/tmp/fabench-test-XXXXXX";
    close(mkstemp(path));
    struct verdict_line lines[] = {line(VERDICT_REGRESS, "bwd causal d128 16k", 3), line(VERDICT_PASS, "b", 0),
                                   line(VERDICT_ERROR, "c", NAN)};
    strcpy(lines[0].why, "<\"a\" & b>\x01");
    struct verdict_report r = {.view = VERDICTS_AB, .lines = lines, .count = 3, .summary = "ERROR: x", .exit_code = 6};
    assert_true(verdicts_junit(&r, path));
    const char *text = file_text(path);
    assert_has(text, "tests=\"3\" failures=\"1\" errors=\"1\" skipped=\"0\"");
    assert_has(text, "&lt;&quot;a&quot; &amp; b&gt; \"/>");
    assert_has(text, "name=\"b\"><system-out>pass");
    r.exit_code = EXIT_OK;
    assert_true(verdicts_junit(&r, path));
    assert_has(file_text(path), "failures=\"0\" errors=\"0\" skipped=\"2\"");
    r.count = 0;
    r.exit_code = EXIT_NOT_COMPARABLE;
    assert_true(verdicts_junit(&r, path));
    assert_has(file_text(path), "tests=\"1\" failures=\"0\" errors=\"1\"");
    r.count = 3;
    assert_true(verdicts_csv(&r, path));
    text = file_text(path);
    assert_has(text, "verdict,configuration,impl,from_ms,to_ms,change_pct,");
    assert_has(text, ",pairs,why,raw_change_pct,decided_by\n"); /* new columns at the end */
    assert_has(text, "\nREGRESS,bwd causal d128 16k,fused,1,1.03,3,,,,,\"<\"\"a\"\" & b>");
    assert_has(text, "\nERROR,c,fused,1,,,,,,,,,\n");
    unlink(path);
}

/* The variant is not part of a key; everything that changes the work is. */
static void keys(void **state)
{
    (void)state;
    struct record_row a, b;
    char label[PROBLEM_LABEL_SIZE];
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    record_row_clear(&a);
    a.key.mode = ATTN_BWD;
    a.key.dtype = ATTN_BF16;
    a.status = STATUS_OK;
    a.key.causal = 1;
    a.key.batch = a.key.q_heads = a.key.kv_heads = 1;
    a.key.q_len = a.key.kv_len = 16384;
    a.key.head_dim = 128;
    a.key.seed = 1;
    b = a;
    strcpy(b.variant, "another");
    assert_int_equal(problem_key_compare(&a.key, &b.key, false), 0);
    b.key.kv_len = 8192;
    assert_int_not_equal(problem_key_compare(&a.key, &b.key, false), 0);
    assert_string_equal(problem_key_label(&a.key, label, sizeof label), "bwd causal d128 16k bf16");
    assert_string_equal(problem_key_label(&b.key, label, sizeof label), "bwd causal d128 16kx8k bf16");
    b = a;
    b.key.scale = 0.5;
    assert_int_not_equal(problem_key_compare(&a.key, &b.key, false), 0);
    b = a;
    b.key.seed = 2;
    assert_int_not_equal(problem_key_compare(&a.key, &b.key, false), 0);
    assert_int_equal(problem_key_compare(&a.key, &b.key, true), 0); /* reports ignore the seed */
    assert_false(record_row_is_timed(&a));
    a.time_ms = 1;
    assert_true(record_row_is_timed(&a));
    a.check = CHECKED_FAIL;
    assert_false(record_row_is_timed(&a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worst_first),
        cmocka_unit_test(exit_codes),
        cmocka_unit_test(the_terminal),
        cmocka_unit_test(soft_exit),
        cmocka_unit_test(annotations_are_one_line_each),
        cmocka_unit_test(files),
        cmocka_unit_test(keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
