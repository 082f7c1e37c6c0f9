/* A fake libnvidia-ml.so for tests on machines without a GPU; struct fake_nvml sets its answers. Built twice: complete,
 * and with FAKE_OLD as the library of an older driver, which does not export the newer functions. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake/fake_boards.h"
#include "tests/fake/fake_nvml.h"

static struct fake_nvml state;
static char device;
static char uuid[48] = "GPU-fake";

struct fake_nvml *fake_nvml_state(void) { return &state; }

static int answer(enum fake_function function)
{
    state.calls++;
    if (!getenv("FAKE_BOARDS") && state.lost_after_calls >= 0 && state.calls > state.lost_after_calls)
        return 15;
    return state.status[function];
}

static int text(enum fake_function function, const char *value, char *buffer, unsigned size)
{
    const int status = answer(function);
    if (status == 0)
        snprintf(buffer, size, "%s", value);
    return status;
}

static int number(enum fake_function function, unsigned value, unsigned *out)
{
    const int status = answer(function);
    if (status == 0)
        *out = value;
    return status;
}

int nvmlInit_v2(void);
int nvmlInit_v2(void) { return answer(FAKE_INIT); }
int nvmlShutdown(void);
int nvmlShutdown(void) { return state.shutdowns++, 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *, void **);
/* A board of FAKE_BOARDS has 1500 MHz, a slow one less, 60 degrees and one more for each board, 500 W. */
static int handle_of_board(const char *id)
{
    struct fake_board boards[FAKE_BOARDS_MAX];
    const int count = fake_boards(boards);
    char pci[24];
    for (int i = 0; i < count; i++) {
        fake_board_pci(i, pci, sizeof pci);
        if (strcmp(id, pci) != 0)
            continue;
        const struct fake_board *const board = &boards[i];
        fake_board_uuid(board, uuid, sizeof uuid);
        state.lost_after_calls = -1;
        state.clock_mhz = board->slow_pct > 0 ? 1400 : 1500;
        state.temp_c = 60 + (unsigned)i;
        state.power_mw = 500000;
        state.pcie_width = board->slow_pct > 0 ? 8 : 16;
        state.pids[state.pid_count++] = (unsigned)getpid();
        for (int k = 0; k < board->others && state.pid_count < FAKE_PIDS_MAX; k++)
            state.pids[state.pid_count++] = 1;
        return 0;
    }
    return 6;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **handle)
{
    *handle = &device;
    if (getenv("FAKE_BOARDS")) {
        state.pid_count = 0;
        return handle_of_board(id);
    }
    return strcmp(id, "0000:01:00.0") == 0 ? answer(FAKE_HANDLE) : 6;
}
int nvmlSystemGetDriverVersion(char *, unsigned);
int nvmlSystemGetDriverVersion(char *b, unsigned n) { return text(FAKE_DRIVER, "999.01", b, n); }
int nvmlSystemGetNVMLVersion(char *, unsigned);
int nvmlSystemGetNVMLVersion(char *b, unsigned n) { return text(FAKE_VERSION, "13.999.01", b, n); }
int nvmlDeviceGetUUID(void *, char *, unsigned);
int nvmlDeviceGetUUID(void *d, char *b, unsigned n) { return (void)d, text(FAKE_UUID, uuid, b, n); }
int nvmlDeviceGetVbiosVersion(void *, char *, unsigned);
int nvmlDeviceGetVbiosVersion(void *d, char *b, unsigned n) { return (void)d, text(FAKE_VBIOS, "00.00", b, n); }
int nvmlDeviceGetEnforcedPowerLimit(void *, unsigned *);
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *v) { return (void)d, number(FAKE_POWER_LIMIT, 600000, v); }
int nvmlDeviceGetPowerManagementDefaultLimit(void *, unsigned *);
int nvmlDeviceGetPowerManagementDefaultLimit(void *d, unsigned *v)
{
    return (void)d, number(FAKE_DEFAULT_LIMIT, 700000, v);
}
int nvmlDeviceGetEccMode(void *, int *, int *);
int nvmlDeviceGetEccMode(void *d, int *now, int *later)
{
    (void)d;
    *now = *later = 1;
    return answer(FAKE_ECC);
}
int nvmlDeviceGetPersistenceMode(void *, int *);
int nvmlDeviceGetPersistenceMode(void *d, int *mode)
{
    (void)d;
    *mode = 1;
    return answer(FAKE_PERSISTENCE);
}
int nvmlDeviceGetMaxClockInfo(void *, int, unsigned *);
int nvmlDeviceGetMaxClockInfo(void *d, int c, unsigned *v) { return (void)d, (void)c, number(FAKE_MAX_CLOCK, 1980, v); }
int nvmlDeviceGetApplicationsClock(void *, int, unsigned *);
int nvmlDeviceGetApplicationsClock(void *d, int c, unsigned *v)
{
    return (void)d, (void)c, number(FAKE_APP_CLOCK, 1500, v);
}
int nvmlDeviceGetDefaultApplicationsClock(void *, int, unsigned *);
int nvmlDeviceGetDefaultApplicationsClock(void *d, int c, unsigned *v)
{
    return (void)d, (void)c, number(FAKE_DEFAULT_APP_CLOCK, 1980, v);
}
int nvmlDeviceGetClockInfo(void *, int, unsigned *);
int nvmlDeviceGetClockInfo(void *d, int c, unsigned *v)
{
    (void)d;
    return c == 1 ? number(FAKE_CLOCK, state.clock_mhz, v) : 2;
}
int nvmlDeviceGetTemperature(void *, int, unsigned *);
int nvmlDeviceGetTemperature(void *d, int s, unsigned *v)
{
    (void)d;
    return s == 0 ? number(FAKE_TEMPERATURE, state.temp_c, v) : 2;
}
int nvmlDeviceGetPowerUsage(void *, unsigned *);
int nvmlDeviceGetPowerUsage(void *d, unsigned *v) { return (void)d, number(FAKE_POWER_USAGE, state.power_mw, v); }

int nvmlDeviceGetCurrPcieLinkWidth(void *, unsigned *);
int nvmlDeviceGetCurrPcieLinkWidth(void *d, unsigned *v)
{
    (void)d;
    return number(FAKE_PCIE, state.pcie_width, v);
}
int nvmlDeviceGetMaxPcieLinkWidth(void *, unsigned *);
int nvmlDeviceGetMaxPcieLinkWidth(void *d, unsigned *v) { return (void)d, number(FAKE_PCIE_MAX, 16, v); }
int nvmlDeviceGetTotalEccErrors(void *, int, int, unsigned long long *);
int nvmlDeviceGetTotalEccErrors(void *d, int type, int counter, unsigned long long *v)
{
    (void)d;
    if (type != 1 || counter != 0)
        return 2;
    *v = state.ecc_errors;
    return answer(FAKE_ECC_ERRORS);
}

#ifdef FAKE_OLD
/* The name of a driver before 535. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *, unsigned long long *);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *v)
#else
int nvmlDeviceGetCurrentClocksEventReasons(void *, unsigned long long *);
int nvmlDeviceGetCurrentClocksEventReasons(void *d, unsigned long long *v)
#endif
{
    (void)d;
    *v = state.reasons;
    return answer(FAKE_REASONS);
}

#ifndef FAKE_OLD
struct temperature {
    unsigned version;
    int sensor, celsius;
};
int nvmlDeviceGetTemperatureV(void *, struct temperature *);
int nvmlDeviceGetTemperatureV(void *d, struct temperature *t)
{
    (void)d;
    if (t->version != (12u | 1u << 24))
        return 25; /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
    t->celsius = (int)state.temp_c;
    return answer(FAKE_TEMPERATURE_V);
}

int nvmlDeviceGetMigMode(void *, unsigned *, unsigned *);
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *later)
{
    (void)d;
    *now = *later = 0;
    return answer(FAKE_MIG);
}

int nvmlDeviceGetTotalEnergyConsumption(void *, unsigned long long *);
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *v)
{
    (void)d;
    *v = state.energy_mj += state.energy_mj_per_call;
    return answer(FAKE_ENERGY);
}

struct field_value {
    unsigned id, scope;
    long long timestamp_us, latency_us;
    int type, status;
    union {
        double d;
        unsigned u;
        unsigned long long ull;
    } value;
};
int nvmlDeviceGetFieldValues(void *, int, struct field_value *);
int nvmlDeviceGetFieldValues(void *d, int count, struct field_value *f)
{
    (void)d;
    for (int i = 0; i < count; i++) {
        f[i].status = 3;
        for (int j = 0; j < FAKE_FIELDS_MAX; j++) {
            struct fake_field *known = &state.fields[j];
            if (known->id != f[i].id)
                continue;
            const double value = known->per_call * (double)(state.calls + 1);
            const int is_power = known->id == 185 || known->id == 186;
            f[i].status = known->status;
            f[i].type = is_power ? 1 : 3;
            if (is_power)
                f[i].value.u = (unsigned)known->per_call;
            else
                f[i].value.ull = (unsigned long long)value;
        }
    }
    return answer(FAKE_FIELDS);
}

struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu, compute;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void *, unsigned *, struct process *);
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, struct process *list)
{
    (void)d;
    const unsigned room = *count;
    *count = state.pid_count;
    if (room < state.pid_count)
        return 7;
    for (unsigned i = 0; i < state.pid_count; i++)
        list[i] = (struct process){.pid = state.pids[i]};
    return answer(FAKE_PROCESSES);
}
#endif
