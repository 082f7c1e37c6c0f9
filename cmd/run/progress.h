/* The current step of a worker, in memory that it shares with the supervisor. The worker writes it before each step;
 * the supervisor reads it at any time, also after the worker died in the middle of writing. */
#ifndef FABENCH_RUN_PROGRESS_H
#define FABENCH_RUN_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cmd/base/impl_name.h"

struct progress_state {
    int item;                  /* of the plan, -1 = none yet */
    int slot;                  /* of the implementations, -1 = the harness itself */
    int stage;                 /* enum case_stage */
    double since_ms;           /* clock_ms() when the step, or the sample in it, began */
    unsigned called;           /* bits of the slots of loaded libraries whose functions this worker has called */
    int lost_pipe;             /* 1: the worker ended because its record pipe was closed in this step */
    char impl[IMPL_NAME_SIZE]; /* what the slot resolved to, "" when that is not known */
};

/* Two copies of the state, each with a sequence number that is odd while it is written. The worker writes the copy that
 * is not current and then makes it current, so that a write that is cut leaves the last whole state in place. */
enum { PROGRESS_SLOTS = 32 };
enum { PROGRESS_WORDS = (sizeof(struct progress_state) + 7) / 8 };
struct progress_copy {
    atomic_uint sequence;
    _Atomic uint64_t words[PROGRESS_WORDS];
};
struct progress {
    atomic_uint written; /* number of states written; the last one is in copies[written % 2] */
    atomic_bool stop;    /* the supervisor asks the worker to end after the sample in flight */
    /* The supervisor's answer to a batch of launches: their number since the worker began, and whether it wants no
     * other one. It decides by what it keeps itself. */
    atomic_uint witnessed;
    atomic_bool is_confirmed;
    atomic_uint witness_us; /* how long it took by the supervisor's clock, for the length of the next one */
    struct progress_copy copies[2];
    /* What has been said of each slot (cmd/run/neighbours.c), so that later workers do not say it again. */
    atomic_uint told[PROGRESS_SLOTS], told_of_some; /* of a slot; of one that is not known */
};

/* Shared with children that are started later; NULL with errno. Its state is {.item = -1, .slot = -1}. */
struct progress *progress_open(void);
void progress_close(struct progress *);

/* Sets the state in which the next worker starts, and whether it must stop at once. Call it only while no worker
 * runs. */
void progress_reset(struct progress *, const struct progress_state *, bool stop);

/* By one process at a time. */
void progress_write(struct progress *, const struct progress_state *);

/* The last whole state. False, with the caller's state untouched, when the writer was faster at every try: then what
 * was read before stays the best answer. Never false once the writer has ended. */
bool progress_read(struct progress *, struct progress_state *);

#endif
