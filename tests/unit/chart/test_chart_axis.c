/* What the horizontal axis of charts shows, and which rows are one line, beyond dense attention. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/chart/chart_data.h"
#include "tests/unit/unit_help.h"

enum { ROWS = 6 };
static struct record_row rows[ROWS];
static struct record_file file = {.rows = rows, .count = ROWS};
static struct chart_set set;

/* Rows of one causal problem of 2048 tokens; a row's TFLOPS are its number + 1. */
static void begin(void)
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
    begin();
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
    begin();
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
    begin();
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
    begin();
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows),
        cmocka_unit_test(windows_of_several_lengths),
        cmocka_unit_test(densities),
        cmocka_unit_test(mean_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
