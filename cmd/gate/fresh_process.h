/* A fresh process of a program that speaks our record format: started, watched, its words kept. The unit of the gates. */
#ifndef FABENCH_UNIT_H
#define FABENCH_UNIT_H

#include <stdbool.h>

/* Of silence: opening a device and preparing a problem, as the supervisor of a sweep allows it, and a margin. */
enum { UNIT_PREPARE_LIMIT_S = 150 };
/* Of stdout and stderr together. Records have some MB; what writes on without end would fill the disk, and to the limit
 * of silence every byte is a sign of life. */
enum { UNIT_OUTPUT_LIMIT_MB = 256 };

struct unit_request {
    char *const *argv;                 /* terminated by NULL; argv[0] is a path */
    const char *out_path, *err_path;   /* its stdout and stderr; made or emptied */
    double silence_limit_s;            /* killed when neither file grew for so long */
    double wall_limit_s;               /* killed after so long, whatever it says; 0 = no limit */
    double output_limit_mb;            /* killed when both files have more; 0 = UNIT_OUTPUT_LIMIT_MB */
    const char *progress;              /* the progress line while it runs, NULL = none */
};

enum unit_end {
    UNIT_EXITED,
    UNIT_SIGNALLED,
    UNIT_SILENT,
    UNIT_TOO_LONG,
    UNIT_TOO_MUCH,
    UNIT_INTERRUPTED,
    UNIT_NOT_STARTED,
};

struct unit_result {
    enum unit_end end;
    int code;              /* exit code, signal, or errno */
    double elapsed_s;
    double limit;          /* the one it passed: s of UNIT_TOO_LONG, MB of UNIT_TOO_MUCH */
    char last_words[320];  /* the last line on its stderr, without "fabench: "; "" when it said nothing */
};

/* The process has its own process group and reads nothing; on an interrupt (unit_catch_interrupts) it gets SIGINT, and
 * SIGKILL when that does not help. Nothing of the group is left when this returns. */
void unit_run(const struct unit_request *, struct unit_result *);

/* "ended with code 6: no usable device", "died of signal 11 (Segmentation fault)", ... */
char *unit_describe(const struct unit_result *, char *buffer, unsigned long size);

void unit_catch_interrupts(void);
bool unit_is_interrupted(void);

#endif
