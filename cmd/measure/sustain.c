/* Runs batches of back-to-back launches for a given time. */
#include "cmd/measure/sustain.h"

#include <math.h>
#include <string.h>

#include "cmd/base/clock.h"

/* Upper limit, so that very short launches do not fill the queue of the device for minutes. */
enum { BATCH_MAX = 100000 };

int64_t sustain_batch(double pass_ms)
{
    if (!(pass_ms > SUSTAIN_BATCH_MS / BATCH_MAX)) /* also true for NaN, not known */
        return isnan(pass_ms) ? 1 : BATCH_MAX;
    return (int64_t)fmax(1, SUSTAIN_BATCH_MS / pass_ms);
}

/* Runs batches for `seconds`. Sets passes and seconds of *result, and *pass_ms to the mean time of a launch. */
static enum attn_status run_for(struct backend *be, const struct launcher *l, const struct sustain_plan *plan,
                                double seconds, double *pass_ms, struct sustain_result *result,
                                struct attn_message *why)
{
    const double begin_ms = clock_ms();
    result->passes = 0;
    result->seconds = 0;
    while (result->seconds < seconds) {
        const int64_t count = sustain_batch(*pass_ms);
        if (!plan->before_batch(plan->context)) {
            result->interrupted = true;
            return ATTN_OK;
        }
        const enum attn_status status = be->ops->repeat(be, l, count, why);
        if (status != ATTN_OK)
            return status;
        result->passes += count;
        result->seconds = (clock_ms() - begin_ms) * 1e-3;
        *pass_ms = result->seconds * 1e3 / (double)result->passes;
    }
    return ATTN_OK;
}

enum attn_status sustain_run(struct backend *be, const struct launcher *l, const struct sustain_plan *plan,
                             struct sustain_result *result, struct attn_message *why)
{
    struct telemetry telemetry;
    double pass_ms = plan->pass_ms;
    memset(result, 0, sizeof *result);
    enum attn_status status = run_for(be, l, plan, plan->lead_s, &pass_ms, result, why);
    if (status != ATTN_OK || result->interrupted)
        return status;
    telemetry_begin(&telemetry, plan->use_nvml);
    status = run_for(be, l, plan, plan->seconds, &pass_ms, result, why);
    result->telemetry = telemetry_end(&telemetry);
    return status;
}
