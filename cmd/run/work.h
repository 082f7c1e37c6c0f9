/* Whether a timed launch did its work. Outside the clock, before every sample:
 *   1. the program waits until nothing of the process runs beside it (backend_ops.settle);
 *   2. the inputs get values that no launch has seen (reference/harness/signs.h), so that no stored result is of use;
 *   3. the outputs are filled with a pattern.
 * Of what follows up to the launch the CPU time of other threads is accounted for: results that a thread computes while
 * the caches are flushed gain nothing. Within the clock one word of each page of the outputs is read, at places that
 * nobody knows, and outside of it again: a result that is made when it is read, or after the launch, gains nothing.
 *
 * On a device with streams (backend_ops.hold), where a loaded implementation takes part, 2 and 3 wait until the launch
 * has been enqueued, so that its host function finds no new inputs; a few rows of them change behind the flush of the
 * caches; and the words of the outputs are read right behind the launch.
 *
 * After as many samples as cost at most WORK_SHARE of the time, the outputs are judged: no element may hold the
 * pattern, and rules 1, 2 and 3 hold at random places, against a reference computed there from the new inputs. The
 * samples and the places are chosen at random, so that an implementation cannot know them.
 *
 * A backward's O and LSE belong to its Q, K and V. Where new ones are given to it, the reference's forward is computed
 * anew: on a CPU for every sample of a loaded implementation, elsewhere for random ones, as long as it takes at most
 * WORK_FORWARD_SHARE of the time. In between dO alone is new. naive keeps P of `prepare`, as frameworks do: its Q, K
 * and V are those.
 *
 * Inputs from files, and Q and K of `peak` and `constant`, which depend on each other, keep their values but for the
 * signs of columns; there outputs are compared with the first launch's, bit for bit where that is promised. */
#ifndef FABENCH_WORK_H
#define FABENCH_WORK_H

#include "cmd/device/backend.h"
#include "cmd/run/check.h"

#define WORK_SHARE 0.05
#define WORK_FORWARD_SHARE 0.02
enum {
    WORK_ALWAYS = 4,       /* samples of every implementation that are judged in any case */
    WORK_PLACES = 8,       /* at most, in one of them, */
    WORK_LATE_ROWS = 128,  /* one row in so many changes behind the flush of the caches, */
    WORK_LATE_LEAST = 64,  /* of tensors with so many rows; with less than WORK_LATE_ROWS one row */
    WORK_FILLED = 1 << 20, /* bytes of the workspace that are filled before every sample, at most */
    WORK_SETTLE_MS = 400   /* that is waited for other threads: some pools wait actively for 200 ms */
};
#define WORK_PLACES_MS 2.0 /* and as long as it takes no longer */

/* CPU time of other threads, over all samples: this part of the time of the launches, so much for each of them and
 * WORK_OTHERS_MS are allowed. */
#define WORK_OTHERS_SHARE 0.05
#define WORK_OTHERS_EACH_MS 0.02
#define WORK_OTHERS_MS 0.5

struct work {
    struct backend *backend;
    const struct plan_item *item;
    struct tensor_set *inputs;
    bool cold;
    bool has_files;  /* the inputs are the user's: no other values take their place */
    bool has_loaded; /* an implementation of a library takes part: nothing of its own may run beside the others */
    /* Called after each launch of work_sustained_is_possible, with `context`: puts the state of the process back. */
    void (*launched)(void *context);
    void *context;
    uint64_t random;
    double began_ms, compared_ms, forward_ms;
    struct digest_job late[PROBE_LATE]; /* what the last sample changed behind the flush, and nobody has changed back */
    int late_count;
    struct buffer base_o, base_lse; /* of a backward: those of the inputs as they were filled */
    bool is_restless;               /* other threads did not come to rest: their time says nothing */
};

/* One implementation. check.outputs and `outputs` are the same tensors. */
struct work_member {
    const struct launcher *launcher;
    struct tensor_set *outputs;
    struct check_request check;
    const struct digest *first; /* of its first launch, by enum problem_tensor */
    unsigned promised;          /* tensors whose bits are promised to repeat */
    bool is_loaded, keeps_values;
    const struct buffer *workspace;
    struct probe probe;
    struct record_tensor *tensors;
    int *tensor_count;
    int64_t samples;
    double others_ms, timed_ms; /* over all samples */
    double waited_ms;           /* for its threads to come to rest, after them */
};

/* Draws the state of the random numbers from the system, so that no implementation can know it. work_end frees what it
 * holds. */
enum attn_status work_begin(struct work *, struct backend *, const struct plan_item *, struct tensor_set *inputs,
                            bool cold, bool has_files, bool has_loaded, struct attn_message *why);
void work_end(struct work *);

/* New inputs, and the pattern in the outputs; enqueues. is_timed: a sample follows, and not a launch that only warms
 * the caches. */
enum attn_status work_change(struct work *, struct work_member *, bool is_timed, struct attn_message *why);
/* The same with the values that the inputs were filled with, whose outputs are known but for the signs of columns. */
enum attn_status work_known(struct work *, struct work_member *, bool is_timed, struct attn_message *why);
/* Inputs as they were filled. */
enum attn_status work_restore(struct work *, struct attn_message *why);

/* After the sample just taken, of time_ms: waits until its threads have come to rest, looks at its outputs, or leaves
 * them out. Adds a finding of the rule "work" to its tensors. *is_calm: false where threads go on. */
enum attn_status work_compare(struct work *, struct work_member *, double time_ms, bool *is_calm,
                              struct attn_message *why);
/* After the last sample: whether other threads took more than they may, and the sentence about it. */
bool work_is_beside(const struct work *, const struct work_member *, struct attn_message *sentence);
void work_add_finding(struct work *, struct work_member *, const char *sentence);

/* Whether launches of pass_ms each, in a sustained region, are as fast as launches that do their work can be. They are
 * where that is at least 0.95 of the median of the rounds. Where it is less, the reason may be warm caches, or launches
 * that overlap: launches with warm caches on new inputs show it. A launch in the region must take 0.8 of the least of
 * their times, less WORK_OVERLAP_MS (on a CPU 0.05 of it, or of the median of the rounds where that is less: beside
 * other work a single launch waits for a core).
 * *least_ms: what it must take. */
#define WORK_OVERLAP_MS 0.005
enum attn_status work_sustained_is_possible(struct work *, struct work_member *, double median_ms, double pass_ms,
                                            bool *is_possible, double *least_ms, struct attn_message *why);

#endif
