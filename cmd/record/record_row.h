/* One row of a record: what was asked, how it ended, what was measured. DESIGN section 7 has the columns. */
#ifndef FABENCH_RECORD_ROW_H
#define FABENCH_RECORD_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "cmd/problem/problem_key.h"

enum { RECORD_SCHEMA = 1 };
#define RECORD_METHOD "3" /* version of the timing method (cmd/measure/rounds.h); raised when it changes */

/* How a case ended, and the verdict on its results; NONE = the record does not say. */
enum record_status {
    STATUS_NONE = -1, STATUS_OK, STATUS_OOM, STATUS_UNSUPPORTED, STATUS_SKIPPED, STATUS_ERROR, STATUS_TIMEOUT
};
enum record_check { CHECKED_NONE = -1, CHECKED_PASS, CHECKED_FAIL, CHECKED_OFF };

/* Errors of one output tensor, all of them in the JSONL; the row's own error columns are those of the worst. */
struct record_tensor {
    char name[8];        /* o lse dq dk dv */
    double max_abs_err, rel_rms_err, rel_rms_bound, block_rms_err, gain_err, err_ratio, used;
    char rule[24];       /* the rule nearest its bound: nonfinite element rms block_rms gain naive lse */
    char worst[64];      /* "dk[0,3,127,64]" */
    char failure[512];   /* the FAIL sentence of DESIGN section 6, empty when it passed */
};

struct record_pass { char name[16]; double time_ms; };

/* How statuses and verdicts are written; NULL ends each. */
extern const char *const record_status_names[]; /* ok oom unsupported skipped error timeout */
extern const char *const record_check_names[];  /* pass fail off */

/* One row. Strings are owned char arrays unless a comment says otherwise. Not measured: NaN, INT64_MIN, NONE, "". */
struct record_row {
    int64_t schema;
    char run_id[40], time_utc[24], commit[48], method[8];
    char device[64], arch[16], driver[24], cuda[16], cudnn[16];
    char impl[40], variant[64];
    struct problem_key key;
    enum record_status status;
    enum record_check check;
    int check_scope;        /* check_scope of problem/names.h, -1 = not known */
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
    char *repro;            /* owned; the command that makes this row again, NULL = none */

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
