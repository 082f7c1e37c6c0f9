/* What a loaded implementation must not do to the others of its worker. Around each of its steps: the state of the
 * process is recorded and put back, child processes are ended, threads that go on and a closed record pipe are noticed.
 * Used by the worker only. */
#ifndef FABENCH_RUN_NEIGHBOURS_H
#define FABENCH_RUN_NEIGHBOURS_H

#include <stdbool.h>

#include "cmd/run/case_run.h"
#include "cmd/run/progress.h"

struct neighbours;

/* `pipe` is the descriptor of the records; progress remembers what has been said, over all workers of a run. */
struct neighbours *neighbours_open(struct progress *, const struct impl_slot *slots, int pipe);
void neighbours_close(struct neighbours *);

/* A step of the slot begins (-1: of the harness); what an earlier one changed is put back first. Ends this process
 * where the record pipe is gone; the progress says in which step. */
void neighbours_enter(struct neighbours *, enum case_stage, int slot, const char *impl);

/* Its function has returned. */
void neighbours_leave(struct neighbours *);

/* Bits of the loaded slots that were entered since neighbours_open. */
unsigned neighbours_called(const struct neighbours *);

/* Threads that an implementation started and that computed on after its function had returned: its slot, once; else
 * -1. */
int neighbours_runaway(struct neighbours *);

#endif
