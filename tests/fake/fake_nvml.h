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
    unsigned clock_mhz, temp_c, power_mw;
    unsigned long long reasons, energy_mj, energy_mj_per_call;
    unsigned pids[FAKE_PIDS_MAX];
    unsigned pid_count;
    long calls, lost_after_calls; /* every function answers 15 after so many calls; -1 = never */
    int shutdowns;
};

struct fake_nvml *fake_nvml_state(void);
typedef struct fake_nvml *(*fake_nvml_state_function)(void);

#endif
