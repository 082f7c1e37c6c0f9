/* The terminal table: what it shows, and that it never grows wider than the terminal. */
#include "tests/unit/table/table_output.h"

#include "cmd/table/summary.h"

#ifndef TEST_DATA_DIR
#define TEST_DATA_DIR "tests/unit/data"
#endif

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

static void counters_stand_below_their_row(void **state)
{
    (void)state;
    struct table *t = begin(110, false, NULL, false);
    a_row("fused_sm90", 4096);
    row.flops = 1e12;
    row.dram_read_gb = 0.2;
    row.dram_write_gb = 0.07;
    row.model_dram_gb = 0.25;
    row.l2_gb = 12.5;
    row.tensor_active_pct = 77.6;
    row.flop_done = 1.05e12;
    FILL(row.flop_types, "bf16=1.05e+12");
    row.model_flop = 1.05e12;
    table_row(t, &row);
    char *text = closed(t, EXIT_OK);
    assert_width(text, 110);
    assert_has(text,
               "\n          counted: memory 0.200 GB read, 0.070 written (1.08 x model), L2 12.5 GB, tensor cores "
               "78%, FLOPs\n            bf16=1.05e+12, 1.050 of the visible pairs', 1.000 of its tiles'\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sustained_regions),
        cmocka_unit_test(sweep_looks_as_drawn),
        cmocka_unit_test(passes_stand_below_their_row),
        cmocka_unit_test(counters_stand_below_their_row),
        cmocka_unit_test(empty_columns_are_left_out),
        cmocka_unit_test(headings_follow_the_problem),
        cmocka_unit_test(verify_shows_shapes),
        cmocka_unit_test(widest_values_fit),
        cmocka_unit_test(synthetic_run_fits),
        cmocka_unit_test(rows_are_flushed),
        cmocka_unit_test(variants_keep_their_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
