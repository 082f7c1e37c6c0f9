/* Verdict lines and their outputs: terminal, JUnit, CSV, annotations; keys of problems. The lines are synthetic. */
#include "tests/unit/unit_help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/gate/fingerprint.h"
#include "cmd/gate/floors.h"
#include "cmd/gate/verdicts.h"
#include "cmd/record/record_file.h"

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

/* The changes have the names of the columns; the bounds stand behind the change that decides. */
static void changes_by_name(void **state)
{
    (void)state;
    struct verdict_line one = line(VERDICT_REGRESS, "a", -2.8);
    one.relative_change_pct = 33.2;
    one.low_pct = 20;
    one.high_pct = 45;
    struct verdict_report r = {
        .view = VERDICTS_GATE, .lines = &one, .count = 1, .summary = "x", .exit_code = 3, .decider = "against naive"};
    setenv("GITHUB_ACTIONS", "true", 1);
    assert_has(caught(verdicts_annotate, &r), "fused time -2.80 %25, against naive +33.20 %25 (+20.00 .. +45.00)");
    one.relative_change_pct = NAN;
    r.view = VERDICTS_AB;
    r.decider = "vs cudnn";
    assert_has(caught(verdicts_annotate, &r), "fused vs cudnn -2.80 %25 (+20.00 .. +45.00)");
    unsetenv("GITHUB_ACTIONS");
    assert_string_equal(verdict_state(EXIT_INTERRUPTED), "INTERRUPTED");
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
    assert_has(text, "::warning title=fabench gate%3A INCONCLUSIVE a::fused time +1.00 %25");
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
    assert_has(text, "&lt;&quot;a&quot; &amp; b&gt; \"></failure>");
    assert_has(text, "name=\"b\" time=\"0.001\"><system-out>pass");
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

static int verdicts_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worst_first),     cmocka_unit_test(exit_codes),
        cmocka_unit_test(the_terminal),    cmocka_unit_test(soft_exit),
        cmocka_unit_test(changes_by_name), cmocka_unit_test(annotations_are_one_line_each),
        cmocka_unit_test(files),           cmocka_unit_test(keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a gate asks of records: that they can be compared, and minima. */

/* ---- fingerprint ---- */

/* Whether records can be compared (cmd/gate/fingerprint.c): one file of one kind with each configuration once, and two
 * files of the same kind. */

static struct attn_message why;

static struct record_file read_file(const char *path)
{
    struct record_file file;
    if (!record_read(path, &file, &why))
        fail_msg("%s", why.text);
    return file;
}

/* Header of these facts, one row. */
static struct record_file file_with(const char *name, const char *device, const char *policy)
{
    char *path = help_path(name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    help_put_header(out, device, policy);
    help_put_row(out, &(struct help_row){0});
    fclose(out);
    return read_file(path);
}

static bool match(const char *device_a, const char *policy_a, const char *device_b, const char *policy_b)
{
    struct record_file a = file_with("a.jsonl", device_a, policy_a), b = file_with("b.jsonl", device_b, policy_b);
    why.text[0] = 0;
    const bool same = fingerprint_matches(&a, &b, &why);
    record_file_free(&a);
    record_file_free(&b);
    return same;
}

static void two_of_a_kind(void **state)
{
    (void)state;
    assert_true(match(HELP_DEVICE, HELP_POLICY, HELP_DEVICE, HELP_POLICY));
    /* Another driver of the same major version, 1 % of the power limit or the memory: the same. */
    assert_true(match("\"driver\":\"580.65\"", HELP_POLICY, "\"driver\":\"580.9\"", HELP_POLICY));
    assert_true(match("\"power_limit_w\":700", HELP_POLICY, "\"power_limit_w\":695", HELP_POLICY));
    assert_true(match("\"memory_gb\":141.0", HELP_POLICY, "\"memory_gb\":140.5", HELP_POLICY));
    assert_true(match("\"uuid\":\"a\"", HELP_POLICY, "\"uuid\":\"b\"", HELP_POLICY)); /* another board of that kind */
}

static void two_that_differ(void **state)
{
    (void)state;
    static const struct {
        const char *device[2], *policy[2], *words;
    } cases[] = {
        {{"\"name\":\"A\"", "\"name\":\"B\""}, {"", ""}, "the baseline's device is \"A\", the current one's \"B\""},
        {{"\"name\":\"A\"", ""}, {"", ""}, "the baseline's device is \"A\", the current one's absent"},
        {{"\"arch\":\"sm_90\"", "\"arch\":\"sm_80\""}, {"", ""}, "architecture is \"sm_90\""},
        {{"\"driver\":\"58.1\"", "\"driver\":\"580.1\""}, {"", ""}, "driver is \"58.1\", the current one's \"580.1\""},
        {{"\"power_limit_w\":700", "\"power_limit_w\":600"}, {"", ""}, "power limit (W) is 700, the current one's 600"},
        {{"\"memory_gb\":80", "\"memory_gb\":141"}, {"", ""}, "device memory (GB) is 80"},
        {{"\"threads\":2", "\"threads\":4"}, {"", ""}, "threads is 2, the current one's 4"},
        {{"\"ecc\":true", "\"ecc\":false"}, {"", ""}, "ECC is true"},
        {{"\"mig\":true", "\"mig\":false"}, {"", ""}, "MIG is true"},
        {{"", ""}, {"\"method\":\"2\"", "\"method\":\"3\""}, "timing method is \"2\""},
        {{"", ""}, {"\"clocks\":\"x\"", "\"clocks\":\"y\""}, "clock policy is \"x\""},
        {{"", ""}, {"\"l2\":\"cold\"", "\"l2\":\"hot\""}, "cache policy is \"cold\""},
        {{"", ""},
         {"\"round_members\":[\"a\"]", "\"round_members\":[\"a\",\"b\"]"},
         "members of the rounds is [\"a\"]"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_false(match(cases[i].device[0], cases[i].policy[0], cases[i].device[1], cases[i].policy[1]));
        assert_has(why.text, cases[i].words);
        assert_has(why.text, ": they cannot be compared");
    }
}

static bool is_uniform(const struct help_row *rows, int count)
{
    struct record_file file = read_file(help_record("whole.jsonl", rows, count));
    why.text[0] = 0;
    const bool uniform = fingerprint_is_uniform(&file, &why);
    record_file_free(&file);
    return uniform;
}

static void each_configuration_once(void **state)
{
    (void)state;
    const struct help_row good[] = {{0}, {.n = 256}, {.mode = "bwd"}, {.impl = "naive"}, {.asked = "fused"}};
    assert_true(is_uniform(good, 5)); /* the last: `fused` and the kernel that it resolves to, both requested */
    const struct help_row twice[] = {{0}, {.n = 256}, {.time_ms = 2}};
    assert_false(is_uniform(twice, 3));
    assert_has(why.text, "whole.jsonl has fwd causal d64");
    assert_has(why.text, " of fused_fake twice (runs run1 and run1); a gate needs each once");
    assert_false(is_uniform(good, 0));
    assert_has(why.text, "whole.jsonl has no rows");
}

static void rows_of_another_kind(void **state)
{
    (void)state;
    const struct help_row rows[] = {{0}, {.n = 256, .device = "Another GPU"}};
    assert_false(is_uniform(rows, 2));
    assert_has(why.text, "is mixed: row 2 is of device 'Another GPU', its header of 'Fake GPU'");
}

/* The headers of several runs in one file must agree too. */
static void several_headers(void **state)
{
    (void)state;
    for (int is_other = 0; is_other < 2; is_other++) {
        char *path = help_path("several.jsonl");
        FILE *out = fopen(path, "w");
        assert_non_null(out);
        help_put_header(out, HELP_DEVICE, HELP_POLICY);
        help_put_row(out, &(struct help_row){0});
        help_put_header(out, HELP_DEVICE,
                        is_other ? "\"method\":\"3\",\"l2\":\"hot\",\"round_members\":[\"fused\"]" : HELP_POLICY);
        fclose(out);
        struct record_file file = read_file(path);
        assert_int_equal(fingerprint_is_uniform(&file, &why), !is_other);
        record_file_free(&file);
    }
    assert_has(why.text, "is mixed: the cache policy of its first run is \"cold\", that of another run is \"hot\"");
}

static int fingerprint_tests(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_of_a_kind), cmocka_unit_test(two_that_differ),
                                       cmocka_unit_test(each_configuration_once),
                                       cmocka_unit_test(rows_of_another_kind), cmocka_unit_test(several_headers)};
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}

/* ---- floors ---- */

/* Floors of a gate (cmd/gate/floors.c): the file of minima, which rows a line selects, which minima a row misses. */

static struct attn_message why_not;

static struct floors *read_text(const char *text) { return floors_read(help_write("floors.csv", text), &why_not); }

/* A record of these rows, in memory. */
static struct record_file file_of(const struct help_row *rows, int count)
{
    struct record_file file;
    if (!record_read(help_record("rows.jsonl", rows, count), &file, &why_not))
        fail_msg("%s", why_not.text);
    return file;
}

static void files_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } refused[] = {{"", ": has no floors"},
                   {"# only a comment\n\nmode,min_tflops\n", ": has no floors"},
                   {"mode,q_len\nfwd,1\n", ", line 1: must name columns, one of them a minimum as min_tflops"},
                   {"mode,speed\nfwd,1\n", ", line 1: 'speed' is no column of the records"},
                   {"mode,min_speed\nfwd,1\n", ", line 1: 'min_speed' is no min_ and a measured column of the records"},
                   {"mode,min_impl\nfwd,1\n", ", line 1: 'min_impl' is no min_ and a measured column of the records"},
                   {"mode,min_tflops\n\nfwd\n", ", line 3: has 1 cells, its first line 2"},
                   {"mode,min_tflops\nfwd,1,2\n", ", line 2: has 3 cells, its first line 2"},
                   {"mode,min_tflops\nfwd,fast\n", ", line 2: 'fast' is no number"},
                   {"q_len,min_tflops\n1.5,1\n", ", line 2: '1.5' is no number"},
                   {"mode,min_tflops\nfwd,\n", ", line 2: has no minimum"},
                   {"mode,min_tflops\n\"fwd,1\n", ", line 2: a quote stays open"}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char wanted[200];
        why_not.text[0] = 0;
        assert_null(read_text(refused[i].text));
        snprintf(wanted, sizeof wanted, "%s%s", help_path("floors.csv"), refused[i].words);
        assert_string_equal(why_not.text, wanted);
    }
    assert_null(floors_read("/absent/floors.csv", &why_not));
    assert_string_equal(why_not.text, "/absent/floors.csv: No such file or directory");
}

/* Words that no record has would choose no row, or, in a file of several lines, hide a floor. */
static void words_that_are_none(void **state)
{
    (void)state;
    static const char *const texts[][2] = {{"mode,min_tflops\nboth,1\n", "'both' is no mode"},
                                           {"dtype,min_tflops\nfp8,1\n", "'fp8' is no dtype"},
                                           {"status,min_tflops\nOK,1\n", "'OK' is no status"},
                                           {"check,min_tflops\nok,1\n", "'ok' is no check"}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_null(read_text(texts[i][0]));
        assert_has(why_not.text, texts[i][1]);
    }
}

static void met_and_missed(void **state)
{
    char missed[200] = "";
    (void)state;
    const struct help_row rows[] = {{.share = 50}, {.share = 40, .n = 256}, {.n = 256}, {.n = 512, .share = 1}};
    struct record_file file = file_of(rows, 4);
    struct floors *f = read_text("# least values\n mode , q_len,impl,min_pct_of_gemm,min_time_ms\n\n"
                                 "fwd,128,fused,50,\nfwd,256,fused_fake,40.5,0.5\r\n");
    assert_non_null(f);
    assert_int_equal(floors_check(f, &file.rows[3], missed, sizeof missed),
                     FLOORS_NO_MATCH); /* no line of its length */
    assert_false(floors_are_matched(f, &why_not));
    assert_has(why_not.text, "floors.csv, line 4: no row of the current record matches it");
    assert_int_equal(floors_check(f, &file.rows[0], missed, sizeof missed), FLOORS_MET); /* equal to the minimum */
    assert_false(floors_are_matched(f, &why_not));
    assert_has(why_not.text, "line 5: no row");
    assert_int_equal(floors_check(f, &file.rows[1], missed, sizeof missed), FLOORS_MISSED);
    assert_string_equal(missed, "pct_of_gemm 40 is below 40.5 (line 5)");
    assert_true(floors_are_matched(f, &why_not));
    assert_int_equal(floors_check(f, &file.rows[2], missed, sizeof missed), FLOORS_MISSED); /* not measured */
    assert_string_equal(missed, "pct_of_gemm was not measured, minimum 40.5 (line 5)");
    floors_free(f);
    record_file_free(&file);
}

/* `fused` selects all fused implementations, an empty cell selects any row, any other name selects only itself. */
static void rows_that_a_line_selects(void **state)
{
    (void)state;
    const struct help_row rows[] = {{0}, {.impl = "naive"}, {.impl = "flash"}, {.mode = "bwd"}};
    static const struct {
        const char *text;
        bool selected[4];
    } cases[] = {{"impl,min_time_ms\nfused,0.5\n", {true, false, false, true}},
                 {"impl,min_time_ms\n\"naive\",0.5\n", {false, true, false, false}},
                 {"impl,mode,min_time_ms\n,bwd,0.5\n", {false, false, false, true}},
                 {"scale,mode,min_time_ms\n,,0.5\n", {true, true, true, true}}};
    struct record_file file = file_of(rows, 4);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct floors *f = read_text(cases[c].text);
        assert_non_null(f);
        for (int i = 0; i < 4; i++) {
            char missed[200];
            assert_int_equal(floors_check(f, &file.rows[i], missed, sizeof missed),
                             cases[c].selected[i] ? FLOORS_MET : FLOORS_NO_MATCH);
        }
        floors_free(f);
    }
    record_file_free(&file);
}

static int floors_tests(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(files_that_are_refused), cmocka_unit_test(words_that_are_none),
                                       cmocka_unit_test(met_and_missed), cmocka_unit_test(rows_that_a_line_selects)};
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}

int main(void) { return verdicts_tests() + fingerprint_tests() + floors_tests(); }
