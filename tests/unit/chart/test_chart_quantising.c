/* The chart of what 8 bits cost: a line for each kind of scales, rotation, data and implementation; a point is the
 * error of quantising and of the kernel together. */
#include "tests/unit/unit_help.h"

#include "cmd/chart/chart.h"
#include "cmd/chart/chart_data.h"
#include "cmd/record/record_row.h"

enum { ROWS = 5 };
static struct record_row rows[ROWS];
static struct record_file file = {.rows = rows, .count = ROWS};

/* Rows 0 and 1: two lengths with one scale; 2: rotated; 3: other data; 4: :fast, whose error is as large as that of
 * quantising. */
static void begin(void)
{
    memset(rows, 0, sizeof rows);
    for (int i = 0; i < ROWS; i++) {
        struct record_row *row = &rows[i];
        record_row_clear(row);
        problem_key_clear(&row->key);
        row->key.mode = MODE_FWD;
        row->key.dtype = ATTN_E4M3;
        row->key.out_dtype = ATTN_BF16;
        row->key.quant_scale = ATTN_SCALE_TENSOR;
        row->key.hadamard = i == 2;
        row->key.dist = i == 3 ? FILL_OUTLIERS : FILL_NORMAL;
        row->key.causal = 0;
        row->key.batch = 4;
        row->key.q_heads = row->key.kv_heads = 2;
        row->key.q_len = row->key.kv_len = i == 1 ? 4096 : 1024;
        row->key.head_dim = 64;
        row->key.layout = ATTN_BSHD;
        row->key.window_left = row->key.window_right = -1;
        row->key.dropout = 0;
        problem_key_complete(&row->key);
        snprintf(row->device, sizeof row->device, "board");
        snprintf(row->impl, sizeof row->impl, i == 4 ? "fused_sm90:fast" : "fused_sm90");
        row->status = STATUS_OK;
        row->check = CHECKED_PASS;
        row->time_ms = 1;
        row->flops = 1e9;
        row->quant_rms_err = 0.04;
        row->tensor_count = 1;
        snprintf(row->tensors[0].name, sizeof row->tensors[0].name, "o");
        row->tensors[0].rel_rms_err = i == 4 ? 0.04 : 0.03;
        row->tensors[0].rel_rms_bound = 0.045;
    }
}

static void both_errors_in_one_point(void **state)
{
    (void)state;
    struct chart_set set;
    int points_of[2] = {0, 0}, plain = 0;
    begin();
    const struct chart_input input = {.files = &file, .file_count = 1};
    chart_set_make(&set, &input);
    assert_int_equal(set.panel_count, 1);
    assert_int_equal(set.series_count, 4);
    for (int i = 0; i < set.series_count; i++) {
        const bool is_fast = strcmp(set.series[i].impl, "fused_sm90:fast") == 0;
        struct chart_point *points;
        const int count = chart_points(&set, &set.panels[0], &set.series[i], CHART_QUANTISING, &points);
        points_of[is_fast] += count;
        plain += count == 2;
        for (int k = 0; k < count; k++)
            assert_true(fabs(points[k].value - (is_fast ? 0.04 * sqrt(2) : 0.05)) < 1e-12);
        free(points);
    }
    assert_int_equal(points_of[0], 4);
    assert_int_equal(points_of[1], 1);
    assert_int_equal(plain, 1);
    rows[0].quant_rms_err = NAN; /* inputs of files: nothing is known */
    struct chart_point *points;
    assert_int_equal(chart_points(&set, &set.panels[0], &set.series[0], CHART_QUANTISING, &points), 1);
    free(points);
    chart_set_free(&set);
}

static void a_page_where_it_is_asked_for(void **state)
{
    (void)state;
    int images = 0;
    bool kinds[CHART_KIND_COUNT] = {[CHART_QUANTISING] = true};
    begin();
    struct chart_input input = {.files = &file, .file_count = 1};
    assert_int_equal(charts_write(&input, help_path(""), PLOT_SVG, 80, false, &images), 0);
    assert_true(access(help_path("quantising-e4m3.gp"), F_OK) != 0);
    input.kinds = kinds;
    assert_int_equal(charts_write(&input, help_path(""), PLOT_SVG, 80, false, &images), 0);
    const char *const script = help_read(help_path("quantising-e4m3.gp"));
    assert_has(script, "set logscale y");
    assert_has(script, "fused_sm90:fast");
    assert_has(script, "hadamard");
    assert_has(script, "outliers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_errors_in_one_point),
        cmocka_unit_test(a_page_where_it_is_asked_for),
    };
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}
