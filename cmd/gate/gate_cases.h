/* The configurations of a gate: which rows of the records on both sides belong together, and the decision on each. */
#ifndef FABENCH_GATE_CASES_H
#define FABENCH_GATE_CASES_H

#include "cmd/gate/decide_gate.h"
#include "cmd/record/record_file.h"

/* The records of one side, one process each, and all their rows in the order of their configurations. */
struct gate_side {
    struct record_file files[GATE_RUNS_MAX];
    int count;
    struct gate_entry {
        const struct record_row *row;
        int file;
    } * entries; /* owned */
    int entry_count;
};

/* One configuration of the baseline. was, now: the rows that are shown and judged, the first of each side that ran, of
 * the current side the first that failed, if any did; NULL = none. now_rows: those of each current record. */
struct gate_case {
    const struct record_row *was, *now, *now_rows[GATE_RUNS_MAX];
    struct decide_case times; /* its arrays are owned; only where is_compared */
    struct decide_gate decision;
    bool is_compared;
};

struct gate_cases {
    struct gate_case *items; /* owned; in the order of the baseline */
    int count;
    struct decide_family family;
    const char *control; /* the implementation that others are compared with on the CPU; NULL = none */
};

/* Sorts the rows of a side; call it after the last file was added. */
void gate_side_index(struct gate_side *);
void gate_side_free(struct gate_side *);

/* A peer and the control show what the device does, `null` measures the harness: they are not judged. */
bool gate_is_judged(const struct record_row *, const char *control);

/* On the CPU: naive where it ran beside another implementation of the baseline, else one of this program's beside a
 * loaded one; NULL where there is neither. Elsewhere NULL. */
const char *gate_control_of(const struct gate_side *baseline);
bool gate_is_cpu(const struct gate_side *baseline);

/* Finds the configurations and decides each whose times can be compared. */
void gate_cases_make(struct gate_cases *, const struct decide_rules *, const struct gate_side *baseline,
                     const struct gate_side *current);
void gate_cases_free(struct gate_cases *);
/* Does a decision need another process of the current build? */
bool gate_cases_need_run(const struct gate_cases *, const struct decide_rules *, int runs);

#endif
