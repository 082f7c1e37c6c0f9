/* What `ab` and `gate` say: one decisive line per configuration, worst first, on the terminal, as CSV, as JUnit XML and
 * as GitHub annotations, all from one list of lines. */
#ifndef FABENCH_VERDICTS_H
#define FABENCH_VERDICTS_H

#include <stdbool.h>
#include <stdio.h>

#include "cmd/record/record.h"
#include "cmd/options/options.h"

/* In the order in which they are shown. */
enum verdict {
    VERDICT_ERROR,        /* it ran into an error or its time limit: 6 */
    VERDICT_FAIL,         /* a check failed: 1 */
    VERDICT_LOST,         /* refuses what the other side ran: 3 */
    VERDICT_FLOOR,        /* below an absolute floor: 3 */
    VERDICT_REGRESS,      /* 3 */
    VERDICT_ABSENT,       /* of the baseline, not measured: 5 */
    VERDICT_INCONCLUSIVE, /* 4 */
    VERDICT_PASS,
    VERDICT_IMPROVE,
    VERDICT_FIXED,        /* failed its check before, passes now */
    VERDICT_NEW           /* did not run before, runs now */
};
const char *verdict_name(enum verdict);
int verdict_exit(enum verdict);

/* Numbers are NaN where there is none; changes in per cent, positive = slower. */
struct verdict_line {
    enum verdict verdict;
    char configuration[PROBLEM_LABEL_SIZE], impl[40];
    double from_ms, to_ms, change_pct, low_pct, high_pct;
    double share_change_pct;   /* gate: of the time against the GEMM */
    int pairs;                 /* ab; 0 = none */
    char why[320];
    const char *repro;         /* the command that measures it alone; NULL = none; not owned */
    const struct record_row *row; /* of `gate`: the row that it speaks of; not owned */
};

enum verdict_view { VERDICTS_AB, VERDICTS_GATE };

struct verdict_report {
    enum verdict_view view;
    struct verdict_line *lines; /* of the caller; verdicts_sort orders them */
    int count;
    const char *control;        /* ab: the control's own line, NULL = none */
    char summary[400];          /* "REGRESSION: 1 slower of 12; ..." */
    int exit_code, soft_code;   /* soft_code: what exit_code was before --soft made it 0; 0 = nothing was softened */
};

/* Worst first: by verdict, then by change. */
void verdicts_sort(struct verdict_line *, int count);
/* The worst exit code of the lines. */
int verdicts_exit(const struct verdict_line *, int count);
/* "1 slower, 1 lost, 2 undecided of 12"; "all 12 pass". */
char *verdicts_count(const struct verdict_line *, int count, char *buffer, size_t size);
/* "PASS", "REGRESSION", "INCONCLUSIVE", ... of an exit code. */
const char *verdict_state(int exit_code);

void verdicts_print(const struct verdict_report *, FILE *, int width, bool color);
/* GitHub workflow commands, one for each line that is not well; only when GITHUB_ACTIONS is "true". */
void verdicts_annotate(const struct verdict_report *, FILE *);
/* Both return false after a sentence on stderr. */
bool verdicts_junit(const struct verdict_report *, const char *path);
bool verdicts_csv(const struct verdict_report *, const char *path);

/* At the start of a run: a run that ends without verdicts must not leave the files of the one before it, which may have
 * passed. Arguments as of verdicts_deliver. False after a sentence on stderr. */
bool verdicts_forget(const struct options *, const char *folder);

/* All of it: --soft, the terminal, annotations, --junit, and <folder>/verdicts.csv where there is a folder to keep (NULL
 * = none). `code` is the run's exit code before --soft; returns the one to end with. */
int verdicts_deliver(struct verdict_report *, int code, const struct options *, const char *folder);

#endif
