/* Errors of real attention kernels, as wrong results that `selftest` gives to the judge instead of the right one.
 *
 * No kernel contains fault code. A wrong result is computed by a correct kernel on a changed problem (a diagonal one
 * too low is a problem with one key less), or the right result is edited (a NaN row). All code here works on fp32 host
 * arrays, so that the same faults apply to every device and dtype. */
#ifndef FABENCH_FAULTS_H
#define FABENCH_FAULTS_H

#include "cmd/selftest/host_tensors.h"
#include "cmd/judge/judge.h"

enum { FAULT_TILE = 128, FAULT_MIN_LEN = 2 * FAULT_TILE };

/* A right kernel: reads the inputs of `tensors` (fwd: q k v; bwd: q k v o lse dout), fills its outputs. */
typedef enum attn_status (*fault_attend)(void *context, const struct attn_problem *, enum attn_mode,
                                         struct host_tensors *tensors, struct attn_message *why);

/* The true problem: q_len = kv_len >= FAULT_MIN_LEN, at least two heads, no window. */
struct fault_job {
    const struct attn_problem *problem;
    enum attn_mode mode;
    const struct host_tensors *correct; /* its inputs and the right outputs */
    fault_attend attend;
    void *context;
};

enum fault_way {
    FAULT_RESULT,  /* the outputs that `make` computes are stored */
    FAULT_STALE,   /* the outputs are poisoned, and the right result is stored to all of them but `tensor` */
    FAULT_PAST_END /* the right outputs are stored, and one element behind the last one of `tensor` */
};

struct fault {
    const char *name;
    unsigned rules[2]; /* by attn_mode: bits 1 << enum judge_rule; one of them must catch it; 0 = not this mode */
    bool needs_causal;
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

#endif
