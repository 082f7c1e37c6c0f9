/* The parts of `ab`: the two builds that it compares with one fresh process of either (ab_build.c), and what it says of
 * their records (ab_report.c). */
#ifndef FABENCH_AB_REPORT_H
#define FABENCH_AB_REPORT_H

#include "cmd/base/impl_name.h"
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

/* The state of a run of `ab`, which cmd/gate/ab.c fills, and its output: verdict lines, control, summary. */

/* How the checked run of a configuration ended in one build. OUTCOME_NONE: its record has no such row. */
enum ab_outcome { OUTCOME_NONE, OUTCOME_PASS, OUTCOME_FAIL, OUTCOME_REFUSED, OUTCOME_ERROR };

/* One configuration: a problem and an implementation. */
struct ab_config {
    struct problem_key key;
    char label[PROBLEM_LABEL_SIZE], impl[IMPL_NAME_SIZE];
    int point; /* index of the problem in the plan, from 0 */
    enum ab_outcome outcome[AB_BUILDS];
    char reason[AB_BUILDS][200];
    int series;                                   /* index in ab.series; -1 = not timed */
    double log_ms[AB_BUILDS], log_mhz[AB_BUILDS]; /* sums over the pairs that were used */
    int clocks;                                   /* number of terms in log_mhz */
    enum decide_basis basis;                      /* what its pairs are compared by */
    char *repro;                                  /* owned */
};

struct ab {
    struct ab_setup setup;
    struct decide_rules rules;
    struct ab_config *configs;
    int config_count, point_count, timed_count;
    struct decide_config *series;
    struct decide_run run;
    int64_t order_seed; /* that the order of the processes is drawn from */
    uint64_t order_state;
    int repeats;        /* blocks repeated for thermal slowdown */
    bool is_too_hot;    /* more than rules.repeats_max blocks were too hot: no further pairs */
    double *pair_means; /* mean difference of each complete pair, in logarithms; for the geomean; owned */
    int pair_count;
    double pair_s; /* duration of the last pair in seconds; 0 = none yet */
};

/* The verdict that the checked runs alone give. VERDICT_PASS: the configuration is to be timed; -1: neither build runs
 * it. */
int ab_untimed_verdict(const struct ab_config *);

/* Prints the lines above the verdicts, before the pairs begin. */
void ab_print_heading(const struct ab *);
/* Prints a line about the last pair: its duration, how many configurations are decided, the change of those open. */
void ab_print_pair(const struct ab *);

/* Writes verdicts to the terminal, as annotations and to files. code: the exit code of the run so far. Returns the
 * final exit code. */
int ab_report(const struct ab *, int code);

#endif
