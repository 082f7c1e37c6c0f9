/* Lies about work: launches that do not compute, though their outputs may look right. `selftest` puts them between the
 * program and a right kernel, and times them by the functions that time every implementation (cmd/run/work.h).
 *
 * No kernel contains such code. The kernel's launch is replaced by one that calls it or not. What a lie needs to know
 * (what the outputs hold, a hash of the inputs) is read before the launch, outside the clock, and a stored result is
 * copied there: on CUDA a launch must only enqueue. So these lies cost no time at all. */
#ifndef FABENCH_LIES_H
#define FABENCH_LIES_H

#include "cmd/run/check.h"

/* Timed launches of each lie before its last check: some that are always compared, some that may be. */
enum { LIE_SAMPLES = 8 };

struct lie;
const struct lie *lie_at(int index); /* NULL behind the last one */
const char *lie_name(const struct lie *);

/* What was found about one lie, or about honest launches. */
struct lie_verdict {
    const struct lie *lie; /* NULL = honest launches */
    const struct plan_item *item;
    int timed, idle; /* timed launches, and those of them that did not compute */
    bool is_good;    /* a lie: caught; honest launches: no finding */
    struct record_tensor tensors[RECORD_TENSORS_MAX];
    int tensor_count;
};

/* Sets is_good from the other fields. A lie is caught by a finding about launches that did not compute. One that
 * computes whenever its outputs were overwritten is also caught where each timed launch computed and nothing was found;
 * was_idle: it did not compute at a launch that is not timed, so that it is a lie. Pure. */
void lie_decide(struct lie_verdict *, bool was_idle);

/* One problem for an implementation that accepts it, and what is called on the way. */
struct lies_job {
    struct backend *backend;
    const struct plan_item *item; /* the largest share of the time is its launches: about 40 for honest ones */
    const struct attn_impl *impl;
    bool is_naive; /* bounds doubled */
    /* begins: before, not begins: after each call of the implementation. */
    void (*calling)(void *context, bool begins);
    void (*found)(void *context, const struct lie_verdict *);
    void *context;
};

/* Honest launches first; where these are not good, nothing else: it would prove nothing. Then each lie. */
enum attn_status lies_run(const struct lies_job *, struct attn_message *why);

#endif
