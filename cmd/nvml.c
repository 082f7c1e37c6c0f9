/* NVML by dlopen. */
#include "cmd/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Field ids of nvmlDeviceGetFieldValues ("Field Value Enums" of the reference). */
enum {
    FIELD_POWER_CAP_NS = 74,
    FIELD_SW_THERMAL_NS = 269,
    FIELD_HW_THERMAL_NS = 270,
    FIELD_POWER_BRAKE_NS = 271
};
enum { CLOCK_SM = 1, SENSOR_GPU = 0, SUCCESS = 0 };

typedef void *nvml_device;

/* nvmlFieldValue_t. */
struct field_value {
    unsigned field_id, scope_id;
    long long timestamp_us, latency_us;
    int value_type, status;
    union { double d; unsigned u; unsigned long ul; unsigned long long ull; long long ll; } value;
};

/* nvmlProcessInfo_t (v2/v3). */
struct process_info {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

static struct {
    void *library;
    nvml_device device;
    int (*shutdown)(void);
    int (*driver_version)(char *, unsigned);
    int (*uuid)(nvml_device, char *, unsigned);
    int (*vbios)(nvml_device, char *, unsigned);
    int (*enforced_power_limit)(nvml_device, unsigned *);
    int (*ecc_mode)(nvml_device, int *, int *);
    int (*mig_mode)(nvml_device, unsigned *, unsigned *);
    int (*max_clock)(nvml_device, int, unsigned *);
    int (*clock)(nvml_device, int, unsigned *);
    int (*temperature)(nvml_device, int, unsigned *);
    int (*fields)(nvml_device, int, struct field_value *);
    int (*processes)(nvml_device, unsigned *, struct process_info *);
} nvml;

static void resolve(void *function, const char *name) { *(void **)function = dlsym(nvml.library, name); }

bool nvml_open(const char *pci_bus_id, char *why, int why_size)
{
    int (*init)(void) = NULL;
    int (*by_bus_id)(const char *, nvml_device *) = NULL;
    nvml.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml.library) {
        snprintf(why, (size_t)why_size, "libnvidia-ml.so.1 not found");
        return false;
    }
    resolve(&init, "nvmlInit_v2");
    resolve(&by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
    resolve(&nvml.shutdown, "nvmlShutdown");
    resolve(&nvml.driver_version, "nvmlSystemGetDriverVersion");
    resolve(&nvml.uuid, "nvmlDeviceGetUUID");
    resolve(&nvml.vbios, "nvmlDeviceGetVbiosVersion");
    resolve(&nvml.enforced_power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    resolve(&nvml.ecc_mode, "nvmlDeviceGetEccMode");
    resolve(&nvml.mig_mode, "nvmlDeviceGetMigMode");
    resolve(&nvml.max_clock, "nvmlDeviceGetMaxClockInfo");
    resolve(&nvml.clock, "nvmlDeviceGetClockInfo");
    resolve(&nvml.temperature, "nvmlDeviceGetTemperature");
    resolve(&nvml.fields, "nvmlDeviceGetFieldValues");
    resolve(&nvml.processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (init && by_bus_id && init() == SUCCESS) {
        if (by_bus_id(pci_bus_id, &nvml.device) == SUCCESS)
            return true;
        snprintf(why, (size_t)why_size, "NVML does not know the device at %s", pci_bus_id);
    } else {
        snprintf(why, (size_t)why_size, "NVML could not be initialised");
    }
    nvml_close();
    return false;
}

void nvml_close(void)
{
    if (nvml.library) {
        if (nvml.device && nvml.shutdown)
            nvml.shutdown();
        dlclose(nvml.library);
    }
    memset(&nvml, 0, sizeof nvml);
}

struct nvml_identity nvml_identify(void)
{
    struct nvml_identity id = {.power_limit_w = NAN, .ecc = -1, .mig = -1, .other_processes = -1,
                               .max_sm_clock_mhz = NAN};
    unsigned value = 0, pending = 0;
    int current = 0, later = 0;
    if (!nvml.device)
        return id;
    if (!nvml.driver_version || nvml.driver_version(id.driver, sizeof id.driver) != SUCCESS)
        id.driver[0] = 0;
    if (!nvml.uuid || nvml.uuid(nvml.device, id.uuid, sizeof id.uuid) != SUCCESS)
        id.uuid[0] = 0;
    if (!nvml.vbios || nvml.vbios(nvml.device, id.vbios, sizeof id.vbios) != SUCCESS)
        id.vbios[0] = 0;
    if (nvml.enforced_power_limit && nvml.enforced_power_limit(nvml.device, &value) == SUCCESS)
        id.power_limit_w = value * 1e-3;
    if (nvml.ecc_mode && nvml.ecc_mode(nvml.device, &current, &later) == SUCCESS)
        id.ecc = current != 0;
    if (nvml.mig_mode && nvml.mig_mode(nvml.device, &value, &pending) == SUCCESS)
        id.mig = value != 0;
    if (nvml.max_clock && nvml.max_clock(nvml.device, CLOCK_SM, &value) == SUCCESS)
        id.max_sm_clock_mhz = value;
    struct process_info processes[64];
    unsigned count = sizeof processes / sizeof processes[0];
    if (nvml.processes && nvml.processes(nvml.device, &count, processes) == SUCCESS) {
        id.other_processes = 0;
        for (unsigned i = 0; i < count; i++)
            id.other_processes += processes[i].pid != (unsigned)getpid() && processes[i].pid != (unsigned)getppid();
    }
    return id;
}

static double field_of(const struct field_value *f)
{
    /* nvmlValueType_t: 0 double, 1 unsigned, 2 unsigned long, 3 unsigned long long, 4 long long. */
    if (f->status != SUCCESS)
        return NAN;
    switch (f->value_type) {
    case 0: return f->value.d;
    case 1: return f->value.u;
    case 2: return (double)f->value.ul;
    case 3: return (double)f->value.ull;
    case 4: return (double)f->value.ll;
    default: return NAN;
    }
}

struct nvml_reading nvml_read(void)
{
    struct nvml_reading r = {.sm_clock_mhz = NAN, .temp_c = NAN, .power_cap_ns = NAN, .throttle_ns = NAN};
    struct timespec t;
    unsigned value = 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    r.time_ms = (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
    if (!nvml.device)
        return r;
    if (nvml.clock && nvml.clock(nvml.device, CLOCK_SM, &value) == SUCCESS)
        r.sm_clock_mhz = value;
    if (nvml.temperature && nvml.temperature(nvml.device, SENSOR_GPU, &value) == SUCCESS)
        r.temp_c = value;
    struct field_value f[4];
    memset(f, 0, sizeof f);
    f[0].field_id = FIELD_POWER_CAP_NS;
    f[1].field_id = FIELD_SW_THERMAL_NS;
    f[2].field_id = FIELD_HW_THERMAL_NS;
    f[3].field_id = FIELD_POWER_BRAKE_NS;
    if (nvml.fields && nvml.fields(nvml.device, 4, f) == SUCCESS) {
        r.power_cap_ns = field_of(&f[0]);
        r.throttle_ns = field_of(&f[1]) + field_of(&f[2]) + field_of(&f[3]);
    }
    return r;
}

double nvml_share_pct(double from_ns, double to_ns, double from_ms, double to_ms)
{
    if (!(to_ns >= from_ns) || !(to_ms > from_ms))
        return NAN;
    return fmin(100, 100 * (to_ns - from_ns) * 1e-6 / (to_ms - from_ms));
}
