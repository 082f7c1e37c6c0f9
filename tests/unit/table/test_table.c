/* The terminal table: what it says, and that it never grows wider than the terminal. */
#include "tests/unit/unit_help.h"

#include "cmd/record/record_file.h"
#include "cmd/base/log.h"
#include "cmd/table/summary.h"
#include "cmd/table/table.h"
#include "cmd/base/terminal.h"

#ifndef TEST_DATA_DIR
#define TEST_DATA_DIR "tests/unit/data"
#endif

#define FILL(field, text) snprintf(field, sizeof(field), "%s", text)

/* The table's output so far, in memory, and the row that tests put into it. */
static FILE *captured;
static char *out_text;
static size_t out_bytes;
static struct record_row row;

static struct table *begin(int width, bool color, const char *peer, bool verify)
{
    free(out_text);
    out_text = NULL;
    captured = open_memstream(&out_text, &out_bytes);
    assert_non_null(captured);
    return table_open(captured, width, color, peer, verify);
}

/* Valid until the next begin. */
static char *end(void)
{
    assert_int_equal(fclose(captured), 0);
    return out_text;
}

static char *closed(struct table *t, int exit_code)
{
    table_close(t, NULL, 1, exit_code);
    return end();
}

static void a_row(const char *impl, int64_t n)
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

static void fail_row(void)
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
static void assert_width(const char *text, int width)
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

static void assert_lacks(const char *text, const char *part)
{
    if (strstr(text, part))
        fail_msg("\"%s\" is in:\n%s", part, text);
}

static int count(const char *text, const char *part)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
        found++;
    return found;
}

/* A sustained region has its line below the row's burst figures, and the summary says whether its energies agree and
 * how clocks that moved are held. Without regions the summary says what they would add. */
static void sustained_regions(void **state)
{
    (void)state;
    struct table *t = begin(110, false, "cudnn", false);
    table_clocks(t, "0000:19:00.0");
    a_row("fused_sm90", 16384);
    row.sustain_s = 10.02;
    row.sustain_passes = 2400;
    row.tflops_sustained = 628.8;
    row.power_w = 699;
    row.energy_j = 2.92;
    row.tflops_per_w = 0.8996;
    row.sustain_sm_clock_mhz = 1605;
    row.sustain_power_capped_pct = 99;
    row.sustain_throttled_pct = 0;
    row.sustain_temp_c = 66;
    row.energy_counter_j = 7040;
    row.energy_integral_j = 7000;
    table_row(t, &row);
    row.energy_counter_j = 6900;
    row.throttled_pct = row.sustain_throttled_pct = 3;
    table_row(t, &row);
    table_close(t, NULL, 44.2, EXIT_OK);
    char *text = end();
    assert_width(text, 110);
    assert_has(text,
               "          sustained 10 s: 628.8 TFLOPS (-4.0%), 699 W, 2.92 J/pass, 0.90 TFLOPS/W, 1605 MHz, capped "
               "99%, 66 C\n");
    assert_has(text, "throttled 3%");
    assert_has(text, "sustained: 2 rows; the device's energy counter is within 1.4 % of integrated power\n");
    assert_has(text, "clocks moved from 1605 to 1725 MHz; to lock them, as root:\n"
                     "  nvidia-smi -i 0000:19:00.0 --lock-gpu-clocks=1605,1605\n");
    assert_lacks(text, "--sustain-s");

    t = begin(110, false, "cudnn", false); /* locked, or not known: nothing to be said */
    table_row(t, &row);
    row.power_w = row.energy_j = row.tflops_per_w = NAN;
    row.sustain_sm_clock_mhz = row.sustain_power_capped_pct = row.sustain_throttled_pct = row.sustain_temp_c = NAN;
    row.energy_counter_j = row.energy_integral_j = NAN;
    table_row(t, &row);
    table_close(t, NULL, 44.2, EXIT_OK);
    text = end();
    assert_lacks(text, "nvidia-smi");
    assert_has(text, "sustained 10 s: 628.8 TFLOPS (-4.0%), no power figures\n");
}

static void sweep_looks_as_drawn(void **state)
{
    (void)state;
    struct table *t = begin(110, false, "cudnn", false);
    table_header_line(t, "NVIDIA H200 141 GB");
    table_convention(t, "16384 tokens");
    a_row("fused_sm90", 16384);
    table_row(t, &row);
    a_row("naive", 16384);
    row.time_ms = 30.012;
    row.tflops = 91.6;
    row.pct_of_gemm = 12;
    row.speedup_vs_naive = 1;
    row.speedup_vs_peer = 0.17;
    FILL(row.err_tensor, "dq");
    row.err_used = 0.5;
    row.gemm_tflops = 710;
    table_row(t, &row);
    table_close(t, NULL, 44.2, EXIT_OK);
    char *text = end();
    assert_width(text, 110);
    static const char drawn[] =
        "NVIDIA H200 141 GB\n"
        "bwd causal d=128 bf16, 16384 tokens, 16 heads, L2 cold, N(0,1), burst | GEMM bf16 724 TFLOPS\n"
        "   n   b  impl                ms  TFLOPS  +-95%  %GEMM  x naive  x cudnn  check  err/bound   MHz  capped\n"
        " 16k   1  fused_sm90       4.197   655.0   0.4%     90     7.15     1.19   pass    0.41 dK  1725     38%\n"
        "          naive            30.01    91.6   0.0%     12     1.00     0.17   pass    0.50 dQ\n"
        "2 of 2 rows checked (full), all pass.\n"
        "fused_sm90: geomean 1.19 x cudnn over 1 row, 7.15 x naive over 1 row\n"
        "nearest its bound: fused_sm90 bwd causal d128 n=16k bf16, dk[0,5,4095,77] at 0.41 of its bound; rel. RMS\n"
        "  0.0041, bound 0.01\n"
        "device: power-capped 38 % at 16k (normal at 700 W), thermal/brake 0 %, 61..61 C, GEMM bf16 724 -> 710 TFLOPS\n"
        "  in this run (-1.9%)\n"
        "burst figures; --sustain-s 10 adds sustained TFLOPS, J per pass, TFLOPS/W (~21 s more)\n"
        "PASS: 2 of 2 rows ";
    assert_true(strlen(text) > strlen(drawn));
    const char *last = text + strlen(drawn) - strlen("PASS: 2 of 2 rows ");
    assert_int_equal(strlen(last), 110 + 1);
    assert_string_equal(last + 110 - strlen("44 s, exit 0"), "44 s, exit 0\n");
    text[strlen(drawn)] = '\0';
    assert_string_equal(text, drawn);
}

static void failure_says_where(void **state)
{
    (void)state;
    struct table *t = begin(110, true, "cudnn", false);
    a_row("fused_sm90", 16384);
    fail_row();
    table_row(t, &row);
    table_close(t, NULL, 9, EXIT_CHECK_FAILED);
    char *text = end();
    assert_width(text, 110);
    assert_has(text, "4.197       -   0.4%      -        -        -   \033[1;31mFAIL\033[0m    >999 dK");
    assert_has(text, "FAIL fused_sm90 bwd causal d128 n=16k bf16: dk fails, dq 0.44 of its bound\n");
    assert_has(text, "  dk b=0 h=3 row=127 col=64: got 0 want 0.0042; 0.78 % of elements, in all 16 heads,");
    assert_has(text, "  dk: rel. RMS 0.0041, bound 0.01; worst 64 rows 1, bound 0.02\n");
    assert_has(text,
               "  4.197 ms is kept, TFLOPS withheld. Again, with the tensors as .npy:\n"
               "  fabench --impl mine --mode bwd --causal --d 128 --seqlen 16k --dtype bf16 --seed 1 --dump bad/\n");
    assert_has(text, "1 of 1 rows checked (full), 0 pass, 1 FAIL.\n");
    assert_has(text, "FAILED: 1 of 1 rows");
    assert_has(text, "9.0 s, exit 1\n");
    assert_lacks(text, "geomean");
    assert_lacks(text, "nearest");
}

static void status_stands_for_numbers(void **state)
{
    (void)state;
    static const char *const statuses[] = {"oom", "unsupported", "error", "timeout", "skipped"};
    struct table *t = begin(99, false, "cudnn", false);
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        a_row("naive", 8192);
        row.status = index_of(record_status_names, statuses[i]);
        row.check = CHECKED_OFF;
        memset(row.reason, 'x', sizeof row.reason - 1); /* longer than any line */
        row.tflops = row.time_ms = NAN;
        table_row(t, &row);
    }
    table_close(t, NULL, 300, EXIT_DEVICE);
    char *text = end();
    assert_width(text, 99);
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        char word[40];
        snprintf(word, sizeof word, "%s: xxx", statuses[i]);
        assert_has(text, word);
    }
    assert_int_equal(count(text, "xxx...\n"), 5);
    assert_int_equal(count(text, " 8k"), 1);
    assert_has(text, "0 of 5 rows checked, 1 oom, 1 skipped, 1 unsupported, 1 error, 1 timeout.\n");
    assert_has(text, "ERROR: 2 of 5 rows did not finish");
    assert_has(text, "5 min 00 s, exit 6");
}

/* verify: a line for each reason in the place of the rows that were refused. */
static void refusals_are_counted(void **state)
{
    (void)state;
    for (int is_verbose = 0; is_verbose < 2; is_verbose++) {
        struct table *t = begin(110, false, NULL, true);
        table_group_refusals(t);
        if (is_verbose)
            table_verbose(t);
        for (int i = 0; i < 5; i++) {
            a_row("mine", 1024);
            row.status = i == 0 ? STATUS_OK : i == 4 ? STATUS_OOM : STATUS_UNSUPPORTED;
            row.check = i == 0 ? CHECKED_PASS : CHECKED_OFF;
            snprintf(row.reason, sizeof row.reason, "%s", i == 0 ? "" : i < 3 ? "takes no window" : "needs more");
            row.tflops = row.time_ms = NAN;
            table_row(t, &row);
        }
        char *text = closed(t, EXIT_OK);
        assert_int_equal(count(text, "unsupported: takes no window"), is_verbose ? 3 : 1);
        assert_has(text, "\n  2 x mine unsupported: takes no window\n");
        assert_has(text, " oom: needs more\n");
        assert_has(text, "\nPASS: 1 row, 1 out of memory, 3 refused: 2 window, 1 needs more ");
    }
}

static void empty_columns_are_left_out(void **state)
{
    (void)state;
    struct table *t = begin(110, false, NULL, false);
    a_row("fused", 1024);
    FILL(row.arch, "cpu");
    row.gemm_tflops = row.pct_of_gemm = row.sm_clock_mhz = row.power_capped_pct = row.speedup_vs_peer = NAN;
    row.throttled_pct = row.temp_c = row.power_limit_w = NAN;
    row.tflops = 0.0234;
    table_row(t, &row);
    char *text = closed(t, EXIT_OK);
    assert_has(text, "TFLOPS  +-95%  x naive  check  err/bound\n");
    assert_has(text, " 0.023 ");
    assert_lacks(text, "GEMM");
    assert_lacks(text, "device:");
    assert_lacks(text, "- ");

    t = begin(110, false, "cudnn", false); /* a GPU without NVML */
    a_row("fused_sm80", 1024);
    row.sm_clock_mhz = row.power_capped_pct = NAN;
    table_row(t, &row);
    text = closed(t, EXIT_OK);
    assert_has(text, "%GEMM");
    assert_lacks(text, "MHz");
    assert_lacks(text, "capped ");
}

static void headings_follow_the_problem(void **state)
{
    (void)state;
    struct table *t = begin(110, false, "cudnn", false);
    a_row("naive", 1024);
    table_row(t, &row);
    a_row("cudnn", 1024);
    table_row(t, &row);
    a_row("naive", 2048);
    table_row(t, &row);
    row.key.causal = 0;
    table_row(t, &row);
    row.key.mode = ATTN_FWD;
    table_row(t, &row);
    row.key.head_dim = 64;
    row.key.q_heads = 32;
    row.key.kv_heads = 4;
    table_row(t, &row);
    row.key.dtype = ATTN_FP16;
    row.key.window_left = 128;
    row.key.layout = ATTN_BHSD;
    row.key.dist = FILL_UNIFORM;
    row.key.kv_len = 4096;
    table_row(t, &row);
    char *text = closed(t, EXIT_OK);
    assert_width(text, 110);
    assert_int_equal(count(text, "impl  "), 5);
    assert_int_equal(count(text, "\n  1k "), 1);
    assert_has(text, "fwd full d=64 bf16, 32/4 heads, L2 cold, N(0,1), burst");
    assert_has(text, "fwd full w128,- d=64 fp16, 32/4 heads, L2 cold, bhsd, U(-1,1), burst");
    assert_has(text, "2kx4k   8");
}

static void verify_shows_shapes(void **state)
{
    (void)state;
    struct table *t = begin(110, false, NULL, true);
    a_row("naive", 1024);
    row.key.kv_heads = 4;
    row.key.kv_len = 1031;
    row.time_ms = row.tflops = NAN;
    row.key.dist = FILL_HUGE;
    table_row(t, &row);
    fail_row();
    table_row(t, &row);
    char *text = closed(t, EXIT_CHECK_FAILED);
    assert_has(text, "16x16/4x1kx1031x128      causal   bf16   huge      bwd   naive");
    assert_lacks(text, "TFLOPS  ");
    assert_lacks(text, "ms is kept");
    assert_has(text, "n=1kx1031 bf16: dk fails");
    assert_has(text, "FAILED: 1 of 2 rows");
}

/* Of five failures two are shown; the rest is a count, and a sweep keeps their rows. */
static void failures_are_limited(void **state)
{
    (void)state;
    for (int verify = 0; verify < 2; verify++) {
        struct table *t = begin(110, false, "cudnn", verify);
        table_max_failures(t, 2);
        for (int i = 0; i < 5; i++) {
            a_row("fused_sm90", 1024 * (i + 1));
            if (i != 1)
                fail_row();
            table_row(t, &row);
        }
        a_row("fused_sm90", 8192);
        row.status = STATUS_TIMEOUT;
        row.check = -1;
        FILL(row.reason, "no answer");
        table_row(t, &row);
        table_close(t, &(struct summary_files){.dir = "/nowhere", .jsonl = "/nowhere/run.jsonl"}, 1, EXIT_CHECK_FAILED);
        char *text = end();
        assert_int_equal(count(text, "\nFAIL fused_sm90 "), 2);
        assert_int_equal(count(text, "no answer"), verify ? 0 : 1);
        assert_has(text, "5 failures, the first 2 are shown (--max-failures); the record has all of them\n");
        assert_has(text, "FAILED: 4 of 6 rows");
    }
}

static void next_command(void **state)
{
    (void)state;
    struct table *t = begin(110, false, "cudnn", false);
    a_row("mine", 1024);
    table_row(t, &row);
    table_next(t, "fabench --d 64 --out 'a b' --resume");
    char *text = closed(t, EXIT_INTERRUPTED);
    assert_has(text, "\nnext: fabench --d 64 --out 'a b' --resume\n");
}

static void verdicts_are_told_apart(void **state)
{
    (void)state;
    const struct {
        const char *status, *check;
        int exit_code;
        const char *verdict;
    } cases[] = {
        {"ok", "pass", EXIT_OK, "PASS: 1 of 1 rows"},
        {"ok", "off", EXIT_OK, "NOT CHECKED: 1 of 1 rows"},
        {"ok", "pass", EXIT_INTERRUPTED, "INTERRUPTED: 1 row is whole"},
        {"ok", "pass", EXIT_DEVICE, "INCOMPLETE: 1 of 1 rows ran"},
        {"ok", "fail", EXIT_CHECK_FAILED, "FAILED: 1 of 1 rows"},
        {"oom", "off", EXIT_OK, "NOTHING RAN: 0 of 1 rows"},
        {"unsupported", "off", EXIT_DEVICE, "NOTHING RAN: 1 row, all refused: 1 window "},
        {"timeout", "off", EXIT_DEVICE, "ERROR: 1 of 1 rows did not finish"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct table *t = begin(110, false, "cudnn", false);
        a_row("mine", 1024);
        row.status = index_of(record_status_names, cases[i].status);
        row.check = index_of(record_check_names, cases[i].check);
        snprintf(row.reason, sizeof row.reason, "%s", row.status == STATUS_UNSUPPORTED ? "takes no window" : "");
        table_row(t, &row);
        char *text = closed(t, cases[i].exit_code), last[64];
        assert_has(text, cases[i].verdict);
        snprintf(last, sizeof last, "1.0 s, exit %d\n", cases[i].exit_code);
        assert_string_equal(text + strlen(text) - strlen(last), last);
    }
}

/* An unchecked row must be marked as such; null has nothing to check. */
static void unchecked_is_said(void **state)
{
    (void)state;
    struct table *t = begin(110, false, "cudnn", false);
    a_row("mine", 1024);
    row.check = CHECKED_OFF;
    row.err_used = NAN;
    table_row(t, &row);
    char *text = closed(t, EXIT_OK);
    assert_has(text, "   off          -");
    assert_has(text, "(NOT CHECKED)");
    t = begin(110, false, "cudnn", false);
    a_row("mine", 1024);
    table_row(t, &row);
    a_row("null", 1024);
    row.check = CHECKED_OFF;
    row.tflops = row.err_used = NAN;
    table_row(t, &row);
    text = closed(t, EXIT_OK);
    assert_lacks(text, "NOT CHECKED");
    assert_has(text, "PASS: 1 of 2 rows");
}

/* A row that is noisier than asked is marked; --verbose says of each row how it was sampled. */
static void noise_is_marked(void **state)
{
    (void)state;
    struct table *t = begin(110, true, "cudnn", false);
    table_noise(t, 0.5);
    table_verbose(t);
    a_row("calm", 1024);
    row.samples = 30;
    FILL(row.stop, "noise");
    table_row(t, &row);
    a_row("wild", 1024);
    row.samples = 30;
    row.time_ms_ci_lo = 0.53 * row.time_ms;
    row.time_ms_ci_hi = 1.47 * row.time_ms;
    FILL(row.stop, "limit");
    table_row(t, &row);
    char *text = closed(t, EXIT_OK);
    assert_has(text, "  \033[33m!47%\033[0m  ");
    assert_has(text, "   0.4%  ");
    assert_lacks(text, "!0.4%");
    assert_has(text, "          calm: 30 samples, stop: noise\n");
    assert_has(text, "          wild: 30 samples, stop: limit (the time limit of the sampling; ");
    assert_has(text, "\033[32mPASS: 2 of 2 rows\033[0m; \033[33mNOISY: 1 of 2, up to 47 % (asked: 0.5 %)");
}

/* --quiet: nothing of a row that passed. */
static void quiet_says_failures_alone(void **state)
{
    (void)state;
    struct table *t = begin(110, false, "cudnn", false);
    table_quiet(t);
    table_header_line(t, "NVIDIA H200 141 GB");
    a_row("good", 1024);
    table_row(t, &row);
    char *text = closed(t, EXIT_OK);
    assert_string_equal(text, "");
    t = begin(110, false, "cudnn", false);
    table_quiet(t);
    a_row("wrong", 1024);
    fail_row();
    table_row(t, &row);
    text = closed(t, EXIT_CHECK_FAILED);
    assert_int_equal(strncmp(text, "FAIL wrong ", 11), 0);
    assert_lacks(text, "rows checked");
}

/* The widest plausible numbers, at every terminal width. */
static void widest_values_fit(void **state)
{
    (void)state;
    for (int width = 80; width <= 130; width++)
        for (int verify = 0; verify < 2; verify++) {
            const char *const peer = width % 2 ? "a_peer_with_a_very_long_name" : "cudnn";
            struct table *t = begin(width, width % 3 == 0, peer, verify);
            table_header_line(
                t, "NVIDIA H200 NVL 141 GB, 700 W, ECC on, driver 580.65.06, clocks unlocked, no other process "
                   "| fabench 0.3.0 (4e1c09a)");
            table_convention(t, "131072 tokens");
            for (int i = 0; i < 6; i++) {
                a_row(i % 2 ? "a_plugin_kernel_with_a_name_of_39_chars" : "fused_sm90", 1024);
                row.key.batch = 131072;
                row.key.q_heads = 128;
                row.key.kv_heads = 16;
                row.key.q_len = 131071;
                row.key.kv_len = 131071 - i / 2;
                row.key.head_dim = 256;
                row.key.window_left = row.key.window_right = 65535;
                row.key.dist = FILL_CONSTANT;
                row.key.layout = ATTN_BHSD;
                row.time_ms = 123456.7;
                row.time_ms_ci_lo = 1;
                row.time_ms_ci_hi = 2e9;
                row.tflops = row.gemm_tflops = 12345.6;
                row.pct_of_gemm = 12345;
                row.speedup_vs_naive = row.speedup_vs_peer = 123456;
                row.sm_clock_mhz = 12345;
                row.power_capped_pct = 100;
                FILL(row.err_tensor, "lse");
                row.err_used = INFINITY;
                FILL(row.worst, "dk[131071,127,131071,255]");
                if (i > 2)
                    fail_row();
                if (i == 5)
                    row.status = STATUS_UNSUPPORTED;
                memset(row.reason, 'r', sizeof row.reason - 1);
                if (i == 3)
                    for (size_t k = 7; k < sizeof row.reason - 1; k += 8)
                        row.reason[k] = ' ';
                if (i == 4)
                    row.reason[0] = '\0';
                free(row.repro);
                row.repro =
                    strdup("fabench --impl a_plugin_kernel_with_a_name_of_39_chars --impl-lib './my kernels/lib.so' "
                           "--mode bwd --causal --d 256 --seqlen 131071 --kv-len 131069 --dtype bf16 --seed 1 "
                           "--batch 131072 --heads 128 --kv-heads 16 --layout bhsd");
                if (i == 5)
                    row.check = CHECKED_OFF;
                table_row(t, &row);
            }
            table_close(t, NULL, 12345.6, EXIT_CHECK_FAILED);
            char *text = end();
            assert_width(text, width < 110 ? width : 110);
            assert_lacks(text, "nan");
            assert_lacks(text, " inf");
            assert_has(text, "'./my kernels/lib.so'");
        }
}

static void synthetic_run_fits(void **state)
{
    (void)state;
    static const int widths[] = {110, 100, 99, 80};
    struct record_file file;
    struct attn_message why;
    if (!record_read(TEST_DATA_DIR "/sweep_gpu.jsonl", &file, &why))
        fail_msg("%s", why.text);
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        struct table *t = begin(widths[i], i % 2, "cudnn", false);
        for (int k = 0; k < file.count; k++)
            table_row(t, &file.rows[k]);
        table_close(
            t,
            &(struct summary_files){.dir = TEST_DATA_DIR, .jsonl = TEST_DATA_DIR "/sweep_gpu.jsonl", .may_draw = true},
            44, EXIT_CHECK_FAILED);
        char *text = end();
        assert_width(text, widths[i]);
        assert_int_equal(count(text, "FAIL"), 1 + 1 + 1 + 1); /* the row, its paragraph, the count, the verdict */
        assert_has(text, "sweep_gpu.jsonl");
        assert_has(text, "fabench plot " TEST_DATA_DIR "/");
        assert_int_equal(strstr(text, "capped\n") != NULL, widths[i] >= 100);
    }
    record_file_free(&file);
}

/* A row is out as soon as table_row returns. */
static void rows_are_flushed(void **state)
{
    (void)state;
    int ends[2];
    char bytes[4096];
    assert_int_equal(pipe(ends), 0);
    FILE *out = fdopen(ends[1], "w");
    assert_non_null(out);
    struct table *t = table_open(out, 110, false, "cudnn", false);
    a_row("naive", 1024);
    table_row(t, &row);
    const ssize_t got = read(ends[0], bytes, sizeof bytes - 1);
    assert_true(got > 0);
    bytes[got] = '\0';
    assert_has(bytes, "naive");
    assert_int_equal(bytes[got - 1], '\n');
    table_close(t, NULL, 1, EXIT_OK);
    fclose(out);
    close(ends[0]);
}

/* A variant loses its middle: the kernel's name stays, and two variants do not look alike. */
static void variants_keep_their_kernel(void **state)
{
    (void)state;
    static const char *const names[] = {"fused_sm90:bwd_d64_k128q128_loop", "fused_sm90:bwd_d64_k128q64",
                                        "fused_sm80:fwd_d128_m128n64_s2"};
    for (int n = 0; n < 12; n++) {
        const int width = 60 + 10 * (n / 2);
        struct table *t = begin(width, false, "cudnn", n % 2);
        for (int i = 0; i < 3; i++) {
            a_row(names[i], 1024);
            table_row(t, &row);
        }
        fflush(captured);
        assert_int_equal(count(out_text, "fused_sm90:"), 2);
        assert_int_equal(count(out_text, "fused_sm80:"), 1);
        if (width >= 80) {
            assert_int_equal(count(out_text, "op "), 1);
            assert_int_equal(count(out_text, "64 "), 1);
            assert_int_equal(count(out_text, "s2 "), 1);
        }
        assert_width(out_text, width);
        table_close(t, NULL, 1, EXIT_OK);
        end();
    }
}

static void passes_stand_below_their_row(void **state)
{
    (void)state;
    struct table *t = begin(80, false, NULL, false);
    a_row("naive", 4096);
    FILL(row.passes[0].name, "scores");
    row.passes[0].time_ms = 1.25;
    FILL(row.passes[1].name, "softmax");
    row.passes[1].time_ms = 0.5;
    row.pass_count = 2;
    table_row(t, &row);
    char *text = closed(t, EXIT_OK);
    assert_width(text, 80);
    assert_non_null(strstr(text, "\n          naive: scores 1.25 ms, softmax 0.5 ms\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sustained_regions),
        cmocka_unit_test(sweep_looks_as_drawn),
        cmocka_unit_test(passes_stand_below_their_row),
        cmocka_unit_test(failure_says_where),
        cmocka_unit_test(status_stands_for_numbers),
        cmocka_unit_test(refusals_are_counted),
        cmocka_unit_test(empty_columns_are_left_out),
        cmocka_unit_test(headings_follow_the_problem),
        cmocka_unit_test(verify_shows_shapes),
        cmocka_unit_test(failures_are_limited),
        cmocka_unit_test(next_command),
        cmocka_unit_test(verdicts_are_told_apart),
        cmocka_unit_test(unchecked_is_said),
        cmocka_unit_test(noise_is_marked),
        cmocka_unit_test(quiet_says_failures_alone),
        cmocka_unit_test(widest_values_fit),
        cmocka_unit_test(synthetic_run_fits),
        cmocka_unit_test(rows_are_flushed),
        cmocka_unit_test(variants_keep_their_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}