/* Runs backend_open and impls_load in the child of supervisor_call; the result comes back through shared memory. */
#include "cmd/gate/device_probe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cmd/device/backend.h"
#include "cmd/device/implementations.h"
#include "cmd/base/log.h"
#include "cmd/base/process.h"
#include "cmd/run/supervisor.h"

static struct shared {
    struct device_probe probe;
    const char *command, *library;
} * shared;

static int list_library(enum attn_platform platform, struct device_probe *probe)
{
    struct impls built_in, all;
    char *names[] = {(char *)(uintptr_t)shared->library};
    const struct name_list none = {0}, library = {names, 1};
    int status = impls_load(&none, &built_in);
    if (status == EXIT_OK)
        status = impls_load(&library, &all);
    if (status != EXIT_OK)
        return status;
    for (int i = built_in.count; i < all.count && probe->impl_count < PROBE_IMPLS_MAX; i++)
        if (all.all[i]->platform == platform)
            snprintf(probe->impls[probe->impl_count++], sizeof probe->impls[0], "%s", all.all[i]->name);
    return EXIT_OK;
}

static int probe_here(const struct options *o)
{
    struct backend backend;
    struct attn_message why = {""};
    const enum device_choice choice = o->device == DEVICE_AUTO ? DEVICE_CUDA : o->device;
    if (backend_open(&backend, choice, o->device_ordinal, &why) != ATTN_OK) {
        if (o->device == DEVICE_AUTO)
            log_error("%s needs a GPU: %s; --device cpu compares on the CPU", shared->command, why.text);
        else
            log_error("--device cuda:%d: %s", o->device_ordinal, why.text);
        return EXIT_DEVICE;
    }
    const enum attn_platform platform = backend.device.platform;
    snprintf(shared->probe.device, sizeof shared->probe.device, "%s", backend.info.name);
    snprintf(shared->probe.lock_name, sizeof shared->probe.lock_name, "%s",
             platform == ATTN_CPU ? "cpu" : backend.info.pci_bus_id);
    const int status = shared->library ? list_library(platform, &shared->probe) : EXIT_OK;
    backend.ops->close(&backend);
    return status;
}

int probe_device(const struct options *o, const char *command, const char *library, struct device_probe *probe)
{
    shared = process_share(sizeof *shared);
    if (!shared) {
        log_error("no memory to share with a child process: %s", strerror(errno));
        return EXIT_IO;
    }
    shared->command = command; /* valid in the child too, which is a copy of this process */
    shared->library = library;
    const int status = supervisor_call(o, command, probe_here, 120);
    *probe = shared->probe;
    process_unshare(shared, sizeof *shared);
    return status;
}
