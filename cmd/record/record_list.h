/* The one list of a row's columns: the fields of struct record_row (record_row.h), the table behind JSONL, CSV,
 * terminal and floors (record.c) and the columns of docs/reference.md are all made from it. A new column is one
 * entry here, at the end, and the statement that gives it a value: in cmd/run/row.c what follows from options, samples
 * and telemetry, in cmd/run/case_run.c what is known only while the problem runs. An attribute of the problem is a row
 * of cmd/problem/problem_key.c instead.
 *
 * X(kind, field, extra, views, unit, meaning, empty): TEXT is a char array of `extra` bytes, STRING an owned char *,
 * COUNT an int64_t, REAL a double, NAME an int that indexes the names `extra`. Views: FILES = CSV and JSONL, TABLE also
 * the sweep's table, EVERY also verify's. unit: also in the name, where there is one. empty: to follow "empty when"; an
 * empty column was not measured.
 */
#ifndef FABENCH_RECORD_LIST_H
#define FABENCH_RECORD_LIST_H

#include "cmd/base/impl_name.h"

/* When a column is empty. */
#define EMPTY_NEVER "never"
#define EMPTY_NOT_RUN "it did not run"
#define EMPTY_NOT_TIMED "not timed, as in verify"
#define EMPTY_NOT_CHECKED "not checked: --check off, or it did not run"
#define EMPTY_NO_NVML "on the CPU, without NVML, or not timed"
#define EMPTY_NOT_QUANTISED "the inputs have 16 or 32 bits, or were read as 8 bits from files"
#define EMPTY_NO_SUSTAIN "without --sustain-s, or where the device does not tell it"
#define EMPTY_NO_COUNTERS "without --counters, or where the device does not let them be read"
#define EMPTY_NO_MODEL "on the CPU, it did not run, or there is no model for what is asked"

/* The implementation and the device. The columns of the problem follow. */
#define RECORD_RUN_COLUMNS(X) \
    X(COUNT, schema, 0, FILES, "", "version of the record format", EMPTY_NEVER) \
    X(TEXT, run_id, 40, FILES, "", "one for all rows of a run", EMPTY_NEVER) \
    X(TEXT, time_utc, 24, FILES, "", "when the case began, as 2026-11-21T08:02:00Z", EMPTY_NEVER) \
    X(TEXT, commit, 48, FILES, "", "commit of fabench", EMPTY_NEVER) \
    X(TEXT, method, 8, FILES, "", "version of the timing method", EMPTY_NEVER) \
    X(TEXT, device, 64, FILES, "", "name of the device", EMPTY_NEVER) \
    X(TEXT, arch, 16, FILES, "", "its architecture, as sm_90; cpu", EMPTY_NEVER) \
    X(TEXT, driver, 24, FILES, "", "version of the driver", "on the CPU, or without NVML") \
    X(TEXT, cuda, 16, FILES, "", "version of the CUDA runtime", "on the CPU") \
    X(TEXT, cudnn, 16, FILES, "", "version of the loaded cuDNN", "where none is loaded") \
    X(TEXT, impl, IMPL_NAME_SIZE, EVERY, "", "implementation that ran, or name:variant as asked", EMPTY_NEVER) \
    X(TEXT, variant, 64, FILES, "", "tile configuration that ran", "it has none, or it did not run")

/* Measured as well, but later in the CSV: behind the columns of the problem that are newer than the first version of
 * the format. */
#define RECORD_LATE_COLUMNS(X) \
    X(REAL, quant_ms, 0, FILES, "ms", \
      "time that quantising the inputs took: of a GPU's kernel where it takes them, else of the host; a part of " \
      "time_ms where quant_in_time is 1", \
      EMPTY_NOT_QUANTISED) \
    X(REAL, quant_rms_err, 0, FILES, "", \
      "what quantising costs: rms(O' - O) / rms(O) of the reference, O' on the inputs, O on those before quantising", \
      EMPTY_NOT_QUANTISED ", or --check off") \
    X(COUNT, splits, 0, FILES, "", "parts of the keys as --splits asked; 0 = the implementation's choice", \
      "not decode") \
    X(REAL, gb_per_s, 0, TABLE, "1e9 bytes/s", "min_gb / time_ms, of decode", "not decode, or tflops is empty") \
    X(REAL, pct_of_read, 0, TABLE, "%", "gb_per_s as a share of the read ceiling; mean of the ratios within rounds", \
      "gb_per_s or read_gb_per_s is empty") \
    X(TEXT, board, 16, FILES, "", \
      "the board that it was measured on: eight hex digits made from its UUID, so that rows of one board can be told " \
      "from those of another", \
      "on the CPU, or without NVML") \
    X(REAL, read_gb_per_s, 0, TABLE, "1e9 bytes/s", \
      "speed of the read ceiling: as many bytes as min_gb, only read, in the same rounds", "not timed, or not decode") \
    X(TEXT, pci, 24, EVERY, "", "PCI address of the device in its host, as 0000:4e:00.0", "on the CPU") \
    X(TEXT, batch_invariant, 56, EVERY, "", \
      "whether each sequence has the same bits in other batches: yes; no and the first row that has not, as no " \
      "o[b,h,row] alone, and in which batch", \
      "without --invariance, no other batch could be run, or the check failed") \
    X(REAL, dram_read_gb, 0, FILES, "1e9 bytes", \
      "read from device memory by one launch, which finds nothing of it in the L2; counted by the hardware", \
      EMPTY_NO_COUNTERS) \
    X(REAL, dram_write_gb, 0, FILES, "1e9 bytes", \
      "written to it, with what the L2 still held at the end of the launch; counted", EMPTY_NO_COUNTERS) \
    X(REAL, l2_gb, 0, FILES, "1e9 bytes", "that the L2 gave and took; counted", EMPTY_NO_COUNTERS) \
    X(REAL, tensor_active_pct, 0, FILES, "%", \
      "cycles in which the tensor cores worked, of those in which a multiprocessor had work; counted", \
      EMPTY_NO_COUNTERS) \
    X(REAL, flop_done, 0, FILES, "FLOP", "that the tensor cores executed in one launch; counted", EMPTY_NO_COUNTERS) \
    X(TEXT, flop_types, 96, FILES, "", "flop_done by the type of the products, as bf16=5.5e11", EMPTY_NO_COUNTERS) \
    X(REAL, model_dram_gb, 0, FILES, "1e9 bytes", "the model of dram_read_gb + dram_write_gb, see docs/counters.md", \
      EMPTY_NO_MODEL) \
    X(REAL, model_l2_gb, 0, FILES, "1e9 bytes", "the model of l2_gb", EMPTY_NO_MODEL ", or the tiles are not known") \
    X(REAL, model_flop, 0, FILES, "FLOP", \
      "of all tiles that are computed, with what is masked inside them, as the implementation says", \
      EMPTY_NO_MODEL ", or the tiles are not known")

/* How the case ended, and what was measured. */
#define RECORD_RESULT_COLUMNS(X) \
    X(NAME, status, record_status_names, EVERY, "", \
      "how the case ended: ok, oom, unsupported, skipped, error, timeout", EMPTY_NEVER) \
    X(NAME, check, record_check_names, EVERY, "", \
      "verdict on its results: pass, fail; off where they were not judged", EMPTY_NEVER) \
    X(NAME, check_scope, problem_scope_names, EVERY, "", "how much was compared: full, sample, off", EMPTY_NEVER) \
    X(TEXT, reason, 512, EVERY, "", "why it did not run, or what failed", "nothing is to be said") \
    X(COUNT, samples, 0, FILES, "", "number of time samples", EMPTY_NOT_TIMED) \
    X(TEXT, stop, 16, FILES, "", \
      "why sampling ended: noise, the intervals are narrow enough; limit, the time for it was over", EMPTY_NOT_TIMED) \
    X(REAL, time_ms, 0, TABLE, "ms", "median of the samples", EMPTY_NOT_TIMED) \
    X(REAL, time_ms_ci_lo, 0, TABLE, "ms", "lower end of the 95 % interval of the median", \
      "fewer than 6 samples, or not timed") \
    X(REAL, time_ms_ci_hi, 0, TABLE, "ms", "upper end of that interval", "fewer than 6 samples, or not timed") \
    X(REAL, time_ms_min, 0, FILES, "ms", "the fastest sample", EMPTY_NOT_TIMED) \
    X(REAL, noise_pct, 0, FILES, "%", "(75th percentile - 25th percentile) / median of the samples", \
      "fewer than 4 samples, or not timed") \
    X(REAL, flops, 0, FILES, "FLOP", "of one pass, by the convention of docs/design.md, section 3", EMPTY_NEVER) \
    X(REAL, tflops, 0, TABLE, "1e12 FLOP/s", "flops / time_ms", "not timed, the check failed, or of null") \
    X(REAL, tflops_sustained, 0, FILES, "1e12 FLOP/s", "speed over the sustained region", \
      "without --sustain-s, or the check failed") \
    X(REAL, gemm_tflops, 0, TABLE, "1e12 FLOP/s", "speed of the GEMM ceiling in the same rounds", \
      "not timed, on the CPU, no cuBLAS, 8-bit inputs, or decode") \
    X(REAL, pct_of_gemm, 0, TABLE, "%", "tflops as a share of the GEMM ceiling; mean of the ratios within rounds", \
      "tflops or gemm_tflops is empty") \
    X(REAL, speedup_vs_naive, 0, TABLE, "", "time of naive / time of this one; mean of the ratios within rounds", \
      "naive did not run beside it or failed its check, or tflops is empty") \
    X(TEXT, peer, IMPL_NAME_SIZE, FILES, "", "whose speed speedup_vs_peer means", \
      "no peer ran beside it and passed its check") \
    X(REAL, speedup_vs_peer, 0, TABLE, "", "time of the peer / time of this one; mean of the ratios within rounds", \
      "peer or tflops is empty") \
    X(REAL, min_gb, 0, FILES, "1e9 bytes", \
      "memory traffic when each input is read once and each output is written once", EMPTY_NEVER) \
    X(REAL, workspace_mb, 0, FILES, "1e6 bytes", "workspace, and what the plan of a library holds", EMPTY_NOT_RUN) \
    X(REAL, max_abs_err, 0, FILES, "", "largest absolute error of err_tensor", EMPTY_NOT_CHECKED) \
    X(REAL, rel_rms_err, 0, EVERY, "", \
      "rms(x - reference) / rms(reference) of err_tensor; of lse, whose bound is absolute, no rule uses it", \
      EMPTY_NOT_CHECKED) \
    X(REAL, err_ratio, 0, FILES, "", "largest error of err_tensor / that of naive", \
      "naive did not run beside it or failed its check, or not checked") \
    X(REAL, err_used, 0, EVERY, "", "largest error / bound, over rules and tensors: 1 is at the bound", \
      EMPTY_NOT_CHECKED) \
    X(TEXT, err_tensor, 8, EVERY, "", "the tensor nearest its bound: o, lse, dq, dk, dv", EMPTY_NOT_CHECKED) \
    X(TEXT, worst, 64, EVERY, "", "worst element of err_tensor, as dk[b,h,row,col]", EMPTY_NOT_CHECKED) \
    X(REAL, atol, 0, FILES, "", "--atol, absolute tolerance of an element", "--atol was not given") \
    X(REAL, rtol, 0, FILES, "", "tolerance of an element relative to the reference", EMPTY_NOT_CHECKED) \
    X(REAL, sm_clock_mhz, 0, TABLE, "MHz", \
      "mean clock over the rounds of the problem, which its rows share, as the next three", EMPTY_NO_NVML) \
    X(REAL, temp_c, 0, TABLE, "degrees Celsius", "temperature at their end", EMPTY_NO_NVML) \
    X(REAL, power_capped_pct, 0, TABLE, "%", "share of their time in which the power limit held the clock down", \
      EMPTY_NO_NVML) \
    X(REAL, throttled_pct, 0, TABLE, "%", "share of their time in thermal slowdown or power brake", EMPTY_NO_NVML) \
    X(REAL, power_w, 0, FILES, "W", "mean power over the sustained region", EMPTY_NO_SUSTAIN) \
    X(REAL, energy_j, 0, FILES, "J", "energy of one pass, over the sustained region", EMPTY_NO_SUSTAIN) \
    X(REAL, tflops_per_w, 0, FILES, "1e12 FLOP/s/W", "tflops_sustained / power_w", EMPTY_NO_SUSTAIN) \
    X(REAL, power_limit_w, 0, TABLE, "W", "power limit of the device", "on the CPU, or without NVML") \
    X(STRING, repro, 0, EVERY, "", "the command that makes this row again", EMPTY_NEVER) \
    X(TEXT, launch, 8, RECORD_JSONL, "", "how it was launched: graph, direct, host", EMPTY_NOT_TIMED) \
    X(TEXT, asked, 40, RECORD_JSONL, "", "the implementation as asked for: fused where impl says which one that was", \
      EMPTY_NEVER) \
    X(REAL, sustain_s, 0, RECORD_JSONL, "s", "length of the sustained region", "without --sustain-s") \
    X(COUNT, sustain_passes, 0, RECORD_JSONL, "", "launches in it", "without --sustain-s") \
    X(TEXT, energy_source, 16, RECORD_JSONL, "", "what energy_j and power_w are made from: counter, integral", \
      EMPTY_NO_SUSTAIN) \
    X(REAL, energy_counter_j, 0, RECORD_JSONL, "J", "energy of the whole region by the counter of the device", \
      EMPTY_NO_SUSTAIN) \
    X(REAL, energy_integral_j, 0, RECORD_JSONL, "J", "energy of the whole region by its power readings", \
      EMPTY_NO_SUSTAIN) \
    X(REAL, sustain_sm_clock_mhz, 0, RECORD_JSONL, "MHz", "mean clock over the region", EMPTY_NO_SUSTAIN) \
    X(REAL, sustain_temp_c, 0, RECORD_JSONL, "degrees Celsius", "temperature at its end", EMPTY_NO_SUSTAIN) \
    X(REAL, sustain_power_capped_pct, 0, RECORD_JSONL, "%", \
      "share of the region in which the power limit held the clock down", EMPTY_NO_SUSTAIN) \
    X(REAL, sustain_throttled_pct, 0, RECORD_JSONL, "%", "share of the region in thermal slowdown or power brake", \
      EMPTY_NO_SUSTAIN) \
    X(COUNT, worker_signal, 0, RECORD_JSONL, "", "the signal that ended the process of the case", "no signal did") \
    X(TEXT, speedups, 512, RECORD_JSONL, "", \
      "speed over each other implementation of the rounds that passed, as cudnn=1.31 fa3=1.14; paired", \
      "tflops is empty") \
    X(STRING, only, 0, RECORD_JSONL, "", "key of the problem in verify, which --only takes", "not of verify") \
    X(REAL, cpu_wait_pct, 0, RECORD_JSONL, "%", \
      "share of the time in which threads of its process could have run and waited for a CPU, because others had it; " \
      "of the rounds of its problem", \
      "on a GPU, not timed, or the kernel does not tell")

#endif
