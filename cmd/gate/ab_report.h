/* What a run of `ab` knows (cmd/gate/ab.c fills it), and what is said of it. */
#ifndef FABENCH_AB_REPORT_H
#define FABENCH_AB_REPORT_H

#include "cmd/gate/ab_side.h"
#include "cmd/record/record.h"

/* How one side's checked run of a case ended. */
enum fate { FATE_NONE, FATE_PASS, FATE_FAIL, FATE_REFUSED, FATE_ERROR };

/* One configuration: a problem and an implementation. */
struct ab_case {
    struct problem_key key;
    char label[PROBLEM_LABEL_SIZE], impl[40];
    int point;              /* number of the problem in the plan */
    enum fate fate[AB_SIDES];
    char reason[AB_SIDES][200];
    int series;             /* in ab.series; -1 = not timed */
    double log_ms[AB_SIDES], log_mhz[AB_SIDES]; /* sums over the pairs that count */
    int clocks;
    char *repro;            /* owned */
};

struct ab {
    struct ab_setup setup;
    struct decide_rules rules;
    struct ab_case *cases;
    int case_count, point_count, timed_count;
    struct decide_case *series;
    struct decide_run run;
    int repeats;            /* pairs repeated for thermal slowdown */
    bool gave_up;           /* one too many of them */
    double *pair_means;     /* of each pair over all its configurations; for the geomean */
    int pair_count;
    double pair_s;          /* what the last pair took; 0 = none yet */
};

/* The verdict of a case by its checked runs alone; VERDICT_PASS = it is timed, -1 = neither side runs it. */
int ab_untimed_verdict(const struct ab_case *);

/* The lines above the verdicts, before the pairs begin. */
void ab_print_heading(const struct ab *);

/* Terminal, annotations and files. `code`: how the run ended so far; returns the exit code. */
int ab_report(const struct ab *, int code);

#endif
