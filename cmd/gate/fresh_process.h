/* One measurement of the gates: a fresh process of a program, watched until it ends, with its output in files. */
#ifndef FABENCH_FRESH_PROCESS_H
#define FABENCH_FRESH_PROCESS_H

#include <stdbool.h>

/* Seconds without output: opening a device and preparing a problem, as a sweep's supervisor allows it, and a margin. */
enum { FRESH_PREPARE_LIMIT_S = 150 };
/* Of stdout and stderr together. Records have some MB; a process that writes without end would fill the disk, and the
 * limit of silence does not end it. */
enum { FRESH_OUTPUT_LIMIT_MB = 256 };

struct fresh_request {
    char *const *argv;                 /* terminated by NULL; argv[0] is a path */
    const char *out_path, *err_path;   /* its stdout and stderr; made or emptied */
    double silence_limit_s;            /* killed when neither file grew for so long */
    double wall_limit_s;               /* killed after so long, whatever it says; 0 = no limit */
    double output_limit_mb;            /* killed when both files have more; 0 = FRESH_OUTPUT_LIMIT_MB */
    const char *progress;              /* the progress line while it runs, NULL = none */
};

enum fresh_end {
    FRESH_EXITED,
    FRESH_SIGNALLED,
    FRESH_SILENT,
    FRESH_TOO_LONG,
    FRESH_TOO_MUCH,
    FRESH_INTERRUPTED,
    FRESH_STUCK, /* killed, and still there */
    FRESH_NOT_STARTED,
};

struct fresh_result {
    enum fresh_end end;
    int code;              /* exit code, signal, or errno */
    double elapsed_s;
    double limit;          /* the one it passed: s of FRESH_TOO_LONG, MB of FRESH_TOO_MUCH */
    char last_line[320];  /* the last line on its stderr, without "fabench: "; "" when it said nothing */
};

/* The process has its own process group and an empty stdin; on an interrupt (process_catch_interrupts) it gets SIGINT,
 * and SIGKILL when it does not end. Nothing of the group is left when this returns. */
void fresh_run(const struct fresh_request *, struct fresh_result *);

/* "ended with code 6: no usable device", "died of signal 11 (Segmentation fault)", ... */
char *fresh_describe(const struct fresh_result *, char *buffer, unsigned long size);

#endif
