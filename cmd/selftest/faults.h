/* Errors of real attention kernels, as wrong results that `selftest` gives to the judge instead of the right one.
 *
 * No kernel contains fault code. A wrong result is computed by a correct kernel on a changed problem (a diagonal one
 * too low is a problem with one key less), or the right result is edited (a NaN row). All code here works on fp32 host
 * arrays, so that the same faults apply to every device and dtype. */
#ifndef FABENCH_FAULTS_H
#define FABENCH_FAULTS_H

#include "cmd/device/buffers.h"
#include "cmd/judge/judge.h"
#include "cmd/run/check.h"
#include "cmd/selftest/fault_job.h"

enum fault_way {
    FAULT_RESULT,  /* the outputs that `make` computes are stored */
    FAULT_STALE,   /* the outputs are poisoned, and the right result is stored to all of them but `tensor` */
    FAULT_PAST_END /* the right outputs are stored, and one element behind the last one of `tensor` */
};

struct fault {
    const char *name;
    unsigned rules[2];   /* by attn_mode: bits 1 << enum judge_rule; one of them must catch it; 0 = not this mode */
    unsigned attributes; /* enum attn_attribute bits of the problems that it applies to; 0 = dense */
    bool (*needs)(const struct attn_problem *); /* what it needs beside them; NULL = nothing */
    bool each_output; /* injected into one output tensor at a time, and must be caught in that one */
    bool in_one;      /* only `tensor` is wrong */
    enum problem_tensor tensor;
    enum fault_way way;
    /* Changes the outputs of `wrong`, a copy of `correct`, to those of the fault. tensor: used with each_output. */
    enum attn_status (*make)(const struct fault_job *, enum problem_tensor tensor, struct host_tensors *wrong,
                             struct attn_message *why);
};

const struct fault *fault_table(int *count);

/* True when the fault applies to this problem and direction. */
bool fault_applies(const struct fault *, const struct attn_problem *, enum attn_mode);

/* Lies about work: launches that do not compute, though their outputs may look right. `selftest` puts them between the
 * program and a right kernel, and times them by the functions that time every implementation (cmd/run/work.h).
 *
 * No kernel contains such code. The kernel's launch is replaced by one that calls it or not. What a lie needs to know
 * (what the outputs hold, a hash of the inputs) is read before the launch, outside the clock, and a stored result is
 * copied there: on CUDA a launch must only enqueue. So these lies cost no time at all. */

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
