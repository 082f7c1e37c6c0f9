/* Files of published points: what is read, what is refused with its line, beside which rows a point stands. And what
 * the horizontal axis of charts shows, and which rows are one line, beyond dense attention. */
#include "tests/unit/unit_help.h"

#include "cmd/chart/chart_data.h"
#include "cmd/chart/overlay.h"

static char path[] = "/tmp/fabench-overlay-XXXXXX";
static struct attn_message why;

static int begin(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int end(void **state)
{
    (void)state;
    return unlink(path);
}

static bool read_text(const char *text, struct overlay *overlay)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
    why.text[0] = '\0';
    return overlay_read(path, overlay, &why);
}

#define NAMES "impl,mode,dtype,causal,q_len,head_dim,tflops\n"

static void refused(const char *text, const char *part)
{
    struct overlay overlay;
    if (read_text(text, &overlay))
        fail_msg("taken: %s", text);
    if (!strstr(why.text, part))
        fail_msg("got \"%s\", want ...%s...", why.text, part);
    assert_int_equal(overlay.count, 0);
}

static void good_files(void **state)
{
    struct overlay overlay;
    (void)state;
    assert_true(read_text("# where from\n# more\n\n" NAMES "fa3,fwd,bf16,1,4096,128,682.5\r\n", &overlay));
    assert_string_equal(overlay.source, "where from");
    assert_int_equal(overlay.count, 1);
    assert_string_equal(overlay.points[0].impl, "fa3");
    assert_int_equal(overlay.points[0].q_len, 4096);
    assert_int_equal(overlay.points[0].batch, 0);
    assert_true(overlay.points[0].tflops == 682.5);
    overlay_free(&overlay);
    /* Other orders, other columns, quotes, a last line without its end. */
    assert_true(read_text("tflops,note,head_dim,q_len,causal,dtype,mode,impl,l2\n"
                          "1.5,\"a, \"\"b\"\"\",64,1k,0,fp16,bwd,\"x_1\",cold",
                          &overlay));
    assert_string_equal(overlay.source, "");
    assert_string_equal(overlay.points[0].impl, "x_1");
    assert_string_equal(overlay.points[0].l2, "cold");
    assert_int_equal(overlay.points[0].q_len, 1024);
    overlay_free(&overlay);
}

static void bad_files(void **state)
{
    (void)state;
    refused("", "line 0: not a file of published points: it holds no line of names");
    refused("# only words\n", "no line of names");
    refused(NAMES, "line 1: not a file of published points: it holds names and no point");
    refused("impl,mode,dtype,causal,q_len,head_dim\nx,fwd,bf16,0,1,8\n", "line 1: not a file of published points: its "
                                                                         "line of names has no column tflops");
    refused("impl,impl,mode,dtype,causal,q_len,head_dim,tflops\n", "the column impl occurs twice");
    refused(NAMES "fa3,fwd,bf16,0,1024,64\n", "line 2: has 6 cells, the line of names has 7");
    refused(NAMES "fa3,fwd,bf16,0,1024,64,1,2\n", "has 8 cells");
    refused(NAMES "fa3,fwd,bf16,0,1024,,1\n", "its head_dim is empty");
    refused(NAMES "fa3,both,bf16,0,1024,64,1\n", "mode \"both\"");
    refused(NAMES "fa3,fwd,bf16,2,1024,64,1\n", "causal 2: must be 0 or 1");
    refused(NAMES "fa3,fwd,bf16,0,0,64,1\n", "must be above 0");
    refused(NAMES "fa3,fwd,bf16,0,-1,64,1\n", "q_len \"-1\": must be a whole number");
    refused(NAMES "fa3,fwd,bf16,0,1024,64,0\n", "tflops \"0\": must be a number above 0");
    refused(NAMES "fa3,fwd,bf16,0,1024,64,nan\n", "tflops \"nan\"");
    refused(NAMES "fa3,fwd,bf16,0,1024,64,inf\n", "tflops \"inf\"");
    refused(NAMES "FA 3,fwd,bf16,0,1024,64,1\n", "impl \"FA 3\": must be a short name");
    refused(NAMES "fa3,fwd,bf16,0,1024,64,1\nfa3,fwd,bf16,0,1024,64,2\n", "line 3: this point occurs twice");
    refused(NAMES "\"fa3,fwd,bf16,0,1024,64,1\n", "a quote stays open");
    refused("{\"type\":\"header\",\"schema\":1}\n", "has no column impl");
    assert_false(overlay_read("/nonexistent/x.csv", &(struct overlay){.count = 0}, &why));
    assert_non_null(strstr(why.text, "/nonexistent/x.csv: No such file"));
}

static void long_lines(void **state)
{
    (void)state;
    char *text = calloc(1, 10000);
    assert_non_null(text);
    memset(text, 'x', 9000);
    refused(text, "longer than");
    free(text);
}

static void stands_beside_its_problem(void **state)
{
    struct record_row row = {.key = {.q_len = 1024, .kv_len = 1024, .head_dim = 64, .batch = 16, .q_heads = 32}};
    (void)state;
    row.key.mode = ATTN_FWD;
    row.key.dtype = ATTN_BF16;
    row.key.l2 = L2_COLD;
    struct overlay_point point = {.q_len = 1024, .head_dim = 64, .impl = "fa3", .mode = "fwd", .dtype = "bf16"};
    assert_true(overlay_fits(&point, &row));
    point.batch = 16;
    strcpy(point.l2, "cold");
    assert_true(overlay_fits(&point, &row));
    point.batch = 8;
    assert_false(overlay_fits(&point, &row));
    point.batch = 0;
    strcpy(point.l2, "hot");
    assert_false(overlay_fits(&point, &row));
    point.l2[0] = '\0';
    point.causal = 1;
    assert_false(overlay_fits(&point, &row));
    point.causal = 0;
    point.q_len = 2048;
    assert_false(overlay_fits(&point, &row));
}

enum { ROWS = 6 };
static struct record_row rows[ROWS];
static struct record_file file = {.rows = rows, .count = ROWS};
static struct chart_set set;

/* Rows of one causal problem of 2048 tokens; a row's TFLOPS are its number + 1. */
static void begin_rows(void)
{
    for (int i = 0; i < ROWS; i++) {
        struct record_row *row = &rows[i];
        memset(row, 0, sizeof *row);
        record_row_clear(row);
        problem_key_clear(&row->key);
        row->key.mode = ATTN_FWD;
        row->key.dtype = ATTN_BF16;
        row->key.causal = 0;
        row->key.batch = 1;
        row->key.q_heads = row->key.kv_heads = 2;
        row->key.q_len = row->key.kv_len = 2048;
        row->key.head_dim = 64;
        row->key.layout = ATTN_BSHD;
        row->key.window_left = row->key.window_right = -1;
        row->key.dropout = 0;
        row->key.dist = FILL_NORMAL;
        problem_key_complete(&row->key);
        snprintf(row->device, sizeof row->device, "board");
        row->status = STATUS_OK;
        row->check = CHECKED_PASS;
        snprintf(row->impl, sizeof row->impl, "fused_sm90");
        row->time_ms = 1;
        row->flops = (i + 1) * 1e9;
    }
}

static void make(void)
{
    const struct chart_input input = {.files = &file, .file_count = 1};
    chart_set_make(&set, &input);
    assert_int_equal(set.panel_count, 1);
}

/* The series of this label has these places on the axis. */
static void has_line(const char *label, int count, const int64_t *n)
{
    for (int i = 0; i < set.series_count; i++) {
        struct chart_point *points;
        if (strcmp(set.series[i].label, label))
            continue;
        assert_int_equal(chart_points(&set, &set.panels[0], &set.series[i], CHART_TFLOPS, &points), count);
        for (int k = 0; k < count; k++)
            assert_int_equal(points[k].n, n[k]);
        free(points);
        return;
    }
    fail_msg("no series \"%s\"; the first is \"%s\"", label, set.series[0].label);
}

static void windows(void **state)
{
    (void)state;
    begin_rows();
    for (int i = 0; i < ROWS; i++)
        rows[i].key.window_left = i == 5 ? -1 : i * 100;
    make();
    assert_int_equal(set.axis, AXIS_WINDOW);
    assert_int_equal(set.series_count, 1);
    has_line("fused_sm90", 6, (const int64_t[]){1, 100, 200, 300, 400, 2048}); /* a window of 0 keys at 1 */
    chart_set_free(&set);
}

/* Of other lengths the axis is the length, and each window has a line. */
static void windows_of_several_lengths(void **state)
{
    (void)state;
    begin_rows();
    for (int i = 0; i < ROWS; i++) {
        rows[i].key.window_left = i < 3 ? 128 : -1;
        rows[i].key.q_len = rows[i].key.kv_len = 1024 << i % 3;
    }
    make();
    assert_int_equal(set.axis, AXIS_LENGTH);
    has_line("fused_sm90", 3, (const int64_t[]){1024, 2048, 4096});
    has_line("fused_sm90, left 128", 3, (const int64_t[]){1024, 2048, 4096});
    chart_set_free(&set);
}

static void densities(void **state)
{
    const double dense = 4.0 * 64 * 2 * 2048 * 2048;
    (void)state;
    begin_rows();
    for (int i = 0; i < ROWS; i++) {
        const double share = i < 3 ? 0.1 * (i + 1) : i < 5 ? 0.2 * i : 1;
        if (i < 5)
            snprintf(rows[i].key.block_mask, sizeof rows[i].key.block_mask, i < 3 ? "random:0.%d" : "local:%d", i + 1);
        rows[i].key.mask_block = i < 5 ? 128 : 0;
        rows[i].flops = share * dense;
    }
    make();
    assert_int_equal(set.axis, AXIS_DENSITY);
    assert_int_equal(set.series_count, 3);
    has_line("fused_sm90, mask random of 128", 3, (const int64_t[]){10, 20, 30});
    has_line("fused_sm90, mask local of 128", 2, (const int64_t[]){60, 80});
    has_line("fused_sm90", 1, (const int64_t[]){100});
    chart_set_free(&set);
}

static void mean_lengths(void **state)
{
    (void)state;
    begin_rows();
    for (int i = 0; i < ROWS; i++) {
        if (i == 5)
            continue; /* dense */
        snprintf(rows[i].key.lengths, sizeof rows[i].key.lengths, i < 3 ? "uniform:1:%d" : "lognormal:%d:1", 100 << i);
        rows[i].key.batch = 1 << i;
        rows[i].key.total_q = 3200;
    }
    make();
    assert_int_equal(set.axis, AXIS_LENGTH);
    has_line("fused_sm90, lengths uniform", 3, (const int64_t[]){800, 1600, 3200});
    has_line("fused_sm90, lengths lognormal", 2, (const int64_t[]){200, 400});
    has_line("fused_sm90", 1, (const int64_t[]){2048});
    chart_set_free(&set);
}

int main(void)
{
    const struct CMUnitTest of_overlay[] = {
        cmocka_unit_test(good_files),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(long_lines),
        cmocka_unit_test(stands_beside_its_problem),
    };
    const struct CMUnitTest of_chart_axis[] = {
        cmocka_unit_test(windows),
        cmocka_unit_test(windows_of_several_lengths),
        cmocka_unit_test(densities),
        cmocka_unit_test(mean_lengths),
    };
    return cmocka_run_group_tests(of_overlay, begin, end) + cmocka_run_group_tests(of_chart_axis, NULL, NULL);
}
