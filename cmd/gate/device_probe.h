/* Reads the facts of the device, and the implementations of a kernel library, in a child process. The gates themselves
 * never open a device, and a library that crashes ends only the child, with a message. */
#ifndef FABENCH_DEVICE_PROBE_H
#define FABENCH_DEVICE_PROBE_H

#include "cmd/options/options.h"

enum { PROBE_IMPLS_MAX = 32 };

struct device_probe {
    char device[64];    /* name of the device */
    char lock_name[32]; /* name for device_lock: the PCI bus id, or "cpu" */
    char impls[PROBE_IMPLS_MAX][40];
    int impl_count; /* implementations of the library for this platform */
};

/* Probes the device of --device; it is the CPU only with --device cpu. command: the name for messages, "ab" or "gate".
 * library: a path, or NULL. Returns EXIT_OK, or an exit code after a message on stderr. */
int probe_device(const struct options *, const char *command, const char *library, struct device_probe *);

#endif
