/* Records as figures side by side: for each label and problem the best implementation that passed its check. Pure
 * arithmetic over record rows; nothing is extrapolated, and nothing is compared over different problems or conditions.
 */
#ifndef FABENCH_REPORT_DATA_H
#define FABENCH_REPORT_DATA_H

#include "cmd/report/report_input.h"

/* The published set that geomeans are made of: bf16, forward and backward, full and causal, head dims 64 and 128,
 * 4096 and 16384 tokens a sequence, 16384 tokens in all, heads x head dim = 2048, bshd, N(0,1), L2 cold. */
enum { REPORT_SET_POINTS = 16 };
#define REPORT_SET_WORDS                                                                                               \
    "bf16, forward and backward, full and causal, head dims 64 and 128, lengths 4k and 16k; 16384 tokens, heads x "    \
    "head dim = 2048, bshd, N(0,1), L2 cold"

/* What one label has at one point. Where several files of the label have it, the figures are their medians. */
struct report_figure {
    bool is_there;
    struct record_row best; /* no samples; its time and interval are those of `tflops` */
    double lo, hi;          /* TFLOPS: the lowest and highest end of the files' 95 % intervals */
    int file_count;
    double least, most;     /* TFLOPS of the files */
    char ties[80];          /* implementations whose interval overlaps, "a, b" */
    int failed;             /* rows at this point that failed their check and do not count */
    bool has_naive, naive_is_oom;
    double naive_workspace_mb; /* NaN = not measured */
    int rank;               /* among the labels here: 1 + those whose interval lies above; 0 = nobody to compare with */
    bool is_tied;           /* with another label of this rank */
};

/* One problem under one set of conditions. */
struct report_point {
    const struct record_row *row; /* of any label: the problem and its conditions are alike in all */
    int set_index;                /* within the published set, -1 = outside */
};

/* Over the published set; NaN unless every point of it is there. */
struct report_geomeans {
    double tflops, tflops_fwd, tflops_bwd, tflops_sustained, pct_of_gemm, tflops_per_w, speedup_vs_naive;
    int points, sustained_points;
};

/* Rows of a label by what became of them; a case that is there twice counts once, by its last row. */
struct report_counts { int rows, pass, fail, off, oom, unsupported, broken, repeated; };

struct report_summary {
    struct report_geomeans geomeans;
    double file_least, file_most; /* geomeans of single files that hold the whole set; NaN below two of them */
    struct report_counts counts;
    double capped_pct, throttled_pct; /* the median and the largest share over the figures; NaN = not measured */
    int group;                        /* labels of one group share points, directly or through others */
    int points, best_points, tied_points; /* figures; those ranked 1 alone, and with others */
};

struct report {
    const struct report_input *input;
    struct report_point *points; /* by dtype, mode, mask, head dim, length, then conditions */
    int point_count;
    struct report_figure *figures; /* [point * label_count + label] */
    struct report_summary *summaries; /* by label */
    int group_count;
};

void report_make(struct report *, const struct report_input *);
void report_free(struct report *);

const struct report_figure *report_figure_at(const struct report *, int point, int label);

/* The index of a row's problem in the published set, -1 = outside. */
int report_set_index(const struct record_row *);

#endif
