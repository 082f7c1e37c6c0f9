/* The two sides of `ab`, and one fresh process of either: which command it is, and what it recorded. */
#ifndef FABENCH_AB_SIDE_H
#define FABENCH_AB_SIDE_H

#include "cmd/gate/decide.h"
#include "cmd/device/device_lock.h"
#include "cmd/options/options.h"
#include "cmd/gate/device_probe.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"

enum { AB_OLD, AB_NEW, AB_SIDES };

struct ab_side {
    const char *name;   /* "OLD", "NEW" */
    const char *path;   /* as typed */
    char *program;      /* what is run: the program, or this one for a library */
    bool is_library;
    char commit[48];    /* of the program; "" for a library */
};

struct ab_setup {
    const struct options *options;
    const struct decide_rules *rules;
    struct ab_side sides[AB_SIDES];
    struct device_probe probe;
    struct device_hold lock;
    struct name_list subjects;  /* what is compared, by the names of --impl */
    struct name_list lost;      /* libraries: of OLD, not in NEW */
    const char *control;        /* the implementation that runs in both beside them; NULL = the GEMM alone */
    char *folder;               /* of the processes' files; owned */
    bool is_temporary;
    int process_count;                  /* processes so far */
    /* What the first process was; every other one must be the same. */
    bool has_header;
    char device[64], driver[24], method[8], cudnn[24];
};

/* Looks at both sides and the device, waits for the lock. EXIT_OK, or a code after a sentence. ab_close in any case. */
int ab_open(struct ab_setup *, const struct options *, const struct decide_rules *);
void ab_close(struct ab_setup *);

/* One process. is_check: full check, no timing worth the name; else timing without a check. points: of the plan, NULL =
 * all. EXIT_OK with its records; EXIT_USAGE without a sentence when the program refused its options (`why` has its
 * words); any other code after a sentence. */
struct ab_task {
    int side;
    bool is_check;
    const int *points;
    int point_count;
    const char *progress;
};
int ab_run_process(struct ab_setup *, const struct ab_task *, struct record_file *, struct attn_message *why);

/* The name in setup->subjects (or the control) by which a row was asked for: `fused` answers under the name of the kernel
 * it chose. NULL = none of them. */
const char *ab_subject_of(const struct ab_setup *, const struct record_row *);

#endif
