/* The end of a run's output (cmd/table/summary.h): the files in its folder, and what to type next. */
#include "tests/unit/unit_help.h"

#include <math.h>

#include "cmd/base/text.h"
#include "cmd/table/summary.h"

/* What summary_print says at the end of this run, which left these files. */
static const char *printed_of(const struct summary *s, const struct summary_files *files)
{
    static char text[4096];
    FILE *out = tmpfile();
    assert_non_null(out);
    summary_print(s, out, 110, false, files, 1.5, 0);
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = 0;
    fclose(out);
    return text;
}

/* The end of a run with `timed` rows. */
static const char *printed(const struct summary_files *files, int timed)
{
    struct summary s;
    summary_begin(&s, NULL);
    s.timed = timed;
    return printed_of(&s, files);
}

static void the_files_of_a_run(void **state)
{
    (void)state;
    struct summary_files files = {.dir = "out/run", .csv = "out/run/run.csv", .may_draw = true};
    const char *text = printed(&files, 4); /* no record that could be drawn */
    assert_has(text, "records: out/run/ run.csv\n");
    assert_null(strstr(text, "next:"));
    files.jsonl = "out/run/run.jsonl";
    files.charts = 1;
    text = printed(&files, 4);
    assert_has(text, "records: out/run/ run.csv run.jsonl, 1 chart\n");
    assert_has(text, "next: fabench plot out/run/run.jsonl --plot term\n");
    files.dir = "out/run/"; /* no slash twice */
    files.charts = 3;
    assert_has(printed(&files, 4), "records: out/run/ run.csv run.jsonl, 3 charts\n");
    files = (struct summary_files){
        .dir = "out/run", .csv = "out/run/run.csv", .jsonl = "elsewhere.jsonl", .may_draw = true};
    text = printed(&files, 4);
    assert_has(text, "records: out/run/ run.csv elsewhere.jsonl\n");
    assert_has(text, "next: fabench plot elsewhere.jsonl --plot term\n");
}

/* The last line of a run with one row that passed and these that were refused, `counts` of each reason. */
static const char *verdict_on(const char *const *reasons, const int *counts, int width)
{
    static char verdict[200];
    struct summary s;
    struct record_row row;
    struct text text = {0};
    memset(&row, 0, sizeof row);
    record_row_clear(&row);
    summary_begin(&s, NULL);
    row.status = STATUS_OK;
    row.check = CHECKED_PASS;
    summary_add(&s, &row);
    row.status = STATUS_UNSUPPORTED;
    for (int i = 0; reasons[i]; i++)
        for (int n = 0; n < counts[i]; n++) {
            snprintf(row.impl, sizeof row.impl, "%s", n % 2 ? "mine" : "yours"); /* whoever gave the reason */
            snprintf(row.reason, sizeof row.reason, "%s", reasons[i]);
            summary_add(&s, &row);
        }
    assert_true(summary_verdict(&s, 0, width, &text));
    snprintf(verdict, sizeof verdict, "%s", text_string(&text));
    text_free(&text);
    summary_end(&s);
    return verdict;
}

static void refusals_by_reason(void **state)
{
    (void)state;
    static const char *const reasons[] = {"takes no paged cache", "computes no dBias", "computes in fp32 only",
                                          "takes head dims that are multiples of 8 up to 256", NULL};
    static const int counts[] = {2, 22, 5, 3};
    assert_string_equal(verdict_on(reasons, counts, 110),
                        "PASS: 1 row, 32 refused: 22 dBias, 5 computes in fp32 only, 3 takes head dims that.., "
                        "2 paged cache");
    assert_string_equal(verdict_on(reasons, counts, 80),
                        "PASS: 1 row, 32 refused: 22 dBias, 5 computes in fp32 only, 5 others");
    assert_string_equal(verdict_on(reasons, counts, 50), "PASS: 1 row, 32 refused: 22 dBias, 10 others");
    assert_string_equal(verdict_on(reasons, counts, 30), "PASS: 1 row, 32 refused");
    assert_string_equal(verdict_on(&reasons[3], &counts[3], 110), "PASS: 1 row, 3 refused: 3 takes head dims that..");
}

/* --invariance: a line for each implementation. */
static void bits_in_other_batches(void **state)
{
    (void)state;
    struct summary s;
    struct record_row row;
    static const char *const found[] = {"yes", "no o[1,0,5] alone", "", "no lse[0,0,0] twice", "yes"};
    memset(&row, 0, sizeof row);
    summary_begin(&s, NULL);
    for (int i = 0; i < 10; i++) {
        record_row_clear(&row);
        row.status = STATUS_OK;
        row.check = CHECKED_PASS;
        row.only = strdup("fwd-full-d-64");
        snprintf(row.impl, sizeof row.impl, "%s", i < 5 ? "mine" : "yours:invariant");
        snprintf(row.batch_invariant, sizeof row.batch_invariant, "%s", i < 5 ? found[i] : "yes");
        summary_add(&s, &row);
        record_row_free(&row);
    }
    const char *text = printed_of(&s, NULL);
    assert_has(text, "\nmine: other bits in other batches in 2 of 4 rows, first fwd-full-d-64: o[1,0,5] alone\n");
    assert_has(text, "\nyours:invariant: the same bits in all batches, 5 of 5 rows\n");
    summary_end(&s);
}

static void nothing_to_draw(void **state)
{
    (void)state;
    struct summary_files files = {.dir = "run", .jsonl = "run/run.jsonl", .may_draw = true};
    assert_null(strstr(printed(&files, 0), "next:")); /* no row has a time */
    files.may_draw = false;                           /* verify, or a run that drew on the terminal */
    assert_null(strstr(printed(&files, 4), "next:"));
    assert_null(strstr(printed(NULL, 4), "next:"));
    assert_null(strstr(printed(NULL, 4), "records:"));
    assert_has(printed(NULL, 4), "1.5 s, exit 0");
}

static struct record_row a_row(double half_pct, int64_t samples)
{
    struct record_row row = {0};
    record_row_clear(&row);
    row.status = STATUS_OK;
    row.check = CHECKED_PASS;
    snprintf(row.impl, sizeof row.impl, "mine");
    row.time_ms = 100;
    row.samples = samples;
    if (samples >= 6) {
        row.time_ms_ci_lo = fmax(100 - half_pct, 1e-3);
        row.time_ms_ci_hi = 100 + half_pct;
    }
    return row;
}

/* A PASS over rows that are noisier than asked says so in the same line, with the load of the machine. */
static void noise_is_said(void **state)
{
    const double halves[] = {0.2, 0.5, 0.6, 47};
    struct summary s;
    (void)state;
    summary_begin(&s, NULL);
    s.asked_pct = 0.5;
    s.load_before = 1.25;
    for (int i = 0; i < 2; i++) {
        const struct record_row row = a_row(halves[i], 30);
        assert_false(summary_is_noisy(&row, s.asked_pct));
        summary_add(&s, &row);
    }
    const char *text = printed_of(&s, NULL);
    assert_has(text, "PASS: 2 of 2 rows ");
    assert_null(strstr(text, "NOISY"));
    for (int i = 2; i < 4; i++) {
        const struct record_row row = a_row(halves[i], 30);
        assert_true(summary_is_noisy(&row, s.asked_pct));
        assert_false(summary_is_noisy(&row, NAN)); /* not known what was asked */
        summary_add(&s, &row);
    }
    text = printed_of(&s, NULL);
    assert_has(text, "PASS: 4 of 4 rows; NOISY: 2 of 4, up to 47 % (asked: 0.5 %); load 1.2 -> ");
    assert_has(text, " CPUs");
    const struct record_row wild = a_row(100000, 30), few = a_row(0, 3);
    summary_add(&s, &wild);
    assert_has(printed_of(&s, NULL), "NOISY: 3 of 5, over 999 % (asked");
    assert_true(summary_is_noisy(&few, 100)); /* too few samples: how noisy is not known */
    summary_begin(&s, NULL);
    s.asked_pct = 0.5;
    summary_add(&s, &few);
    assert_has(printed_of(&s, NULL), "NOISY: 1 of 1, too few samples for an interval (asked: 0.5 %)");
}

/* Adds a row of 1 ms per TFLOP at `tflops` with one error. */
static void add_row(struct data_table *t, const char *impl, int64_t q_len, enum fill_dist dist, double logit_std,
                    double tflops, double error)
{
    struct record_row row;
    memset(&row, 0, sizeof row);
    record_row_clear(&row);
    snprintf(row.impl, sizeof row.impl, "%s", impl);
    row.status = STATUS_OK;
    row.check = tflops > 0 ? CHECKED_PASS : CHECKED_FAIL;
    row.key.mode = ATTN_FWD;
    row.key.head_dim = 64;
    row.key.q_len = q_len;
    row.key.dist = dist;
    row.key.logit_std = logit_std;
    row.tflops = tflops;
    row.tensor_count = 2;
    snprintf(row.tensors[0].name, sizeof row.tensors[0].name, "o");
    snprintf(row.tensors[1].name, sizeof row.tensors[1].name, "lse");
    row.tensors[0].rel_rms_err = error;
    row.tensors[1].rel_rms_err = 1000 * error; /* LSE has another rule and is left out */
    data_table_add(t, &row);
}

static const char *data_text(const struct data_table *t)
{
    static char text[4096];
    FILE *out = tmpfile();
    assert_non_null(out);
    data_table_print(t, out, 110);
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = 0;
    fclose(out);
    return text;
}

static void speed_and_error_by_inputs(void **state)
{
    (void)state;
    struct data_table t = {0};
    add_row(&t, "a", 1024, FILL_NORMAL, 1, 100, 1e-3);
    assert_string_equal(data_text(&t), ""); /* one kind: nothing to compare */
    add_row(&t, "a", 4096, FILL_NORMAL, 1, 200, 1e-3);
    add_row(&t, "a", 1024, FILL_NORMAL, 16, 40, 1e-3);
    add_row(&t, "a", 4096, FILL_NORMAL, 16, 180, 4e-3);
    add_row(&t, "a", 1024, FILL_ZEROS, NAN, 150, 0); /* no error: no ratio of errors */
    add_row(&t, "b", 1024, FILL_NORMAL, 1, 10, 1e-3);
    add_row(&t, "b", 1024, FILL_NORMAL, 16, -1, 1e-3); /* a failed row counts nowhere */
    add_row(&t, "b", 1024, FILL_ZEROS, NAN, 10, 0);
    assert_string_equal(data_text(&t),
                        "on other data, relative to the same problem on logit-std 1: geometric means over lengths and "
                        "masks\n"
                        "speed                         logit-std 16    zeros\n"
                        "  a fwd d64                           0.60     1.50\n"
                        "  b fwd d64                              -     1.00\n"
                        "least speed                   logit-std 16    zeros\n"
                        "  a fwd d64                           0.40     1.50\n"
                        "  b fwd d64                              -     1.00\n"
                        "relative RMS error            logit-std 16    zeros\n"
                        "  a fwd d64                           2.00        -\n"
                        "  b fwd d64                              -        -\n");
    data_table_free(&t);
}

/* Adds a row of a type at a length; e4m3 with quantising in its time. */
static void add_typed_row(struct data_table *t, const char *impl, enum attn_dtype dtype, int64_t q_len, int64_t in_time,
                          double tflops)
{
    struct record_row row;
    memset(&row, 0, sizeof row);
    record_row_clear(&row);
    snprintf(row.impl, sizeof row.impl, "%s", impl);
    row.status = STATUS_OK;
    row.check = CHECKED_PASS;
    row.key.mode = ATTN_FWD;
    row.key.head_dim = 64;
    row.key.causal = 0;
    row.key.q_len = row.key.kv_len = q_len;
    row.key.dtype = dtype;
    row.key.quant_in_time = in_time;
    row.tflops = tflops;
    data_table_add(t, &row);
}

static const char *crossovers(const struct data_table *t)
{
    static char text[4096];
    FILE *out = tmpfile();
    assert_non_null(out);
    data_table_print_crossovers(t, out, 110);
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = 0;
    fclose(out);
    return text;
}

/* A length where 8 bits are slower ends what is said of shorter ones. */
static void from_which_length_8_bits_pay(void **state)
{
    (void)state;
    static const double wide[] = {100, 110, 120, 130}, narrow[] = {110, 100, 121, 150};
    struct data_table t = {0};
    for (int i = 0; i < 4; i++) {
        add_typed_row(&t, "a", ATTN_E4M3, 1024 << i, 1, narrow[i]);
        add_typed_row(&t, "b", ATTN_BF16, 1024 << i, 0, 1); /* of another implementation */
        if (i == 0)
            assert_string_equal(crossovers(&t), "");
        add_typed_row(&t, "a", ATTN_FP16, 1024 << i, 0, wide[i] - 5);
        add_typed_row(&t, "a", ATTN_BF16, 1024 << i, 0, wide[i]);
    }
    assert_string_equal(crossovers(&t), "a fwd full d64 e4m3 quantised in time: faster than wider inputs from 4k on\n");
    add_typed_row(&t, "a", ATTN_E5M2, 1024, 0, 101);
    add_typed_row(&t, "b", ATTN_E4M3, 8192, 0, 0.5);
    assert_has(crossovers(&t), "a fwd full d64 e5m2, without quantising: faster than wider inputs at every length\n");
    assert_has(crossovers(&t), "b fwd full d64 e4m3, without quantising: slower than wider inputs at 8k, the longest "
                               "length\n");
    data_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refusals_by_reason),
                                       cmocka_unit_test(bits_in_other_batches),
                                       cmocka_unit_test(the_files_of_a_run),
                                       cmocka_unit_test(nothing_to_draw),
                                       cmocka_unit_test(noise_is_said),
                                       cmocka_unit_test(speed_and_error_by_inputs),
                                       cmocka_unit_test(from_which_length_8_bits_pay)};
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}
