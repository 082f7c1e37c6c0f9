/* Runs one fresh process for a gate: writes its output to files and enforces its limits until it ends. */
#ifndef FABENCH_FRESH_PROCESS_H
#define FABENCH_FRESH_PROCESS_H

#include <stdbool.h>

#include "cmd/base/impl_name.h"
#include "cmd/options/options.h"

/* Seconds without output that opening a device and preparing a problem may take, with a margin. */
enum { FRESH_PREPARE_LIMIT_S = 150 };
/* Limit on stdout and stderr together. Records have some MB. A process that never stops writing would fill the disk,
 * and silence_limit_s does not end it. */
enum { FRESH_OUTPUT_LIMIT_MB = 256 };

struct fresh_request {
    char *const *argv;               /* terminated by NULL; argv[0] is a path */
    const char *out_path, *err_path; /* files for its stdout and stderr; created or truncated */
    double silence_limit_s;          /* it is killed when neither file grew for this long */
    double wall_limit_s;             /* it is killed after this time, also when it writes; 0 = no limit */
    double output_limit_mb;          /* it is killed when the files together are larger; 0 = FRESH_OUTPUT_LIMIT_MB */
    const char *progress;            /* the progress line while it runs, NULL = none */
};

enum fresh_end {
    FRESH_EXITED,
    FRESH_SIGNALLED,
    FRESH_SILENT,
    FRESH_TOO_LONG,
    FRESH_TOO_MUCH,
    FRESH_INTERRUPTED,
    FRESH_STUCK, /* it does not end after SIGKILL */
    FRESH_NOT_STARTED,
};

struct fresh_result {
    enum fresh_end end;
    int code; /* exit code, signal, or errno */
    double elapsed_s;
    double limit;        /* that it exceeded: seconds of FRESH_TOO_LONG, MB of FRESH_TOO_MUCH */
    char last_line[320]; /* the last line on its stderr, without "fabench: "; "" when it wrote none */
};

/* Runs the process and waits for its end. It has its own process group and an empty stdin. On an interrupt
 * (process_catch_interrupts) it gets SIGINT, and SIGKILL if it does not end. When this returns the whole group has
 * ended, except with FRESH_STUCK. */
void fresh_run(const struct fresh_request *, struct fresh_result *);

/* The result as text: "ended with code 6: no usable device", "died of signal 11 (Segmentation fault)", ... Returns
 * `buffer`. */
char *fresh_describe(const struct fresh_result *, char *buffer, unsigned long size);

/* Reads the facts of the device, and the implementations of a kernel library, in a child process. The gates themselves
 * never open a device, and a library that crashes ends only the child, with a message. */

enum { PROBE_IMPLS_MAX = 32 };

struct device_probe {
    char device[64];    /* name of the device */
    char lock_name[32]; /* name for device_lock: the PCI bus id, or "cpu" */
    char impls[PROBE_IMPLS_MAX][IMPL_NAME_SIZE];
    int impl_count; /* implementations of the library for this platform */
};

/* Probes the device of --device; it is the CPU only with --device cpu. command: the name for messages, "ab" or "gate".
 * library: a path, or NULL. Returns EXIT_OK, or an exit code after a message on stderr. */
int probe_device(const struct options *, const char *command, const char *library, struct device_probe *);

#endif
