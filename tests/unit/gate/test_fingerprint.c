/* What a gate asks of records: that they can be compared, and minima. */
#include "tests/unit/unit_help.h"

#include "cmd/gate/fingerprint.h"
#include "cmd/gate/floors.h"
#include "cmd/record/record_file.h"

/* ---- fingerprint ---- */

/* Whether records can be compared (cmd/gate/fingerprint.h): one file of one kind with each configuration once, and two
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

/* Floors of a gate (cmd/gate/floors.h): the file of minima, which rows a line selects, which minima a row misses. */

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

int main(void) { return fingerprint_tests() + floors_tests(); }
