/* The report: figures, ties, the published set, groups, spread, notes, and refused input. All records are synthetic and
 * marked so. */
#include "tests/unit/report/report_of.h"

#include "cmd/base/log.h"

static void best_is_checked(void **state)
{
    (void)state;
    add_fwd(0, "slow", 100);
    add_fwd(0, "wrong", 900)->check = CHECKED_FAIL;
    add_fwd(0, "blind", 800)->check = CHECKED_OFF;
    add_fwd(0, "large", 700)->status = STATUS_OOM;
    add_fwd(0, "null", 1e6);
    add_fwd(0, "empty", 600)->tflops = NAN;
    add_fwd(0, "fast", 200);
    make(1, 1);
    assert_int_equal(report.point_count, 1);
    const struct report_figure *f = report_figure_at(&report, 0, 0);
    assert_true(f->is_there);
    assert_string_equal(f->best.impl, "fast");
    assert_string_equal(f->ties, "");
    assert_int_equal(f->failed, 1);
    assert_int_equal(f->rank, 0); /* no other label */
    assert_near(f->lo, 198);
    assert_near(f->hi, 202);
    assert_int_equal(report.summaries[0].counts.fail, 1);
    assert_int_equal(report.summaries[0].counts.off, 1);
    assert_int_equal(report.summaries[0].counts.oom, 1);
}

static void ties_are_ties(void **state)
{
    (void)state;
    add_fwd(0, "a", 200);
    add_fwd(0, "b", 197); /* 195.03 .. 198.97 against 198 .. 202 */
    add_fwd(0, "c", 190);
    add_fwd(1, "a", 203); /* overlaps 200's interval */
    add_fwd(2, "a", 180);
    make(3, 3);
    const struct report_figure *first = report_figure_at(&report, 0, 0);
    assert_string_equal(first->best.impl, "a");
    assert_string_equal(first->ties, "b");
    assert_int_equal(first->rank, 1);
    assert_true(first->is_tied);
    assert_int_equal(report_figure_at(&report, 0, 1)->rank, 1);
    assert_true(report_figure_at(&report, 0, 1)->is_tied);
    assert_int_equal(report_figure_at(&report, 0, 2)->rank, 3);
    assert_false(report_figure_at(&report, 0, 2)->is_tied);
    assert_int_equal(report.summaries[1].tied_points, 1);
    assert_int_equal(report.summaries[1].best_points, 0);
}

/* A single sample decides nothing: it ties with whatever is beside it, at a label and between labels. */
static void without_an_interval_all_is_a_tie(void **state)
{
    (void)state;
    add_fwd(0, "a", 100);
    add_fwd(0, "slower", 50)->samples = 1;
    add_fwd(1, "a", 300)->samples = 1;
    struct record_row *open = add_fwd(2, "a", 40);
    open->time_ms_ci_lo = open->time_ms_ci_hi = NAN;
    make(3, 3);
    const struct report_figure *first = report_figure_at(&report, 0, 0);
    assert_near(first->best.tflops, 100);
    assert_string_equal(first->ties, "slower");
    for (int l = 0; l < 3; l++) {
        assert_int_equal(report_figure_at(&report, 0, l)->rank, 1);
        assert_true(report_figure_at(&report, 0, l)->is_tied);
        assert_int_equal(report_figure_at(&report, 0, l)->has_interval, l == 0);
    }
}

static void last_row_of_a_case_counts(void **state)
{
    (void)state;
    add_fwd(0, "a", 200);
    add_fwd(0, "a", 210)->check = CHECKED_FAIL;
    add_fwd(0, "b", 100);
    make(1, 1);
    assert_string_equal(report_figure_at(&report, 0, 0)->best.impl, "b");
    assert_int_equal(report.summaries[0].counts.repeated, 1);
    assert_int_equal(report.summaries[0].counts.rows, 2);
}

static void geomean_needs_the_whole_set(void **state)
{
    (void)state;
    add_set(0, "a", 100);
    for (int i = 8; i < 16; i++) /* the backward half twice as fast */
        files[0].rows[i].tflops *= 2, files[0].rows[i].time_ms /= 2;
    add_set(1, "a", 100);
    files[1].count--;
    add_set(2, "a", 100);
    files[2].rows[3].check = CHECKED_FAIL;
    add_set(3, "a", 100);
    files[3].rows[5].key.dist = -1; /* another point, outside the set */
    make(4, 4);
    const struct report_geomeans *g = &report.summaries[0].geomeans;
    assert_int_equal(g->points, 16);
    assert_near(g->tflops, 100 * sqrt(2.0));
    assert_near(g->tflops_fwd, 100);
    assert_near(g->tflops_bwd, 200);
    assert_true(isnan(g->tflops_sustained));
    for (int l = 1; l < 4; l++) {
        assert_int_equal(report.summaries[l].geomeans.points, 15);
        assert_true(isnan(report.summaries[l].geomeans.tflops));
        assert_true(isnan(report.summaries[l].geomeans.tflops_fwd));
        assert_true(isnan(report.summaries[l].geomeans.tflops_bwd));
    }
}

static void sustained_is_not_burst(void **state)
{
    (void)state;
    add_set(0, "a", 100);
    for (int i = 0; i < 16; i++)
        files[0].rows[i].tflops_sustained = 80;
    add_set(1, "a", 100);
    for (int i = 0; i < 15; i++)
        files[1].rows[i].tflops_sustained = 80;
    make(2, 2);
    assert_near(report.summaries[0].geomeans.tflops, 100);
    assert_near(report.summaries[0].geomeans.tflops_sustained, 80);
    assert_true(isnan(report.summaries[1].geomeans.tflops_sustained));
}

static void set_is_the_published_one(void **state)
{
    (void)state;
    struct record_row *row = add(0, "a", "bwd", 1, 128, 16384, 1);
    assert_int_equal(report_set_index(row), 15);
    row->key.seed = 7;
    assert_int_equal(report_set_index(row), 15);
#define ALTERED(change) \
    do { \
        struct record_row other = *row; \
        other.key.change; \
        assert_int_equal(report_set_index(&other), -1); \
    } while (0)
    ALTERED(batch = 2);
    ALTERED(q_heads = 8);
    ALTERED(kv_heads = 4);
    ALTERED(kv_len = 8192);
    ALTERED(q_len = 8192);
    ALTERED(head_dim = 96);
    ALTERED(scale = 1);
    ALTERED(scale = NAN);
    ALTERED(window_left = 128);
    ALTERED(causal = INT64_MIN);
    ALTERED(dtype = ATTN_FP16);
    ALTERED(l2 = L2_HOT);
    ALTERED(layout = ATTN_BHSD);
#undef ALTERED
}

static void files_of_a_label(void **state)
{
    (void)state;
    add_set(0, "a", 100);
    add_set(1, "a", 104);
    add_set(1, "b", 300);
    files[1].rows[16].check = CHECKED_FAIL; /* b fails once here */
    add_set(0, "b", 300);
    add_set(2, "a", 96);
    labels[0].file_count = 3;
    labels[0].files[1] = 1;
    labels[0].files[2] = 2;
    make(1, 3);
    const struct report_figure *f = report_figure_at(&report, 0, 0);
    assert_string_equal(f->best.impl, "a"); /* b failed in one file of the label at this point */
    assert_int_equal(f->file_count, 3);
    assert_near(f->best.tflops, 100);
    assert_near(f->least, 96);
    assert_near(f->most, 104);
    assert_near(f->lo, 96 * 0.99);
    assert_near(f->hi, 104 * 1.01);
    assert_string_equal(report_figure_at(&report, 1, 0)->best.impl, "b");
    assert_int_equal(report_figure_at(&report, 1, 0)->file_count, 2);
    assert_near(report.summaries[0].file_least, 96);
    assert_near(report.summaries[0].file_most, 300);
    assert_int_equal(report_boards(&report, 0), 0);
    for (int i = 0; i < 3; i++)
        json_object_set_new(json_object_get(files[i].header, "device"), "uuid", json_string(i ? "GPU-1" : "GPU-0"));
    assert_int_equal(report_boards(&report, 0), 0);
    json_object_set_new(json_object_get(files[1].header, "device"), "uuid", json_string("GPU-2"));
    assert_int_equal(report_boards(&report, 0), 3);
    for (int i = 0; i < 3; i++)
        json_object_set_new(json_object_get(files[i].header, "device"), "uuid", json_string("GPU-0"));
    assert_int_equal(report_boards(&report, 0), 1);
    /* A published record has no UUID, but its rows have the board. */
    json_object_del(json_object_get(files[1].header, "device"), "uuid");
    assert_int_equal(report_boards(&report, 0), 0);
    record_board_name("GPU-0", files[1].rows[1].board, sizeof files[1].rows[1].board);
    assert_int_equal(report_boards(&report, 0), 1);
    assert_int_equal(report_all_boards(&report), 1);
    snprintf(files[1].rows[1].board, sizeof files[1].rows[1].board, "0badcafe");
    assert_int_equal(report_all_boards(&report), 2);
    files[1].rows[1].board[0] = '\0';
}

static void labels_without_common_points_are_not_compared(void **state)
{
    char text[300];
    (void)state;
    add_fwd(0, "a", 100);
    add_fwd(1, "a", 100)->key.l2 = L2_HOT;
    add_fwd(2, "a", 100)->key.dtype = ATTN_FP32;
    files[2].rows[0].key.batch = 1;
    add_fwd(2, "a", 90); /* shares this one with L0 */
    make(3, 3);
    assert_int_equal(report.group_count, 2);
    assert_int_equal(report.summaries[0].group, 0);
    assert_int_equal(report.summaries[1].group, 1);
    assert_int_equal(report.summaries[2].group, 0);
    report_difference(&report, 0, 1, text, sizeof text);
    assert_string_equal(text, "L2 cold against hot");
    report_difference(&report, 1, 2, text, sizeof text);
    assert_string_equal(text, "L2 hot against cold");
    files[1].rows[0].time_ms = 0; /* a row that is not valid is not shared */
    files[1].rows[0].key.l2 = L2_COLD;
    make(3, 3);
    assert_int_equal(report.group_count, 2);
    report_difference(&report, 0, 2, text, sizeof text);
    assert_string_equal(text, "they were given different problems"); /* these two share a point */
}

/* Copies a text and frees it. */
static void keep(char *made, char *text, size_t size)
{
    snprintf(text, size, "%s", made);
    free(made);
}

static void notes_of_labels(void **state)
{
    char text[800];
    (void)state;
    add_fwd(0, "fused_sm80", 100);
    add_fwd(0, "cudnn", 200);
    add_fwd(0, "naive", 20)->check = CHECKED_FAIL;
    add_fwd(1, "fused_sm90", 100);
    add_fwd(1, "fused_sm80", 90);
    files[1].rows[0].throttled_pct = 12;
    add_fwd(2, "cudnn", 100);
    for (int f = 0; f < 3; f++)
        json_object_del(files[f].header, "synthetic");
    make(3, 3);
    keep(report_notes(&report, 0), text, sizeof text);
    assert_string_equal(text, "portable path: fused_sm80 on sm_90; 1 of 3 rows FAILED their check");
    keep(report_notes(&report, 1), text, sizeof text);
    assert_string_equal(text, "without the peer cudnn, which others had; throttled for up to 12 % of the time");
    keep(report_notes(&report, 2), text, sizeof text);
    assert_string_equal(text, "no fused implementation in its records");
    for (int i = 0; i < files[0].count; i++)
        strcpy(files[0].rows[i].arch, "sm_86");
    keep(report_notes(&report, 0), text, sizeof text);
    assert_string_equal(text, "1 of 3 rows FAILED their check");
    for (int i = 0; i < files[0].count; i++)
        strcpy(files[0].rows[i].arch, "sm_100");
    json_object_set_new(files[0].header, "synthetic", json_true());
    keep(report_notes(&report, 0), text, sizeof text);
    assert_string_equal(text, "portable path: fused_sm80 on sm_100; 1 of 3 rows FAILED their check; SYNTHETIC: "
                              "nothing here was measured");
}

static void lengths_of_naive(void **state)
{
    char text[500];
    (void)state;
    add_fwd(0, "a", 100);
    make(1, 1);
    keep(report_naive_text(&report, 0), text, sizeof text);
    assert_string_equal(text, "");
    add_fwd(0, "naive", 50)->workspace_mb = 4096;
    struct record_row *row = add(0, "naive", "bwd", 0, 64, 16384, 50);
    row->status = STATUS_OOM;
    strcpy(row->reason, "needs 34 GiB");
    add(0, "a", "bwd", 0, 64, 16384, 50);
    make(1, 1);
    keep(report_naive_text(&report, 0), text, sizeof text);
    assert_string_equal(text,
                        "fwd: fits at every measured length, up to 4k; bwd: no longer fits at 16k (needs 34 GiB)");
    assert_true(report_figure_at(&report, 0, 0)->has_naive);
    assert_near(report_figure_at(&report, 0, 0)->naive_workspace_mb, 4096);
    assert_true(report_figure_at(&report, 1, 0)->naive_is_oom);
    add(0, "naive", "bwd", 0, 64, 8192, 50);
    make(1, 1);
    keep(report_naive_text(&report, 0), text, sizeof text);
    assert_non_null(strstr(text, "bwd: no longer fits at 16k (needs 34 GiB), longest that ran: 8k"));
}

/* ---- the command line ---- */

static char data[3][64];

static void write_record(int i, const char *device, const char *run, const char *method)
{
    FILE *out = fopen(data[i], "w");
    assert_non_null(out);
    fprintf(out, "{\"type\":\"header\",\"schema\":1,\"synthetic\":true}\n");
    fprintf(out,
            "{\"type\":\"row\",\"schema\":1,\"run_id\":\"%s\",\"method\":\"%s\",\"commit\":\"c%d\","
            "\"device\":\"%s\",\"arch\":\"sm_90\",\"impl\":\"a\",\"mode\":\"fwd\",\"dtype\":\"bf16\",\"causal\":0,"
            "\"batch\":1,\"q_heads\":1,\"kv_heads\":1,\"q_len\":64,\"kv_len\":64,\"head_dim\":64,"
            "\"status\":\"ok\",\"check\":\"pass\",\"err_used\":0.5,\"time_ms\":1.0,\"flops\":1048576,"
            "\"tflops\":0.001048576}\n",
            run, method, i, device);
    assert_int_equal(fclose(out), 0);
}

static int read_arguments(int count, const char *const *words, const char *price, struct report_input *read)
{
    char *names[8], *prices[2];
    struct options o = {.files = {names, count}, .prices = {prices, price ? 1 : 0}};
    for (int i = 0; i < count; i++)
        names[i] = strdup(words[i]);
    if (price)
        prices[0] = strdup(price);
    const int status = report_input_read(&o, read);
    for (int i = 0; i < count; i++)
        free(names[i]);
    if (price)
        free(prices[0]);
    return status;
}

static void labels_and_prices(void **state)
{
    struct report_input read;
    char first[100], second[100];
    (void)state;
    for (int i = 0; i < 3; i++)
        snprintf(data[i], sizeof data[i], "/tmp/fabench-report-%d-%d.jsonl", (int)getpid(), i);
    write_record(0, "NVIDIA H200", "r0", "1");
    write_record(1, "NVIDIA H200", "r1", "1");
    write_record(2, "Another", "r2", "1");
    snprintf(first, sizeof first, "A=%s", data[0]);
    snprintf(second, sizeof second, "A=%s", data[1]);
#define STATUS(want, price, ...) \
    do { \
        const char *const words[] = {__VA_ARGS__}; \
        assert_int_equal(read_arguments((int)(sizeof words / sizeof words[0]), words, price, &read), want); \
    } while (0)
    STATUS(EXIT_OK, NULL, data[0], data[2]);
    assert_string_equal(read.labels[0].name, "H200");
    assert_string_equal(read.labels[1].name, "Another");
    report_input_free(&read);
    STATUS(EXIT_OK, NULL, data[0], data[1]); /* one device: the commits tell them apart */
    assert_string_equal(read.labels[0].name, "H200 c0");
    assert_string_equal(read.labels[1].name, "H200 c1");
    report_input_free(&read);
    STATUS(EXIT_OK, "A=31000EUR", first, second, data[2]); /* one label, two files */
    assert_int_equal(read.label_count, 2);
    assert_int_equal(read.labels[0].file_count, 2);
    assert_near(read.labels[0].price, 31000);
    assert_true(isnan(read.labels[1].price));
    assert_string_equal(read.currency, "EUR");
    report_input_free(&read);
    static const char *const bad_prices[] = {"A",
                                             "=1EUR",
                                             "A=",
                                             "A=EUR",
                                             "A=0EUR",
                                             "A=-5EUR",
                                             "A=1e3EUR",
                                             "A=31000",
                                             "A=31,000EUR",
                                             "A=31000eur",
                                             "A=31000 EUR",
                                             "A=nanEUR",
                                             "A=infUSD",
                                             "A=1.2.3EUR",
                                             "B=31000EUR",
                                             "A =31000EUR",
                                             "A=99999999999999999999999999999999999EUR"};
    for (size_t i = 0; i < sizeof bad_prices / sizeof bad_prices[0]; i++) {
        STATUS(EXIT_USAGE, bad_prices[i], first);
        report_input_free(&read);
    }
    static const char *const bad_labels[] = {"=x.jsonl", "A=", "A|B=x.jsonl", " A=x.jsonl",
                                             "12345678901234567890123456789012345678901=x.jsonl"};
    for (size_t i = 0; i < sizeof bad_labels / sizeof bad_labels[0]; i++) {
        STATUS(EXIT_USAGE, NULL, bad_labels[i]);
        report_input_free(&read);
    }
    STATUS(EXIT_USAGE, NULL, data[0], data[0]); /* twice */
    report_input_free(&read);
    STATUS(EXIT_USAGE, NULL, data[0], first);
    report_input_free(&read);
    STATUS(EXIT_NOT_COMPARABLE, NULL, "/nonexistent/x.jsonl");
    report_input_free(&read);
    write_record(1, "Another", "r1", "1");
    STATUS(EXIT_NOT_COMPARABLE, NULL, first, second); /* two devices under one label */
    report_input_free(&read);
    write_record(1, "NVIDIA H200", "r1", "2");
    STATUS(EXIT_NOT_COMPARABLE, NULL, first, second); /* two methods */
    report_input_free(&read);
    write_record(1, "NVIDIA H200", "r0", "1");
    STATUS(EXIT_NOT_COMPARABLE, NULL, data[0], data[1]); /* a copy */
    report_input_free(&read);
#undef STATUS
    for (int i = 0; i < 3; i++)
        unlink(data[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(best_is_checked, begin, finish),
        cmocka_unit_test_setup_teardown(ties_are_ties, begin, finish),
        cmocka_unit_test_setup_teardown(without_an_interval_all_is_a_tie, begin, finish),
        cmocka_unit_test_setup_teardown(last_row_of_a_case_counts, begin, finish),
        cmocka_unit_test_setup_teardown(geomean_needs_the_whole_set, begin, finish),
        cmocka_unit_test_setup_teardown(sustained_is_not_burst, begin, finish),
        cmocka_unit_test_setup_teardown(set_is_the_published_one, begin, finish),
        cmocka_unit_test_setup_teardown(files_of_a_label, begin, finish),
        cmocka_unit_test_setup_teardown(labels_without_common_points_are_not_compared, begin, finish),
        cmocka_unit_test_setup_teardown(notes_of_labels, begin, finish),
        cmocka_unit_test_setup_teardown(lengths_of_naive, begin, finish),
        cmocka_unit_test(labels_and_prices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
