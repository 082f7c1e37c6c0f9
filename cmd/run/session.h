/* One process that has the device open. */
#ifndef FABENCH_RUN_SESSION_H
#define FABENCH_RUN_SESSION_H

#include "cmd/device/implementations.h"
#include "cmd/device/nvml.h"
#include "cmd/run/row.h"

/* One process that opens the device, loads the libraries and makes the plan: what worker, list, info, --dry-run and
 * --profile begin with. EXIT_OK, or a code after one sentence on stderr. */
struct session {
    struct backend backend;
    struct impls impls;
    struct plan plan;
    struct impl_slot slots[IMPL_MAX_SLOTS];
    int slot_count;
    struct run_facts facts;
    struct nvml_identity nvml;
    char nvml_problem[128]; /* empty when NVML is there */
};
int session_open(const struct options *, const char *run_id, bool say_choice, struct session *);
void session_close(struct session *);

/* Keeps a GPU's memory busy for a moment, below any power cap, and looks whether a setting holds its clocks:
 * telemetry_clock_policy's word, NULL on the CPU. */
const char *session_clock_policy(struct session *);

#endif
