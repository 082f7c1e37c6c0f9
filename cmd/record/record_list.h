/* The one list of a row's columns: the fields of struct record_row (record_row.h) and the table behind JSONL, CSV,
 * terminal and floors (record_column.c) are both made from it. A new column is one line here, at the end, and the
 * statement that gives it a value: in cmd/run/row.c what follows from options, samples and telemetry, in
 * cmd/run/case_run.c what is known only while the problem runs. Units are in the comments and, where there is one, in
 * the name. An attribute of the problem is a row of cmd/problem/problem_key.c instead.
 *
 * X(kind, field, extra, views): TEXT is a char array of `extra` bytes, STRING an owned char *, COUNT an int64_t, REAL a
 * double, NAME an int that indexes the names `extra`. Views: FILES = CSV and JSONL, TABLE also the sweep's table, EVERY
 * also verify's. Empty = not measured.
 */
#ifndef FABENCH_RECORD_LIST_H
#define FABENCH_RECORD_LIST_H

/* The implementation and the device. The columns of the problem follow. */
#define RECORD_RUN_COLUMNS(X)                                                                                          \
    X(COUNT, schema, 0, FILES)   /* version of the record format */                                                    \
    X(TEXT, run_id, 40, FILES)   /* one for all rows of a run */                                                       \
    X(TEXT, time_utc, 24, FILES) /* when the case began, 2026-11-21T08:02:00Z */                                       \
    X(TEXT, commit, 48, FILES)   /* of fabench */                                                                      \
    X(TEXT, method, 8, FILES)    /* version of the timing method (cmd/measure/rounds.h) */                             \
    X(TEXT, device, 64, FILES)   /* its name */                                                                        \
    X(TEXT, arch, 16, FILES)     /* sm_90; cpu */                                                                      \
    X(TEXT, driver, 24, FILES)   /* its version */                                                                     \
    X(TEXT, cuda, 16, FILES)     /* version of the runtime */                                                          \
    X(TEXT, cudnn, 16, FILES)    /* version of the loaded library */                                                   \
    X(TEXT, impl, 40, EVERY)     /* implementation that ran, or name:variant as asked */                               \
    X(TEXT, variant, 64, FILES)  /* tile configuration that ran */

/* How the case ended, and what was measured. */
#define RECORD_RESULT_COLUMNS(X)                                                                                       \
    X(NAME, status, record_status_names, EVERY)      /* record_status: how the case ended */                           \
    X(NAME, check, record_check_names, EVERY)        /* record_check: the verdict on its results */                    \
    X(NAME, check_scope, problem_scope_names, EVERY) /* check_scope: how much was compared */                          \
    X(TEXT, reason, 512, EVERY)                      /* why it did not run, or failed */                               \
    X(COUNT, samples, 0, FILES)                      /* number of time samples */                                      \
    X(TEXT, stop, 16, FILES)                         /* why sampling ended: noise, limit (cmd/measure/rounds.h) */     \
    X(REAL, time_ms, 0, TABLE)                       /* ms; median of the samples */                                   \
    X(REAL, time_ms_ci_lo, 0, TABLE)                 /* ms; lower end of the 95 % interval of the median */            \
    X(REAL, time_ms_ci_hi, 0, TABLE)                 /* ms; its upper end */                                           \
    X(REAL, time_ms_min, 0, FILES)                   /* ms; the fastest sample */                                      \
    X(REAL, noise_pct, 0, FILES)                     /* %; (p75 - p25) / median */                                     \
    X(REAL, flops, 0, FILES)                         /* of one pass; the convention of problem_flops */                \
    X(REAL, tflops, 0, TABLE)                        /* 1e12 FLOP/s; from time_ms; empty where the check failed */     \
    X(REAL, tflops_sustained, 0, FILES)              /* 1e12 FLOP/s; over the sustained region */                      \
    X(REAL, gemm_tflops, 0, TABLE)                   /* 1e12 FLOP/s; of the GEMM ceiling in the same rounds */         \
    X(REAL, pct_of_gemm, 0, TABLE)                   /* %; of the ceiling, paired within rounds */                     \
    X(REAL, speedup_vs_naive, 0, TABLE)              /* naive's time / this one's, paired within rounds */             \
    X(TEXT, peer, 40, FILES)                         /* whose speed speedup_vs_peer means */                           \
    X(REAL, speedup_vs_peer, 0, TABLE)               /* the peer's time / this one's, paired within rounds */          \
    X(REAL, min_gb, 0, FILES)                        /* 1e9 bytes; each input read once, each output written once */   \
    X(REAL, workspace_mb, 0, FILES)                  /* 1e6 bytes; workspace and plan */                               \
    X(REAL, max_abs_err, 0, FILES)                   /* of err_tensor, like the next three */                          \
    X(REAL, rel_rms_err, 0, EVERY)                   /* ||x - ref|| / ||ref|| */                                       \
    X(REAL, err_ratio, 0, FILES)                     /* largest error / naive's largest error */                       \
    X(REAL, err_used, 0, EVERY)   /* largest error / bound over rules and tensors; 1 = at the bound */                 \
    X(TEXT, err_tensor, 8, EVERY) /* the tensor nearest its bound: o lse dq dk dv */                                   \
    X(TEXT, worst, 64, EVERY)     /* its worst element, dk[b,h,row,col] */                                             \
    X(REAL, atol, 0, FILES)       /* of rule 2, as given */                                                            \
    X(REAL, rtol, 0, FILES)       /* of rule 2 */                                                                      \
    X(REAL, sm_clock_mhz, 0,                                                                                           \
      TABLE) /* MHz; mean over the rounds of the problem, which its rows share, like the next three */                 \
    X(REAL, temp_c, 0, TABLE)           /* degrees Celsius; at their end */                                            \
    X(REAL, power_capped_pct, 0, TABLE) /* %; share of their time under the power cap */                               \
    X(REAL, throttled_pct, 0, TABLE)    /* %; share of their time in thermal slowdown or power brake */                \
    X(REAL, power_w, 0, FILES)          /* W; mean over the sustained region */                                        \
    X(REAL, energy_j, 0, FILES)         /* J per pass; over the sustained region */                                    \
    X(REAL, tflops_per_w, 0, FILES)     /* tflops_sustained / power_w */                                               \
    X(REAL, power_limit_w, 0, TABLE)    /* W; of the device */                                                         \
    X(STRING, repro, 0, EVERY)          /* the command that makes this row again */                                    \
    X(TEXT, launch, 8, RECORD_JSONL)    /* graph, direct, host */                                                      \
    X(TEXT, asked, 40, RECORD_JSONL)    /* the implementation as asked for: fused where impl says which that was */    \
    X(REAL, sustain_s, 0, RECORD_JSONL) /* s; length of the sustained region (cmd/measure/sustain.h) */                \
    X(COUNT, sustain_passes, 0, RECORD_JSONL)      /* launches in it */                                                \
    X(TEXT, energy_source, 16, RECORD_JSONL)       /* counter or integral: what energy_j and power_w are made from */  \
    X(REAL, energy_counter_j, 0, RECORD_JSONL)     /* J; of the whole region, by the device's counter */               \
    X(REAL, energy_integral_j, 0, RECORD_JSONL)    /* J; of the whole region, by its power readings */                 \
    X(REAL, sustain_sm_clock_mhz, 0, RECORD_JSONL) /* MHz; mean over the region */                                     \
    X(REAL, sustain_temp_c, 0, RECORD_JSONL)       /* degrees Celsius; at its end */                                   \
    X(REAL, sustain_power_capped_pct, 0, RECORD_JSONL) /* %; share of the region under the power cap */                \
    X(REAL, sustain_throttled_pct, 0, RECORD_JSONL)    /* %; share of the region in slowdown or brake */               \
    X(COUNT, worker_signal, 0, RECORD_JSONL) /* the signal that ended the process of the case, which has no result */

#endif
