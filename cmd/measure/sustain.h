/* Sustained measurement: after the interleaved rounds each implementation runs alone for --sustain-s seconds. Launches
 * are back to back, in the same way as they were timed, without cache flushes. The host waits for the device once every
 * SUSTAIN_BATCH_MS, so that it notices an interrupt or a hang. The first SUSTAIN_LEAD_S seconds (the lead) are not
 * measured: clock and power settle in them. Sustained figures come only from here and are never mixed with the (burst)
 * figures of the rounds. */
#ifndef FABENCH_SUSTAIN_H
#define FABENCH_SUSTAIN_H

#include "cmd/device/backend.h"
#include "cmd/device/telemetry.h"

/* The length of the lead in seconds, and of a batch in milliseconds. */
#define SUSTAIN_LEAD_S 0.5
#define SUSTAIN_BATCH_MS 200.0

struct sustain_plan {
    double lead_s, seconds;
    double pass_ms; /* approximate time of one launch; sets the size of the first batch; NaN = not known */
    bool use_nvml;
    /* Called before each batch; false ends the region as interrupted. */
    bool (*before_batch)(void *context);
    void *context;
};

/* seconds and passes: of the measured launches alone. The telemetry region is longer by its readings at both ends. */
struct sustain_result {
    double seconds;
    int64_t passes;
    struct telemetry_region telemetry;
    bool interrupted;
};

/* Runs the lead and the region. On failure *why has the reason. */
enum attn_status sustain_run(struct backend *, const struct launcher *, const struct sustain_plan *,
                             struct sustain_result *, struct attn_message *why);

/* Number of launches in a batch when one launch takes pass_ms. */
int64_t sustain_batch(double pass_ms);

#endif
