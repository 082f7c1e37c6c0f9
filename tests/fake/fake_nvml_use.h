/* Helpers for the unit tests that use the fake NVML. Each test program includes it once. */
#ifndef FABENCH_TEST_FAKE_NVML_USE_H
#define FABENCH_TEST_FAKE_NVML_USE_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake/fake_nvml.h"

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
        .energy_mj_per_call = 1000,
        .lost_after_calls = -1,
        .pids = {(unsigned)getpid()},
        .pid_count = 1};
    return setenv("FABENCH_NVML", library, 1);
}

#endif
