/* One row of a record: what was asked, how it ended, what was measured. DESIGN section 7 has the columns. */
#ifndef FABENCH_RECORD_ROW_H
#define FABENCH_RECORD_ROW_H

#include <stdbool.h>
#include <stdint.h>

enum { RECORD_SCHEMA = 1 };
#define RECORD_METHOD "3" /* version of the timing method (cmd/measure/rounds.h); raised when it changes */

enum record_status { STATUS_OK, STATUS_OOM, STATUS_UNSUPPORTED, STATUS_SKIPPED, STATUS_ERROR, STATUS_TIMEOUT };
enum record_check { RECORD_CHECK_PASS, RECORD_CHECK_FAIL, RECORD_CHECK_OFF };

/* Errors of one output tensor, all of them in the JSONL; the row's own error columns are those of the worst. */
struct record_tensor {
    char name[8];        /* o lse dq dk dv */
    double max_abs_err, rel_rms_err, rel_rms_bound, block_rms_err, gain_err, err_ratio, used;
    char rule[24];       /* the rule nearest its bound: nonfinite element rms block_rms gain naive lse */
    char worst[64];      /* "dk[0,3,127,64]" */
    char failure[512];   /* the FAIL sentence of DESIGN section 6, empty when it passed */
};

struct record_pass { char name[16]; double time_ms; };

/* One row. Strings are owned char arrays; doubles are NaN when not measured; int64 are INT64_MIN when not measured. */
struct record_row {
    int64_t schema;
    char run_id[40], time_utc[24], commit[48], method[8];
    char device[64], arch[16], driver[24], cuda[16], cudnn[16];
    char impl[40], variant[64], mode[4], dtype[8];
    int64_t causal, batch, q_heads, kv_heads, q_len, kv_len, head_dim;
    char layout[8];
    int64_t window_left, window_right;
    double dropout, scale;
    char dist[12];
    int64_t seed;
    char l2[8];
    char status[16], check[8], check_scope[8];
    char reason[512];
    int64_t samples;
    char stop[16];          /* noise | limit | samples */
    double time_ms, time_ms_ci_lo, time_ms_ci_hi, time_ms_min, noise_pct;
    double flops, tflops, tflops_sustained, gemm_tflops, pct_of_gemm, speedup_vs_naive;
    char peer[40];
    double speedup_vs_peer, min_gb, workspace_mb;
    double max_abs_err, rel_rms_err, err_ratio, err_used;
    char err_tensor[8], worst[64];
    double atol, rtol;
    double sm_clock_mhz, temp_c, power_capped_pct, throttled_pct, power_w, energy_j, tflops_per_w, power_limit_w;
    char repro[512];

    /* JSONL only. */
    double *samples_ms;     /* owned; `samples` of them */
    struct record_tensor tensors[5];
    int tensor_count;
    struct record_pass passes[8];
    int pass_count;
    char launch[8];         /* graph | direct | host */
    char asked[40];         /* the implementation as asked for: "fused" where impl says which one that was */
    /* The sustained region (cmd/measure/sustain.h) that tflops_sustained, power_w, energy_j and tflops_per_w come from. The
     * energies are those of the whole region: the device's counter, and its power readings integrated. */
    double sustain_s;
    int64_t sustain_passes;
    char energy_source[16]; /* counter | integral: which of the two energy_j and power_w are made from */
    double energy_counter_j, energy_integral_j;
    double sustain_sm_clock_mhz, sustain_temp_c, sustain_power_capped_pct, sustain_throttled_pct;
};

#endif
