/* The statistical decisions of `ab` and `gate`: arithmetic only, no clock, file or process.
 * tests/unit/gate/test_decide.c simulates runs with these functions.
 *
 * The independent observation of `ab` is a pair of fresh processes, one of OLD and one of NEW, in ABBA order. Samples
 * of one process are not independent: they share its memory layout and the temperature of that minute. Each pair gives
 * one difference for each configuration:
 *
 *     d = log(t_new / t_reference) - log(t_old / t_reference)
 *
 * The ratio of each build is computed within its rounds (stats_paired_ratio). t_reference is the time, in the same
 * round, of
 *   - the control, an implementation that is the same in OLD and NEW (speedup_vs_peer of the record; on the CPU
 *     speedup_vs_naive);
 *   - the GEMM ceiling where there is no control (pct_of_gemm).
 * Where there is neither, d is the difference of the logarithms of the median times.
 *
 * Why ratios: under a power cap the clock changes single samples by up to 20 % about once a second, for all members of
 * a round alike.
 * Why a peer and not the GEMM: the GEMM varies independently (docs/gates.md). The standard deviation between 24
 * processes, for 12 configurations, is 0.3 to 1.1 % for the median time, 0.10 to 0.76 % relative to the GEMM, and 0.04
 * to 0.12 % relative to cuDNN. In one of 50 processes the GEMM was 2.5 % slower relative to everything else.
 * Why ABBA: a linear drift from process to process cancels in the mean of an even number of pairs; in an odd number its
 * effect is divided by that number.
 *
 * The ratio of the control to the GEMM, over all configurations, shows whether harness and device were stable. In each
 * configuration the difference relative to the GEMM is a cross-check (struct decide_config). */
#ifndef FABENCH_DECIDE_H
#define FABENCH_DECIDE_H

#include <stdbool.h>
#include <stdint.h>

enum { DECIDE_PAIRS_MAX = 64 };

/* Limits and bounds; their values are in decide_defaults. Limits on time are in logarithms: log(1.02) = 2 %. */
struct decide_rules {
    double delta;             /* of `ab`: a slowdown up to this passes */
    int pairs_min, pairs_max; /* decided after pairs_min, then after each further pair */
    double error_regress;     /* one-sided, of a regression or improvement; divided by the number of configurations */
    double error_pass;        /* one-sided error of a pass */
    double control_paired;    /* largest change of the control relative to the GEMM */
    double control_raw;       /* largest change of the control in plain time */
    double throttled_pct;     /* largest share of the time in thermal or brake slowdown, per cent; above it `ab` repeats
                                 the pair, and `gate` does not call a configuration slower */
    int repeats_max;          /* largest number of repeated pairs */
    /* Timing options of a process of `ab` that the user did not set. */
    double preheat_s, warmup_ms, min_time_ms;
    int samples;
    double gate_delta; /* of `gate`: a slowdown up to this passes; its error is error_regress too */
    double gate_gemm;  /* of `gate`: largest change of the GEMM's time. A configuration that is slower either in time or
                          relative to the GEMM, but not in both, passes up to it and is inconclusive above it */
};
extern const struct decide_rules decide_defaults;

enum decide_state { DECIDE_OPEN, DECIDE_PASS, DECIDE_IMPROVE, DECIDE_INCONCLUSIVE, DECIDE_REGRESS };

/* What one process measured of one configuration; NaN = not measured. */
struct decide_value {
    double time_ms, pct_of_gemm;
    double speedup_vs_control; /* t_control / t */
};
/* What d is a difference of: the first of these that both have. */
enum decide_basis { BASIS_CONTROL, BASIS_GEMM, BASIS_TIME, BASIS_NONE };
enum decide_basis decide_basis_of(const struct decide_value *from, const struct decide_value *to);

/* d of a pair (from: OLD, to: NEW), from the first of speedup_vs_control, pct_of_gemm and time_ms that both have. NaN
 * when there is none. *is_paired: true when d was computed from ratios within rounds. */
double decide_difference(const struct decide_value *from, const struct decide_value *to, bool *is_paired);

/* The same difference from pct_of_gemm, as a cross-check of one from speedup_vs_control. NaN when either is missing. */
double decide_cross_check(const struct decide_value *from, const struct decide_value *to);

/* Mean of the values that are not NaN; NaN when there are none. */
double decide_mean(const double *values, int count);

struct decide_series;
/* The standard deviation between pairs, in logarithms; 0 with fewer than two. */
double decide_spread(const struct decide_series *);

/* The differences of the pairs so far, their mean, and its one-sided bounds: regress_* with the error of a regression,
 * pass_* with that of a pass. In logarithms. */
struct decide_series {
    double d[DECIDE_PAIRS_MAX];
    int count;
    double mean, regress_low, regress_high, pass_low, pass_high;
};

/* One configuration. A control that changes in this configuration alone can make an unchanged kernel look slower, or
 * hide that a kernel became slower. Therefore a verdict is held back while the cross-check contradicts it:
 *   - a regression, when the upper bound of the cross-check is below a slowdown of delta;
 *   - an improvement, when its lower bound is above a speed-up of delta;
 *   - a pass, when its mean is a slowdown above delta and its lower bound is above 0.
 * The configuration stays open meanwhile, and is inconclusive if this is so at the end. */
struct decide_config {
    struct decide_series change, cross_check;
    enum decide_state state;
    bool is_contradicted;
};

struct decide_run {
    const struct decide_rules *rules;
    struct decide_config *configs; /* of the caller */
    int config_count;
    struct decide_series control;
    bool control_is_paired;
    int pairs;
    double t_regress[DECIDE_PAIRS_MAX + 1], t_pass[DECIDE_PAIRS_MAX + 1], t_control[DECIDE_PAIRS_MAX + 1];
};

void decide_begin(struct decide_run *, const struct decide_rules *, struct decide_config *configs, int count,
                  bool control_is_paired);
/* Adds one pair: d of each configuration (NaN: not in this pair), its cross-check (NaN, or NULL: none), and d of the
 * control (NaN: none). A configuration that is decided keeps its state and figures. */
void decide_pair(struct decide_run *, const double *d, const double *cross_check, double control);
/* Is a configuration undecided, and another pair allowed? */
bool decide_needs_pair(const struct decide_run *);
/* Ends the run: open configurations become inconclusive. If the control changed, so do all regressions and
 * improvements. */
void decide_end(struct decide_run *);
/* Changed: the mean is above its limit and significantly different from 0. Stable: the mean is within the limit, and so
 * are its 95 % bounds; a mean of pairs that differ widely says nothing. Neither: not known. */
bool decide_control_changed(const struct decide_run *);
bool decide_control_stable(const struct decide_run *);
/* EXIT_OK, EXIT_REGRESSION or EXIT_INCONCLUSIVE; after decide_end. */
int decide_exit(const struct decide_run *);

/* ---- gate: one stored run against another ---- */

/* A stored run is one process, and its samples are all that is known of its noise: the 95 % interval of the median. In
 * logarithms, half of its width divided by 1.96 is the standard error of the median. The interval is the distance of
 * two order statistics about 1.96 sqrt(n) ranks apart, so the error itself is known about as well as one with sqrt(n)
 * degrees of freedom; those of a difference follow from Welch and Satterthwaite. A regression needs a lower bound by
 * Student's t above 0. The error of 1 % is divided by the number of configurations compared (Bonferroni), as in
 * `ab`. */
struct decide_stored {
    double time_ms, ci_lo_ms, ci_hi_ms, pct_of_gemm, gemm_tflops, throttled_pct; /* NaN = not measured */
    int64_t samples;
};
enum decide_reason {
    REASON_NONE,
    REASON_RAW_ONLY,     /* slower in time, not relative to the GEMM: the device was slower */
    REASON_GEMM_ONLY,    /* slower relative to the GEMM, not in time: the GEMM was faster */
    REASON_GEMM_CHANGED, /* one of these two, and the GEMM changed by more than gate_gemm */
    REASON_NOISE,        /* the intervals of the medians overlap */
    REASON_FAMILY,       /* they do not, but the lower bound for that many configurations is not above 0 */
    REASON_NO_INTERVAL,  /* too few samples for an interval, on one side or both: nothing is decided */
    REASON_THROTTLED,
    REASON_NO_GEMM /* decided by its time alone */
};
struct decide_gate {
    enum decide_state state;
    enum decide_reason reason;
    /* Changes in logarithms, positive = slower: of the time, of the time relative to the GEMM, of the time of the GEMM.
     * NaN = not measured. */
    double time_change, relative_change, gemm_change;
};
/* family: the number of configurations that this gate compares. */
struct decide_gate decide_gate(const struct decide_rules *, const struct decide_stored *baseline,
                               const struct decide_stored *current, int family);

#endif
