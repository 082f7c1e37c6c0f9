/* One problem from beginning to end: buffers, reference, every implementation checked, then timed in rounds, then
 * checked again; one row per implementation. Runs in the worker. */
#ifndef FABENCH_CASE_RUN_H
#define FABENCH_CASE_RUN_H

#include "cmd/device/implementations.h"
#include "cmd/run/row.h"

enum case_stage { STAGE_IDLE, STAGE_PREPARE, STAGE_CHECK, STAGE_TIME, STAGE_SUSTAIN };

/* Names of a stage: for progress ("checking"), and for errors ("in its checked launch"). */
const char *case_stage_doing(int stage);
const char *case_stage_when(int stage);

/* Callbacks of case_run. */
struct case_hooks {
    void *context;
    /* Called before each step, for the supervisor's time limit; slot -1 = the harness itself, impl "" = not resolved
     * yet. */
    void (*stage)(void *context, enum case_stage, int slot, const char *impl);
    bool (*interrupted)(void *context);
    /* A file could not be written; the sentence is on stderr already. Ends the run. */
    void (*io_failed)(void *context);
    /* Receives a finished row, which case_run owns. */
    void (*row)(void *context, int slot, const struct record_row *);
    /* A function of the implementation of the last stage has returned. */
    void (*returned)(void *context);
    /* Something is wrong that `slot` has done, or, where that is an implementation of the program itself, perhaps a
     * loaded one that was called before: these are to run in workers of their own. Returns only where none is left of
     * whom that can be asked. */
    void (*apart)(void *context, int slot, const char *sentence);
    /* The memory of this process cannot be trusted any more: the next cases are for another worker. Does not return. */
    void (*renew)(void *context);
};

struct case_setting {
    struct backend *backend;
    const struct options *options;
    const struct plan *plan;
    const struct run_facts *facts;
    const struct impl_slot *slots;
    int slot_count;
    bool timed;    /* false: verify */
    bool is_first; /* this process has timed nothing yet: preheat first, as the plan says */
    bool use_nvml;
    struct case_hooks hooks;
};

/* Runs plan->items[index] for every slot whose bit in `done` is not set; those with a bit in `rerun` are run again
 * without a new row, so that the others can be compared with them. ATTN_OK: every slot got its row (or the run was
 * interrupted). Otherwise slot *failed (or -1: the harness) failed with the reason, and the device may be in an error
 * state: rows that were sent stay valid, and the caller ends this process. */
enum attn_status case_run(const struct case_setting *, int index, unsigned done, unsigned rerun, int *failed,
                          struct attn_message *why);

/* --profile: one launch between the profiler's start and stop, nothing else. */
enum attn_status case_profile(const struct case_setting *, struct attn_message *why);

#endif
