/* Computes the figures of a report: for each label and problem the fastest implementation that passed its check, ranks
 * and geometric means. Arithmetic over record rows only. Nothing is extrapolated, and only figures of the same problem
 * and conditions are compared. */
#ifndef FABENCH_REPORT_DATA_H
#define FABENCH_REPORT_DATA_H

#include "cmd/options/options.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"

/* The input of `report`: record files under labels, and prices. */

enum { REPORT_LABEL_MAX = 40 };

/* One label: a device, or a commit measured on it. */
struct report_label {
    char name[REPORT_LABEL_MAX + 24];
    int *files; /* indices into report_input.files */
    int file_count;
    double price; /* of one device, in report_input.currency; NaN = not given */
};

/* A word of the command line: LABEL=FILE, or FILE. The text before the first '=' is a label, unless it is part of a
 * path. False, after a sentence; also where a file is given twice. */
struct report_argument {
    const char *path;
    char label[REPORT_LABEL_MAX + 1]; /* "" = none */
};
bool report_arguments_parse(const struct name_list *words, struct report_argument *); /* one for each word */

struct report_input {
    struct record_file *files;
    int file_count;
    struct report_label *labels; /* in the order of the command line */
    int label_count;
    char currency[4]; /* of all prices; "" = no price */
};

/* Reads the files of the command line and sorts them by label. Returns EXIT_OK, or after a message on stderr
 *   EXIT_USAGE           for a wrong label or price, and a file that is given twice;
 *   EXIT_NOT_COMPARABLE  for a file that cannot be read, has nothing to report, holds several devices or methods, or
 *                        holds a run that another file holds, and for files of different devices under one label.
 * A cut last line is a warning. The caller calls report_input_free in every case. */
int report_input_read(const struct options *, struct report_input *);
void report_input_free(struct report_input *);

/* Can the row be used in a report? It must have run, passed its check, and have TFLOPS; null is not used. */
bool report_row_is_valid(const struct record_row *);

/* The published set, over which geomeans are computed: bf16, forward and backward, full and causal, head dims 64 and
 * 128, 4096 and 16384 tokens a sequence, 16384 tokens in all, heads x head dim = 2048, bshd, N(0,1), L2 cold. */
enum { REPORT_SET_POINTS = 16 };
#define REPORT_SET_WORDS \
    "bf16, forward and backward, full and causal, head dims 64 and 128, lengths 4k and 16k; 16384 tokens, heads x " \
    "head dim = 2048, bshd, N(0,1), L2 cold"

/* The result of one label at one point. Where several files of the label have it, values are medians over the files. */
struct report_figure {
    bool is_there;
    struct record_row best; /* without samples; its time and interval are computed from tflops */
    bool has_interval;      /* false: too few samples in a file; then it ties with every other figure */
    double lo, hi;          /* TFLOPS: the lowest and highest end of the 95 % intervals of the files */
    int file_count;
    double least, most; /* lowest and highest TFLOPS of the files */
    char ties[80];      /* implementations whose interval overlaps with that of `best`: "a, b" */
    int failed;         /* number of rows at this point that failed their check; they are not used */
    bool has_naive, naive_is_oom;
    double naive_workspace_mb; /* NaN = not measured */
    int rank;     /* 1 + the number of labels whose interval lies above; 0 = no other label has this point */
    bool is_tied; /* its interval overlaps with that of another label of this rank */
};

/* One problem under one set of conditions. */
struct report_point {
    const struct record_row *row; /* a row of any label: problem and conditions are the same in all */
    int set_index;                /* index in the published set, -1 = outside */
};

/* Geomeans over the published set; NaN unless the label has every point of it. */
struct report_geomeans {
    double tflops, tflops_fwd, tflops_bwd, tflops_sustained, pct_of_gemm, tflops_per_w, speedup_vs_naive;
    int points, sustained_points;
};

/* Number of rows of a label by outcome. Of a configuration that is in a file twice, only the last row counts. */
struct report_counts {
    int rows, pass, fail, off, oom, unsupported, broken, repeated;
};

struct report_summary {
    struct report_geomeans geomeans;
    double file_least, file_most; /* geomeans of the files that hold the whole set; NaN if fewer than two do */
    struct report_counts counts;
    double capped_pct, throttled_pct;     /* median, and largest, over the figures; NaN = not measured */
    double clock_mhz;                     /* median over the figures; NaN = not measured */
    int group;                            /* labels of a group share points, directly or through other labels */
    int points, best_points, tied_points; /* figures; those that rank 1 alone; those that rank 1 in a tie */
};

struct report {
    const struct report_input *input;
    struct report_point *points; /* by dtype, mode, mask, head dim, length, then conditions */
    int point_count;
    struct report_figure *figures;    /* [point * label_count + label] */
    struct report_summary *summaries; /* by label */
    const struct record_row ***rows;  /* of each file, sorted by problem, those of one in the order of the file */
    const struct record_row ***impls; /* the same, those of a problem by implementation first */
    const char *unit;                 /* of speed on the page: TFLOPS, or GFLOPS where no figure reaches 1 TFLOPS */
    double unit_scale;                /* how many of them make 1 TFLOPS; the CSV has TFLOPS always */
    int group_count;
};

/* Fills the report; report_free frees it. The input must outlive it. Groups: report_make_groups. */
void report_make(struct report *, const struct report_input *);
void report_free(struct report *);

const struct report_figure *report_figure_at(const struct report *, int point, int label);

/* The index of the problem of a row in the published set, -1 = outside. */
int report_set_index(const struct record_row *);

/* Puts labels that share a point into one group, also labels that are connected only through others. Fills
 * summaries[].group and group_count. */
void report_make_groups(struct report *);

/* Writes why two labels share no point: "dtype fp32 against fp16, bf16; tokens 4096 against 16384". */
void report_difference(const struct report *, int label, int other, char *text, size_t size);

/* Facts about a label besides its figures: the device, the conditions of the measurement, and notes on its rows. */

/* One row of the table of conditions. should_agree: labels that are compared should have the same value. */
struct report_fact {
    const char *name;
    bool should_agree;
};
extern const struct report_fact report_facts[];
extern const int report_fact_count;

/* Of the functions below: `label` is an index into report.input->labels, and the caller frees the text. */

/* The value of report_facts[fact] in the records of the label; different values of several files are joined by "; ".
 * "" = not recorded. */
char *report_fact_text(const struct report *, int label, int fact);

/* Single ones of these: the version and commit of fabench, the power limit, the size of the memory. */
char *report_commit_text(const struct report *, int label);
char *report_power_limit_text(const struct report *, int label);
char *report_memory_text(const struct report *, int label);

/* Is it the fact of report_commit_text, which the page says under its heading? */
bool report_fact_is_commit(int fact);

/* Notes for the heading of the label: "portable path: fused_sm80 on sm_90", "without the peer cudnn", "2 of 60 rows
 * FAILED their check"; "" = none. */
char *report_notes(const struct report *, int label);

/* How many boards the files of a label come from, by the column board or the UUIDs of the headers: 1, or file_count
 * (each from another); 0 = the records have neither, or neither number is right. */
int report_boards(const struct report *, int label);

/* The number of boards that all files of the report come from; 0 = some do not say. */
int report_all_boards(const struct report *);

/* The lengths at which naive fits into memory: "fwd: fits at every measured length, up to 16k; bwd: no longer fits at
 * 32k, longest that ran: 8k"; "" = naive was not measured. */
char *report_naive_text(const struct report *, int label);

#endif
