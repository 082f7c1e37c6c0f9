/* Records: one row per case, one list of columns (record.c) for the JSONL, the CSV and the terminal table.
 *
 * A JSONL file is a header object ({"type":"header", ...}), then one object per row ({"type":"row", ...}: every column
 * that is not empty, by its name, plus what only JSONL carries), in the order the cases finished. A file whose last
 * line is cut is readable up to there. Empty means not measured: NaN here, an absent key in JSONL, an empty CSV cell.
 */
#ifndef FABENCH_RECORD_H
#define FABENCH_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/attention.h"

enum { RECORD_SCHEMA = 1 };
#define RECORD_METHOD "3" /* version of the timing method (cmd/rounds.h); raised when it changes */

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
    /* The sustained region (cmd/sustain.h) that tflops_sustained, power_w, energy_j and tflops_per_w come from. The
     * energies are those of the whole region: the device's counter, and its power readings integrated. */
    double sustain_s;
    int64_t sustain_passes;
    char energy_source[16]; /* counter | integral: which of the two energy_j and power_w are made from */
    double energy_counter_j, energy_integral_j;
    double sustain_sm_clock_mhz, sustain_temp_c, sustain_power_capped_pct, sustain_throttled_pct;
};

/* Frees, then everything "not measured" but schema, which becomes ours. The row must be zeroed before its first
 * time. */
void record_row_clear(struct record_row *);
void record_row_free(struct record_row *);

/* Text from drivers and loaded libraries as one line of valid UTF-8: control characters become spaces, stray bytes '?'.
 * The records are written so; the terminal table and the charts use it too. */
void record_clean_text(const char *from, char *to, size_t size);

/* One row as one JSON object (the caller owns the reference); and back (unknown keys are ignored, missing ones are "not
 * measured"). record_row_parse returns false with a sentence when a key has the wrong type or the schema is another. */
json_t *record_row_json(const struct record_row *);
bool record_row_parse(const json_t *, struct record_row *, char *why, size_t why_size);

/* Writers. A row is one write to the file: whole when the call returns, write errors seen. 0, or an errno; a writer
 * that failed once stays failed. A regular file is locked while it is written: another run's file is refused. CSV is RFC
 * 4180's, but with lines that end in a newline alone. */
struct record_writer;
/* path "-" = stdout. Header is written at once (JSONL) or the column line (CSV). columns: comma-separated names for the
 * CSV, NULL = all. NULL on failure with a sentence. */
struct record_writer *record_open_jsonl(const char *path, const json_t *header, struct attn_message *why);
struct record_writer *record_open_csv(const char *path, const char *columns, struct attn_message *why);
/* Opens a record file to go on with it: locks it, reads it into *file (record_read), and returns its writer, which
 * stands behind the last whole line. Nothing in the file changes before record_continue. */
struct record_file;
struct record_writer *record_reopen_jsonl(const char *path, struct record_file *, struct attn_message *why);
/* Drops what was cut and appends `note`, an object with a "type" of its own. 0, or an errno. */
int record_continue(struct record_writer *, const json_t *note);
int record_write(struct record_writer *, const struct record_row *);
int record_write_json(struct record_writer *, const json_t *); /* an object of another type, into a JSONL file */
int record_close(struct record_writer *);     /* flushes, fsyncs files, reports the last error */

/* The views that a column is in; 0 when there is no such column. */
enum record_view { RECORD_CSV = 1, RECORD_JSONL = 2, RECORD_TABLE = 4, RECORD_VERIFY = 8 };
unsigned record_column_views(const char *name);

/* Is every name of the comma-separated list a column? Else false with a sentence naming the bad one and the nearest. */
bool record_columns_valid(const char *columns, struct attn_message *why);

/* A whole record file in memory. Returns false with a sentence when it cannot be read, is no record file, or has
 * another schema; a cut last line is dropped and `cut` set. */
struct record_file {
    char *path;
    json_t *header;
    json_t *later_headers; /* array, of files that were put together or gone on with; NULL = none */
    struct record_row *rows;
    int count;
    bool cut;
    int64_t whole_bytes; /* up to the end of the last whole line */
    bool is_ended;       /* and that line ends in a newline */
};
bool record_read(const char *path, struct record_file *, struct attn_message *why);
void record_file_free(struct record_file *);

#endif
