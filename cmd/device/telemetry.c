/* Readings around a region. */
#include "cmd/device/telemetry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cmd/base/log.h"

/* A power integral that covers less than this share of the region is not reported. */
static const double COVERED_MIN = 0.9;
/* A clock locked within this share of the highest clock counts as unlocked. */
static const double CLOCK_TOLERANCE = 0.02;

void telemetry_add(struct telemetry_sum *s, const struct nvml_reading *r)
{
    s->is_lost = s->is_lost || r->is_lost;
    if (s->count == 0)
        s->first = *r;
    s->last = *r;
    if (isfinite(r->power_w)) {
        if (s->last_power.time_ms > 0) {
            const double span_ms = r->time_ms - s->last_power.time_ms;
            s->energy_j += 0.5 * (s->last_power.power_w + r->power_w) * span_ms * 1e-3;
            s->covered_ms += span_ms;
        }
        s->last_power = *r;
    }
    /* The first reading is taken before the load: it is the start of differences, but not a sample of the region. */
    if (s->count++ == 0)
        return;
    if (isfinite(r->sm_clock_mhz)) {
        s->clock_mhz_sum += r->sm_clock_mhz;
        s->clock_count++;
    }
    if (r->reasons >= 0) {
        s->reason_count++;
        s->capped_count += (r->reasons & NVML_REASON_POWER_CAP) != 0;
        s->throttled_count += (r->reasons & NVML_REASON_THROTTLE) != 0;
        s->limited_count += (r->reasons & NVML_REASON_SETTING) != 0;
    }
}

static double sampled_pct(int64_t part, int64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : NAN;
}

/* When a device has a counter and the counter fails during the region, the share is not replaced by samples. */
static double share_pct(double from_ns, double to_ns, const struct telemetry_sum *s, int64_t part)
{
    return isfinite(from_ns) ? nvml_share_pct(from_ns, to_ns, s->first.time_ms, s->last.time_ms)
                             : sampled_pct(part, s->reason_count);
}

struct telemetry_region telemetry_result(const struct telemetry_sum *s)
{
    struct telemetry_region r = {.seconds = (s->last.time_ms - s->first.time_ms) * 1e-3,
                                 .sm_clock_mhz = NAN,
                                 .temp_c = s->last.temp_c,
                                 .energy_counter_j = NAN,
                                 .energy_integral_j = NAN,
                                 .is_lost = s->is_lost};
    if (s->clock_count)
        r.sm_clock_mhz = s->clock_mhz_sum / (double)s->clock_count;
    r.power_capped_pct = share_pct(s->first.power_cap_ns, s->last.power_cap_ns, s, s->capped_count);
    r.throttled_pct = share_pct(s->first.throttle_ns, s->last.throttle_ns, s, s->throttled_count);
    r.setting_limited_pct = sampled_pct(s->limited_count, s->reason_count);
    if (s->last.energy_j >= s->first.energy_j)
        r.energy_counter_j = s->last.energy_j - s->first.energy_j;
    if (r.seconds > 0 && s->covered_ms >= COVERED_MIN * r.seconds * 1e3)
        r.energy_integral_j = s->energy_j * r.seconds * 1e3 / s->covered_ms;
    return r;
}

static void *poll_device(void *context)
{
    struct telemetry *t = context;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        next.tv_nsec += TELEMETRY_PERIOD_MS * 1000000L;
        next.tv_sec += next.tv_nsec / 1000000000L;
        next.tv_nsec %= 1000000000L;
        while (!t->stop && pthread_cond_timedwait(&t->wake, &t->lock, &next) == 0) {
        }
        if (t->stop)
            break;
        pthread_mutex_unlock(&t->lock); /* so that a driver that hangs does not delay telemetry_end */
        const struct nvml_reading reading = nvml_read();
        pthread_mutex_lock(&t->lock);
        telemetry_add(&t->sum, &reading);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

void telemetry_begin(struct telemetry *t, bool use_nvml)
{
    pthread_condattr_t monotonic;
    memset(t, 0, sizeof *t);
    t->use_nvml = use_nvml;
    if (use_nvml) {
        pthread_mutex_init(&t->lock, NULL);
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&t->wake, &monotonic);
        pthread_condattr_destroy(&monotonic);
    }
    const struct nvml_reading first = nvml_read(); /* all NaN but its time where NVML is not open */
    telemetry_add(&t->sum, &first);
    /* Without a thread only the two ends are read: differences of counters, but no means. */
    t->has_thread = use_nvml && pthread_create(&t->thread, NULL, poll_device, t) == 0;
    if (use_nvml && !t->has_thread)
        log_warn("no thread to read the device's clock and power: their columns are poorer");
}

struct telemetry_region telemetry_end(struct telemetry *t)
{
    if (t->has_thread) {
        pthread_mutex_lock(&t->lock);
        t->stop = true;
        pthread_cond_signal(&t->wake);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
    }
    const struct nvml_reading last = nvml_read();
    telemetry_add(&t->sum, &last);
    if (t->use_nvml) {
        pthread_cond_destroy(&t->wake);
        pthread_mutex_destroy(&t->lock);
    }
    return telemetry_result(&t->sum);
}

const char *telemetry_clock_policy(const struct telemetry_region *r, double max_sm_clock_mhz)
{
    if (!isfinite(r->setting_limited_pct))
        return "unknown";
    const bool is_below = !(r->sm_clock_mhz >= (1 - CLOCK_TOLERANCE) * max_sm_clock_mhz);
    return r->setting_limited_pct > 50 && is_below ? "locked" : "unlocked";
}

const char *telemetry_lock_command(const char *pci_bus_id, double sm_clock_mhz, char *buffer, size_t size)
{
    const int mhz = (int)sm_clock_mhz;
    snprintf(buffer, size, "nvidia-smi -i %s --lock-gpu-clocks=%d,%d", pci_bus_id, mhz, mhz);
    return buffer;
}
