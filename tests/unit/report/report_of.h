/* Records made up for the tests of the report, each file under a label of its own, and the report of them. For the
 * test_report*.c files. */
#ifndef FABENCH_TEST_REPORT_OF_H
#define FABENCH_TEST_REPORT_OF_H

#include "tests/unit/unit_help.h"

#include "cmd/report/report_data.h"

enum { LABELS = 4, ROWS = 200 };

static struct record_file files[LABELS];
static struct report_label labels[LABELS];
static struct report_input input;
static struct report report;

/* Makes LABELS empty files, each under its own label; tests join them. */
static inline int begin(void **state)
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

static inline int finish(void **state)
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
static inline struct record_row *add(int file, const char *impl, const char *mode, int causal, int head_dim, int q_len,
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

static inline struct record_row *add_fwd(int file, const char *impl, double tflops)
{
    return add(file, impl, "fwd", 0, 64, 4096, tflops);
}

static inline void add_set(int file, const char *impl, double tflops)
{
    for (int i = 0; i < REPORT_SET_POINTS; i++)
        add(file, impl, i & 8 ? "bwd" : "fwd", (i & 4) != 0, i & 2 ? 128 : 64, i & 1 ? 16384 : 4096, tflops);
}

static inline void make(int label_count, int file_count)
{
    input.label_count = label_count;
    input.file_count = file_count;
    if (report.input)
        report_free(&report);
    report_make(&report, &input);
    report_make_groups(&report);
}

static inline void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("%.12g, want %.12g", got, want);
}

#endif
