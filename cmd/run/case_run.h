/* One problem from beginning to end: buffers, reference, every implementation checked, then timed in rounds, then
 * checked again; one row per implementation. Runs in the worker. */
#ifndef FABENCH_CASE_RUN_H
#define FABENCH_CASE_RUN_H

#include "cmd/run/case_setting.h"

/* Runs plan->items[index] for every slot whose bit in `done` is not set; those with a bit in `rerun` are run again
 * without a new row, so that the others can be compared with them. ATTN_OK: every slot got its row (or the run was
 * interrupted). Otherwise slot *failed (or -1: the harness) failed with the reason, and the device may be in an error
 * state: rows that were sent stay valid, and the caller ends this process. */
enum attn_status case_run(const struct case_setting *, int index, unsigned done, unsigned rerun, int *failed,
                          struct attn_message *why);

/* --profile: one launch between the profiler's start and stop, nothing else. */
enum attn_status case_profile(const struct case_setting *, struct attn_message *why);

#endif
