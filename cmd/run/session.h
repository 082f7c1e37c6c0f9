/* A process's open device, libraries and plan. */
#ifndef FABENCH_RUN_SESSION_H
#define FABENCH_RUN_SESSION_H

#include "cmd/device/implementations.h"
#include "cmd/device/nvml.h"
#include "cmd/run/row.h"

/* Opens the device, loads the libraries and makes the plan, for worker, list, info, --dry-run and --profile. EXIT_OK,
 * or a code after one sentence on stderr. */
struct session {
    struct backend backend;
    struct impls impls;
    struct plan plan;
    struct impl_slot slots[IMPL_MAX_SLOTS];
    int slot_count;
    struct run_facts facts;
    bool is_plan_only; /* --dry-run of a preset for GPUs where there is none: the plan of a GPU, no slots */
    struct nvml_identity nvml;
    char nvml_problem[128]; /* empty when NVML is there */
};
int session_open(const struct options *, const char *run_id, bool say_choice, struct session *);
void session_close(struct session *);

/* Puts a short load on the GPU's memory, below any power cap, and finds out whether a setting locks its clocks: the
 * result of telemetry_clock_policy, NULL on the CPU. */
const char *session_clock_policy(struct session *);

#endif
