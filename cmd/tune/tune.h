/* `fabench tune` finds out which variant of an implementation each problem should get.
 *
 *   1. All variants that take a problem run in the rounds of one fresh process, each checked.
 *   2. The fastest of those that passed is raced against the implementation's own choice, in the rounds of another
 *      fresh process. Only what it gains there counts.
 *   3. A line for the problem goes to the file of --write (cmd/run/tuned.h), which --tuned takes.
 *
 * Each process is an ordinary sweep with --jsonl -. This process itself never opens the device. */
#ifndef FABENCH_TUNE_H
#define FABENCH_TUNE_H

#include "cmd/options/options.h"
#include "cmd/problem/problem_key.h"
#include "cmd/record/record_file.h"
#include "cmd/run/tuned.h"

/* The command. Returns the exit code. */
int tune_run(const struct options *);

/* What is tuned: the problems of record files, drawn ones, or those of the options (tune_list.c). */
struct tune_problem {
    struct problem_key key;
    char *options; /* " --mode fwd ..." of a sweep that runs it alone */
};
struct tune_list {
    struct tune_problem *items;
    int count;
};
int tune_list_make(const struct options *, enum attn_platform, struct tune_list *); /* an exit code */
void tune_list_free(struct tune_list *);

/* Number `number` of the problems that --random draws from --seed: dense attention off the usual grid, on a GPU with
 * lengths from 100 to 20K and up to 512 heads in all, as options of a sweep. The caller frees it. */
char *tune_random_options(const struct options *, enum attn_platform, int64_t number);

/* What variants can be chosen for a problem, and what the implementation itself chooses (tune_probe.c). */
enum { TUNE_VARIANTS_MAX = 64, TUNE_PROBLEMS_MAX = 4096 };
struct tune_candidates {
    uint64_t takers; /* bit v: variants[v] takes it */
    int built_in;    /* index of its own choice; -1: it refuses the problem */
};
struct tune_probe {
    struct device_info device;
    char lock_name[32];
    enum attn_platform platform;
    char variants[TUNE_VARIANTS_MAX][IMPL_NAME_SIZE];
    int variant_count, problem_count;
    struct tune_candidates candidates[TUNE_PROBLEMS_MAX];
};
/* Asks the implementation, in a child process. An exit code; free *probe with tune_probe_free. */
int tune_probe_make(const struct options *, struct tune_probe **);
void tune_probe_free(struct tune_probe *);

/* Decisions (tune_decide.c), from the rows of one process. `impl` is the name without a variant. */

/* The fastest row of a variant of it that passed its check; NULL = there is none. */
const struct record_row *tune_fastest(const struct record_file *, const char *impl);

/* By how many per cent the variant is faster than the other one in the rounds of this record; NaN where one of them did
 * not run or failed its check. */
double tune_gain_pct(const struct record_file *, const char *impl, const char *variant, const char *other);

/* A variant is written only where it gains this much in the race: less may be noise. */
#define TUNE_LEAST_GAIN_PCT 1.0

/* What all choices say about the implementation's own ones. A loss is what the race has shown, 0 where there was none
 * or where the own choice won. */
struct tune_summary {
    int problems, kept;            /* kept: another variant than the own choice was written */
    int above_3_pct, above_10_pct; /* problems with a loss of more than these */
    double geomean_loss_pct;
};
struct tune_summary tune_summarise(const struct tuned *, const char *impl);

#endif
