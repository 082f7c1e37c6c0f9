/* The two builds that `ab` compares, and one fresh process of either: its command line and its record. */
#ifndef FABENCH_AB_BUILD_H
#define FABENCH_AB_BUILD_H

#include "cmd/gate/decide.h"
#include "cmd/device/device_lock.h"
#include "cmd/options/options.h"
#include "cmd/gate/fresh_process.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"

enum { AB_OLD, AB_NEW, AB_BUILDS };

struct ab_build {
    const char *name; /* "OLD", "NEW" */
    const char *path; /* as on the command line */
    char *program;    /* absolute path of the program to run; for a library, of this program; owned */
    bool is_library;
    char commit[48]; /* commit of the program; "" for a library */
};

struct ab_setup {
    const struct options *options;
    const struct decide_rules *rules;
    struct ab_build builds[AB_BUILDS];
    struct device_probe probe;
    struct device_hold lock;
    struct name_list subjects; /* the implementations to compare, by their names in --impl */
    struct name_list lost;     /* libraries: implementations of OLD that NEW does not have */
    const char *control;       /* an implementation in each round that is the same in OLD and NEW; NULL = none */
    char *folder;              /* for the files of the processes; owned */
    bool is_temporary;
    int process_count; /* processes so far */
    /* From the header of the first process; every later process must have the same. */
    bool has_header;
    char device[64], driver[24], method[8], cudnn[24];
};

/* Opens both builds, probes the device and waits for its lock. Returns EXIT_OK, or an exit code after a message on
 * stderr. Call ab_close in both cases. `options` and `rules` must outlive the setup. */
int ab_open(struct ab_setup *, const struct options *, const struct decide_rules *);
void ab_close(struct ab_setup *);

/* One process to run. is_check: full check with one sample; else timing without a check. points: the indices of its
 * problems in the plan, NULL = all. progress: the progress line. */
struct ab_task {
    int build;
    bool is_check;
    const int *points;
    int point_count;
    const char *progress;
};
/* Runs one process. EXIT_OK: *records is filled, and the caller frees it. EXIT_USAGE, without a message: the program
 * refused its options, and *why has its last line. Any other code: after a message on stderr. */
int ab_run_process(struct ab_setup *, const struct ab_task *, struct record_file *, struct attn_message *why);

/* The name in setup->subjects (or the control) that was requested for this row. It can differ from row->impl: `fused`
 * is recorded under the name of the kernel that it resolved to. NULL = none of them. */
const char *ab_subject_of(const struct ab_setup *, const struct record_row *);

#endif
