/* NVML by dlopen. */
#include "cmd/device/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/clock.h"

/* Field ids of nvmlDeviceGetFieldValues ("Field Value Enums" of the NVML reference), in the order of the request. */
enum {
    ASK_POWER_CAP,
    ASK_SW_THERMAL,
    ASK_HW_THERMAL,
    ASK_POWER_BRAKE,
    ASK_POWER_INSTANT,
    ASK_POWER_AVERAGE,
    ASK_COUNT
};
static const unsigned field_ids[ASK_COUNT] = {74, 269, 270, 271, 186, 185};

enum { CLOCK_SM = 1, SENSOR_GPU = 0, ECC_UNCORRECTED = 1, ECC_VOLATILE = 0, PROCESSES_MAX = 512, ABSENT_MAX = 32 };

/* nvmlReturn_t, and our own value for a function that the library lacks. */
enum { SUCCESS = 0, TOO_MANY = 7, LOST = 15, RESET_REQUIRED = 16, NO_FUNCTION = -1, NOT_LISTED = -2 };

typedef void *nvml_device;

/* nvmlFieldValue_t. */
struct field_value {
    unsigned field_id, scope_id;
    long long timestamp_us, latency_us;
    int value_type, status;
    union {
        double d;
        unsigned u;
        unsigned long ul;
        unsigned long long ull;
        long long ll;
    } value;
};

/* nvmlProcessInfo_t (v2/v3). */
struct process_info {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

/* nvmlTemperature_t; its version is its size and the number 1. */
struct temperature {
    unsigned version;
    int sensor, celsius;
};

static struct {
    void *library;
    nvml_device device;
    struct nvml_sources sources;
    struct nvml_absent absent[ABSENT_MAX];
    int absent_count;
    int (*shutdown)(void);
    int (*driver_version)(char *, unsigned);
    int (*nvml_version)(char *, unsigned);
    int (*uuid)(nvml_device, char *, unsigned);
    int (*vbios)(nvml_device, char *, unsigned);
    int (*enforced_power_limit)(nvml_device, unsigned *);
    int (*default_power_limit)(nvml_device, unsigned *);
    int (*ecc_mode)(nvml_device, int *, int *);
    int (*mig_mode)(nvml_device, unsigned *, unsigned *);
    int (*persistence_mode)(nvml_device, int *);
    int (*max_clock)(nvml_device, int, unsigned *);
    int (*application_clock)(nvml_device, int, unsigned *);
    int (*default_application_clock)(nvml_device, int, unsigned *);
    int (*clock)(nvml_device, int, unsigned *);
    int (*temperature_v)(nvml_device, struct temperature *);
    int (*temperature)(nvml_device, int, unsigned *);
    int (*fields)(nvml_device, int, struct field_value *);
    int (*reasons)(nvml_device, unsigned long long *);
    int (*energy)(nvml_device, unsigned long long *);
    int (*power_usage)(nvml_device, unsigned *);
    int (*processes)(nvml_device, unsigned *, struct process_info *);
    int (*pcie_width)(nvml_device, unsigned *);
    int (*pcie_width_max)(nvml_device, unsigned *);
    int (*ecc_errors)(nvml_device, int, int, unsigned long long *);
} nvml;

#define ASK(function, ...) (nvml.function ? nvml.function(__VA_ARGS__) : NO_FUNCTION)

static const char *status_words(int status, char *buffer, size_t size)
{
    static const struct {
        int status;
        const char *words;
    } known[] = {{NO_FUNCTION, "this driver's NVML has no such function"},
                 {NOT_LISTED, "processes are not visible from here"},
                 {2, "invalid argument"},
                 {3, "not supported"},
                 {4, "no permission"},
                 {6, "not found"},
                 {TOO_MANY, "more than this program reads"},
                 {8, "the device lacks a power cable"},
                 {9, "the driver is not loaded"},
                 {10, "timeout"},
                 {13, "this driver's NVML has no such function"},
                 {LOST, "the GPU is lost"},
                 {RESET_REQUIRED, "the GPU needs a reset"},
                 {18, "driver and library are of different versions"},
                 {999, "unknown error"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].status == status)
            return known[i].words;
    snprintf(buffer, size, "NVML error %d", status);
    return buffer;
}

/* True on success; otherwise the field is noted as absent. */
static bool got(const char *field, int status)
{
    char buffer[32];
    if (status == SUCCESS)
        return true;
    if (nvml.absent_count < ABSENT_MAX) {
        struct nvml_absent *absent = &nvml.absent[nvml.absent_count++];
        absent->field = field;
        snprintf(absent->why, sizeof absent->why, "%s", status_words(status, buffer, sizeof buffer));
    }
    return false;
}

int nvml_absent(const struct nvml_absent **list)
{
    *list = nvml.absent;
    return nvml.absent_count;
}

struct nvml_sources nvml_sources(void) { return nvml.sources; }

static void resolve(void *function, const char *name) { *(void **)function = dlsym(nvml.library, name); }

static void resolve_all(void)
{
    resolve(&nvml.shutdown, "nvmlShutdown");
    resolve(&nvml.driver_version, "nvmlSystemGetDriverVersion");
    resolve(&nvml.nvml_version, "nvmlSystemGetNVMLVersion");
    resolve(&nvml.uuid, "nvmlDeviceGetUUID");
    resolve(&nvml.vbios, "nvmlDeviceGetVbiosVersion");
    resolve(&nvml.enforced_power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    resolve(&nvml.default_power_limit, "nvmlDeviceGetPowerManagementDefaultLimit");
    resolve(&nvml.ecc_mode, "nvmlDeviceGetEccMode");
    resolve(&nvml.mig_mode, "nvmlDeviceGetMigMode");
    resolve(&nvml.persistence_mode, "nvmlDeviceGetPersistenceMode");
    resolve(&nvml.max_clock, "nvmlDeviceGetMaxClockInfo");
    resolve(&nvml.application_clock, "nvmlDeviceGetApplicationsClock");
    resolve(&nvml.default_application_clock, "nvmlDeviceGetDefaultApplicationsClock");
    resolve(&nvml.clock, "nvmlDeviceGetClockInfo");
    resolve(&nvml.temperature_v, "nvmlDeviceGetTemperatureV");
    resolve(&nvml.temperature, "nvmlDeviceGetTemperature");
    resolve(&nvml.fields, "nvmlDeviceGetFieldValues");
    resolve(&nvml.reasons, "nvmlDeviceGetCurrentClocksEventReasons");
    if (!nvml.reasons) /* its name before driver 535 */
        resolve(&nvml.reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    resolve(&nvml.energy, "nvmlDeviceGetTotalEnergyConsumption");
    resolve(&nvml.power_usage, "nvmlDeviceGetPowerUsage");
    resolve(&nvml.processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    resolve(&nvml.pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
    resolve(&nvml.pcie_width_max, "nvmlDeviceGetMaxPcieLinkWidth");
    resolve(&nvml.ecc_errors, "nvmlDeviceGetTotalEccErrors");
}

/* ---- readings ---- */

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

/* Returns the status of the whole call; each field has its own in f[i].status. */
static int ask_fields(struct field_value *f)
{
    memset(f, 0, ASK_COUNT * sizeof *f);
    for (int i = 0; i < ASK_COUNT; i++)
        f[i].field_id = field_ids[i];
    const int status = ASK(fields, nvml.device, ASK_COUNT, f);
    for (int i = 0; i < ASK_COUNT && status != SUCCESS; i++)
        f[i].status = status;
    return status;
}

static int ask_temperature(double *celsius)
{
    struct temperature t = {.version = sizeof t | 1u << 24, .sensor = SENSOR_GPU};
    unsigned value = 0;
    int status = ASK(temperature_v, nvml.device, &t);
    if (status == SUCCESS)
        *celsius = t.celsius;
    else if (status != LOST && (status = ASK(temperature, nvml.device, SENSOR_GPU, &value)) == SUCCESS)
        *celsius = value;
    return status;
}

/* The status of each part of one reading, for the probe at opening. */
struct statuses {
    int energy, clock, temperature, reasons, power_usage;
    struct field_value f[ASK_COUNT];
};

static struct nvml_reading read_with(struct statuses *s)
{
    struct nvml_reading r = {.sm_clock_mhz = NAN,
                             .temp_c = NAN,
                             .power_w = NAN,
                             .reasons = -1,
                             .power_cap_ns = NAN,
                             .throttle_ns = NAN,
                             .energy_j = NAN};
    unsigned value = 0;
    unsigned long long wide = 0;
    r.time_ms = clock_ms();
    memset(s, 0, sizeof *s);
    if (!nvml.device)
        return r;
    if ((s->energy = ASK(energy, nvml.device, &wide)) == SUCCESS) /* first: it belongs to time_ms */
        r.energy_j = (double)wide * 1e-3;
    const int fields = ask_fields(s->f);
    r.power_cap_ns = field_of(&s->f[ASK_POWER_CAP]);
    r.throttle_ns =
        field_of(&s->f[ASK_SW_THERMAL]) + field_of(&s->f[ASK_HW_THERMAL]) + field_of(&s->f[ASK_POWER_BRAKE]);
    r.power_w =
        field_of(&s->f[isnan(field_of(&s->f[ASK_POWER_INSTANT])) ? ASK_POWER_AVERAGE : ASK_POWER_INSTANT]) * 1e-3;
    if (isnan(r.power_w) && (s->power_usage = ASK(power_usage, nvml.device, &value)) == SUCCESS)
        r.power_w = value * 1e-3;
    if ((s->clock = ASK(clock, nvml.device, CLOCK_SM, &value)) == SUCCESS)
        r.sm_clock_mhz = value;
    s->temperature = ask_temperature(&r.temp_c);
    if ((s->reasons = ASK(reasons, nvml.device, &wide)) == SUCCESS)
        r.reasons = (int64_t)wide;
    const int all[] = {s->energy, fields, s->clock, s->temperature, s->reasons, s->power_usage};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        r.is_lost = r.is_lost || all[i] == LOST || all[i] == RESET_REQUIRED;
    return r;
}

struct nvml_reading nvml_read(void)
{
    struct statuses ignored;
    return read_with(&ignored);
}

double nvml_share_pct(double from_ns, double to_ns, double from_ms, double to_ms)
{
    if (!(to_ns >= from_ns) || !(to_ms > from_ms))
        return NAN;
    return fmin(100, 100 * (to_ns - from_ns) * 1e-6 / (to_ms - from_ms));
}

/* ---- opening ---- */

/* Source of a share: the device's counter where it has one, else sampled reasons, else none. */
static const char *share_source(const char *field, double counter, int counter_status, int reasons_status)
{
    if (isfinite(counter))
        return "counter";
    if (reasons_status == SUCCESS)
        return "sampled";
    got(field, counter_status == SUCCESS ? reasons_status : counter_status);
    return NULL;
}

/* Takes one reading to find out which fields this device has, and records the reason for each absent one. */
static void probe(void)
{
    struct statuses s;
    const struct nvml_reading r = read_with(&s);
    const int throttle_status = s.f[ASK_SW_THERMAL].status   ? s.f[ASK_SW_THERMAL].status
                                : s.f[ASK_HW_THERMAL].status ? s.f[ASK_HW_THERMAL].status
                                                             : s.f[ASK_POWER_BRAKE].status;
    got("sm_clock_mhz", s.clock);
    got("temp_c", s.temperature);
    nvml.sources.power_capped = share_source("power_capped_pct", r.power_cap_ns, s.f[ASK_POWER_CAP].status, s.reasons);
    nvml.sources.throttled = share_source("throttled_pct", r.throttle_ns, throttle_status, s.reasons);
    if (got("energy_counter_j", s.energy))
        nvml.sources.energy = "counter";
    if (isfinite(field_of(&s.f[ASK_POWER_INSTANT])))
        nvml.sources.power = "instant";
    else if (isfinite(field_of(&s.f[ASK_POWER_AVERAGE])))
        nvml.sources.power = "average";
    else if (got("energy_integral_j", s.power_usage))
        nvml.sources.power = "usage";
}

static bool refuse(char *why, int why_size, const char *sentence, int status)
{
    char buffer[32];
    snprintf(why, (size_t)why_size, "%s: %s", sentence, status_words(status, buffer, sizeof buffer));
    nvml_close();
    return false;
}

bool nvml_open(const char *pci_bus_id, char *why, int why_size)
{
    int (*init)(void) = NULL;
    int (*by_bus_id)(const char *, nvml_device *) = NULL;
    char sentence[80];
    const char *named = getenv("FABENCH_NVML");
    const bool is_named = named && *named;
    nvml_close();
    nvml.library = dlopen(is_named ? named : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml.library) {
        if (is_named)
            snprintf(why, (size_t)why_size, "FABENCH_NVML=%.60s cannot be loaded", named);
        else
            snprintf(why, (size_t)why_size, "libnvidia-ml.so.1 not found");
        return false;
    }
    resolve(&init, "nvmlInit_v2");
    resolve(&by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
    resolve_all();
    int status = init && by_bus_id ? init() : NO_FUNCTION;
    if (status != SUCCESS) {
        nvml.shutdown = NULL; /* nothing to shut down */
        return refuse(why, why_size, "NVML could not be initialised", status);
    }
    status = by_bus_id(pci_bus_id, &nvml.device);
    if (status != SUCCESS) {
        snprintf(sentence, sizeof sentence, "NVML does not know the device at %.24s", pci_bus_id);
        return refuse(why, why_size, sentence, status);
    }
    probe();
    return true;
}

void nvml_close(void)
{
    if (nvml.library) {
        if (nvml.shutdown)
            nvml.shutdown();
        dlclose(nvml.library);
    }
    memset(&nvml, 0, sizeof nvml);
}

/* ---- identity ---- */

struct nvml_identity nvml_identity_unknown(void)
{
    return (struct nvml_identity){.power_limit_w = NAN,
                                  .default_power_limit_w = NAN,
                                  .max_sm_clock_mhz = NAN,
                                  .application_sm_clock_mhz = NAN,
                                  .default_application_sm_clock_mhz = NAN,
                                  .ecc = -1,
                                  .mig = -1,
                                  .persistence = -1,
                                  .other_processes = -1,
                                  .pcie_width = -1,
                                  .pcie_width_max = -1,
                                  .ecc_uncorrected = -1};
}

/* When this process is not in the list, as in a container, the list is not used for other processes either. */
static int count_others(int *status)
{
    struct process_info *list = calloc(PROCESSES_MAX, sizeof *list);
    unsigned count = PROCESSES_MAX;
    int others = -1;
    bool is_listed = false;
    *status = list ? ASK(processes, nvml.device, &count, list) : TOO_MANY;
    if (*status == SUCCESS) {
        for (unsigned i = 0; i < count && i < PROCESSES_MAX; i++)
            is_listed = is_listed || list[i].pid == (unsigned)getpid();
        others = is_listed ? (int)count - 1 : -1;
        *status = is_listed ? SUCCESS : NOT_LISTED;
    }
    free(list);
    return others;
}

struct nvml_identity nvml_identify(void)
{
    struct nvml_identity id = nvml_identity_unknown();
    unsigned value = 0, pending = 0;
    unsigned long long errors = 0;
    int current = 0, later = 0, status = 0;
    if (!nvml.device)
        return id;
    if (!got("driver", ASK(driver_version, id.driver, sizeof id.driver)))
        id.driver[0] = 0;
    if (!got("nvml_version", ASK(nvml_version, id.nvml_version, sizeof id.nvml_version)))
        id.nvml_version[0] = 0;
    if (!got("uuid", ASK(uuid, nvml.device, id.uuid, sizeof id.uuid)))
        id.uuid[0] = 0;
    if (!got("vbios", ASK(vbios, nvml.device, id.vbios, sizeof id.vbios)))
        id.vbios[0] = 0;
    if (got("power_limit_w", ASK(enforced_power_limit, nvml.device, &value)))
        id.power_limit_w = value * 1e-3;
    if (got("default_power_limit_w", ASK(default_power_limit, nvml.device, &value)))
        id.default_power_limit_w = value * 1e-3;
    if (got("ecc", ASK(ecc_mode, nvml.device, &current, &later)))
        id.ecc = current != 0;
    if (got("mig", ASK(mig_mode, nvml.device, &value, &pending)))
        id.mig = value != 0;
    if (got("persistence", ASK(persistence_mode, nvml.device, &current)))
        id.persistence = current != 0;
    if (got("max_sm_clock_mhz", ASK(max_clock, nvml.device, CLOCK_SM, &value)))
        id.max_sm_clock_mhz = value;
    if (got("application_sm_clock_mhz", ASK(application_clock, nvml.device, CLOCK_SM, &value)))
        id.application_sm_clock_mhz = value;
    if (got("default_application_sm_clock_mhz", ASK(default_application_clock, nvml.device, CLOCK_SM, &value)))
        id.default_application_sm_clock_mhz = value;
    if (got("pcie_width", ASK(pcie_width, nvml.device, &value)))
        id.pcie_width = (int)value;
    if (got("pcie_width_max", ASK(pcie_width_max, nvml.device, &value)))
        id.pcie_width_max = (int)value;
    if (got("ecc_uncorrected", ASK(ecc_errors, nvml.device, ECC_UNCORRECTED, ECC_VOLATILE, &errors)))
        id.ecc_uncorrected = (int64_t)errors;
    id.other_processes = count_others(&status);
    got("other_processes", status);
    return id;
}
