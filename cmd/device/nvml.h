/* NVIDIA's management library (NVML), loaded at run time: identity and current state of the device. Everything is
 * optional: a field that the library, the device or the permissions do not give is NaN, -1 or empty, and nvml_absent()
 * says why. Names and numbers follow the NVML API reference; the program declares its own prototypes and needs no NVML
 * header.
 *
 * FABENCH_NVML names another library than the loader's "libnvidia-ml.so.1". */
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
    int ecc;                        /* 1 on, 0 off, -1 unknown */
    int mig, persistence;           /* likewise */
    int other_processes;            /* number of other compute processes, -1 unknown */
    int pcie_width, pcie_width_max; /* lanes now and at most, -1 unknown */
    int64_t ecc_uncorrected;        /* errors since the driver was loaded, -1 unknown */
};
/* Call it after this process has made its context on the device, so that it finds itself in NVML's list of
 * processes. */
struct nvml_identity nvml_identify(void);

/* An identity with every field unknown, for use without NVML. */
struct nvml_identity nvml_identity_unknown(void);

/* Bits of nvmlDeviceGetCurrentClocksEventReasons: what limits the clocks. */
enum {
    NVML_REASON_SETTING = 0x2, /* application or locked clocks */
    NVML_REASON_POWER_CAP = 0x4,
    NVML_REASON_THROTTLE = 0x8 | 0x20 | 0x40 | 0x80 /* hardware slowdown, software and hardware thermal, power brake */
};

/* One reading of the device. Accumulated values have an arbitrary start: only their differences have a meaning. */
struct nvml_reading {
    double time_ms; /* CLOCK_MONOTONIC, just before the device was asked */
    double sm_clock_mhz, temp_c, power_w;
    int64_t reasons;                  /* NVML_REASON_ bits, -1 unknown */
    double power_cap_ns, throttle_ns; /* accumulated time under the power cap; thermal, slowdown, brake */
    double energy_j;                  /* accumulated */
    bool is_lost;                     /* the device fell off the bus, or needs a reset */
};
struct nvml_reading nvml_read(void);

/* How a value is obtained on this device: "counter" (accumulated by the device), "sampled" (from readings), or for
 * power the name of the device's figure; NULL = not available. */
struct nvml_sources {
    const char *power_capped, *throttled, *power, *energy;
};
struct nvml_sources nvml_sources(void);

/* The fields that are not available, by their names in the record's header, each with the reason. Owned by the module,
 * valid until close. */
struct nvml_absent {
    const char *field;
    char why[64];
};
int nvml_absent(const struct nvml_absent **list);

/* Per cent of the time between two readings; NaN when not measured. */
double nvml_share_pct(double from_ns, double to_ns, double from_ms, double to_ms);

#endif
