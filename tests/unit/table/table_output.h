/* What tests of the terminal table share: a table whose output stays in memory, a row, and what its lines must be. */
#ifndef FABENCH_TEST_TABLE_OUTPUT_H
#define FABENCH_TEST_TABLE_OUTPUT_H

#include "tests/unit/unit_help.h"

#include "cmd/base/terminal.h"
#include "cmd/record/record_file.h"
#include "cmd/table/table.h"

#define FILL(field, text) snprintf(field, sizeof(field), "%s", text)

/* The table's output so far, in memory, and the row that tests put into it. */
static FILE *captured;
static char *out_text;
static size_t out_bytes;
static struct record_row row;

static inline struct table *begin(int width, bool color, const char *peer, bool verify)
{
    free(out_text);
    out_text = NULL;
    captured = open_memstream(&out_text, &out_bytes);
    assert_non_null(captured);
    return table_open(captured, width, color, peer, verify);
}

/* Valid until the next begin. */
static inline char *end(void)
{
    assert_int_equal(fclose(captured), 0);
    return out_text;
}

static inline char *closed(struct table *t, int exit_code)
{
    table_close(t, NULL, 1, exit_code);
    return end();
}

static inline void a_row(const char *impl, int64_t n)
{
    record_row_clear(&row);
    FILL(row.impl, impl);
    row.key.mode = ATTN_BWD;
    row.key.dtype = ATTN_BF16;
    FILL(row.arch, "sm_90");
    row.key.layout = ATTN_BSHD;
    row.key.dist = FILL_NORMAL;
    row.key.l2 = L2_COLD;
    row.status = STATUS_OK;
    row.check = CHECKED_PASS;
    row.check_scope = CHECK_FULL;
    FILL(row.err_tensor, "dk");
    FILL(row.worst, "dk[0,5,4095,77]");
    row.repro = strdup("fabench --impl mine --mode bwd --causal --d 128 --seqlen 16k --dtype bf16 --seed 1");
    row.key.causal = 1;
    row.key.batch = 16384 / n;
    row.key.q_heads = row.key.kv_heads = 16;
    row.key.q_len = row.key.kv_len = n;
    row.key.head_dim = 128;
    row.key.window_left = row.key.window_right = -1;
    row.time_ms = 4.197;
    row.time_ms_ci_lo = 4.18;
    row.time_ms_ci_hi = 4.21;
    row.tflops = 655;
    row.gemm_tflops = 724;
    row.pct_of_gemm = 90.4;
    row.speedup_vs_naive = 7.15;
    row.speedup_vs_peer = 1.19;
    row.err_used = 0.41;
    row.rel_rms_err = 0.0041;
    row.sm_clock_mhz = 1725;
    row.temp_c = 61;
    row.power_capped_pct = 38;
    row.throttled_pct = 0;
    row.power_limit_w = 700;
    row.tensor_count = 1;
    FILL(row.tensors[0].name, "dk");
    row.tensors[0].rel_rms_err = 0.0041;
    row.tensors[0].rel_rms_bound = 0.01;
    row.tensors[0].used = 0.41;
}

static inline void fail_row(void)
{
    row.check = CHECKED_FAIL;
    row.tflops = row.pct_of_gemm = row.speedup_vs_naive = row.speedup_vs_peer = NAN;
    row.err_used = 999;
    row.tensor_count = 2;
    FILL(row.tensors[0].failure, "dk b=0 h=3 row=127 col=64: got 0 want 0.0042; 0.78 % of elements, in all 16 heads, "
                                 "all in rows 112..127; by rule block_rms, 100 x its bound");
    row.tensors[0].used = 999;
    row.tensors[0].block_rms_err = 1;
    FILL(row.tensors[1].name, "dq");
    row.tensors[1].used = 0.44;
}

/* Lines no wider than `width`; escape sequences take no room. */
static inline void assert_width(const char *text, int width)
{
    for (const char *line = text; *line;) {
        char plain[4096];
        size_t used = 0;
        const size_t length = strcspn(line, "\n");
        for (size_t i = 0; i < length; i++) {
            if (line[i] == '\033')
                while (line[i] != 'm')
                    i++;
            else
                plain[used++] = line[i];
        }
        plain[used] = '\0';
        if (wrap_columns(plain) > width)
            fail_msg("%d columns, not %d: %s", wrap_columns(plain), width, plain);
        line += length + (line[length] == '\n');
    }
}

static inline void assert_lacks(const char *text, const char *part)
{
    if (strstr(text, part))
        fail_msg("\"%s\" is in:\n%s", part, text);
}

static inline int count(const char *text, const char *part)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
        found++;
    return found;
}

#endif
