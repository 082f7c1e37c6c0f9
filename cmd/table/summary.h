/* The summary under the table: number of checked rows, geometric means, the element nearest its bound, telemetry, the
 * record files, the verdict and the noise. Rows are added one by one; only what the
 * table of inputs needs of them is kept. */
#ifndef FABENCH_SUMMARY_H
#define FABENCH_SUMMARY_H

#include <stdio.h>

#include "cmd/base/impl_name.h"
#include "cmd/record/record.h"
#include "cmd/table/common.h"

/* The closing table of a run over several kinds of inputs (--logit-std, --dist): by how much the speed and the error of
 * each implementation depend on the data. A row is compared with the row of the same problem on the first kind of
 * inputs that the run has for it; its ratios are averaged geometrically over the lengths, masks and dtypes of an
 * implementation, direction and head dim. */

struct data_entry; /* what is kept of a row */

struct data_table {
    struct data_entry *entries; /* owned */
    int count;
};

/* Keeps what the table needs of a row that ran and did not fail its check. */
void data_table_add(struct data_table *, const struct record_row *);

/* Nothing where no problem was run with two kinds of inputs. */
void data_table_print(const struct data_table *, FILE *out, int width);

/* A line for each implementation, mask, head dim and kind of 8-bit inputs that ran beside wider ones: from which length
 * on they are faster. */
void data_table_print_crossovers(const struct data_table *, FILE *out, int width);

void data_table_free(struct data_table *);

enum { SUMMARY_IMPLS_MAX = 32, SUMMARY_DTYPES_MAX = 4, SUMMARY_REFUSALS_MAX = 24 };

/* Rows that did not run for one reason. */
struct summary_refusal {
    char impl[IMPL_NAME_SIZE], reason[160];
    int status, count; /* status: enum record_status */
};

/* --invariance: rows of one implementation by their batch_invariant. */
struct summary_invariance {
    char name[IMPL_NAME_SIZE];
    int same, other;
    char first[300]; /* of the rows with other bits: key of its problem, and where */
};

/* Sums of logarithms of the ratios of one implementation. */
struct summary_impl {
    char name[IMPL_NAME_SIZE];
    double peer_log_sum, naive_log_sum;
    int peer_count, naive_count, row_count;
};

/* The GEMM ceiling of one dtype, first and last value of the run. */
struct summary_gemm {
    int dtype; /* attn_dtype */
    double first_tflops, last_tflops;
};

/* What a run left in files; where a function takes a pointer, NULL = nothing. Paths are as the user would type them;
 * NULL = none, or stdout. charts: drawn by this run. may_draw: a chart on the terminal is a step that makes sense after
 * this run. */
struct summary_files {
    const char *dir, *csv, *jsonl;
    int charts;
    bool may_draw;
};

struct summary {
    char peer[IMPL_NAME_SIZE];
    int rows, pass, fail, off, null, oom, unsupported, skipped, error, timeout;
    char scope[8];
    struct summary_impl impls[SUMMARY_IMPLS_MAX];
    int impl_count;
    /* Nearest its bound among the rows that passed; the peer (rank 1) and naive (2) only where there is no other. */
    double nearest_used;
    int nearest_rank;
    char nearest[400];
    double quant_low, quant_high; /* least and largest quant_rms_err; low > high = nothing was quantised */
    double capped_pct, throttled_pct, power_limit_w, temp_low_c, temp_high_c;
    int64_t capped_q_len, throttled_q_len;
    double clock_low_mhz, clock_high_mhz;
    char free_clocks_of[24]; /* the device's bus id when its clocks are not locked; "" = clocks are not reported */
    int burst_count;         /* rows of a GPU without a sustained region */
    int sustained_count, energy_count; /* rows with one; those with both energies */
    double energy_apart_pct;           /* largest difference of counter and integral, signed */
    struct summary_gemm gemms[SUMMARY_DTYPES_MAX];
    int gemm_count;
    /* Noise: asked_pct is the half-width that was asked for (--max-noise), NaN = it is not known and noise is not said.
     * noisy counts the timed rows whose interval is wider, or who have none; worst_pct is the widest, NaN = none. */
    double asked_pct, worst_pct;
    int timed, noisy;
    double load_before;         /* the machine's one-minute load when the run began, NaN = not known */
    int failures, max_failures; /* rows that failed their check or did not finish; how many of them are shown */
    bool lists_refusals;        /* the reasons of rows that did not run are printed, each once with its number */
    struct summary_refusal refusals[SUMMARY_REFUSALS_MAX];
    int refusal_count, other_refusals; /* other: rows with a reason for which there was no room */
    struct summary_invariance invariances[SUMMARY_IMPLS_MAX];
    int invariance_count;
    struct common common;   /* what the failures have in common */
    bool has_boards;        /* a case of several boards is no case on several kinds of inputs */
    struct data_table data; /* owned; summary_end frees it */
    const char *next;       /* the command to go on with; NULL = the one that draws the record */
};

void summary_begin(struct summary *, const char *peer);
void summary_add(struct summary *, const struct record_row *);
void summary_print(const struct summary *, FILE *out, int width, bool color, const struct summary_files *,
                   double elapsed_s, int exit_code);

/* "PASS: 8 of 8 rows", "PASS: 72 rows, 62 refused: 40 paged cache, 22 window" and the like, without colour; true where
 * it is PASS. width: the columns that reasons may fill. The caller frees *text with text_free. */
struct text;
bool summary_verdict(const struct summary *, int exit_code, int width, struct text *text);
/* "NOISY: 5 of 8, up to 47 % (asked: 0.5 %); load 0.9 -> 2.4 on 2 CPUs": rows, and the load of the machine when the run
 * began and now; nothing where no row is noisy. */
void summary_noise(const struct summary *, struct text *text);

/* Is the interval of a timed row wider than asked, or is there none? False where asked_pct is NaN. */
bool summary_is_noisy(const struct record_row *, double asked_pct);

/* The machine's load over the last minute; NaN = not known. */
double summary_load(void);

/* Frees what was kept. */
void summary_end(struct summary *);

#endif
