/* Records: the order of the columns, empty cells, quoting, round trips, full disks, files that are cut, broken or
 * none. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/base/text.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"

static const char columns_of_design[] =
    "schema,run_id,time_utc,commit,method,device,arch,driver,cuda,cudnn,impl,variant,mode,dtype,causal,batch,q_heads,"
    "kv_heads,q_len,kv_len,head_dim,layout,window_left,window_right,dropout,scale,dist,seed,l2,status,check,"
    "check_scope,reason,samples,stop,time_ms,time_ms_ci_lo,time_ms_ci_hi,time_ms_min,noise_pct,flops,tflops,"
    "tflops_sustained,"
    "gemm_tflops,pct_of_gemm,speedup_vs_naive,peer,speedup_vs_peer,min_gb,workspace_mb,max_abs_err,rel_rms_err,"
    "err_ratio,err_used,err_tensor,worst,atol,rtol,sm_clock_mhz,temp_c,power_capped_pct,throttled_pct,power_w,energy_j,"
    "tflops_per_w,power_limit_w,repro";

static char folder[] = "/tmp/fabench-test-record-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static char *slurp(const char *path)
{
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, in) > 0);
    fclose(in);
    return text;
}

static void spit(const char *path, const char *text, size_t bytes)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, bytes, out), bytes);
    assert_int_equal(fclose(out), 0);
}

#define FILL(field, text) snprintf(field, sizeof(field), "%s", text)

/* Every field has a different value, so that swapped columns are detected. */
static void fill_row(struct record_row *row)
{
    char *const texts[] = {row->run_id, row->time_utc,   row->commit,  row->device,       row->driver, row->cuda,
                           row->cudnn,  row->impl,       row->variant, row->reason,       row->stop,   row->peer,
                           row->worst,  row->err_tensor, row->asked,   row->energy_source};
    double *const reals[] = {&row->key.dropout,
                             &row->key.scale,
                             &row->time_ms,
                             &row->time_ms_ci_lo,
                             &row->time_ms_ci_hi,
                             &row->time_ms_min,
                             &row->noise_pct,
                             &row->flops,
                             &row->tflops,
                             &row->tflops_sustained,
                             &row->gemm_tflops,
                             &row->pct_of_gemm,
                             &row->speedup_vs_naive,
                             &row->speedup_vs_peer,
                             &row->min_gb,
                             &row->workspace_mb,
                             &row->max_abs_err,
                             &row->rel_rms_err,
                             &row->err_ratio,
                             &row->err_used,
                             &row->atol,
                             &row->rtol,
                             &row->sm_clock_mhz,
                             &row->temp_c,
                             &row->power_capped_pct,
                             &row->throttled_pct,
                             &row->power_w,
                             &row->energy_j,
                             &row->tflops_per_w,
                             &row->power_limit_w,
                             &row->sustain_s,
                             &row->energy_counter_j,
                             &row->energy_integral_j,
                             &row->sustain_sm_clock_mhz,
                             &row->sustain_temp_c,
                             &row->sustain_power_capped_pct,
                             &row->sustain_throttled_pct};
    int64_t *const counts[] = {&row->key.causal,       &row->key.batch,  &row->key.q_heads,    &row->key.kv_heads,
                               &row->key.q_len,        &row->key.kv_len, &row->key.head_dim,   &row->key.window_left,
                               &row->key.window_right, &row->key.seed,   &row->sustain_passes, &row->worker_signal};
    memset(row, 0, sizeof *row);
    record_row_clear(row);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        snprintf(texts[i], 8, "text%zu", i);
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        *reals[i] = (double)(i + 1) / 7.0;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        *counts[i] = (int64_t)i + ((int64_t)1 << 60);
    FILL(row->method, "1");
    FILL(row->arch, "sm_90");
    row->key.mode = ATTN_BWD;
    row->key.dtype = ATTN_BF16;
    row->key.layout = ATTN_BSHD;
    row->key.dist = FILL_NORMAL;
    row->key.l2 = L2_COLD;
    row->status = STATUS_OK;
    row->check = CHECKED_PASS;
    row->check_scope = CHECK_FULL;
    row->repro = strdup("fabench --impl mine --input 'a b'");
    FILL(row->launch, "graph");
    row->samples = 3;
    row->samples_ms = malloc(3 * sizeof(double));
    assert_non_null(row->samples_ms);
    for (int i = 0; i < 3; i++)
        row->samples_ms[i] = 0.1 * (i + 1);
    row->tensor_count = 5;
    for (int i = 0; i < 5; i++) {
        struct record_tensor *t = &row->tensors[i];
        snprintf(t->name, sizeof t->name, "t%d", i);
        snprintf(t->rule, sizeof t->rule, "rule%d", i);
        snprintf(t->worst, sizeof t->worst, "t%d[0,%d,2,3]", i, i);
        snprintf(t->failure, sizeof t->failure, "t%d b=0 \"quoted\"", i);
        t->max_abs_err = i + 0.1;
        t->rel_rms_err = i + 0.2;
        t->rel_rms_bound = i + 0.3;
        t->block_rms_err = i + 0.4;
        t->gain_err = i + 0.5;
        t->err_ratio = i + 0.6;
        t->used = i + 0.7;
    }
    row->pass_count = 8;
    for (int i = 0; i < 8; i++) {
        snprintf(row->passes[i].name, sizeof row->passes[i].name, "pass%d", i);
        row->passes[i].time_ms = i / 3.0;
    }
}

/* Byte for byte, but for what is behind a pointer. A file gives columns that are newer than the format's first version
 * the value of a problem without them. */
static void assert_rows_equal(const struct record_row *a, const struct record_row *b)
{
    struct record_row left = *a, right = *b;
    problem_key_complete(&left.key);
    problem_key_complete(&right.key);
    assert_int_equal(left.samples_ms != NULL, right.samples_ms != NULL);
    if (left.samples_ms)
        assert_memory_equal(left.samples_ms, right.samples_ms, (size_t)left.samples * sizeof(double));
    left.samples_ms = right.samples_ms = NULL;
    assert_string_equal(left.repro ? left.repro : "", right.repro ? right.repro : "");
    left.repro = right.repro = NULL;
    assert_memory_equal(&left, &right, sizeof left);
}

static void csv_header_is_the_contract(void **state)
{
    (void)state;
    struct attn_message why;
    struct record_writer *writer = record_open_csv(path_of("a.csv"), NULL, &why);
    assert_non_null(writer);
    assert_int_equal(record_close(writer), 0);
    char *text = slurp(path_of("a.csv")), *end = strchr(text, '\n');
    assert_non_null(end);
    *end = '\0';
    /* Newer columns stand behind those of the contract. */
    assert_memory_equal(text, columns_of_design, sizeof columns_of_design - 1);
    assert_true(text[sizeof columns_of_design - 1] == '\0' || text[sizeof columns_of_design - 1] == ',');
    assert_string_equal(end + 1, "");
    free(text);
    unlink(path_of("a.csv"));
}

static void row_survives_json(void **state)
{
    (void)state;
    struct record_row row, back = {0};
    char why[200] = "";
    fill_row(&row);
    json_t *object = record_row_json(&row);
    assert_string_equal(json_string_value(json_object_get(object, "type")), "row");
    assert_string_equal(json_object_iter_key(json_object_iter(object)), "type");
    assert_true(record_row_parse(object, &back, why, sizeof why));
    assert_rows_equal(&row, &back);
    json_decref(object);
    record_row_free(&row);
    record_row_free(&back);
}

static void row_survives_file(void **state)
{
    (void)state;
    struct record_row row, empty = {0};
    struct record_file file;
    struct attn_message why;
    json_t *header = json_pack("{s:s, s:b, s:s}", "tool", "fabench", "synthetic", 1, "type", "not this");
    struct record_writer *writer = record_open_jsonl(path_of("a.jsonl"), header, &why);
    json_decref(header);
    assert_non_null(writer);
    fill_row(&row);
    row.time_ms = 0.1 + 0.2; /* needs 17 digits */
    row.tflops = 1e300;
    row.power_w = 700; /* a whole number */
    record_row_clear(&empty);
    assert_int_equal(record_write(writer, &row), 0);
    char *text = slurp(path_of("a.jsonl")); /* on disk before the file is closed */
    assert_non_null(strstr(text, "\"time_ms\":0.30000000000000004,"));
    assert_non_null(strstr(text, "\"power_w\":700.0,"));
    assert_non_null(strstr(text, "\"samples_ms\":[0.1,0.2,0.30000000000000004]"));
    assert_int_equal(strncmp(text, "{\"type\":\"header\",\"schema\":1,", 28), 0);
    free(text);
    assert_int_equal(record_write(writer, &empty), 0);
    assert_int_equal(record_close(writer), 0);
    assert_true(record_read(path_of("a.jsonl"), &file, &why));
    assert_int_equal(file.count, 2);
    assert_false(file.cut);
    assert_true(json_is_true(json_object_get(file.header, "synthetic")));
    assert_rows_equal(&row, &file.rows[0]);
    assert_rows_equal(&empty, &file.rows[1]);
    assert_true(isnan(file.rows[1].time_ms));
    assert_true(file.rows[1].samples == INT64_MIN);
    record_file_free(&file);
    record_row_free(&row);
    unlink(path_of("a.jsonl"));
}

/* The cells of the second line of a CSV of these columns. */
static char *csv_line(const struct record_row *row, const char *columns)
{
    struct attn_message why;
    struct record_writer *writer = record_open_csv(path_of("b.csv"), columns, &why);
    assert_non_null(writer);
    assert_int_equal(record_write(writer, row), 0);
    assert_int_equal(record_close(writer), 0);
    char *text = slurp(path_of("b.csv")), *line = strchr(text, '\n');
    assert_non_null(line);
    memmove(text, line + 1, strlen(line + 1) + 1);
    unlink(path_of("b.csv"));
    return text;
}

static void csv_quotes_and_leaves_empty(void **state)
{
    (void)state;
    struct record_row row = {0};
    record_row_clear(&row);
    FILL(row.impl, "mine");
    FILL(row.reason, "needs 3 GiB, \"only\" 2 are free\nline\ttwo \xff\xc3\xa9");
    row.time_ms = 0.1;
    row.tflops = INFINITY;
    row.err_used = -INFINITY;
    row.speedup_vs_naive = NAN;
    row.key.batch = 0;
    char *line = csv_line(&row, "impl,reason,time_ms,tflops,err_used,speedup_vs_naive,batch,q_len,variant");
    assert_string_equal(line, "mine,\"needs 3 GiB, \"\"only\"\" 2 are free line two ?\xc3\xa9\",0.1,,,,0,,\n");
    free(line);
    line = csv_line(&row, NULL);
    assert_null(strstr(line, "nan"));
    assert_null(strstr(line, "inf"));
    free(line);
    json_t *object = record_row_json(&row);
    assert_null(json_object_get(object, "tflops"));
    assert_null(json_object_get(object, "err_used"));
    assert_null(json_object_get(object, "q_len"));
    assert_null(json_object_get(object, "variant"));
    assert_null(json_object_get(object, "samples_ms"));
    assert_int_equal(json_integer_value(json_object_get(object, "batch")), 0);
    json_decref(object);
}

static void text_is_made_utf8(void **state)
{
    (void)state;
    char text[16];
    const struct {
        const char *from, *to;
    } cases[] = {
        {"plain", "plain"},
        {"\xe2\x82\xac 5", "\xe2\x82\xac 5"},     /* three bytes */
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"}, /* four */
        {"\xed\xa0\x80", "???"},                  /* a surrogate */
        {"\xc0\xaf", "??"},                       /* overlong */
        {"cut \xe2\x82", "cut ??"},
        {"a\r\nb\x7f", "a  b "},
        {"123456789012345678", "123456789012345"},
        {"12345678901234\xc3\xa9", "12345678901234"}, /* no half character at the end */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        text_clean(cases[i].from, text, sizeof text);
        assert_string_equal(text, cases[i].to);
    }
}

static void columns_are_checked(void **state)
{
    (void)state;
    struct attn_message why;
    assert_true(record_columns_valid("impl", &why));
    assert_true(record_columns_valid("tflops,impl,check", &why));
    assert_true(record_columns_valid(columns_of_design, &why));
    assert_false(record_columns_valid("impl,tflop", &why));
    assert_string_equal(why.text, "tflop: no such column, did you mean tflops?");
    assert_false(record_columns_valid("impl,,tflops", &why));
    assert_non_null(strstr(why.text, "empty column name"));
    assert_false(record_columns_valid("", &why));
    assert_false(record_columns_valid("impl,", &why));
    assert_false(record_columns_valid("impl,impl", &why));
    assert_string_equal(why.text, "impl: named twice");
    assert_false(record_columns_valid("launch", &why)); /* in the JSONL alone */
    assert_null(record_open_csv(path_of("never.csv"), "nope", &why));
    assert_int_not_equal(access(path_of("never.csv"), F_OK), 0);
    assert_int_equal(record_column_views("tflops"), RECORD_CSV | RECORD_JSONL | RECORD_TABLE);
    assert_int_equal(record_column_views("launch"), RECORD_JSONL);
    assert_int_equal(record_column_views("nothing"), 0);
}

static void bad_places_are_seen_at_once(void **state)
{
    (void)state;
    struct attn_message why = {""};
    assert_null(record_open_csv("/dev/full", NULL, &why));
    assert_non_null(strstr(why.text, strerror(ENOSPC)));
    assert_null(record_open_jsonl("/dev/full", NULL, &why));
    assert_non_null(strstr(why.text, strerror(ENOSPC)));
    assert_null(record_open_csv(folder, NULL, &why));
    assert_non_null(strstr(why.text, strerror(EISDIR)));
    assert_null(record_open_jsonl("/nonexistent/x.jsonl", NULL, &why));
    assert_non_null(strstr(why.text, strerror(ENOENT)));
}

/* Writes rows until a write fails at the file size limit; 0 when every call reported it correctly. */
static int fill_until_full(const char *path)
{
    struct attn_message why;
    struct record_row row;
    int written = 0, error = 0;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){20000, 20000}) != 0)
        return 1;
    struct record_writer *writer = record_open_jsonl(path, NULL, &why);
    if (!writer)
        return 2;
    fill_row(&row);
    while (written < 1000 && (error = record_write(writer, &row)) == 0)
        written++;
    if (error != EFBIG || record_write(writer, &row) != EFBIG) /* it stays failed */
        return 3;
    record_row_free(&row);
    return record_close(writer) == EFBIG ? 0 : 4;
}

/* The disk fills up in the middle of a row: the limit does what a full disk does. */
static void full_disk_keeps_whole_rows(void **state)
{
    (void)state;
    const char *path = path_of("full.jsonl");
    struct record_file file;
    struct attn_message why;
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(fill_until_full(path));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(record_read(path, &file, &why));
    assert_false(file.cut);
    assert_true(file.count > 0);
    record_file_free(&file);
    unlink(path);
}

static const char head[] = "{\"type\":\"header\",\"schema\":1}\n";
static const char line_of_row[] = "{\"type\":\"row\",\"schema\":1,\"impl\":\"naive\",\"q_len\":1024,\"time_ms\":2}\n";

static bool read_text(const char *text, size_t bytes, struct record_file *file, char *sentence)
{
    struct attn_message why = {""};
    spit(path_of("c.jsonl"), text, bytes);
    const bool good = record_read(path_of("c.jsonl"), file, &why);
    strcpy(sentence, why.text);
    unlink(path_of("c.jsonl"));
    return good;
}

static void cut_file_is_readable(void **state)
{
    (void)state;
    char text[1024], sentence[512];
    struct record_file file;
    snprintf(text, sizeof text, "%s%s%s", head, line_of_row, line_of_row);
    const size_t whole = strlen(head) + strlen(line_of_row);
    for (size_t bytes = whole + 1; bytes < strlen(text) - 1; bytes++) {
        assert_true(read_text(text, bytes, &file, sentence));
        assert_int_equal(file.count, 1);
        assert_true(file.cut);
        record_file_free(&file);
    }
    /* Only the newline is missing: the row is whole. */
    assert_true(read_text(text, strlen(text) - 1, &file, sentence));
    assert_int_equal(file.count, 2);
    assert_false(file.cut);
    assert_true(file.rows[1].time_ms == 2); /* a number without a point */
    record_file_free(&file);
    /* Zeros that a power cut left behind the last row. */
    memset(text + whole, 0, 100);
    assert_true(read_text(text, whole + 100, &file, sentence));
    assert_int_equal(file.count, 1);
    assert_true(file.cut);
    record_file_free(&file);
}

static void what_is_no_record_file_is_refused(void **state)
{
    (void)state;
    const struct {
        const char *text, *sentence;
    } cases[] = {
        {"", "it is empty"},
        {"\n\n", "it is empty"},
        {"impl,time_ms\nnaive,2\n", "line 1 is not a JSON object"},
        {"{\"type\":\"hea", "was cut"},
        {"{\"a\":1}\n", "must begin with an object of \"type\" \"header\""},
        {"[1]\n", "must begin with"},
        {"{\"type\":\"row\",\"schema\":1}\n", "must begin with"},
        {"{\"type\":\"header\"}\n", "no schema number"},
        {"{\"type\":\"header\",\"schema\":2}\n", "schema 2, this program reads schema 1"},
        {"{\"type\":\"header\",\"schema\":\"1\"}\n", "no schema number"},
        {"{\"type\":\"header\",\"schema\":1}\n{\"type\":\"row\",\n{\"type\":\"row\",\"schema\":1}\n", "line 2: "},
        {"{\"type\":\"header\",\"schema\":1}\n\n{\"type\":\"row\",\"schema\":3}\n", "line 3: schema 3"},
        {"{\"type\":\"header\",\"schema\":1}\n{\"impl\":\"naive\"}\n", "line 2: an object without a \"type\""},
        {"{\"type\":\"header\",\"schema\":1}\n{\"type\":\"row\",\"q_len\":\"1k\"}\n",
         "line 2: \"q_len\" must be a whole"},
        {"{\"type\":\"header\",\"schema\":1}\n{\"type\":\"row\",\"q_len\":1.5}\n", "\"q_len\" must be a whole number"},
        {"{\"type\":\"header\",\"schema\":1}\n{\"type\":\"row\",\"impl\":5}\n", "\"impl\" must be text"},
        {"{\"type\":\"header\",\"schema\":1}\n{\"type\":\"row\",\"mode\":\"sideways\"}\n", "\"mode\" must be one of"},
        {"{\"type\":\"header\",\"schema\":1}\n{\"type\":\"row\",\"status\":\"\"}\n", "\"status\" must be one of"},
        {"{\"type\":\"header\",\"schema\":1}\n{\"type\":\"row\",\"method\":\"sideways\"}\n",
         "\"method\" must be short"},
        {"{\"type\":\"header\",\"schema\":1}\n{\"type\":\"row\",\"time_ms\":[]}\n", "\"time_ms\" must be a number"},
        {"{\"type\":\"header\",\"schema\":1}\n{\"type\":\"row\",\"samples\":2,\"samples_ms\":[1]}\n", "\"samples_ms\""},
        {"{\"type\":\"header\",\"schema\":1}\n{\"type\":\"row\",\"samples_ms\":[1]}\n", "\"samples_ms\""},
        {"{\"type\":\"header\",\"schema\":1}\n{\"type\":\"row\",\"samples\":1,\"samples_ms\":[\"a\"]}\n", "numbers"},
        {"{\"type\":\"header\",\"schema\":1}\n{\"type\":\"row\",\"tensors\":[1]}\n", "\"tensors\" must be a list of"},
        {"{\"type\":\"header\",\"schema\":1}\n{\"type\":\"row\",\"tensors\":[{},{},{},{},{},{},{},{},{}]}\n",
         "at most 8"},
        {"{\"type\":\"header\",\"schema\":1}\n{\"type\":\"row\",\"impl\":\"a\",\"impl\":\"b\"}\n", "duplicate"},
    };
    char sentence[512];
    struct record_file file;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_false(read_text(cases[i].text, strlen(cases[i].text), &file, sentence));
        if (!strstr(sentence, cases[i].sentence))
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, sentence, cases[i].sentence);
        assert_non_null(strstr(sentence, "c.jsonl"));
        assert_null(file.rows);
    }
    struct attn_message why;
    assert_false(record_read("/nonexistent.jsonl", &file, &why));
    assert_non_null(strstr(why.text, strerror(ENOENT)));
    assert_false(record_read(folder, &file, &why));
    assert_non_null(strstr(why.text, strerror(EISDIR)));
    assert_false(record_read("/dev/zero", &file, &why));
    assert_non_null(strstr(why.text, "longer than"));
}

static void what_is_unknown_is_left_alone(void **state)
{
    (void)state;
    const char text[] = "{\"type\":\"header\",\"schema\":1,\"new\":{}}\n"
                        "{\"type\":\"ceiling\",\"gemm\":724}\n"
                        "\r\n"
                        "{\"type\":\"row\",\"schema\":1,\"impl\":\"naive\",\"new_column\":[1],\"tflops\":null}\n"
                        "{\"type\":\"header\",\"schema\":1}\n"
                        "{\"type\":\"row\",\"schema\":1,\"impl\":\"cudnn\"}\n";
    char sentence[512];
    struct record_file file;
    assert_true(read_text(text, strlen(text), &file, sentence));
    assert_int_equal(file.count, 2);
    assert_string_equal(file.rows[0].impl, "naive");
    assert_true(isnan(file.rows[0].tflops));
    assert_string_equal(file.rows[1].impl, "cudnn");
    record_file_free(&file);
}

/* Every text of a row, of its tensors and of the header, with the two forms of an escape sequence in it. */
static void escapes_are_read_as_spaces(void **state)
{
    (void)state;
#define HOSTILE "\\u001b]0;x\\u0007\\u009bm"
    const char clean[] = " ]0;x   m";
    const struct column_list list = record_columns();
    char text[8192], sentence[512];
    struct record_file file;
    int texts = 0;
    size_t used =
        (size_t)snprintf(text, sizeof text,
                         "{\"type\":\"header\",\"schema\":1,\"device\":{\"name\":\"" HOSTILE
                         "\"},\"policy\":{\"round_members\":[\"" HOSTILE "\"]}}\n{\"type\":\"row\",\"schema\":1");
    for (int i = 0; i < list.count; i++)
        if (list.columns[i].kind == FIELD_TEXT || list.columns[i].kind == FIELD_STRING)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, ",\"%s\":\"%s\"", list.columns[i].name,
                                 list.columns[i].kind == FIELD_TEXT && list.columns[i].size < 20 ? "\\u001b" : HOSTILE);
    used += (size_t)snprintf(text + used, sizeof text - used,
                             ",\"tensors\":[{\"name\":\"\\u001b\",\"rule\":\"" HOSTILE "\",\"worst\":\"" HOSTILE
                             "\",\"failure\":\"" HOSTILE "\"}],\"passes\":[{\"name\":\"\\u001b[m\"}]}\n");
    assert_true(used < sizeof text);
    assert_true(read_text(text, used, &file, sentence));
    for (int i = 0; i < list.count; i++) {
        const struct column *column = &list.columns[i];
        const void *field = record_field(column, &file.rows[0]);
        if (column->kind != FIELD_TEXT && column->kind != FIELD_STRING)
            continue;
        assert_string_equal(column->kind == FIELD_STRING ? *(char *const *)field : field,
                            column->kind == FIELD_TEXT && column->size < 20 ? " " : clean);
        texts++;
    }
    assert_true(texts >= 18);
    assert_string_equal(file.rows[0].tensors[0].name, " ");
    assert_string_equal(file.rows[0].tensors[0].rule, clean);
    assert_string_equal(file.rows[0].tensors[0].worst, clean);
    assert_string_equal(file.rows[0].tensors[0].failure, clean);
    assert_string_equal(file.rows[0].passes[0].name, " [m");
    const json_t *device = json_object_get(file.header, "device"), *policy = json_object_get(file.header, "policy");
    assert_string_equal(json_string_value(json_object_get(device, "name")), clean);
    assert_string_equal(json_string_value(json_array_get(json_object_get(policy, "round_members"), 0)), clean);
    record_file_free(&file);
#undef HOSTILE
}

static void many_rows_are_read(void **state)
{
    (void)state;
    const int rows = getenv("FABENCH_TEST_LONG") ? 20000 : 2000;
    struct record_row row;
    struct record_file file;
    struct attn_message why;
    struct record_writer *writer = record_open_jsonl(path_of("many.jsonl"), NULL, &why);
    assert_non_null(writer);
    fill_row(&row);
    for (int i = 0; i < rows; i++) {
        row.key.seed = i;
        assert_int_equal(record_write(writer, &row), 0);
    }
    assert_int_equal(record_close(writer), 0);
    assert_true(record_read(path_of("many.jsonl"), &file, &why));
    assert_int_equal(file.count, rows);
    for (int i = 0; i < rows; i++)
        assert_int_equal(file.rows[i].key.seed, i);
    record_file_free(&file);
    record_row_free(&row);
    unlink(path_of("many.jsonl"));
}

/* Two files whose long paths differ at their ends only are told apart in what is said of them. */
static void long_paths_are_told_apart(void **state)
{
    (void)state;
    char dir[300], path[340], sentences[2][600];
    snprintf(dir, sizeof dir, "%s/%0200d", folder, 7);
    assert_int_equal(mkdir(dir, 0700), 0);
    for (int i = 0; i < 2; i++) {
        struct record_file file;
        struct attn_message why;
        snprintf(path, sizeof path, "%s/%s.jsonl", dir, i ? "new" : "old");
        spit(path, "no record\n", 10);
        assert_false(record_read(path, &file, &why));
        strcpy(sentences[i], why.text);
        assert_non_null(strstr(sentences[i], i ? "/new.jsonl: not a record file" : "/old.jsonl: not a record file"));
        assert_memory_equal(sentences[i], folder, strlen(folder));
        assert_int_equal(unlink(path), 0);
    }
    assert_string_not_equal(sentences[0], sentences[1]);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_header_is_the_contract),
        cmocka_unit_test(row_survives_json),
        cmocka_unit_test(row_survives_file),
        cmocka_unit_test(csv_quotes_and_leaves_empty),
        cmocka_unit_test(text_is_made_utf8),
        cmocka_unit_test(columns_are_checked),
        cmocka_unit_test(bad_places_are_seen_at_once),
        cmocka_unit_test(full_disk_keeps_whole_rows),
        cmocka_unit_test(cut_file_is_readable),
        cmocka_unit_test(what_is_no_record_file_is_refused),
        cmocka_unit_test(what_is_unknown_is_left_alone),
        cmocka_unit_test(escapes_are_read_as_spaces),
        cmocka_unit_test(many_rows_are_read),
        cmocka_unit_test(long_paths_are_told_apart),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
