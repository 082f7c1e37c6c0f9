/* The list of columns. DESIGN section 7. */
#include "cmd/record/record_column.h"

#include <string.h>

#define FIELD(structure, kind, field, views)                                                                           \
    {#field, kind, offsetof(struct structure, field), sizeof(((struct structure *)0)->field), views}
#define TEXT(field, views) FIELD(record_row, FIELD_TEXT, field, views)
#define COUNT(field, views) FIELD(record_row, FIELD_COUNT, field, views)
#define REAL(field, views) FIELD(record_row, FIELD_REAL, field, views)

enum {
    FILES = RECORD_CSV | RECORD_JSONL,
    TABLE = FILES | RECORD_TABLE,
    VERIFY = FILES | RECORD_VERIFY,
    EVERY = FILES | RECORD_TABLE | RECORD_VERIFY
};

/* The order is the CSV's and part of the contract (DESIGN section 7): new columns go to the end. */
static const struct column columns[] = {
    COUNT(schema, FILES),           TEXT(run_id, FILES),
    TEXT(time_utc, FILES),          TEXT(commit, FILES),
    TEXT(method, FILES),            TEXT(device, FILES),
    TEXT(arch, FILES),              TEXT(driver, FILES),
    TEXT(cuda, FILES),              TEXT(cudnn, FILES),
    TEXT(impl, EVERY),              TEXT(variant, FILES),
    TEXT(mode, EVERY),              TEXT(dtype, EVERY),
    COUNT(causal, EVERY),           COUNT(batch, EVERY),
    COUNT(q_heads, EVERY),          COUNT(kv_heads, EVERY),
    COUNT(q_len, EVERY),            COUNT(kv_len, EVERY),
    COUNT(head_dim, EVERY),         TEXT(layout, EVERY),
    COUNT(window_left, EVERY),      COUNT(window_right, EVERY),
    REAL(dropout, FILES),           REAL(scale, FILES),
    TEXT(dist, EVERY),              COUNT(seed, FILES),
    TEXT(l2, TABLE),                TEXT(status, EVERY),
    TEXT(check, EVERY),             TEXT(check_scope, EVERY),
    TEXT(reason, EVERY),            COUNT(samples, FILES),
    TEXT(stop, FILES),              REAL(time_ms, TABLE),
    REAL(time_ms_ci_lo, TABLE),     REAL(time_ms_ci_hi, TABLE),
    REAL(time_ms_min, FILES),       REAL(noise_pct, FILES),
    REAL(flops, FILES),             REAL(tflops, TABLE),
    REAL(tflops_sustained, FILES),  REAL(gemm_tflops, TABLE),
    REAL(pct_of_gemm, TABLE),       REAL(speedup_vs_naive, TABLE),
    TEXT(peer, FILES),              REAL(speedup_vs_peer, TABLE),
    REAL(min_gb, FILES),            REAL(workspace_mb, FILES),
    REAL(max_abs_err, FILES),       REAL(rel_rms_err, EVERY),
    REAL(err_ratio, FILES),         REAL(err_used, EVERY),
    TEXT(err_tensor, EVERY),        TEXT(worst, EVERY),
    REAL(atol, FILES),              REAL(rtol, FILES),
    REAL(sm_clock_mhz, TABLE),      REAL(temp_c, TABLE),
    REAL(power_capped_pct, TABLE),  REAL(throttled_pct, TABLE),
    REAL(power_w, FILES),           REAL(energy_j, FILES),
    REAL(tflops_per_w, FILES),      REAL(power_limit_w, TABLE),
    TEXT(repro, EVERY),             TEXT(launch, RECORD_JSONL),
    TEXT(asked, RECORD_JSONL),
    REAL(sustain_s, RECORD_JSONL),            COUNT(sustain_passes, RECORD_JSONL),
    TEXT(energy_source, RECORD_JSONL),        REAL(energy_counter_j, RECORD_JSONL),
    REAL(energy_integral_j, RECORD_JSONL),    REAL(sustain_sm_clock_mhz, RECORD_JSONL),
    REAL(sustain_temp_c, RECORD_JSONL),       REAL(sustain_power_capped_pct, RECORD_JSONL),
    REAL(sustain_throttled_pct, RECORD_JSONL),
};
enum { COLUMN_COUNT = sizeof columns / sizeof columns[0] };
_Static_assert((int)COLUMN_COUNT <= (int)RECORD_COLUMNS_MAX,
               "a writer selects among at most RECORD_COLUMNS_MAX columns");

#define TENSOR_TEXT(field) FIELD(record_tensor, FIELD_TEXT, field, RECORD_JSONL)
#define TENSOR_REAL(field) FIELD(record_tensor, FIELD_REAL, field, RECORD_JSONL)
static const struct column tensor_columns[] = {
    TENSOR_TEXT(name),          TENSOR_REAL(max_abs_err), TENSOR_REAL(rel_rms_err), TENSOR_REAL(rel_rms_bound),
    TENSOR_REAL(block_rms_err), TENSOR_REAL(gain_err),    TENSOR_REAL(err_ratio),   TENSOR_REAL(used),
    TENSOR_TEXT(rule),          TENSOR_TEXT(worst),       TENSOR_TEXT(failure),
};
enum { TENSOR_COLUMN_COUNT = sizeof tensor_columns / sizeof tensor_columns[0] };

static const struct column pass_columns[] = {
    FIELD(record_pass, FIELD_TEXT, name, RECORD_JSONL),
    FIELD(record_pass, FIELD_REAL, time_ms, RECORD_JSONL),
};
enum { PASS_COLUMN_COUNT = sizeof pass_columns / sizeof pass_columns[0] };

const struct column *record_column_find(const char *name, size_t length)
{
    for (int i = 0; i < COLUMN_COUNT; i++)
        if (strlen(columns[i].name) == length && memcmp(columns[i].name, name, length) == 0)
            return &columns[i];
    return NULL;
}

unsigned record_column_views(const char *name)
{
    const struct column *column = record_column_find(name, strlen(name));
    return column ? column->views : 0;
}

const struct column_list record_columns = {columns, COLUMN_COUNT};
const struct column_list record_tensor_columns = {tensor_columns, TENSOR_COLUMN_COUNT};
const struct column_list record_pass_columns = {pass_columns, PASS_COLUMN_COUNT};
