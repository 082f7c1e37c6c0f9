/* Whether a timed launch did its work. Before every sample, outside the clock, the inputs get random signs that no
 * launch has seen (reference/harness/signs.h) and the outputs are filled with a pattern, so that a launch can neither
 * leave the results of an earlier one in place nor copy stored ones. After as many samples as cost at most WORK_SHARE
 * of the time, the outputs are compared: tensors that the implementation promises as repeatable bit for bit with its
 * first launch, the others by rules 1, 2 and 3 in a random block of rows; and no element may hold the pattern. The
 * samples to compare are chosen at random, so that an implementation cannot know them.
 *
 * At the end of a problem each implementation gets values that no launch has seen, in launches that are timed as the
 * samples were: their outputs must be right, and they must not take much longer than the median of the rounds. So
 * results that are stored by values without their signs do not help either.
 *
 * docs/judging.md says what this costs. */
#ifndef FABENCH_WORK_H
#define FABENCH_WORK_H

#include "cmd/run/check.h"

/* The share of the rounds' time that comparing outputs may take; the first WORK_ALWAYS samples of every implementation
 * are compared in any case. */
#define WORK_SHARE 0.05
enum { WORK_ALWAYS = 4 };

/* A launch on new values may take this many times the median of the rounds and WORK_EXTRA_MS. Where it takes longer, up
 * to WORK_TRIES such launches, each on other values, and one fewer on values seen before are taken in pairs: the
 * least of the one kind is compared with the most of the other, so that a machine that has other work to do makes no
 * failure. */
#define WORK_FACTOR 1.5
#define WORK_EXTRA_MS 0.02
enum { WORK_TRIES = 16 };

struct work {
    struct backend *backend;
    const struct plan_item *item;
    struct tensor_set *inputs;
    bool cold;
    bool has_files; /* the inputs are the user's: no other values take their place */
    /* Called after each launch of work_on_new_values, with `context`: puts the state of the process back. */
    void (*launched)(void *context);
    void *context;
    uint64_t random;
    double began_ms, compared_ms;
};

/* One implementation. check.outputs and `outputs` are the same tensors. */
struct work_member {
    const struct launcher *launcher;
    struct tensor_set *outputs;
    struct check_request check;
    const struct digest *first; /* of its first launch, by enum problem_tensor */
    unsigned promised;          /* tensors whose bits are promised to repeat */
    struct record_tensor *tensors;
    int *tensor_count;
    int64_t samples;
};

/* Draws the state of the random numbers from the system, so that no implementation can know it. */
void work_begin(struct work *, struct backend *, const struct plan_item *, struct tensor_set *inputs, bool cold,
                bool has_files);

/* Changes the inputs' signs and fills the outputs with the pattern; enqueues. */
enum attn_status work_change(struct work *, struct tensor_set *outputs, struct attn_message *why);

/* Compares the outputs of the sample just taken, or leaves it out; adds a finding of the rule "work" to its tensors. */
enum attn_status work_compare(struct work *, struct work_member *, struct attn_message *why);

/* Timed launches on new values; median_ms: of the rounds. Afterwards the inputs are as they were filled, without
 * changed signs. Adds a finding of the rule "work". Nothing for inputs from files. */
enum attn_status work_on_new_values(struct work *, struct work_member *, double median_ms, struct attn_message *why);

/* Whether launches of pass_ms each, in a sustained region, are as fast as launches that do their work can be. They are
 * where that is at least 0.95 of the median of the rounds. Where it is less, the reason may be warm caches, or launches
 * that overlap: launches with warm caches on inputs with new signs show it. A launch in the region must take 0.8 of the
 * least of their times, less WORK_OVERLAP_MS (on a CPU 0.05 of it, or of the median of the rounds where that is less:
 * beside other work a single launch waits for a core).
 * *least_ms: what it must take. */
#define WORK_OVERLAP_MS 0.005
enum attn_status work_sustained_is_possible(struct work *, struct work_member *, double median_ms, double pass_ms,
                                            bool *is_possible, double *least_ms, struct attn_message *why);

#endif
