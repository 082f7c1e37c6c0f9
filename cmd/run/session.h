/* A process's open device, libraries and plan. */
#ifndef FABENCH_RUN_SESSION_H
#define FABENCH_RUN_SESSION_H

#include <jansson.h>

#include "cmd/device/backend.h"
#include "cmd/device/implementations.h"
#include "cmd/device/nvml.h"
#include "cmd/plan/plan.h"
#include "cmd/run/row.h"
#include "cmd/run/tuned.h"

/* Opens the device, loads the libraries and makes the plan, for worker, list, info, --dry-run and --profile. EXIT_OK,
 * or a code after one sentence on stderr. */
struct session {
    struct backend backend;
    struct impls impls;
    struct plan plan;
    struct impl_slot slots[IMPL_MAX_SLOTS];
    int slot_count;
    struct run_facts facts;
    struct tuned tuned; /* of --tuned; count 0 = none */
    bool is_plan_only;  /* --dry-run of a preset for GPUs where there is none: the plan of a GPU, no slots */
    struct nvml_identity nvml;
    char nvml_problem[128]; /* empty when NVML is there */
};
int session_open(const struct options *, const char *run_id, bool say_choice, struct session *);
void session_close(struct session *);

/* Puts a short load on the GPU's memory, below any power cap, and finds out whether a setting locks its clocks: the
 * result of telemetry_clock_policy, NULL on the CPU. */
const char *session_clock_policy(struct session *);

/* The header object of a record file (run_header.c): what ran, where, under which policy. */

struct header_input {
    const struct options *options;
    const struct plan *plan;
    const struct run_facts *facts;
    const struct backend *backend;
    const struct nvml_identity *nvml;
    const char *nvml_problem; /* why NVML's fields are empty, or NULL */
    const char *clocks;       /* result of telemetry_clock_policy, NULL = not determined */
    const struct impl_slot *slots;
    int slot_count;
    double copy_gbps; /* NaN = not measured */
};

/* The caller owns the reference. */
json_t *header_make(const struct header_input *);

#endif
