/* What the supervisor knows of a run, for the supervisor*.c files alone. */
#ifndef FABENCH_SUPERVISOR_STATE_H
#define FABENCH_SUPERVISOR_STATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "cmd/base/clock.h"
#include "cmd/base/impl_name.h"
#include "cmd/base/log.h"
#include "cmd/plan/plan.h"
#include "cmd/run/outputs.h"
#include "cmd/run/progress.h"
#include "cmd/run/resume.h"
#include "cmd/run/row.h"
#include "cmd/run/session.h"
#include "cmd/run/witness.h"

struct slot_state {
    char name[IMPL_NAME_SIZE];
    bool named, has_run;
    bool loaded;            /* of a library of --impl-lib */
    struct witness witness; /* of its batches in the item witness_item */
    int witness_item;
};

struct supervisor {
    const struct options *options;
    char run_id[40];
    struct progress *progress;
    struct progress_state now;   /* the last complete state of the worker */
    struct awake_clock clock;    /* clock of the current worker */
    double paused_before_ms;     /* clock.paused_ms when its step was first seen */
    struct run_outputs *outputs; /* NULL until the first hello */
    FILE *sink; /* where header and rows go instead: to the process that writes those of several boards */
    struct plan plan;
    struct run_facts facts;
    struct slot_state slots[IMPL_MAX_SLOTS];
    int slot_count;
    unsigned *done;        /* slots of each item that have their row; NULL until the first hello */
    unsigned *ran;         /* those whose row is ok */
    unsigned *skip;        /* those without a row from the current worker */
    unsigned *rerun;       /* those that it runs nevertheless, to compare with */
    unsigned apart;        /* loaded slots that run in workers of their own from now on */
    int apart_now;         /* the one of them for which the current worker is, -1 = for all others */
    int item;              /* the first one that is not complete */
    int rows, rows_kept;   /* rows that there are, and that there were before this run */
    json_t *header;        /* of the first hello */
    struct resume *resume; /* the record that is continued, or NULL */
    int exit_code;
    int64_t broken_rows; /* that ended in an error or a timeout */
    double started_ms;
    bool is_late;     /* --max-time-s was over before all cases were done */
    bool finished;    /* no other worker is to be started */
    bool ended;       /* the worker said that it has run all that it was to run */
    bool reported;    /* the worker said how it failed */
    int idle_workers; /* that ended one after the other without a new row or a reason to run some apart */
    int witness_slot; /* whose batch is running, -1 = none; and when it began */
    double witness_ms;
    bool is_stopping; /* the worker was asked to stop, which it may not decide itself */
    bool garbled;     /* a message cannot be the worker's: something else wrote into its pipe, and it is killed */
};

static inline void worsen(struct supervisor *s, int code) { s->exit_code = exit_worst(s->exit_code, code); }

static inline unsigned all_slots(const struct supervisor *s) { return (unsigned)((UINT64_C(1) << s->slot_count) - 1); }

/* ---- rows, and whose failure it is (supervisor_rows.c) ---- */

/* The exit code after a row, and the error message of a row that failed, of --max-failures rows at most. */
void supervisor_apply_row(struct supervisor *, int slot, const struct record_row *);

/* One finished row, from the worker or made here. */
void supervisor_add_row(struct supervisor *, int item, int slot, const struct record_row *);

/* Loaded slots that the current worker may call. */
unsigned supervisor_loaded_here(const struct supervisor *);

/* From now on each of these loaded slots has workers of its own. */
void supervisor_run_apart(struct supervisor *, unsigned slots, const char *why);

/* A worker failed in a step of `slot`, -1 = the harness; signal: the one that ended it, 0 = none. */
void supervisor_blame(struct supervisor *, int item, int slot, enum record_status, int signal, const char *reason);

/* The next worker's slots: first all that can run together, then each of the others beside the program's own, which are
 * run again without rows. */
void supervisor_choose_slots(struct supervisor *);

/* After a worker that said that it has run all: whether it has. */
void supervisor_check_complete(struct supervisor *);

/* After each worker; idle: it brought no row and no reason to run some slots apart. */
void supervisor_count_idle(struct supervisor *, bool is_idle);

/* ---- what the worker says (supervisor_messages.c) ---- */

/* One line of its pipe. */
void supervisor_handle(struct supervisor *, const char *line);

/* Its current step, from the memory that it shares. */
void supervisor_update_progress(struct supervisor *);

#endif
