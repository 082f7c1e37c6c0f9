/* Charts: panels, series and points from records; what the scripts say; gnuplot itself where it is installed; and what
 * happens where it is absent or fails. */
#include "tests/unit/unit_help.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "cmd/chart/chart.h"
#include "cmd/chart/chart_data.h"
#include "cmd/base/log.h"

#ifndef TEST_DATA_DIR
#define TEST_DATA_DIR "tests/unit/data"
#endif

#define FILL(field, text) snprintf(field, sizeof(field), "%s", text)

static char *real_path;

static int finish(void **state)
{
    setenv("PATH", real_path, 1);
    return help_remove_folder(state);
}

static bool exists(const char *name) { return access(help_path(name), F_OK) == 0; }

/* The text of a file of the folder; valid until the second call after it. */
static const char *slurp(const char *name)
{
    static char texts[2][1 << 20];
    static int next;
    char *text = texts[next++ % 2];
    FILE *in = fopen(help_path(name), "r");
    if (!in)
        fail_msg("%s: %s", name, strerror(errno));
    text[fread(text, 1, sizeof texts[0] - 1, in)] = '\0';
    fclose(in);
    return text;
}

static void assert_lacks(const char *text, const char *part)
{
    if (strstr(text, part))
        fail_msg("\"%s\" is in:\n%.2000s", part, text);
}

/* The records of a test; load and make_file free what was in one. */
static struct record_file file, files[3];

static void load(const char *name, struct record_file *into)
{
    struct attn_message why;
    char path[256];
    snprintf(path, sizeof path, "%s/%s", TEST_DATA_DIR, name);
    record_file_free(into);
    if (!record_read(path, into, &why))
        fail_msg("%s", why.text);
}

static const struct overlay *overlay; /* for draw; NULL = none */

static int images; /* drawn by the last draw */

/* Runs charts_write with stdout and stderr going to files in the folder. */
static int draw(const struct record_file *from, int count, enum plot_format format, int width)
{
    const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    fflush(stdout);
    assert_true(out >= 0 && err >= 0);
    const int to_out = open(help_path("stdout.txt"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int to_err = open(help_path("stderr.txt"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(to_out >= 0 && to_err >= 0);
    dup2(to_out, STDOUT_FILENO);
    dup2(to_err, STDERR_FILENO);
    const struct chart_input input = {.files = from, .file_count = count, .overlay = overlay};
    const int result = charts_write(&input, help_folder, format, width, false, &images);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    close(to_out);
    close(to_err);
    return result;
}

static bool has_gnuplot(void) { return system("command -v gnuplot >/dev/null 2>&1") == 0; }

/* Prints a note where a test needs gnuplot and it is not installed. */
#define NEED_GNUPLOT() \
    do { \
        if (!has_gnuplot()) { \
            print_message("skipped: gnuplot absent\n"); \
            skip(); \
        } \
    } while (0)

/* A file of rows made here. */
static void make_file(struct record_file *into, const char *path, int rows)
{
    record_file_free(into);
    memset(into, 0, sizeof *into);
    into->path = strdup(path);
    into->header = json_pack("{s:s, s:i, s:b}", "type", "header", "schema", 1, "synthetic", 1);
    into->rows = calloc((size_t)rows + 1, sizeof *into->rows);
    assert_non_null(into->rows);
    into->count = rows;
    for (int i = 0; i < rows; i++) {
        struct record_row *row = &into->rows[i];
        record_row_clear(row);
        FILL(row->device, "A GPU");
        FILL(row->arch, "sm_90");
        FILL(row->impl, "mine");
        row->key.mode = ATTN_FWD;
        row->key.dtype = ATTN_FP16;
        row->key.layout = ATTN_BSHD;
        row->key.dist = FILL_NORMAL;
        row->status = STATUS_OK;
        row->check = CHECKED_PASS;
        row->key.causal = 0;
        row->key.batch = 4;
        row->key.q_heads = row->key.kv_heads = 8;
        row->key.q_len = row->key.kv_len = 1024 << i;
        row->key.head_dim = 64;
        row->flops = 1e12;
        row->time_ms = i + 1;
        row->time_ms_ci_lo = i + 0.9;
        row->time_ms_ci_hi = i + 1.1;
        row->speedup_vs_naive = 2;
        row->workspace_mb = 0;
        row->rel_rms_err = 0.001;
        row->gemm_tflops = 700;
    }
}

static void rows_become_panels_and_series(void **state)
{
    (void)state;
    static const char *const titles[] = {"fwd full d=64", "fwd causal d=64", "fwd full d=128", "fwd causal d=128",
                                         "bwd full d=64", "bwd causal d=64", "bwd full d=128", "bwd causal d=128"};
    struct chart_set set;
    char title[64];
    load("sweep_gpu.jsonl", &file);
    chart_set_make(&set, &(struct chart_input){.files = &file, .file_count = 1});
    assert_int_equal(set.panel_count, 9);
    for (int i = 0; i < 8; i++) {
        assert_string_equal(chart_panel_title(&set.panels[i], title, sizeof title), titles[i]);
        assert_int_equal(set.panels[i].dtype, ATTN_BF16);
    }
    assert_int_equal(set.panels[8].dtype, ATTN_FP16);
    assert_int_equal(set.series_count, 3);
    assert_string_equal(set.series[0].label, "fused_sm80");
    assert_string_equal(set.series[1].label, "cudnn");
    assert_string_equal(set.series[2].label, "naive");
    assert_true(set.is_synthetic);
    assert_false(set.has_unchecked);

    struct chart_point *points;
    int count = chart_points(&set, &set.panels[0], &set.series[1], CHART_TFLOPS, &points);
    assert_int_equal(count, 5);
    for (int i = 0; i < count; i++) {
        assert_int_equal(points[i].n, 1024 << i);
        assert_true(points[i].lo <= points[i].value && points[i].value <= points[i].hi);
        assert_false(points[i].is_failed);
        assert_false(points[i].is_after_gap);
    }
    free(points);
    /* The failed row has the value of its time, marked as failed. The row that ran out of memory has no point. */
    count = chart_points(&set, &set.panels[7], &set.series[0], CHART_TFLOPS, &points);
    assert_int_equal(count, 5);
    assert_true(points[4].is_failed);
    assert_true(points[4].value > 0);
    free(points);
    count = chart_points(&set, &set.panels[4], &set.series[2], CHART_TFLOPS, &points);
    assert_int_equal(count, 4);
    free(points);
    count = chart_ceiling(&set, &set.panels[0], 0, &points);
    assert_int_equal(count, 5);
    assert_true(points[0].value > 600);
    free(points);
    count = chart_bound(&set, &set.panels[0], true, &points);
    assert_int_equal(count, 5);
    assert_true(points[0].value == 0.01);
    free(points);
    count = chart_bound(&set, &set.panels[0], false, &points);
    assert_true(count == 5 && points[0].value == 0.005);
    free(points);
    chart_set_free(&set);
}

static void gaps_repeats_and_strangers(void **state)
{
    (void)state;
    struct chart_set set;
    struct chart_point *points;
    make_file(&file, "x.jsonl", 9);
    file.rows[1].status = STATUS_OOM;  /* 2k did not run: a gap */
    file.rows[3].check = CHECKED_FAIL; /* 8k failed: the line breaks behind it too */
    FILL(file.rows[5].impl, "null");   /* no speed of its own */
    file.rows[6].key.mode = -1;        /* a record that does not say */
    file.rows[7].key.dtype = -1;
    file.rows[8].key.q_len = file.rows[8].key.kv_len = 1024; /* 1k again: the later row counts */
    file.rows[8].time_ms = 500;
    file.rows[8].time_ms_ci_lo = file.rows[8].time_ms_ci_hi = NAN;
    chart_set_make(&set, &(struct chart_input){.files = &file, .file_count = 1});
    assert_int_equal(set.panel_count, 1);
    assert_int_equal(set.series_count, 1);
    assert_int_equal(chart_points(&set, set.panels, set.series, CHART_TFLOPS, &points), 4);
    assert_int_equal(points[0].n, 1024);
    assert_true(fabs(points[0].value - 2) < 1e-9 && points[0].lo == points[0].value);
    assert_true(points[1].n == 4096 && points[1].is_after_gap);
    assert_true(points[2].n == 8192 && points[2].is_failed && !points[2].is_after_gap);
    assert_true(points[3].n == 16384 && points[3].is_after_gap);
    free(points);
    chart_set_free(&set);

    file.rows[0].key.kv_len = 77; /* other keys than queries: a line of its own */
    chart_set_make(&set, &(struct chart_input){.files = &file, .file_count = 1});
    assert_int_equal(set.series_count, 2);
    assert_string_equal(set.series[1].label, "mine, kv 77");
    assert_string_equal(set.series[0].color, set.series[1].color);
    assert_int_not_equal(set.series[0].dash, set.series[1].dash);
    chart_set_free(&set);
}

static void files_are_told_apart(void **state)
{
    (void)state;
    struct chart_set set;
    make_file(&files[0], "a/run.jsonl", 2);
    make_file(&files[1], "b/new.jsonl", 2);
    make_file(&files[2], "b/run.jsonl", 2);
    FILL(files[1].rows[0].device, "Another GPU");
    chart_set_make(&set, &(struct chart_input){.files = files, .file_count = 2});
    assert_string_equal(set.series[0].label, "mine, A GPU");
    assert_string_equal(set.series[1].label, "mine, Another GPU");
    assert_string_equal(set.series[0].color, set.series[1].color);
    assert_int_not_equal(set.series[0].dash, set.series[1].dash);
    chart_set_free(&set);
    FILL(files[1].rows[0].device, "A GPU");
    chart_set_make(&set, &(struct chart_input){.files = files, .file_count = 2});
    assert_string_equal(set.file_labels[0], "run");
    assert_string_equal(set.file_labels[1], "new");
    chart_set_free(&set);
    chart_set_make(&set, &(struct chart_input){.files = files, .file_count = 3});
    assert_string_equal(set.file_labels[0], "a/run");
    assert_string_equal(set.file_labels[2], "b/run");
    chart_set_free(&set);
}

static void styles_are_stable_and_distinct(void **state)
{
    (void)state;
    static const char *const names[] = {"cudnn", "naive", "fused_sm80", "fused_sm90", "mine", "yours", "theirs", "fa3"};
    enum { COUNT = sizeof names / sizeof names[0] };
    struct chart_set all, one;
    make_file(&file, "x.jsonl", COUNT);
    for (int i = 0; i < COUNT; i++)
        FILL(file.rows[i].impl, names[i]);
    chart_set_make(&all, &(struct chart_input){.files = &file, .file_count = 1});
    assert_int_equal(all.series_count, COUNT);
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(all.series[i].color, all.series[k].color);
    file.count = 1;
    for (int i = 0; i < 4; i++) { /* listed implementations have the same style alone and together with others */
        FILL(file.rows[0].impl, names[i]);
        chart_set_make(&one, &(struct chart_input){.files = &file, .file_count = 1});
        for (int k = 0; k < COUNT; k++)
            if (strcmp(all.series[k].impl, names[i]) == 0) {
                assert_string_equal(one.series[0].color, all.series[k].color);
                assert_int_equal(one.series[0].point, all.series[k].point);
            }
        chart_set_free(&one);
    }
    chart_set_free(&all);
    file.count = COUNT;
}

static void conditions_are_said(void **state)
{
    (void)state;
    struct chart_set set;
    char text[400];
    load("sweep_gpu.jsonl", &file);
    chart_set_make(&set, &(struct chart_input){.files = &file, .file_count = 1});
    chart_condition_text(&set, (struct chart_family){ATTN_BF16, false}, text, sizeof text);
    assert_string_equal(text,
                        "bf16, 16384 tokens (batch = tokens / n), heads x d = 2048, bshd, L2 cold, inputs N(0,1)");
    chart_device_text(&set, 0, (struct chart_family){ATTN_BF16, false}, text, sizeof text);
    assert_string_equal(text, "NVIDIA H200, driver 580.65, commit 0000000");
    chart_set_free(&set);
    make_file(&file, "x.jsonl", 2);
    file.rows[1].key.kv_heads = file.rows[0].key.kv_heads = 2;
    FILL(file.rows[1].driver, "1");
    FILL(file.rows[0].driver, "2");
    file.rows[1].key.dist = FILL_UNIFORM;
    file.rows[0].check = CHECKED_OFF;
    chart_set_make(&set, &(struct chart_input){.files = &file, .file_count = 1});
    assert_true(set.has_unchecked);
    chart_condition_text(&set, (struct chart_family){ATTN_FP16, false}, text, sizeof text);
    assert_string_equal(text, "fp16, batch 4, 8 heads on 2 kv heads, bshd, inputs mixed");
    chart_device_text(&set, 0, (struct chart_family){ATTN_FP16, false}, text, sizeof text);
    assert_string_equal(text, "A GPU, driver mixed");
    chart_set_free(&set);
    file.rows[0].key.batch = INT64_MAX; /* a product that overflows is none */
    chart_set_make(&set, &(struct chart_input){.files = &file, .file_count = 1});
    chart_condition_text(&set, (struct chart_family){ATTN_FP16, false}, text, sizeof text);
    assert_has(text, "batch varies");
    chart_set_free(&set);
}

/* Scripts and data are written whether or not gnuplot is there: here it is not. */
static void absent_gnuplot_leaves_scripts(void **state)
{
    (void)state;
    load("sweep_gpu.jsonl", &file);
    setenv("PATH", "/nonexistent", 1);
    assert_int_equal(draw(&file, 1, PLOT_SVG, 110), EXIT_OK);
    const char *text = slurp("stderr.txt");
    assert_has(text, "gnuplot is not installed: 17 chart scripts and their data are in ");
    assert_int_equal(strchr(text, '\n') - text, (long)strlen(text) - 1); /* one line */
    text = slurp("tflops-bwd-causal-d128-bf16.gp");
    assert_has(text, "set terminal svg size ");
    assert_has(text, " noenhanced ");
    assert_lacks(text, "mouse");
    assert_has(text, "set output 'tflops-bwd-causal-d128-bf16.svg'\n");
    assert_has(text,
               "set logscale x 2\nset xrange [819.2:20480]\nset xtics ('1K' 1024, '2K' 2048, '4K' 4096, '8K' 8192, "
               "'16K' 16384)\n");
    assert_has(text, "set yrange [0:*]");
    assert_has(text, "using 1:2:3:4 with yerrorlines lc rgb '#56B4E9' pt 9");
    assert_has(text, "with points lc rgb '#FF0000' pt 8 ");
    assert_has(text, "with lines lc rgb '#000000' dt 2");
    assert_has(text, "title 'GEMM ceiling'");
    assert_has(text, "'failed its check'");
    assert_has(text, "'NVIDIA H200, driver 580.65, commit 0000000'");
    assert_has(text, "SYNTHETIC DATA'");
    text = slurp("tflops-bwd-causal-d128-bf16.dat");
    assert_has(text, "\n\n\n# bwd causal d=128, fused_sm80, failed its check: n, TFLOPS, low, high\n16384,");
    text = slurp("error-bf16.gp");
    assert_has(text, "set logscale y\nset yrange [0.001:0.1]");
    assert_has(text, "title 'bound'");
    assert_has(text, "title 'bound of naive'");
    text = slurp("memory-bf16.gp");
    assert_has(text, "set ytics ('0' "); /* forward needs no workspace, and a logarithm has no zero */
    assert_true(exists("speedup-bf16.gp"));
    assert_true(exists("tflops-bf16.dat"));
    assert_true(exists("tflops-fwd-full-d64-bf16.dat"));
    assert_true(exists("tflops-bwd-causal-d128-fp16.gp"));
    assert_false(exists("tflops-fwd-full-d64-fp16.gp"));
    assert_false(exists("tflops-bf16.svg"));
}

static void data_never_says_nan(void **state)
{
    (void)state;
    load("sweep_gpu.jsonl", &files[0]);
    make_file(&files[1], "x.jsonl", 5);
    files[1].rows[0].key.dtype = ATTN_BF16;
    files[1].rows[1].time_ms = NAN;
    files[1].rows[2].flops = NAN;
    files[1].rows[3].workspace_mb = files[1].rows[3].rel_rms_err = files[1].rows[3].speedup_vs_naive = NAN;
    files[1].rows[3].time_ms_ci_lo = NAN;
    files[1].rows[4].rel_rms_err = INFINITY;
    files[1].rows[4].gemm_tflops = INFINITY;
    setenv("PATH", "/nonexistent", 1);
    assert_int_equal(draw(files, 2, PLOT_SVG, 110), EXIT_OK);
    static const char *const names[] = {"tflops-bf16.dat", "speedup-bf16.dat", "memory-bf16.dat", "error-bf16.dat",
                                        "tflops-fp16.dat", "speedup-fp16.dat", "memory-fp16.dat", "error-fp16.dat"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = slurp(names[i]);
        assert_lacks(text, "nan");
        assert_lacks(text, "inf");
    }
}

static void hostile_names_stay_text(void **state)
{
    (void)state;
    make_file(&file, "x.jsonl", 3);
    for (int i = 0; i < 3; i++) {
        FILL(file.rows[i].impl, "a'b`touch pwned`\"$(x)\n@m");
        FILL(file.rows[i].device, "it's <GPU> & `touch pwned` {x}_y\\n");
    }
    const int result = draw(&file, 1, PLOT_SVG, 110);
    assert_int_equal(result, EXIT_OK);
    const char *text = slurp("tflops-fp16.gp");
    assert_has(text, "title 'a''b`touch pwned`\"$(x) @m'");
    assert_has(text, "'it''s <GPU> & `touch pwned` {x}_y\\n'");
    assert_false(exists("pwned"));
    assert_int_not_equal(access("pwned", F_OK), 0);
    if (has_gnuplot()) {
        text = slurp("stderr.txt");
        assert_string_equal(text, "");
        text = slurp("tflops-fp16.svg");
        assert_has(text, "a'b`touch pwned`\"$(x) @m");
        assert_has(text, "it's &lt;GPU> &amp; `touch pwned` {x}_y\\n");
    }
}

/* Published points: marks beside rows of their own problem, in the TFLOPS charts alone, with their source. */
static void published_points_are_drawn_apart(void **state)
{
    struct overlay_point points[] = {
        {.impl = "fa3", .mode = "fwd", .dtype = "fp16", .q_len = 1024, .head_dim = 64, .tflops = 777},
        {.impl = "fa3", .mode = "fwd", .dtype = "fp16", .q_len = 1024, .head_dim = 64, .batch = 5, .tflops = 888},
        {.impl = "fa3", .mode = "fwd", .dtype = "fp16", .q_len = 1 << 20, .head_dim = 64, .tflops = 999},
        {.impl = "fa2", .mode = "bwd", .dtype = "fp16", .q_len = 1024, .head_dim = 64, .tflops = 555}};
    struct overlay published = {.source = "a paper's table", .points = points, .count = 4};
    (void)state;
    make_file(&file, "a.jsonl", 3);
    overlay = &published;
    assert_int_equal(draw(&file, 1, PLOT_SVG, 110), EXIT_OK);
    const char *text = slurp("tflops-fp16.dat");
    assert_has(text, "fa3, published: n, TFLOPS\n1024,777\n");
    assert_lacks(text, "888"); /* another batch */
    assert_lacks(text, "999"); /* a length that no row has */
    assert_lacks(text, "fa2"); /* a direction that was not run */
    text = slurp("tflops-fp16.gp");
    assert_has(text, "'fa3 (published)'");
    assert_has(text, "'Published, not measured here: a paper''s table'");
    assert_lacks(text, "fa2");
    text = slurp("memory-fp16.gp");
    assert_lacks(text, "fa3");
    setenv("PATH", help_folder, 1); /* no gnuplot: bars */
    assert_int_equal(draw(&file, 1, PLOT_TERM, 80), EXIT_OK);
    setenv("PATH", real_path, 1);
    text = slurp("stdout.txt");
    assert_has(text, " 777.0 *\n");
    assert_has(text, "* published, not measured here: a paper's table\n");
    points[0].q_len = 4; /* no remaining point has a row */
    assert_int_equal(draw(&file, 1, PLOT_SVG, 110), EXIT_OK);
    text = slurp("stderr.txt");
    assert_has(text, "none of its 4 points");
    overlay = NULL;
}

/* Sustained figures have their own page; without such rows there is no page. */
static void sustained_is_not_burst(void **state)
{
    (void)state;
    make_file(&file, "a.jsonl", 3);
    assert_int_equal(draw(&file, 1, PLOT_SVG, 110), EXIT_OK);
    assert_false(exists("sustained-fp16.gp"));
    file.rows[1].tflops_sustained = 123;
    assert_int_equal(draw(&file, 1, PLOT_SVG, 110), EXIT_OK);
    const char *text = slurp("sustained-fp16.dat");
    assert_has(text, "\n2048,123,123,123\n");
    assert_lacks(text, "1024");
    text = slurp("tflops-fp16.dat");
    assert_lacks(text, "123,");
}

/* A device below 1 TFLOPS is drawn in GFLOPS; a GEMM or a row above it is enough for TFLOPS. */
static void units_fit(void **state)
{
    (void)state;
    make_file(&file, "a.jsonl", 2);
    for (int i = 0; i < 2; i++) {
        file.rows[i].flops = 1e9;
        file.rows[i].time_ms = 4; /* 0.00025 TFLOPS */
        file.rows[i].time_ms_ci_lo = file.rows[i].time_ms_ci_hi = 4;
        file.rows[i].gemm_tflops = NAN;
    }
    assert_int_equal(draw(&file, 1, PLOT_SVG, 110), EXIT_OK);
    const char *text = slurp("tflops-fp16.dat");
    assert_has(text, ": n, GFLOPS, low, high\n1024,250,250,250\n");
    text = slurp("tflops-fp16.gp");
    assert_has(text, "set ylabel 'GFLOPS'\n");
    assert_lacks(text, "TFLOPS'");
    file.rows[0].gemm_tflops = 2;
    assert_int_equal(draw(&file, 1, PLOT_SVG, 110), EXIT_OK);
    text = slurp("tflops-fp16.gp");
    assert_has(text, "set ylabel 'TFLOPS'\n");
    text = slurp("tflops-fp16.dat");
    assert_has(text, "1024,0.25,");
}

/* The panels of one page share one axis, which holds the highest point of all. */
static void one_axis_a_page(void **state)
{
    (void)state;
    make_file(&file, "a.jsonl", 2);
    file.rows[1].key.causal = !file.rows[0].key.causal; /* another panel, four times as fast */
    file.rows[0].flops = file.rows[1].flops = 1e12;
    file.rows[0].time_ms = file.rows[0].time_ms_ci_lo = file.rows[0].time_ms_ci_hi = 10; /* 100 TFLOPS */
    file.rows[1].time_ms = file.rows[1].time_ms_ci_hi = 2.5;
    file.rows[1].time_ms_ci_lo = 2; /* up to 500 */
    file.rows[0].gemm_tflops = file.rows[1].gemm_tflops = NAN;
    assert_int_equal(draw(&file, 1, PLOT_SVG, 110), EXIT_OK);
    const char *text = slurp("tflops-fp16.gp");
    assert_has(text, "\nset yrange [0:530]\n");
    const char *again = strstr(text, "set yrange");
    assert_non_null(again);
    assert_has(strstr(again + 1, "set yrange"), "set yrange [0:1]"); /* next is the frame around all panels */
}

/* A report's lines: a colour for each file, whatever the implementations are called. */
static void named_files_have_colors_of_their_own(void **state)
{
    const char *const labels[] = {"H200", "B200"};
    struct chart_set set;
    (void)state;
    make_file(&files[0], "a.jsonl", 2);
    make_file(&files[1], "b.jsonl", 2);
    FILL(files[1].rows[1].impl, "naive");
    chart_set_make(&set, &(struct chart_input){.files = files, .file_count = 2, .labels = labels});
    assert_int_equal(set.series_count, 3);
    assert_string_equal(set.series[0].label, "H200");
    assert_string_equal(set.series[1].label, "B200");
    assert_string_equal(set.series[2].label, "B200, naive");
    assert_string_not_equal(set.series[0].color, set.series[1].color);
    assert_string_equal(set.series[1].color, set.series[2].color);
    assert_int_not_equal(set.series[1].dash, set.series[2].dash);
    chart_set_free(&set);
}

static void gnuplot_draws_everything(void **state)
{
    (void)state;
    static const char *const names[] = {"tflops-bf16",
                                        "speedup-bf16",
                                        "memory-bf16",
                                        "error-bf16",
                                        "tflops-fwd-causal-d64-bf16",
                                        "tflops-bwd-causal-d128-fp16"};
    NEED_GNUPLOT();
    load("sweep_gpu.jsonl", &files[0]);
    load("sweep_other_gpu.jsonl", &files[1]);
    for (int count = 1; count <= 2; count++)
        for (int format = PLOT_SVG; format <= (count == 2 ? PLOT_PNG : PLOT_SVG); format++) {
            assert_int_equal(draw(files, count, (enum plot_format)format, 110), EXIT_OK);
            const char *text = slurp("stderr.txt");
            assert_string_equal(text, ""); /* gnuplot writes no warning */
            for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
                char name[80];
                snprintf(name, sizeof name, "%s.%s", names[i], format == PLOT_SVG ? "svg" : "png");
                text = slurp(name);
                assert_memory_equal(text, format == PLOT_SVG ? "<?xml" : "\x89PNG\r", 5);
                if (format == PLOT_SVG) {
                    assert_lacks(text, "<script");
                    assert_has(text, "fused_sm80");
                    assert_has(text, "16K");
                    assert_has(text, "</svg>");
                    if (count == 2 && strstr(names[i], "bf16")) /* it has no other row */
                        assert_has(text, "NVIDIA L40S");
                    else
                        assert_lacks(text, "NVIDIA L40S");
                }
            }
        }
}

/* A script can be run again by hand, in its help_folder, and draws the same. */
static void scripts_stand_alone(void **state)
{
    (void)state;
    char command[256];
    NEED_GNUPLOT();
    load("sweep_cpu.jsonl", &file);
    assert_int_equal(draw(&file, 1, PLOT_SVG, 110), EXIT_OK);
    const char *before = slurp("tflops-fp32.svg");
    assert_int_equal(unlink(help_path("tflops-fp32.svg")), 0);
    snprintf(command, sizeof command, "cd %s && gnuplot tflops-fp32.gp", help_folder);
    assert_int_equal(system(command), 0);
    const char *after = slurp("tflops-fp32.svg");
    assert_string_equal(before, after);
    assert_lacks(before, "GEMM"); /* no ceiling on this device */
}

static void edge_shapes_are_drawn(void **state)
{
    (void)state;
    NEED_GNUPLOT();
    make_file(&file, "x.jsonl", 4);
    file.count = 1; /* a single length */
    assert_int_equal(draw(&file, 1, PLOT_SVG, 110), EXIT_OK);
    const char *text = slurp("stderr.txt");
    assert_string_equal(text, "");
    file.count = 4; /* lengths between two powers of two, one of them failed, no bound known */
    for (int i = 0; i < 4; i++)
        file.rows[i].key.q_len = file.rows[i].key.kv_len = 1100 + 200 * i;
    for (int i = 0; i < 4; i++)
        file.rows[i].check = CHECKED_FAIL; /* nothing but failed points */
    assert_int_equal(draw(&file, 1, PLOT_SVG, 110), EXIT_OK);
    text = slurp("stderr.txt");
    assert_string_equal(text, "");
    text = slurp("tflops-fp16.gp");
    assert_has(text, "set xtics ('1100' 1100, '1700' 1700)");
}

static void failing_gnuplot_is_said(void **state)
{
    (void)state;
    FILE *fake = fopen(help_path("gnuplot"), "w");
    assert_non_null(fake);
    fprintf(fake, "#!/bin/sh\necho 'line 3: unknown or ambiguous terminal' >&2\n: > \"${2%%.gp}.svg\"\nexit 1\n");
    fclose(fake);
    assert_int_equal(chmod(help_path("gnuplot"), 0700), 0);
    make_file(&file, "x.jsonl", 2);
    setenv("PATH", help_folder, 1);
    assert_int_equal(draw(&file, 1, PLOT_SVG, 110), EXIT_IO);
    const char *text = slurp("stderr.txt");
    assert_has(text, "gnuplot (tflops-fp16): line 3: unknown or ambiguous terminal\n");
    assert_has(text, "ended with code 1");
    assert_false(exists("tflops-fp16.svg")); /* no half image */
    assert_true(exists("tflops-fp16.gp"));
}

static void unwritable_folder_is_said(void **state)
{
    (void)state;
    make_file(&file, "x.jsonl", 2);
    assert_int_equal(draw(&file, 0, PLOT_SVG, 110), EXIT_OK); /* nothing to draw */
    const char *text = slurp("stderr.txt");
    assert_has(text, "no timed row");
    assert_int_equal(mkdir(help_path("tflops-fp16.dat"), 0700), 0);
    assert_int_equal(draw(&file, 1, PLOT_SVG, 110), EXIT_IO);
    text = slurp("stderr.txt");
    assert_has(text, "tflops-fp16.dat: Is a directory");
    assert_int_equal(rmdir(help_path("tflops-fp16.dat")), 0);
    assert_int_equal(draw(&file, 1, PLOT_NONE, 110), EXIT_OK);
}

static void assert_lines(const char *text, int width)
{
    assert_null(strchr(text, '\f'));
    for (const char *line = text; *line;) {
        const int length = (int)strcspn(line, "\n");
        if (length > width)
            fail_msg("%d columns, not %d: %.*s", length, width, length, line);
        line += length + (line[length] == '\n');
    }
}

static void terminal_charts_fit(void **state)
{
    (void)state;
    load("sweep_gpu.jsonl", &files[0]);
    load("sweep_other_gpu.jsonl", &files[1]);
    for (int way = 0; way < 2; way++) { /* with gnuplot where it is, then without */
        for (int width = 60; width <= 110; width += 25) {
            assert_int_equal(draw(files, 1 + width % 2, PLOT_TERM, width), EXIT_OK);
            const char *text = slurp("stdout.txt");
            assert_lines(text, width);
            assert_has(text, "bwd causal d=128 bf16, TFLOPS");
            assert_has(text, "fused_sm80");
            assert_has(text, "FAILED");
            assert_has(text, "GEMM ceiling");
            text = slurp("stderr.txt");
            assert_string_equal(text, "");
        }
        setenv("PATH", "/nonexistent", 1);
    }
    const char *text = slurp("stdout.txt");
    assert_has(text, "16k "); /* the built-in bars */
    assert_has(text, "xxxx FAILED\n");
    assert_false(exists("tflops-bf16.gp"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_become_panels_and_series),
        cmocka_unit_test(gaps_repeats_and_strangers),
        cmocka_unit_test(files_are_told_apart),
        cmocka_unit_test(styles_are_stable_and_distinct),
        cmocka_unit_test(conditions_are_said),
        cmocka_unit_test_setup_teardown(absent_gnuplot_leaves_scripts, help_make_folder, finish),
        cmocka_unit_test_setup_teardown(data_never_says_nan, help_make_folder, finish),
        cmocka_unit_test_setup_teardown(hostile_names_stay_text, help_make_folder, finish),
        cmocka_unit_test_setup_teardown(gnuplot_draws_everything, help_make_folder, finish),
        cmocka_unit_test_setup_teardown(published_points_are_drawn_apart, help_make_folder, finish),
        cmocka_unit_test_setup_teardown(sustained_is_not_burst, help_make_folder, finish),
        cmocka_unit_test_setup_teardown(units_fit, help_make_folder, finish),
        cmocka_unit_test_setup_teardown(one_axis_a_page, help_make_folder, finish),
        cmocka_unit_test_setup_teardown(named_files_have_colors_of_their_own, help_make_folder, finish),
        cmocka_unit_test_setup_teardown(scripts_stand_alone, help_make_folder, finish),
        cmocka_unit_test_setup_teardown(edge_shapes_are_drawn, help_make_folder, finish),
        cmocka_unit_test_setup_teardown(failing_gnuplot_is_said, help_make_folder, finish),
        cmocka_unit_test_setup_teardown(unwritable_folder_is_said, help_make_folder, finish),
        cmocka_unit_test_setup_teardown(terminal_charts_fit, help_make_folder, finish),
    };
    real_path = strdup(getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(real_path);
    return failed;
}
