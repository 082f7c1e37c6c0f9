/* The verdict lines of a gate: what became of each configuration, in words. */
#ifndef FABENCH_GATE_LINES_H
#define FABENCH_GATE_LINES_H

#include "cmd/gate/floors.h"
#include "cmd/gate/gate_cases.h"
#include "cmd/gate/verdicts.h"

struct gate_lines {
    struct verdict_line *items; /* owned */
    int count;
    char **repros; /* with the control beside it, of the lines that have one; owned */
    int repro_count;
    int not_requested;           /* configurations of the baseline that the options left out */
    int *line_of[GATE_RUNS_MAX]; /* of each row of each current record: its line, or -1; owned */
};

/* Makes the lines: of the configurations of the baseline, of the floors (NULL = none), and of current rows that have no
 * line yet and failed or are new. Returns EXIT_OK, or EXIT_NOT_COMPARABLE after a message. */
int gate_lines_make(struct gate_lines *, const struct options *, const struct gate_cases *,
                    const struct gate_side *baseline, const struct gate_side *current, struct floors *);
void gate_lines_free(struct gate_lines *, const struct gate_side *current);

/* The line of the control: the change of cudnn or, on the CPU, of the control that the others are compared with, and
 * the load of the machine. "" where there is nothing to say. */
void gate_describe_control(const struct gate_cases *, const struct gate_side *baseline, const struct gate_side *current,
                           char *text, size_t size);

/* What follows the counts in the summary: the change of the ceiling, the smallest limit that could be decided. */
void gate_describe_rest(const struct gate_lines *, const struct gate_cases *, const struct options *, char *text,
                        size_t size);

#endif
