/* Charts of what the hardware counted: bytes beside their model, and rooflines. */
#include "tests/unit/unit_help.h"

#include <unistd.h>

#include "cmd/chart/chart.h"
#include "cmd/chart/chart_data.h"

#define FILL(field, text) snprintf(field, sizeof(field), "%s", text)

static struct record_file file;

/* Four lengths of an implementation: two whose bytes were counted, one with a model alone, one that failed. 1e12 FLOPs
 * in 2 ms. */
static int make_file(void **state)
{
    enum { ROWS = 4 };
    memset(&file, 0, sizeof file);
    file.path = strdup("run.jsonl");
    file.header = json_pack("{s:s, s:{s:f}}", "type", "header", "device", "copy_gbps", 4000.0);
    file.rows = calloc(ROWS, sizeof *file.rows);
    file.count = ROWS;
    for (int i = 0; i < ROWS; i++) {
        struct record_row *row = &file.rows[i];
        record_row_clear(row);
        FILL(row->device, "A GPU");
        FILL(row->impl, "mine");
        row->key.mode = ATTN_FWD;
        row->key.dtype = ATTN_BF16;
        row->key.layout = ATTN_BSHD;
        row->key.dist = FILL_NORMAL;
        row->key.causal = 0;
        row->key.batch = 1;
        row->key.q_heads = row->key.kv_heads = 8;
        row->key.q_len = row->key.kv_len = 1024 << i;
        row->key.head_dim = 64;
        row->status = STATUS_OK;
        row->check = i == 3 ? CHECKED_FAIL : CHECKED_PASS;
        row->flops = 1e12;
        row->time_ms = 2;
        row->gemm_tflops = 800;
        row->model_dram_gb = 2;
        if (i < 2) {
            row->dram_read_gb = 3;
            row->dram_write_gb = 1 + i;
        }
    }
    return help_make_folder(state);
}

static int free_file(void **state)
{
    record_file_free(&file);
    return help_remove_folder(state);
}

/* Draws the kinds that are true, or the default; gnuplot is not looked for. */
static void draw(const bool *kinds)
{
    int images = 0;
    char *path = strdup(getenv("PATH"));
    setenv("PATH", "/nowhere", 1);
    help_listen();
    const struct chart_input input = {.files = &file, .file_count = 1, .kinds = kinds};
    assert_int_equal(charts_write(&input, help_folder, PLOT_SVG, 80, false, &images), 0);
    help_said();
    setenv("PATH", path, 1);
    free(path);
}

static bool exists(const char *name) { return access(help_path(name), F_OK) == 0; }

static void is_near(double value, double wanted) { assert_true(fabs(value / wanted - 1) < 1e-12); }

static void points_over_flops_per_byte(void **state)
{
    struct chart_set set;
    struct chart_point *points;
    (void)state;
    chart_set_make(&set, &(struct chart_input){.files = &file, .file_count = 1});
    assert_true(set.has_counts);
    const int count = chart_points(&set, &set.panels[0], &set.series[0], CHART_ROOFLINE, &points);
    assert_int_equal(count, 4);
    is_near(points[0].intensity, 250);
    is_near(points[0].value, 500);
    assert_false(points[0].is_modelled || points[1].is_modelled);
    is_near(points[1].intensity, 200);
    is_near(points[2].intensity, 500);
    assert_true(points[2].is_modelled);
    assert_true(points[3].is_failed);
    free(points);
    file.rows[2].model_dram_gb = NAN; /* neither counted nor modelled: no point */
    assert_int_equal(chart_points(&set, &set.panels[0], &set.series[0], CHART_ROOFLINE, &points), 3);
    free(points);
    chart_set_free(&set);
}

static void rooflines(void **state)
{
    (void)state;
    draw(NULL); /* counted rows: without being named */
    const char *data = help_read(help_path("roofline-bf16.dat"));
    assert_has(data, "# fwd full d=64, mine: FLOPs per byte counted, TFLOPS, n\n250,500,1024\n200,500,2048\n");
    assert_has(data, "# fwd full d=64, mine: FLOPs per byte of the model, TFLOPS, n\n500,500,4096\n\n");
    /* 4000 GB/s up to 200 FLOPs per byte, then 800 TFLOPS; from a quarter of the least to four times the most. */
    assert_has(data, "# fwd full d=64, ceilings of A GPU: FLOPs per byte, TFLOPS\n50,200\n200,800\n2000,800\n");
    const char *script = help_read(help_path("roofline-bf16.gp"));
    assert_has(script, "set xlabel 'FLOPs per byte of device memory'");
    assert_has(script, "ceilings: copying, GEMM");
    assert_has(script, "counted, where the point is full; of the model, where it is hollow");
}

/* Without the speed of copying the GEMM alone. */
static void one_ceiling(void **state)
{
    const bool kinds[CHART_KIND_COUNT] = {[CHART_ROOFLINE] = true};
    (void)state;
    json_object_del(json_object_get(file.header, "device"), "copy_gbps");
    draw(kinds);
    assert_has(help_read(help_path("roofline-bf16.dat")), "TFLOPS\n50,800\n2000,800\n");
}

static void bytes_and_their_model(void **state)
{
    (void)state;
    draw(NULL);
    const char *data = help_read(help_path("bytes-bf16.dat"));
    assert_has(data, "# fwd full d=64, mine: n, bytes, low, high\n1024,4,4,4\n2048,5,5,5\n");
    assert_has(data, "# fwd full d=64, mine: n, bytes of the model\n1024,2\n2048,2\n4096,2\n8192,2\n");
    const char *script = help_read(help_path("bytes-bf16.gp"));
    assert_has(script, "set logscale y\nset yrange [1:10]");
    assert_has(script, "title 'model'");
}

/* Rows without counts have neither of them unless they are named; then those of the model. */
static void without_counts(void **state)
{
    const bool kinds[CHART_KIND_COUNT] = {[CHART_BYTES] = true, [CHART_ROOFLINE] = true};
    (void)state;
    for (int i = 0; i < 2; i++)
        file.rows[i].dram_read_gb = file.rows[i].dram_write_gb = NAN;
    draw(NULL);
    assert_true(exists("tflops-bf16.gp"));
    assert_false(exists("roofline-bf16.gp") || exists("bytes-bf16.gp"));
    draw(kinds);
    assert_has(help_read(help_path("roofline-bf16.dat")), "of the model, TFLOPS, n\n500,500,1024\n");
    assert_has(help_read(help_path("bytes-bf16.dat")), "bytes of the model\n1024,2\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(points_over_flops_per_byte, make_file, free_file),
        cmocka_unit_test_setup_teardown(rooflines, make_file, free_file),
        cmocka_unit_test_setup_teardown(one_ceiling, make_file, free_file),
        cmocka_unit_test_setup_teardown(bytes_and_their_model, make_file, free_file),
        cmocka_unit_test_setup_teardown(without_counts, make_file, free_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
