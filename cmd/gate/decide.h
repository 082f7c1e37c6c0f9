/* What the gates decide, as pure arithmetic: no clock, no file, no process. tests/unit/gate/test_decide.c drives these very
 * functions with synthetic runs.
 *
 * The unit of `ab` is a fresh process: samples within one process share its memory layout and its minute, so that their
 * number says nothing about how well the figure repeats. Two processes, one of each side, next to each other in ABBA
 * order, are a pair, and each configuration gets one number from it:
 *
 *     d = log(t_new / t_beside) - log(t_old / t_beside)
 *
 * with the ratio of each side taken within its rounds (stats_paired_ratio), t_beside being the sample of the same round of
 * the control, an implementation that is the same on both sides (the record's speedup_vs_peer, on the CPU speedup_vs_naive);
 * of the GEMM ceiling where there is no control (pct_of_gemm); where there is neither, d is the difference of the logarithms
 * of the median times.
 *
 * Ratios, because under a power cap the clock moves single samples by up to 20 % about once a second, for all members of a
 * round alike. A peer rather than the GEMM, because the GEMM moves on its own (docs/gates.md): the standard deviation
 * between 24 processes, of 12 configurations, is 0.3 to 1.1 % as a median time, 0.10 to 0.76 % over the GEMM and 0.04 to
 * 0.12 % over cuDNN; in one process of 50 the GEMM was 2.5 % slower beside everything else. ABBA, because what still
 * drifts from process to process cancels in the mean of an even number of pairs and is divided by their number in an odd
 * one.
 *
 * The control's own ratio to the GEMM, over all configurations, says whether harness and device were quiet; in each, the
 * difference over the GEMM bears witness (struct decide_case). */
#ifndef FABENCH_DECIDE_H
#define FABENCH_DECIDE_H

#include <stdbool.h>

enum { DECIDE_PAIRS_MAX = 64 };

/* Everything that was set from measurements, in one place: decide_defaults in decide.c. */
struct decide_rules {
    double delta;             /* of `ab`, in logarithms: a loss up to this is none */
    int pairs_min, pairs_max; /* looked at after pairs_min, then after each one more */
    double error_regress;     /* of a regression or improvement: one-sided, shared by the configurations of a run */
    double error_pass;        /* one-sided, of a pass */
    double control_paired;    /* logarithms: how far a control's ratio to the GEMM may move */
    double control_raw;       /* likewise, of a control in plain time */
    double throttled_pct;     /* more than this in thermal or brake slowdown: the pair is repeated */
    int repeats_max;          /* pairs that may be */
    /* How a process of `ab` measures, where the user does not say otherwise. */
    double preheat_s, warmup_ms, min_time_ms;
    int samples;
    double gate_delta;        /* of `gate`, in logarithms */
    double gate_gemm;         /* likewise: how far the GEMM may move for a loss in raw time alone to be the device's */
};
extern const struct decide_rules decide_defaults;

enum decide_state { DECIDE_OPEN, DECIDE_PASS, DECIDE_IMPROVE, DECIDE_INCONCLUSIVE, DECIDE_REGRESS };

/* One side's figures of one configuration in one process; NaN = not measured. */
struct decide_value {
    double time_ms, pct_of_gemm;
    double over_control; /* t_control / t */
};
/* d of a pair, from the best figure that both sides have: over_control, pct_of_gemm, time_ms. NaN when there is none.
 * *is_paired: made from ratios within rounds. */
double decide_difference(const struct decide_value *from, const struct decide_value *to, bool *is_paired);

/* The same from pct_of_gemm where over_control was used: what bears witness. NaN when either is lacking. */
double decide_witness(const struct decide_value *from, const struct decide_value *to);

/* Mean of the values that are not NaN; NaN when there is none. */
double decide_mean(const double *values, int count);

/* Differences of pairs so far and what is known of their mean. One-sided bounds: `regress` with the error that a regression
 * needs, `pass` with that of a pass. */
struct decide_series {
    double d[DECIDE_PAIRS_MAX];
    int count;
    double mean, regress_low, regress_high, pass_low, pass_high;
};

/* A configuration. Compared with a control that moved in one configuration, a kernel that did not would seem to, or one that
 * did would hide it. So no verdict is given that the witness contradicts: that rules out a loss or gain of delta where one is
 * claimed, or shows a loss where none is. Such a case stays open, and is inconclusive in the end. */
struct decide_case {
    struct decide_series change, witness;
    enum decide_state state;
    bool is_contradicted;
};

struct decide_run {
    const struct decide_rules *rules;
    struct decide_case *cases; /* of the caller */
    int case_count;
    struct decide_series control;
    bool control_is_paired;
    int pairs;
    double t_regress[DECIDE_PAIRS_MAX + 1], t_pass[DECIDE_PAIRS_MAX + 1], t_control[DECIDE_PAIRS_MAX + 1];
};

void decide_begin(struct decide_run *, const struct decide_rules *, struct decide_case *cases, int count,
                  bool control_is_paired);
/* One more pair: d of each case (NaN: not in this pair), its witness' (NaN, or NULL: none), the control's (NaN: none). A case
 * that is decided keeps its state and figures. */
void decide_pair(struct decide_run *, const double *d, const double *witness, double control);
/* Is another pair needed, and allowed? */
bool decide_wants_more(const struct decide_run *);
/* No more pairs: what is open becomes inconclusive, and with a control that moved, so does every regression and
 * improvement. */
void decide_end(struct decide_run *);
/* Moved: beyond its limit, and surely not by chance. Quiet: its mean is within. Between them nothing is known. */
bool decide_control_moved(const struct decide_run *);
bool decide_control_quiet(const struct decide_run *);
/* EXIT_OK, EXIT_REGRESSION or EXIT_INCONCLUSIVE; after decide_end. */
int decide_exit(const struct decide_run *);

/* ---- gate: one stored run against another ---- */

struct decide_stored {
    double time_ms, ci_lo_ms, ci_hi_ms, pct_of_gemm, gemm_tflops, throttled_pct; /* NaN = not measured */
};
enum decide_reason {
    REASON_NONE,
    REASON_RAW_ONLY,  /* slower in time, not against the GEMM: the device was slower */
    REASON_GEMM_ONLY, /* slower against the GEMM, not in time: the device was faster */
    REASON_GEMM_MOVED,/* one of these two, and the GEMM moved too far to leave it at that */
    REASON_NOISE,     /* the intervals of the medians overlap */
    REASON_THROTTLED,
    REASON_NO_GEMM    /* judged by its time alone */
};
struct decide_gate {
    enum decide_state state;
    enum decide_reason reason;
    double time_change, share_change, gemm_change; /* logarithms, positive = slower; NaN = not measured */
};
struct decide_gate decide_gate(const struct decide_rules *, const struct decide_stored *baseline,
                               const struct decide_stored *current);

#endif
