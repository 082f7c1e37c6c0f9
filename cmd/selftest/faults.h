/* What real attention kernels got wrong, as results that `selftest` hands to the judge in place of the right one.
 *
 * No kernel holds fault code. What a wrong kernel would have computed is computed by a right one on another problem
 * (a diagonal one too low is a problem with one key less), or put into the right result by hand (a NaN row). Everything
 * here works on fp32 arrays on the host, so that the same faults serve every device and dtype. */
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
    const struct host_tensors *honest; /* its inputs and the right outputs */
    fault_attend attend;
    void *context;
};

enum fault_way {
    FAULT_RESULT,  /* `make` gives the outputs, which are stored */
    FAULT_STALE,   /* the right outputs of an earlier launch, poisoned as before every judged launch; all but `tensor` are
                      stored again */
    FAULT_PAST_END /* the right outputs are stored, and one element behind the last one of `tensor` */
};

struct fault {
    const char *name;
    unsigned rules[2];   /* by attn_mode: bits 1 << enum judge_rule, one of which must catch it; 0 = not in this mode */
    bool needs_causal;
    bool each_output;    /* injected into one output tensor at a time, and must be caught in that one */
    bool in_one;         /* only `tensor` is wrong */
    enum problem_tensor tensor;
    enum fault_way way;
    /* wrong: a copy of honest, whose outputs become those of the fault; tensor: with each_output. */
    enum attn_status (*make)(const struct fault_job *, enum problem_tensor tensor, struct host_tensors *wrong,
                             struct attn_message *why);
};

const struct fault *fault_table(int *count);

/* Is this fault one of this problem and direction? */
bool fault_applies(const struct fault *, const struct attn_problem *, enum attn_mode);

#endif
