/* The header object of a record file: what ran, where, under which policy. */
#ifndef FABENCH_RUN_HEADER_H
#define FABENCH_RUN_HEADER_H

#include <jansson.h>

#include "cmd/device/backend.h"
#include "cmd/device/implementations.h"
#include "cmd/device/nvml.h"
#include "cmd/plan/plan.h"
#include "cmd/run/row.h"

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
