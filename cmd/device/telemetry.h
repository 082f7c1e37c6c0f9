/* Telemetry of a region: a thread reads NVML every TELEMETRY_PERIOD_MS between begin and end.
 * Shares come from the device's nanosecond counters where it has them, else from the share of readings that showed the
 * reason; energy both from the device's counter and from the power readings integrated over time. */
#ifndef FABENCH_TELEMETRY_H
#define FABENCH_TELEMETRY_H

#include <pthread.h>

#include "cmd/device/nvml.h"

enum { TELEMETRY_PERIOD_MS = 50 };

/* NaN where not measured. */
struct telemetry_region {
    double seconds;
    double sm_clock_mhz;                    /* mean of the readings */
    double temp_c;                          /* at the end */
    double power_capped_pct, throttled_pct; /* of the time */
    double setting_limited_pct;             /* readings in which application or locked clocks limited the clock */
    double energy_counter_j, energy_integral_j;
    bool is_lost; /* the device was lost in the region */
};

/* Sums over the readings of a region, added in the order they were taken. Pure. Starts as {0}. */
struct telemetry_sum {
    struct nvml_reading first, last, last_power;
    int64_t count;
    double clock_mhz_sum, energy_j, covered_ms; /* covered: time between readings that had a power */
    int64_t clock_count, reason_count, capped_count, throttled_count, limited_count;
    bool is_lost;
};
void telemetry_add(struct telemetry_sum *, const struct nvml_reading *);
struct telemetry_region telemetry_result(const struct telemetry_sum *);

/* One region at a time per struct. use_nvml false (NVML is not open): every figure but `seconds` is NaN. */
struct telemetry {
    struct telemetry_sum sum;
    bool use_nvml, has_thread, stop;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};
void telemetry_begin(struct telemetry *, bool use_nvml);
struct telemetry_region telemetry_end(struct telemetry *);

/* Whether a setting locks the clocks: "locked" when application or locked clocks were below the highest clock in most
 * readings of a region under load, "unlocked" otherwise, "unknown" without such readings. */
const char *telemetry_clock_policy(const struct telemetry_region *, double max_sm_clock_mhz);

/* The command that locks the clocks; it needs root. */
const char *telemetry_lock_command(const char *pci_bus_id, double sm_clock_mhz, char *buffer, size_t size);

#endif
