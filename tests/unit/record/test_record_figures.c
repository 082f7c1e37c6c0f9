/* What is derived from a record: whether its figures agree, the line of its header, the roles of its rows. */
#include "tests/unit/unit_help.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/record/record.h"
#include "cmd/record/record_figures.h"
#include "cmd/record/record_row.h"

/* ---- record_figures ---- */

/* Records whose figures do not agree (cmd/record/record_figures.h): each is refused in a sentence that names the file,
 * the row and both figures. What this program wrote is not refused. */

static struct attn_message why;

static bool file_agrees(const char *path)
{
    struct record_file file;
    why.text[0] = 0;
    if (!record_read(path, &file, &why))
        return false;
    const bool agrees = record_file_agrees(&file, &why);
    record_file_free(&file);
    return agrees;
}

/* A record of one good row and this one. */
static bool agrees(struct help_row row)
{
    const struct help_row rows[] = {{.n = 512}, row};
    return file_agrees(help_record("two.jsonl", rows, 2));
}

static void rows_that_agree(void **state)
{
    (void)state;
    static const struct help_row rows[] = {
        {0},
        {.share = 50},
        {.mode = "bwd", .share = 50, .n = 1024},
        {.check = "off"},
        {.check = "fail", .more = ",\"err_used\":7.5"},
        {.status = "error"},
        {.status = "oom"},
        {.time_ms = -1},
        {.samples = 1},
        {.err_used = 1},
        {.tflops = 0.0020971 * 1.0009},                    /* within 0.1 % */
        {.share = 50, .gemm_tflops = 0.004194304 * 1.029}, /* within 3 % */
        {.share = 50, .gemm_tflops = 0.004194304 * 1.08, .more = ",\"noise_pct\":18"},
        {.share = 50, .gemm_tflops = 0.004194304 * 1.2, .samples = 3},
        {.impl = "null", .check = "off", .tflops = 77},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!agrees(rows[i]))
            fail_msg("row %zu: %s", i, why.text);
}

static void rows_that_do_not(void **state)
{
    (void)state;
    static const struct {
        struct help_row row;
        const char *words;
    } cases[] = {
        {{.err_used = -1}, "its check is pass, without an err_used"},
        {{.err_used = 1.01}, "its check is pass, its err_used 1.01; must be from 0 to 1"},
        {{.time_ms = 2, .tflops = 0.002097152},
         "its tflops is 0.00209715, its shape and its time_ms 2 make 0.00104858"},
        {{.tflops = 0.0021}, "its tflops is 0.0021"},
        {{.time_ms = 2, .share = 50, .gemm_tflops = 0.004194304},
         "its pct_of_gemm is 50, its shape, its time_ms 2 and gemm_tflops 0.0041943 make 25"},
        {{.share = 50, .gemm_tflops = 0.004194304 * 1.04}, "make 48.0769"},
        {{.share = 50, .gemm_tflops = 0.004194304 * 1.12, .more = ",\"noise_pct\":400"}, "make 44.6429"},
        {{.share = 50, .gemm_tflops = 0.004194304 * 1.5, .samples = 3}, "make 33.3333"},
        {{.more = ",\"pct_of_gemm\":50"}, "its pct_of_gemm is 50, without a gemm_tflops"},
        {{.more = ",\"pct_of_gemm\":50,\"gemm_tflops\":0"}, "gemm_tflops 0 make inf"},
        {{.time_ms = 1e308}, "its time_ms is 1e+308; must be from 1e-06 to 8.64e+07"},
        {{.time_ms = 1e-300}, "its time_ms is 1e-300"},
        {{.time_ms = -1, .more = ",\"time_ms\":0"}, "its time_ms is 0;"},
        {{.time_ms = -1, .more = ",\"time_ms\":-3"}, "its time_ms is -3;"},
        {{.more = ",\"time_ms_min\":0"}, "its time_ms_min is 0;"},
        {{.samples = 1, .more = ",\"time_ms_ci_lo\":2,\"time_ms_ci_hi\":3"},
         "its time_ms is 1, outside of its interval 2 to 3"},
        {{.check = "pass", .n = -5}, "no shape to compute FLOPs from"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (agrees(cases[i].row))
            fail_msg("case %zu agrees", i);
        assert_has(why.text, "two.jsonl, row 2 (");
        assert_has(why.text, cases[i].words);
    }
    assert_false(agrees((struct help_row){.err_used = 7}));
    assert_has(why.text, "two.jsonl, row 2 (fwd causal d64  128 fp32 of fused_fake): its check");
}

/* One row as text with a piece exchanged, or taken out. */
static bool agrees_edited(const char *from, const char *to)
{
    static char text[16384];
    snprintf(text, sizeof text, "%s", help_read(help_record("whole.jsonl", &(struct help_row){.share = 50}, 1)));
    char *at = strstr(text, from);
    assert_non_null(at);
    char *const edited = malloc(sizeof text);
    assert_non_null(edited);
    snprintf(edited, sizeof text, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    const bool result = file_agrees(help_write("edited.jsonl", edited));
    free(edited);
    return result;
}

static void words_and_numbers_of_a_row(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *words;
    } cases[] = {
        {"\"status\":\"ok\",", "", "row 1 (fwd causal d64  128 fp32 of fused_fake): it has no status"},
        {"\"status\":\"ok\"", "\"status\":null", "it has no status"},
        {"\"status\":\"ok\"", "\"status\":\"OK\"", "\"status\" must be one of the words"},
        {"\"check\":\"pass\",", "", "it has no check"},
        {"\"check\":\"pass\"", "\"check\":null", "it has no check"},
        {"\"check\":\"pass\"", "\"check\":\"PASS\"", "\"check\" must be one of the words"},
        {"\"check\":\"pass\"", "\"check\":\"ok\"", "\"check\" must be one of the words"},
        {"\"check\":\"pass\"", "\"check\":true", "\"check\" must be one of the words"},
        {"\"mode\":\"fwd\",", "", "it has no mode"},
        {"\"mode\":\"fwd\"", "\"mode\":\"both\"", "\"mode\" must be one of the words"},
        {"\"dtype\":\"fp32\",", "", "it has no dtype"},
        {"\"dtype\":\"fp32\"", "\"dtype\":\"fp99\"", "\"dtype\" must be one of the words"},
        {"\"time_ms\":1,", "\"time_ms\":Infinity,", "line 2"},
        {"\"time_ms\":1,", "\"time_ms\":NaN,", "line 2"},
        {"\"time_ms\":1,", "\"time_ms\":1e999,", "line 2"},
        {"\"time_ms\":1,", "\"time_ms\":\"1\",", "\"time_ms\" must be a number"},
        {"\"flops\":2097152", "\"flops\":4194304", "its flops are 4.1943e+06, its shape makes 2.09715e+06"},
        {"\"q_len\":128", "\"q_len\":256", "its flops are"},
        {"\"head_dim\":64", "\"head_dim\":0", "no shape to compute FLOPs from"},
        {"\"q_len\":128", "\"q_len\":9223372036854775807", "no shape to compute FLOPs from"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (agrees_edited(cases[i].from, cases[i].to))
            fail_msg("%s for %s agrees", cases[i].to, cases[i].from);
        assert_has(why.text, "edited.jsonl");
        assert_has(why.text, cases[i].words);
    }
    assert_true(agrees_edited("\"window_left\":-1,\"window_right\":-1,", ""));
    /* A long window is none, and lengths that differ are counted at once, not row by row. */
    assert_true(agrees_edited("\"window_left\":-1", "\"window_left\":9223372036854775807"));
    assert_false(agrees_edited("\"q_len\":128", "\"q_len\":2147483647"));
    assert_has(why.text, "its shape makes");
}

/* Caches: FLOPs of fixed lengths, of lengths that the text makes again, and bytes over time. */
static void rows_of_decode(void **state)
{
    (void)state;
    struct record_row row = {0};
    record_row_clear(&row);
    row.status = STATUS_OK;
    row.check = CHECKED_PASS;
    row.err_used = 0.5;
    row.time_ms = 2;
    row.min_gb = 0.5;
    row.gb_per_s = 250;
    row.key = (struct problem_key){.mode = MODE_DECODE,
                                   .dtype = ATTN_FP32,
                                   .causal = 1,
                                   .batch = 3,
                                   .q_heads = 4,
                                   .kv_heads = 2,
                                   .q_len = 1,
                                   .kv_len = 300,
                                   .head_dim = 64,
                                   .window_left = -1,
                                   .window_right = -1,
                                   .seed = 1,
                                   .total_q = INT64_MIN,
                                   .page_size = 16};
    snprintf(row.key.lengths, sizeof row.key.lengths, "fixed");
    snprintf(row.key.block_mask, sizeof row.key.block_mask, "none");
    char path[] = "decode.jsonl";
    const struct record_file file = {.path = path, .rows = &row, .count = 1};
    row.flops = 4.0 * 64 * 4 * 3 * 300;
    if (!record_file_agrees(&file, &why))
        fail_msg("%s", why.text);
    row.gb_per_s = 251;
    assert_false(record_file_agrees(&file, &why));
    assert_has(why.text, "its gb_per_s is 251, its min_gb 0.5 and its time_ms 2 make 250");
    row.gb_per_s = 250;
    row.pct_of_read = 50;
    assert_false(record_file_agrees(&file, &why));
    assert_has(why.text, "its pct_of_read is 50, without a gb_per_s or a read_gb_per_s");
    row.read_gb_per_s = 500;
    snprintf(row.key.lengths, sizeof row.key.lengths, "list:300:7:40");
    assert_false(record_file_agrees(&file, &why));
    assert_has(why.text, "its flops are 921600, its shape makes 355328");
    row.flops = 4.0 * 64 * 4 * (300 + 7 + 40);
    if (!record_file_agrees(&file, &why))
        fail_msg("%s", why.text);
    snprintf(row.key.lengths, sizeof row.key.lengths, "@file"); /* not made again: at most those of the longest */
    if (!record_file_agrees(&file, &why))
        fail_msg("%s", why.text);
    row.flops = 3 * 4.0 * 64 * 4 * 3 * 300;
    assert_false(record_file_agrees(&file, &why));
}

/* Every record that is published, and those of the tests of charts. */
static void records_of_this_program(void **state)
{
    (void)state;
    glob_t found = {0};
    assert_int_equal(glob("results/*/*.jsonl", 0, NULL, &found), 0);
    assert_int_equal(glob("tests/unit/data/sweep_*.jsonl", GLOB_APPEND, NULL, &found), 0);
    assert_true(found.gl_pathc >= 4);
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (!file_agrees(found.gl_pathv[i]))
            fail_msg("%s", why.text);
    globfree(&found);
}

static void checked_and_with_an_interval(void **state)
{
    (void)state;
    const struct record_row good = {.status = STATUS_OK,
                                    .check = CHECKED_PASS,
                                    .err_used = 0.5,
                                    .samples = 6,
                                    .time_ms_ci_lo = 1,
                                    .time_ms_ci_hi = 2};
    struct record_row row = good;
    assert_true(record_row_is_checked(&row) && record_row_has_interval(&row));
    row.err_used = NAN;
    assert_false(record_row_is_checked(&row));
    row.err_used = INFINITY;
    assert_false(record_row_is_checked(&row));
    row = good;
    row.check = CHECKED_NONE;
    assert_false(record_row_is_checked(&row));
    row.check = CHECKED_OFF;
    assert_false(record_row_is_checked(&row));
    row = good;
    row.status = STATUS_NONE;
    assert_false(record_row_is_checked(&row));
    row.samples = 5;
    assert_false(record_row_has_interval(&row));
    row = good;
    row.time_ms_ci_hi = NAN;
    assert_false(record_row_has_interval(&row));
}

static int record_figures_tests(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_that_agree),
                                       cmocka_unit_test(rows_that_do_not),
                                       cmocka_unit_test(words_and_numbers_of_a_row),
                                       cmocka_unit_test(rows_of_decode),
                                       cmocka_unit_test(records_of_this_program),
                                       cmocka_unit_test(checked_and_with_an_interval)};
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}

/* ---- header ---- */

/* The line above the table, from headers of any content. */

/* `device`: what follows its name. */
static char *line_of(const char *device, const char *clocks)
{
    char *text = xasprintf("{\"device\": {\"name\": \"Board\"%s}, \"tool\": {\"version\": \"1.2.3\", \"commit\": "
                           "\"0123456789abcdef\"}, \"policy\": {\"clocks\": \"%s\"}}",
                           device, clocks);
    json_t *header = json_loads(text, 0, NULL);
    assert_non_null(header);
    char *line = header_line(header);
    json_decref(header);
    free(text);
    return line;
}

static void is(const char *device, const char *clocks, const char *expected)
{
    char *line = line_of(device, clocks);
    assert_string_equal(line, expected);
    free(line);
}

static void what_the_header_says(void **state)
{
    (void)state;
    is("", "unknown", "Board 0 GiB | fabench 1.2.3 (0123456789ab)");
    is(", \"memory_gb\": 150.3, \"power_limit_w\": 700.0, \"ecc\": true, \"driver\": \"580.65\", "
       "\"other_processes\": 0",
       "free",
       "Board 140 GiB, 700 W, ECC on, driver 580.65, clocks free, no other process | fabench 1.2.3 "
       "(0123456789ab)");
    is(", \"memory_gb\": 17.2, \"threads\": 8, \"ecc\": false, \"other_processes\": 1", "unknown",
       "Board 16 GiB, 8 threads, ECC off, 1 other process | fabench 1.2.3 (0123456789ab)");
    is(", \"other_processes\": 3", "unknown", "Board 0 GiB, 3 other processes | fabench 1.2.3 (0123456789ab)");
}

/* Values of any length stand there whole, and what follows them too. */
static void long_values(void **state)
{
    (void)state;
    char *line = line_of(", \"memory_gb\": 1e299, \"power_limit_w\": 1e200, "
                         "\"driver\": \"a driver's name that is longer than twenty characters\"",
                         "clocks of a description that is longer than twenty characters");
    assert_true(strlen(line) > 500);
    assert_non_null(strstr(line, ", driver a driver's name that is longer than twenty characters, clocks clocks of a "
                                 "description that is longer than twenty characters | fabench 1.2.3 (0123456789ab)"));
    free(line);
}

static int header_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_header_says),
        cmocka_unit_test(long_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- row_role ---- */

/* The role of an implementation by its name (cmd/record/record_row.h). */

static void only_whole_names_have_a_role(void **state)
{
    (void)state;
    assert_int_equal(role_of_name("naive"), ATTN_ROLE_NAIVE);
    assert_int_equal(role_of_name("cudnn"), ATTN_ROLE_PEER);
    assert_int_equal(role_of_name("cudnn:deterministic"), ATTN_ROLE_PEER);
    assert_int_equal(role_of_name("null"), ATTN_ROLE_NOTHING);
    assert_int_equal(role_of_name("naive2"), ATTN_ROLE_KERNEL);
    assert_int_equal(role_of_name("cud"), ATTN_ROLE_KERNEL);
    assert_int_equal(role_of_name("fused_sm90"), ATTN_ROLE_KERNEL);
}

static void fused_kernels_begin_with_fused_and_underscore(void **state)
{
    (void)state;
    assert_true(role_is_fused("fused_sm90"));
    assert_true(role_is_fused("fused_sm90:fwd_d128_m128n128_s2"));
    assert_false(role_is_fused("fusedkernel"));
    assert_false(role_is_fused("fused2_sm90"));
    assert_false(role_is_fused("naive"));
}

static int row_role_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_whole_names_have_a_role),
        cmocka_unit_test(fused_kernels_begin_with_fused_and_underscore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return record_figures_tests() + header_tests() + row_role_tests(); }
