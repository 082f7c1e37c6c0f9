/* The report: figures, ties, the published set, groups, spread, notes, and refused input. All records are synthetic and
 * marked so. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/base/log.h"
#include "cmd/report/report_data.h"
#include "cmd/report/report_page.h"

/* The index of a word among the names of an enum; -1 for "" and words that are none. */
static int index_of(const char *const *names, const char *word)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], word) == 0)
            return i;
    return -1;
}

enum { LABELS = 4, ROWS = 200 };

static struct record_file files[LABELS];
static struct report_label labels[LABELS];
static struct report_input input;
static struct report report;

/* Makes LABELS empty files, each under its own label; tests join them. */
static int begin(void **state)
{
    (void)state;
    memset(&input, 0, sizeof input);
    memset(&report, 0, sizeof report);
    input.files = files;
    input.labels = labels;
    for (int i = 0; i < LABELS; i++) {
        files[i] = (struct record_file){.rows = calloc(ROWS, sizeof *files[i].rows)};
        assert_non_null(files[i].rows);
        assert_true(asprintf(&files[i].path, "/data/%d.jsonl", i) > 0);
        files[i].header = json_pack("{s:s, s:i, s:b, s:{s:s}}", "type", "header", "schema", 1, "synthetic", 1, "device",
                                    "name", "A GPU");
        assert_non_null(files[i].header);
        labels[i] = (struct report_label){.files = calloc(LABELS, sizeof(int)), .file_count = 1, .price = NAN};
        assert_non_null(labels[i].files);
        labels[i].files[0] = i;
        snprintf(labels[i].name, sizeof labels[i].name, "L%d", i);
    }
    return 0;
}

static int finish(void **state)
{
    (void)state;
    if (report.input)
        report_free(&report);
    for (int i = 0; i < LABELS; i++) {
        record_file_free(&files[i]);
        free(labels[i].files);
    }
    return 0;
}

/* A row that passed, of the published convention; its interval is +-1 %. */
static struct record_row *add(int file, const char *impl, const char *mode, int causal, int head_dim, int q_len,
                              double tflops)
{
    assert_true(files[file].count < ROWS);
    struct record_row *row = &files[file].rows[files[file].count++];
    record_row_clear(row);
    snprintf(row->device, sizeof row->device, "A GPU");
    snprintf(row->arch, sizeof row->arch, "sm_90");
    snprintf(row->impl, sizeof row->impl, "%s", impl);
    row->key.mode = index_of(problem_mode_names, mode);
    snprintf(row->run_id, sizeof row->run_id, "run-%d", file);
    row->key.dtype = ATTN_BF16;
    row->key.layout = ATTN_BSHD;
    row->key.dist = FILL_NORMAL;
    row->key.l2 = L2_COLD;
    strcpy(row->method, "1");
    row->status = STATUS_OK;
    row->check = CHECKED_PASS;
    row->err_used = 0.5;
    row->samples = 30;
    strcpy(row->peer, "cudnn");
    row->key.causal = causal;
    row->key.batch = 16384 / q_len;
    row->key.q_heads = row->key.kv_heads = 2048 / head_dim;
    row->key.q_len = row->key.kv_len = q_len;
    row->key.head_dim = head_dim;
    row->key.window_left = row->key.window_right = -1;
    row->key.dropout = 0;
    row->key.scale = 1 / sqrt((double)head_dim);
    row->flops = 1e12;
    row->tflops = tflops;
    row->time_ms = row->flops / tflops * 1e-9;
    row->time_ms_ci_lo = row->time_ms / 1.01;
    row->time_ms_ci_hi = row->time_ms / 0.99;
    return row;
}

static struct record_row *add_fwd(int file, const char *impl, double tflops)
{
    return add(file, impl, "fwd", 0, 64, 4096, tflops);
}

static void add_set(int file, const char *impl, double tflops)
{
    for (int i = 0; i < REPORT_SET_POINTS; i++)
        add(file, impl, i & 8 ? "bwd" : "fwd", (i & 4) != 0, i & 2 ? 128 : 64, i & 1 ? 16384 : 4096, tflops);
}

static void make(int label_count, int file_count)
{
    input.label_count = label_count;
    input.file_count = file_count;
    if (report.input)
        report_free(&report);
    report_make(&report, &input);
    report_make_groups(&report);
}

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("%.12g, want %.12g", got, want);
}

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
#define ALTERED(change)                                                                                                \
    do {                                                                                                               \
        struct record_row other = *row;                                                                                \
        other.key.change;                                                                                              \
        assert_int_equal(report_set_index(&other), -1);                                                                \
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

static char *page_of(bool as_csv)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    if (as_csv) {
        report_write_csv(&report, out);
    } else {
        struct page *d =
            report_page(&report, &(struct report_charts){.is_gnuplot_absent = true, .was_asked = true}, NULL);
        page_write_markdown(d, out, true);
        page_close(d);
    }
    assert_int_equal(fclose(out), 0);
    return text;
}

static void assert_in(const char *text, const char *part, bool is_there)
{
    if ((strstr(text, part) != NULL) != is_there)
        fail_msg("\"%s\" is %sin:\n%.6000s", part, is_there ? "not " : "", text);
}

static void page_contents(void **state)
{
    (void)state;
    add_set(0, "a", 100);
    add_set(1, "a", 150);
    files[1].count--;
    files[1].rows[0].energy_j = 1.5;
    files[1].rows[0].tflops_sustained = 90;
    files[0].rows[1].pct_of_gemm = 130;
    strcpy(input.currency, "EUR");
    labels[0].price = 20000;
    make(2, 2);
    char *text = page_of(false);
    assert_in(text, "Yes: they share problems and conditions (2 labels, boards not recorded, 2 records)", true);
    assert_in(text, "NOT COMPARABLE", false);
    assert_in(text, "15 of 16 points", true);
    assert_in(text, "100.0", true);
    assert_in(text, "5.000", true); /* TFLOPS per 1000 EUR */
    assert_in(text, "130 % of the GEMM ceiling, which is suspect", true);
    assert_in(text, "gnuplot was not installed", true);
    assert_in(text, "SYNTHETIC", true);
    assert_in(text, "L1: fastest at 15", true);
    free(text);
    text = page_of(true);
    assert_in(text, "label,device,group,", true);
    assert_in(text, "L0,A GPU,1,fwd,bf16,0,4,32,32,4096,4096,64,-1,-1,bshd,normal,cold,1,1,a,,100,99,101,1,,2,0,",
              true);
    assert_in(text, ",20000,EUR,0.005,\n", true);
    free(text);
    files[1].rows[0].key.dtype = ATTN_FP16; /* one row less in common */
    files[1].count = 1;
    make(2, 2);
    text = page_of(false);
    assert_in(text, "> **NOT COMPARABLE", true);
    assert_in(text, "dtype bf16 against fp16", true);
    assert_in(text, "Side by side", false);
    free(text);
}

/* Sets what the header of a file says of its board and its device. */
static void set_device(int file, const char *uuid, double power_limit_w, double memory_gb)
{
    json_t *device = json_object_get(files[file].header, "device");
    json_object_set_new(device, "uuid", json_string(uuid));
    json_object_set_new(device, "power_limit_w", json_real(power_limit_w));
    json_object_set_new(device, "memory_gb", json_real(memory_gb));
}

/* `first` stands before `second` in the text, and both are there. */
static void assert_before(const char *text, const char *first, const char *second)
{
    const char *one = strstr(text, first), *two = strstr(text, second);
    if (!one || !two || one > two)
        fail_msg("\"%s\" is not before \"%s\" in:\n%.6000s", first, second, text);
}

/* The page begins with the verdict; it says why one device is slower, counts boards, and has sustained before burst. */
static void page_begins_with_the_verdict(void **state)
{
    (void)state;
    add_set(0, "a", 100);
    add_set(1, "a", 150);
    add_set(2, "a", 149.9);
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < files[f].count; i++) {
            struct record_row *row = &files[f].rows[i];
            snprintf(row->commit, sizeof row->commit, "c%d", f > 0);
            row->sm_clock_mhz = f ? 1500 : 1000;
            row->power_capped_pct = f ? 0 : 80;
            row->gemm_tflops = f ? 400 : 300;
            if (f < 2)
                row->tflops_sustained = f ? 120 : 90;
        }
    set_device(0, "board-0", 300, 80);
    set_device(1, "board-1", 700, 141);
    set_device(2, "board-1", 700, 141);
    strcpy(input.currency, "EUR");
    labels[0].price = 1000;
    labels[1].price = 4000;
    make(2, 2);
    char *text = page_of(false);
    assert_in(
        text,
        "L1 is the fastest by the geometric mean of the published set: 120.0 TFLOPS sustained (150.0 burst); "
        "L0 has 90.00 (-25.0 %). L1 is alone in front at 16 of the 16 points that it shares, and tied there at 0. "
        "L0 gives the most for its price: 90.00 TFLOPS sustained per 1000 EUR. 32 of 32 rows passed their check.",
        true);
    assert_in(text, "> **Measured by different commits of fabench: L0 ", true);
    assert_in(text, "They differ in fabench", false); /* not in a bullet too */
    assert_before(text, "L1 is the fastest", "Measured by different commits");
    assert_before(text, "Measured by different commits", "## Comparable?");
    assert_in(text, "(2 labels, 2 boards, 2 records)", true);
    assert_in(
        text,
        "L0 runs at 66.7 % of the speed of L1 over the 16 points that both have (burst): SM clock 1000 MHz against "
        "1500 (-33.3 %); at its power cap 80 % of the time against 0 %; power limit 300 W against 700 W; its GEMM "
        "ceiling is -25.0 %.",
        true);
    assert_non_null(strstr(text, "of the set"));
    assert_before(strstr(text, "of the set"), " sustained |", " burst |");
    assert_before(text, "| price, EUR | memory |", "sustained TFLOPS per 1000 EUR");
    assert_before(text, "sustained TFLOPS per 1000 EUR", "burst TFLOPS per 1000 EUR");
    assert_in(text, " 80 GB |", true);
    assert_before(text, "| sustained TFLOPS |", "| burst TFLOPS |");
    free(text);
    make(3, 3); /* not all have sustained figures; L2 is within the intervals of L1, and its board is L1's */
    text = page_of(false);
    assert_in(text, "150.0 TFLOPS burst; L0 has 100.0 (-33.3 %), L2 has 149.9 (-0.1 %, a tie: the intervals overlap).",
              true);
    assert_in(text, "L1 has a sustained mean, 120.0, which not all have.", true);
    assert_in(text, "(3 labels, 2 boards, 3 records)", true);
    free(text);
}

static void small_figures_are_gflops(void **state)
{
    (void)state;
    add_fwd(0, "a", 0.2);
    make(1, 1);
    char *text = page_of(false);
    assert_in(text, "burst GFLOPS", true);
    assert_in(text, "**200.0**", true);
    assert_in(text, "burst TFLOPS", false);
    free(text);
    text = page_of(true);
    assert_in(text, ",a,,0.2,", true); /* the CSV has TFLOPS always */
    free(text);
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
#define STATUS(want, price, ...)                                                                                       \
    do {                                                                                                               \
        const char *const words[] = {__VA_ARGS__};                                                                     \
        assert_int_equal(read_arguments((int)(sizeof words / sizeof words[0]), words, price, &read), want);            \
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
        cmocka_unit_test_setup_teardown(page_contents, begin, finish),
        cmocka_unit_test_setup_teardown(page_begins_with_the_verdict, begin, finish),
        cmocka_unit_test_setup_teardown(small_figures_are_gflops, begin, finish),
        cmocka_unit_test(labels_and_prices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
