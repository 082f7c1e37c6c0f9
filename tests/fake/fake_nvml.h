/* The controls of the fake NVML (fake_nvml.c): a test loads the library, finds `fake_nvml_state` in it and sets the
 * answers. All values are invented. */
#ifndef FABENCH_TEST_FAKE_NVML_H
#define FABENCH_TEST_FAKE_NVML_H

/* One status per function, nvmlReturn_t: 0 = it answers. */
enum fake_function {
    FAKE_INIT,
    FAKE_HANDLE,
    FAKE_DRIVER,
    FAKE_VERSION,
    FAKE_UUID,
    FAKE_VBIOS,
    FAKE_POWER_LIMIT,
    FAKE_DEFAULT_LIMIT,
    FAKE_ECC,
    FAKE_MIG,
    FAKE_PERSISTENCE,
    FAKE_MAX_CLOCK,
    FAKE_APP_CLOCK,
    FAKE_DEFAULT_APP_CLOCK,
    FAKE_CLOCK,
    FAKE_TEMPERATURE_V,
    FAKE_TEMPERATURE,
    FAKE_FIELDS,
    FAKE_REASONS,
    FAKE_ENERGY,
    FAKE_POWER_USAGE,
    FAKE_PROCESSES,
    FAKE_PCIE,
    FAKE_PCIE_MAX,
    FAKE_ECC_ERRORS,
    FAKE_FUNCTIONS
};

enum { FAKE_FIELDS_MAX = 6, FAKE_PIDS_MAX = 8 };

/* A power field (185, 186) has this value; a counter grows by it with every call. */
struct fake_field {
    unsigned id;
    int status;
    double per_call;
};

struct fake_nvml {
    int status[FAKE_FUNCTIONS];
    struct fake_field fields[FAKE_FIELDS_MAX];
    unsigned clock_mhz, temp_c, power_mw, pcie_width;
    unsigned long long ecc_errors;
    unsigned long long reasons, energy_mj, energy_mj_per_call;
    unsigned pids[FAKE_PIDS_MAX];
    unsigned pid_count;
    long calls, lost_after_calls; /* every function answers 15 after so many calls; -1 = never */
    int shutdowns;
};

struct fake_nvml *fake_nvml_state(void);
typedef struct fake_nvml *(*fake_nvml_state_function)(void);

#ifdef FAKE_NVML /* the unit tests, each of which includes this once */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_BUS_ID "0000:01:00.0"

static struct fake_nvml *fake;

/* Makes `library` the program's NVML: a device that answers everything, 1500 MHz, 60 C, 500 W. */
static int fake_nvml_use(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL); /* stays loaded, so that the state does */
    fake_nvml_state_function find = NULL;
    if (handle)
        *(void **)&find = dlsym(handle, "fake_nvml_state");
    if (!find)
        return -1;
    fake = find();
    *fake = (struct fake_nvml){
        .fields = {{74, 0, 1e6}, {269, 0, 0}, {270, 0, 0}, {271, 0, 0}, {186, 0, 500000}, {185, 0, 490000}},
        .clock_mhz = 1500,
        .temp_c = 60,
        .power_mw = 480000,
        .pcie_width = 16,
        .energy_mj_per_call = 1000,
        .lost_after_calls = -1,
        .pids = {(unsigned)getpid()},
        .pid_count = 1};
    return setenv("FABENCH_NVML", library, 1);
}
#endif

#endif
