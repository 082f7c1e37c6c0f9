/* The state of a run of `ab`, which cmd/gate/ab.c fills, and its output: verdict lines, control, summary. */
#ifndef FABENCH_AB_REPORT_H
#define FABENCH_AB_REPORT_H

#include "cmd/gate/ab_build.h"
#include "cmd/record/record.h"

/* How the checked run of a configuration ended in one build. OUTCOME_NONE: its record has no such row. */
enum ab_outcome { OUTCOME_NONE, OUTCOME_PASS, OUTCOME_FAIL, OUTCOME_REFUSED, OUTCOME_ERROR };

/* One configuration: a problem and an implementation. */
struct ab_config {
    struct problem_key key;
    char label[PROBLEM_LABEL_SIZE], impl[40];
    int point; /* index of the problem in the plan, from 0 */
    enum ab_outcome outcome[AB_BUILDS];
    char reason[AB_BUILDS][200];
    int series;                                   /* index in ab.series; -1 = not timed */
    double log_ms[AB_BUILDS], log_mhz[AB_BUILDS]; /* sums over the pairs that were used */
    int clocks;                                   /* number of terms in log_mhz */
    enum decide_basis basis;                      /* what its pairs are compared by */
    char *repro;                                  /* owned */
};

struct ab {
    struct ab_setup setup;
    struct decide_rules rules;
    struct ab_config *configs;
    int config_count, point_count, timed_count;
    struct decide_config *series;
    struct decide_run run;
    int repeats;        /* pairs repeated for thermal slowdown */
    bool is_too_hot;    /* more than rules.repeats_max pairs were too hot: no further pairs */
    double *pair_means; /* mean difference of each complete pair, in logarithms; for the geomean; owned */
    int pair_count;
    double pair_s; /* duration of the last pair in seconds; 0 = none yet */
};

/* The verdict that the checked runs alone give. VERDICT_PASS: the configuration is to be timed; -1: neither build runs
 * it. */
int ab_untimed_verdict(const struct ab_config *);

/* Prints the lines above the verdicts, before the pairs begin. */
void ab_print_heading(const struct ab *);

/* Writes verdicts to the terminal, as annotations and to files. code: the exit code of the run so far. Returns the
 * final exit code. */
int ab_report(const struct ab *, int code);

#endif
