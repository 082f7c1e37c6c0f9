/* What a problem is run with: the device, the implementations, and whom it tells of its progress. */
#ifndef FABENCH_CASE_SETTING_H
#define FABENCH_CASE_SETTING_H

#include "cmd/device/implementations.h"
#include "cmd/run/row.h"
#include "cmd/run/tuned.h"

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
    /* A batch of launches of the slot begins (launches 0) or has ended, after worker_ms by this process' clock. True
     * when
     * another batch may be of use. *own_ms: by the supervisor's clock, 0 = not known. */
    bool (*witness)(void *context, int slot, int64_t launches, double worker_ms, double *own_ms);
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
    const struct tuned *tuned; /* variants for problems; NULL = none */
    bool timed;                /* false: verify */
    bool is_first;             /* this process has timed nothing yet: preheat first, as the plan says */
    bool use_nvml;
    struct case_hooks hooks;
};

#endif
