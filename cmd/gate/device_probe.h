/* Looks at the device, and into a kernel library, from a child process: the gates themselves never open a device, and a
 * library that crashes costs a sentence. */
#ifndef FABENCH_DEVICE_PROBE_H
#define FABENCH_DEVICE_PROBE_H

#include "cmd/options/options.h"

enum { PROBE_IMPLS_MAX = 32 };

struct device_probe {
    char device[64];       /* its name */
    char lock_name[32];    /* what to lock: the PCI bus id, or "cpu" */
    char impls[PROBE_IMPLS_MAX][40];
    int impl_count;        /* of the library, for this platform */
};

/* The device of --device, which is never the CPU unless that was named. library: a path, or NULL. EXIT_OK, or a code
 * after one sentence on stderr; `command` is who needs the device. */
int probe_device(const struct options *, const char *command, const char *library, struct device_probe *);

#endif
