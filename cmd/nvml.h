/* NVIDIA's management library, loaded at run time: what the device did around a problem's rounds. Everything is
 * optional: a field that the library, the device or the permissions do not give is NaN or empty.
 * Names and numbers of the NVML API reference; this program declares its own prototypes, no header is needed. */
#ifndef FABENCH_NVML_H
#define FABENCH_NVML_H

#include <stdbool.h>

/* Opens the library and the device with this PCI bus id ("0000:01:00.0"). False with the reason when absent. */
bool nvml_open(const char *pci_bus_id, char *why, int why_size);
void nvml_close(void);

struct nvml_identity {
    char driver[24], uuid[48], vbios[32];
    double power_limit_w;
    int ecc;              /* 1 on, 0 off, -1 unknown */
    int mig;              /* likewise */
    int other_processes;  /* compute processes of others, -1 unknown */
    double max_sm_clock_mhz;
};
struct nvml_identity nvml_identify(void);

/* One reading; the differences of two make a region. */
struct nvml_reading {
    double time_ms;
    double sm_clock_mhz, temp_c;
    double power_cap_ns, throttle_ns; /* accumulated clock-event nanoseconds: power cap; thermal, slowdown, brake */
};
struct nvml_reading nvml_read(void);

/* Per cent of the time between two readings; NaN when not measured. */
double nvml_share_pct(double from_ns, double to_ns, double from_ms, double to_ms);

#endif
