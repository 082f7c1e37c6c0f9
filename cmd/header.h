/* The header object of a record file: what ran, where, under which policy. */
#ifndef FABENCH_HEADER_H
#define FABENCH_HEADER_H

#include <jansson.h>

#include "cmd/backend.h"
#include "cmd/impls.h"
#include "cmd/nvml.h"
#include "cmd/plan.h"
#include "cmd/row.h"

struct header_input {
    const struct options *options;
    const struct plan *plan;
    const struct run_facts *facts;
    const struct backend *backend;
    const struct nvml_identity *nvml;
    const char *nvml_problem; /* why NVML's fields are empty, or NULL */
    const char *clocks;       /* telemetry_clock_policy's word, NULL = not looked at */
    const struct impl_slot *slots;
    int slot_count;
    double copy_gbps;         /* NaN = not measured */
};

/* The caller owns the reference. */
json_t *header_make(const struct header_input *);

/* The value at a path like "device.name", NULL = absent; and as text: JSON, "absent" where there is none. */
json_t *header_value(const json_t *header, const char *path);
char *header_value_text(const json_t *value, char *buffer, size_t size);

/* The first of the paths at which the two headers differ, with both values as text; NULL when none
 * does. Absent on both sides is no difference. */
const char *header_difference(const json_t *a, const json_t *b, const char *const *paths, int count, char *a_text,
                              char *b_text, size_t size);

/* The line above the table: "NVIDIA H200 141 GB, 700 W, ECC on, driver 580.65 | fabench 0.1.0 (4e1c09a)". */
char *header_line(const json_t *header);

/* "h200-20261121T0802Z", for the folder of a run. */
char *header_folder_name(const json_t *header);

/* What this build is. */
const char *build_version(void);
const char *build_commit(void);

#endif
