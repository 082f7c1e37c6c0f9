/* An implementation's own region of --sustain-s seconds, after the interleaved rounds: launches back to back on the path
 * that was timed, no flush and no waiting in between but once every SUSTAIN_BATCH_MS, so that interruption and a hang are
 * seen. A lead of SUSTAIN_LEAD_S goes before it unmeasured: clock and power have found their level when it begins.
 * Sustained figures come from here alone and are never mixed with the rounds' (burst) figures. */
#ifndef FABENCH_SUSTAIN_H
#define FABENCH_SUSTAIN_H

#include "cmd/device/backend.h"
#include "cmd/device/telemetry.h"

/* The device's energy counter moves in steps of up to a tenth of a second: shorter regions measure its steps. */
#define SUSTAIN_LEAD_S 0.5
#define SUSTAIN_BATCH_MS 200.0

struct sustain_plan {
    double lead_s, seconds;
    double pass_ms;  /* what one launch takes, roughly: sizes the first batch */
    bool use_nvml;
    /* Called before each batch; false ends the region (interrupted). */
    bool (*before_batch)(void *context);
    void *context;
};

/* seconds and passes are the launches' own; the telemetry's region is longer by its readings at both ends. */
struct sustain_result {
    double seconds;
    int64_t passes;
    struct telemetry_region telemetry;
    bool interrupted;
};

enum attn_status sustain_run(struct backend *, const struct launcher *, const struct sustain_plan *,
                             struct sustain_result *, struct attn_message *why);

/* Launches of one batch when one takes pass_ms. */
int64_t sustain_batch(double pass_ms);

#endif
