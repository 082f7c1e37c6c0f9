/* The output of `ab` and `gate`: one line with a verdict per configuration, the worst first, on the terminal, as CSV,
 * as JUnit XML and as GitHub annotations. */
#ifndef FABENCH_VERDICTS_H
#define FABENCH_VERDICTS_H

#include <stdbool.h>
#include <stdio.h>

#include "cmd/base/impl_name.h"
#include "cmd/record/record.h"
#include "cmd/options/options.h"

/* In the order in which they are printed, with exit codes that are not 0. */
enum verdict {
    VERDICT_ERROR,        /* it ran into an error or its time limit: 6 */
    VERDICT_FAIL,         /* a check failed: 1 */
    VERDICT_LOST,         /* refused now, ran before: 3 */
    VERDICT_FLOOR,        /* below an absolute floor: 3 */
    VERDICT_REGRESS,      /* 3 */
    VERDICT_ABSENT,       /* in the baseline, not measured: 5 */
    VERDICT_UNCHECKED,    /* its results, or those of the baseline, were not checked: 5 */
    VERDICT_UNDECIDED,    /* gate: too few samples for an interval, so nothing is decided: 4 */
    VERDICT_INCONCLUSIVE, /* 4 */
    VERDICT_PASS,
    VERDICT_IMPROVE,
    VERDICT_FIXED, /* failed its check before, passes now */
    VERDICT_NEW    /* did not run before, runs now */
};
const char *verdict_name(enum verdict);
int verdict_exit(enum verdict);

/* One line. from_*: OLD or the baseline, to_*: NEW or the current record; times in ms; changes in per cent, positive =
 * slower; low_pct, high_pct: bounds of the change. NaN = none. */
struct verdict_line {
    enum verdict verdict;
    char configuration[PROBLEM_LABEL_SIZE], impl[IMPL_NAME_SIZE];
    double from_ms, to_ms, change_pct, low_pct, high_pct;
    double relative_change_pct; /* gate: change of the time relative to the GEMM */
    double raw_change_pct;      /* ab: change of the plain time; change_pct is that which decides */
    char bound[40];             /* ab: the bound that decided, "<= +0.9 (95%)"; "" = none */
    int pairs;                  /* ab: number of pairs; 0 = not timed */
    char why[320];
    const char *repro;            /* the command that measures this configuration alone; NULL = none; not owned */
    const struct record_row *row; /* gate: the row of this line; NULL in ab; not owned */
};

enum verdict_view { VERDICTS_AB, VERDICTS_GATE };

struct verdict_report {
    enum verdict_view view;
    struct verdict_line *lines; /* of the caller; verdicts_sort orders them */
    int count;
    const char *decider;      /* ab: heading of change_pct, as "vs cudnn"; NULL = "vs control"; not owned */
    const char *control;      /* the line of the control, NULL = none; not owned */
    char summary[400];        /* "REGRESSION: 1 slower of 12; ..." */
    bool is_unread;           /* a file could not be read: --soft 5 does not apply */
    int exit_code, soft_code; /* soft_code: the exit code that --soft replaced by 0; 0 = none */
};

/* Worst first: by verdict, then by change. */
void verdicts_sort(struct verdict_line *, int count);
/* The worst exit code of the lines. */
int verdicts_exit(const struct verdict_line *, int count);
/* "1 slower, 1 lost, 2 undecided of 12"; "all 12 pass", "the only one passes". */
char *verdicts_count(const struct verdict_line *, int count, char *buffer, size_t size);
/* "PASS", "REGRESSION", "INCONCLUSIVE", ... of an exit code. */
const char *verdict_state(int exit_code);

void verdicts_print(const struct verdict_report *, FILE *, int width, bool color);
/* For --quiet: a message on stderr for each line whose exit code is not 0, and one with the summary. Nothing where all
 * passed. */
void verdicts_say(const struct verdict_report *);
/* GitHub workflow commands, one for each line that did not pass; only when GITHUB_ACTIONS is "true". */
void verdicts_annotate(const struct verdict_report *, FILE *);
/* Write a file. False after a message on stderr. */
bool verdicts_junit(const struct verdict_report *, const char *path);
bool verdicts_csv(const struct verdict_report *, const char *path);

/* Removes the --junit file and <folder>/verdicts.csv of an earlier run. Call it first: a run that ends without verdicts
 * must not leave files of a run that passed. folder: NULL = none. False after a message on stderr. */
bool verdicts_remove(const struct options *, const char *folder);

/* Applies --soft to `code`, the exit code of the run, and writes the terminal output, annotations, --junit and
 * <folder>/verdicts.csv (folder NULL: not written). Returns the exit code of the program. */
int verdicts_output(struct verdict_report *, int code, const struct options *, const char *folder);

#endif
