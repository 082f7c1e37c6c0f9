/* CUPTI by dlopen. */
#include "cmd/device/cupti.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FABENCH_TOOLKIT_LIBRARIES
#define FABENCH_TOOLKIT_LIBRARIES "/usr/local/cuda/lib64"
#endif
#define IN_TOOLKIT(name) FABENCH_TOOLKIT_LIBRARIES "/" name, FABENCH_TOOLKIT_LIBRARIES "/../extras/CUPTI/lib64/" name

static struct {
    struct cupti functions;
    void *library;
    char named[PATH_MAX]; /* FABENCH_CUPTI of the call before */
    char why[256];
    bool was_called;
} cupti;

const char *cupti_words(int status)
{
    static char number[32];
    static const struct {
        int status;
        const char *words;
    } known[] = {{CUPTI_NO_FUNCTION, "this CUPTI is older than that of CUDA 12.6"},
                 {CUPTI_LOST, "what was counted got lost"},
                 {2, "not a device that it knows"},
                 {7, "not possible now"},
                 {8, "out of memory"},
                 {CUPTI_INVALID_METRIC, "this device has no such counter"},
                 {CUPTI_BUSY, "another program holds the counters (DCGM: dcgmi profile --pause)"},
                 {27, "not supported on this device"},
                 {33, "not on a virtual GPU"},
                 {CUPTI_NO_PRIVILEGE, "not permitted: the driver lets an administrator alone read the counters "
                                      "(run as root, or load its module with NVreg_RestrictProfilingToAdminUsers=0)"},
                 {36, "another profiler is attached to this process"},
                 {CUPTI_OTHER_SUBSCRIBER, "another profiler is attached to this process"},
                 {40, "not permitted on this virtual GPU"},
                 {41, "not with confidential computing"},
                 {42, "not on a mining GPU"},
                 {CUPTI_MIG, "not with MIG"},
                 {44, "not with SLI"},
                 {45, "not under WSL"},
                 {CUPTI_UNKNOWN_CHIP, "this CUPTI does not know the chip"},
                 {999, "unknown error (no driver, or a profiling library that cannot be loaded)"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].status == status)
            return known[i].words;
    snprintf(number, sizeof number, "CUPTI error %d", status);
    return number;
}

/* CUPTI opens its own libraries by bare names and would take those of another version from the loader's path. What is
 * loaded already is taken first: those beside it. Without them the loader's are as good as any. */
static void load_neighbours(void)
{
    static const char *const names[] = {"libnvperf_host.so", "libnvperf_target.so"};
    Dl_info info;
    char path[PATH_MAX];
    if (!dladdr(*(void **)&cupti.functions.initialize, &info) || !info.dli_fname)
        return;
    const char *slash = strrchr(info.dli_fname, '/');
    for (size_t i = 0; slash && i < sizeof names / sizeof names[0]; i++)
        if (snprintf(path, sizeof path, "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname, names[i]) <
            (int)sizeof path)
            (void)dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *open_library(const char *named)
{
    static const char *const places[] = {"libcupti.so.13", "libcupti.so.12", IN_TOOLKIT("libcupti.so.13"),
                                         IN_TOOLKIT("libcupti.so.12")};
    void *library = NULL;
    if (named[0]) {
        if (!(library = dlopen(named, RTLD_NOW | RTLD_LOCAL)))
            snprintf(cupti.why, sizeof cupti.why, "FABENCH_CUPTI=%.100s cannot be loaded: %.100s", named, dlerror());
        return library;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !library; i++)
        library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(cupti.why, sizeof cupti.why,
                 "libcupti.so.13 (CUPTI) not found in the loader's path or the CUDA toolkit; FABENCH_CUPTI names it");
    return library;
}

static bool resolve_all(void)
{
#define ROW(field, function, type) {(void *)&cupti.functions.field, #function},
    const struct {
        void *field;
        const char *name;
    } rows[] = {CUPTI_FUNCTIONS(ROW)};
#undef ROW
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if ((*(void **)rows[i].field = dlsym(cupti.library, rows[i].name)))
            continue;
        snprintf(cupti.why, sizeof cupti.why, "%s (it has no %s)", cupti_words(CUPTI_NO_FUNCTION), rows[i].name);
        return false;
    }
    return true;
}

const struct cupti *cupti_load(char *why, size_t why_size)
{
    const char *const environment = getenv("FABENCH_CUPTI"), *const named = environment ? environment : "";
    if (!cupti.was_called || strcmp(named, cupti.named)) {
        memset(&cupti, 0, sizeof cupti);
        cupti.was_called = true;
        snprintf(cupti.named, sizeof cupti.named, "%s", named);
        cupti.library = open_library(named);
        if (cupti.library && resolve_all())
            load_neighbours();
    }
    if (!cupti.why[0])
        return &cupti.functions;
    snprintf(why, why_size, "%s", cupti.why);
    return NULL;
}
