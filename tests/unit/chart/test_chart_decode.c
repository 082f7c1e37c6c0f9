/* Charts of decode: in GB/s, beside the read ceiling, on pages of their own. */
#include "tests/unit/unit_help.h"

#include "cmd/chart/chart.h"
#include "cmd/chart/chart_data.h"
#include "cmd/record/record_row.h"

enum { ROWS = 5 };
static struct record_row rows[ROWS];
static struct record_file file = {.rows = rows, .count = ROWS};

/* Rows 0 to 2: caches of 1024 to 4096 keys at 1, 2, 3 ms; row 3 has half of the speed of row 2 and a fault. Row 4: a
 * forward of 3 TFLOPS. */
static void begin(void)
{
    memset(rows, 0, sizeof rows);
    for (int i = 0; i < ROWS; i++) {
        struct record_row *row = &rows[i];
        const bool is_decode = i < 4;
        record_row_clear(row);
        problem_key_clear(&row->key);
        row->key.mode = is_decode ? MODE_DECODE : MODE_FWD;
        row->key.dtype = ATTN_BF16;
        row->key.causal = 1;
        row->key.batch = 4;
        row->key.q_heads = row->key.kv_heads = 2;
        row->key.q_len = is_decode ? 1 : 512;
        row->key.kv_len = is_decode ? 1024 << (i < 3 ? i : 2) : 512;
        row->key.head_dim = 64;
        row->key.layout = ATTN_BSHD;
        row->key.window_left = row->key.window_right = -1;
        row->key.dropout = 0;
        row->key.dist = FILL_NORMAL;
        problem_key_complete(&row->key);
        snprintf(row->device, sizeof row->device, "board");
        snprintf(row->impl, sizeof row->impl, i == 3 ? "naive" : "fused_sm90");
        row->status = STATUS_OK;
        row->check = i == 3 ? CHECKED_FAIL : CHECKED_PASS;
        row->time_ms = i + 1;
        row->flops = is_decode ? 1e9 : 15e12 * 1e-3;
        row->min_gb = is_decode ? 0.6 : 0.001;
        row->time_ms_ci_lo = row->time_ms * 0.5;
        row->time_ms_ci_hi = row->time_ms * 2;
        row->tflops_sustained = i == 0 ? 0.5 : NAN; /* 1e9 FLOPs in 2 ms */
        row->read_gb_per_s = is_decode ? 1200 + 100 * (i < 3 ? i : 2) : NAN;
        row->gemm_tflops = is_decode ? NAN : 700;
    }
}

static void points_are_in_gb_per_s(void **state)
{
    (void)state;
    struct chart_set set;
    struct chart_point *points;
    begin();
    const struct chart_input input = {.files = &file, .file_count = 1};
    chart_set_make(&set, &input);
    assert_int_equal(set.panel_count, 2);
    const struct chart_panel *fwd = &set.panels[0], *decode = &set.panels[1];
    assert_string_equal(chart_unit(&set, fwd), "TFLOPS");
    assert_string_equal(chart_unit(&set, decode), "GB/s");
    assert_int_equal(chart_family_panels(&set, 0), 1);
    assert_int_equal(chart_family_panels(&set, 1), 1);
    for (int i = 0; i < set.series_count; i++) {
        const bool is_naive = strcmp(set.series[i].impl, "naive") == 0;
        const int count = chart_points(&set, decode, &set.series[i], CHART_TFLOPS, &points);
        if (count) {
            assert_int_equal(count, is_naive ? 1 : 3);
            assert_int_equal(points[0].n, is_naive ? 4096 : 1024);
            assert_true(fabs(points[0].value - (is_naive ? 150 : 600)) < 1e-9); /* 0.6e9 bytes in 4 ms, 1 ms */
            assert_true(fabs(points[0].lo - (is_naive ? 75 : 300)) < 1e-9);
            assert_true(fabs(points[0].hi - (is_naive ? 300 : 1200)) < 1e-9);
            assert_int_equal(points[0].is_failed, is_naive);
        }
        free(points);
        if (chart_points(&set, decode, &set.series[i], CHART_SUSTAINED, &points))
            assert_true(fabs(points[0].value - 300) < 1e-6);
        free(points);
        if (chart_points(&set, fwd, &set.series[i], CHART_TFLOPS, &points))
            assert_true(fabs(points[0].value - 3) < 1e-9);
        free(points);
    }
    assert_int_equal(chart_ceiling(&set, decode, 0, &points), 3);
    assert_true(points[0].value == 1200 && points[2].value == 1400);
    free(points);
    assert_int_equal(chart_ceiling(&set, fwd, 0, &points), 1);
    assert_true(points[0].value == 700);
    free(points);
    chart_set_free(&set);
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in:\n%.3000s", part, text);
}

static void lacks(const char *text, const char *part)
{
    if (strstr(text, part))
        fail_msg("\"%s\" is in:\n%.3000s", part, text);
}

/* Draws into the folder; returns what was printed, which the caller frees. */
static char *draw(enum plot_format format)
{
    const struct chart_input input = {.files = &file, .file_count = 1};
    FILE *const terminal = stdout;
    char *text = NULL;
    size_t bytes = 0;
    int images;
    stdout = open_memstream(&text, &bytes);
    assert_non_null(stdout);
    const int status = charts_write(&input, help_folder, format, 100, false, &images);
    fclose(stdout);
    stdout = terminal;
    assert_int_equal(status, EXIT_SUCCESS);
    return text;
}

static void pages_of_their_own(void **state)
{
    (void)state;
    begin();
    free(draw(PLOT_SVG));
    const char *text = help_read(help_path("bandwidth-decode-bf16.gp"));
    has(text, "'Attention against a cache, GB/s, decode causal d=64, bf16'");
    has(text, "set ylabel 'GB/s'");
    has(text, "set xlabel 'keys in the cache'");
    has(text, "title 'read ceiling'");
    has(text, "Ceiling: as many bytes, only read");
    lacks(text, "TFLOPS");
    lacks(text, "GEMM");
    text = help_read(help_path("bandwidth-decode-bf16.dat"));
    has(text, "n, GB/s, low, high");
    has(text, "\n1024,600,300,1200\n");
    lacks(text, "fwd");
    has(help_read(help_path("bandwidth-decode-causal-d64-bf16.gp")), "set ylabel 'GB/s'");
    has(help_read(help_path("sustained-decode-bf16.gp")), "set ylabel 'GB/s, sustained'");
    text = help_read(help_path("tflops-bf16.gp"));
    has(text, "set ylabel 'TFLOPS'");
    has(text, "title 'GEMM ceiling'");
    lacks(text, "GB/s");
    text = help_read(help_path("tflops-bf16.dat"));
    has(text, "\n512,3,");
    lacks(text, "decode");
}

/* With gnuplot and with bars of text. */
static void on_the_terminal(void **state)
{
    (void)state;
    char *const path = strdup(getenv("PATH"));
    begin();
    for (int has_path = 0; has_path < 2; has_path++) {
        setenv("PATH", has_path ? path : "/nonexistent", 1);
        char *text = draw(PLOT_TERM);
        has(text, "decode causal d=64 bf16, GB/s");
        has(text, "fwd causal d=64 bf16, TFLOPS");
        has(text, "read ceiling");
        if (!has_path) { /* bars */
            has(text, "fused_sm90 ");
            has(text, "- 1400\n");
            has(text, "# 600.0\n");
            has(text, " FAILED\n");
        }
        free(text);
    }
    free(path);
}

/* Several batches and head counts: over the length a panel for each pair of them, with a ceiling of its own, and one
 * for unequal lengths; over the batch one for each cache length, in us. */
static void panels_of_batches(void **state)
{
    (void)state;
    struct chart_set set;
    struct chart_point *points;
    char title[64];
    begin();
    rows[1].key.kv_len = 1024, rows[1].key.batch = 8; /* beside row 0, with a batch of 4 */
    rows[2].key.kv_len = 1024, rows[2].key.q_heads = 6;
    snprintf(rows[3].key.lengths, sizeof rows[3].key.lengths, "list:4k:9");
    struct chart_input input = {.files = &file, .file_count = 1};
    chart_set_make(&set, &input);
    static const char *const titles[] = {
        "fwd causal d=64", "decode causal d=64, 2 on 2 heads, batch 4", "decode causal d=64, 2 on 2 heads, batch 8",
        "decode causal d=64, 2 on 2 heads, unequal lengths", "decode causal d=64, 6 on 2 heads, batch 4"};
    assert_int_equal(set.panel_count, 5);
    for (int i = 0; i < 5; i++)
        assert_string_equal(chart_panel_title(&set.panels[i], title, sizeof title), titles[i]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(chart_ceiling(&set, &set.panels[1 + i], 0, &points), 1);
        assert_true(points[0].value == 1200 + 100 * i);
        free(points);
    }
    chart_set_free(&set);
    input.over_batch = true;
    chart_set_make(&set, &input);
    assert_true(set.panel_count == 2 && set.has_batches && set.axis == AXIS_BATCH);
    assert_string_equal(chart_panel_title(&set.panels[0], title, sizeof title),
                        "decode causal d=64, 2 on 2 heads, keys 1024");
    assert_int_equal(chart_points(&set, &set.panels[0], &set.series[0], CHART_TIME, &points), 2);
    assert_true(points[0].n == 4 && fabs(points[0].value - 1000) < 1e-9 && fabs(points[0].hi - 2000) < 1e-9);
    assert_true(points[1].n == 8 && fabs(points[1].value - 2000) < 1e-9);
    free(points);
    chart_set_free(&set);
    free(draw(PLOT_SVG));
    const char *text = help_read(help_path("us-batch-decode-bf16.gp"));
    has(text, "set ylabel 'us'");
    has(text, "set xlabel 'sequences of a batch'");
    lacks(text, "fwd");
    has(help_read(help_path("us-batch-decode-bf16.dat")), "n, us, low, high\n4,1000,500,2000\n8,2000,");
    has(help_read(help_path("bandwidth-decode-causal-d64-bf16-h2x2-b8.gp")), "batch 8");
    has(help_read(help_path("bandwidth-decode-causal-d64-bf16-h2x2-unequal.gp")), "unequal lengths");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_are_in_gb_per_s),
        cmocka_unit_test(pages_of_their_own),
        cmocka_unit_test(on_the_terminal),
        cmocka_unit_test(panels_of_batches),
    };
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}
