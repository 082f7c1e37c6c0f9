/* NVIDIA's management library, loaded at run time: who the device is, and what it is doing now. Everything is optional:
 * a field that the library, the device or the permissions do not give is NaN, -1 or empty, and nvml_absent() says why.
 * Names and numbers of the NVML API reference; this program declares its own prototypes, no header is needed.
 *
 * FABENCH_NVML names the library where the loader's "libnvidia-ml.so.1" is not the one to take. */
#ifndef FABENCH_NVML_H
#define FABENCH_NVML_H

#include <stdbool.h>
#include <stdint.h>

/* Opens the library and the device with this PCI bus id ("0000:01:00.0"). False with the reason when absent. */
bool nvml_open(const char *pci_bus_id, char *why, int why_size);
void nvml_close(void);

struct nvml_identity {
    char driver[24], nvml_version[24], uuid[48], vbios[32];
    double power_limit_w, default_power_limit_w;
    double max_sm_clock_mhz, application_sm_clock_mhz, default_application_sm_clock_mhz;
    int ecc;              /* 1 on, 0 off, -1 unknown */
    int mig, persistence; /* likewise */
    int other_processes;  /* compute processes beside this one, -1 unknown */
};
/* Call it when this process has its context on the device: that is how it recognises itself among the processes. */
struct nvml_identity nvml_identify(void);

/* Everything unknown: where NVML is absent. */
struct nvml_identity nvml_nobody(void);

/* Bits of nvmlDeviceGetCurrentClocksEventReasons: what holds the clocks down. */
enum {
    NVML_REASON_SETTING = 0x2, /* application or locked clocks */
    NVML_REASON_POWER_CAP = 0x4,
    NVML_REASON_THROTTLE = 0x8 | 0x20 | 0x40 | 0x80 /* hardware slowdown, software and hardware thermal, power brake */
};

/* What the device says at one moment. Accumulated values count from somewhere: their differences mean something. */
struct nvml_reading {
    double time_ms;                   /* CLOCK_MONOTONIC, just before the device was asked */
    double sm_clock_mhz, temp_c, power_w;
    int64_t reasons;                  /* NVML_REASON_ bits, -1 unknown */
    double power_cap_ns, throttle_ns; /* accumulated time under the power cap; thermal, slowdown, brake */
    double energy_j;                  /* accumulated */
    bool is_lost;                     /* the device fell off the bus, or needs a reset */
};
struct nvml_reading nvml_read(void);

/* How a figure comes about, as found when the device was opened: "counter" (accumulated by the device), "sampled" (from
 * readings in between), for power which of the device's figures; NULL = not at all. */
struct nvml_sources {
    const char *power_capped, *throttled, *power, *energy;
};
struct nvml_sources nvml_sources(void);

/* The fields that stay empty, by the names of the record's header, with the reason; owned by the module until close. */
struct nvml_absent { const char *field; char why[64]; };
int nvml_absent(const struct nvml_absent **list);

/* Per cent of the time between two readings; NaN when not measured. */
double nvml_share_pct(double from_ns, double to_ns, double from_ms, double to_ms);

#endif
