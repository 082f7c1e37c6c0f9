/* The statistical decisions of `ab`: arithmetic only, no clock, file or process. Those of `gate` are in
 * cmd/gate/decide_gate.h. tests/unit/gate/test_decide.c and simulate_gates.c simulate runs with these functions.
 *
 * Samples of one process are not independent: they share its memory layout and the temperature of that minute. The
 * observation of `ab` is therefore a process. Each has one value for each configuration, the logarithm of
 *
 *     t / t_reference
 *
 * computed within its rounds (stats_paired_ratio). t_reference is the time, in the same round, of
 *   - the control, an implementation that is the same in OLD and NEW (speedup_vs_peer of the record; on the CPU
 *     speedup_vs_naive);
 *   - the GEMM ceiling where there is no control (pct_of_gemm).
 * Where there is neither, it is the logarithm of the median time. A pair is one process of OLD and one of NEW; its
 * difference d is the value of NEW minus that of OLD.
 *
 * Order: blocks of two pairs. The order of the four processes of a block is drawn at random from the six that have two
 * of each. A fixed order, as OLD NEW NEW OLD, takes a disturbance that repeats every four processes for a change of the
 * kernel. Before REGRESS or IMPROVE the randomisation test asks how rare the measured sum is among all orders that
 * could have been drawn (Fisher, The Design of Experiments, 1935, section 21): this bound holds for every disturbance
 * that does not depend on the draw: periods, drift, outliers, processes that come in two modes.
 *
 * Why ratios: under a power cap the clock changes single samples by up to 20 % about once a second, for all members of
 * a round alike.
 * Why a peer and not the GEMM: the GEMM varies independently (docs/gates.md). The standard deviation between 24
 * processes, for 12 configurations, is 0.3 to 1.1 % for the median time, 0.10 to 0.76 % relative to the GEMM, and 0.04
 * to 0.12 % relative to cuDNN. In one of 50 processes the GEMM was 2.5 % slower relative to everything else.
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
    int pairs_min, pairs_max; /* decided after pairs_min, then after each further block of two pairs */
    double error_regress;     /* one-sided, of a regression or improvement in the whole run; divided by the number of
                                 configurations, in the randomisation test by the number of decisions as well */
    double error_pass;        /* one-sided error of a pass */
    double control_paired;    /* largest change of the control relative to the GEMM */
    double control_raw;       /* largest change of the control in plain time */
    double throttled_pct;     /* largest share of the time in thermal or brake slowdown, per cent; above it `ab` repeats
                                 the pair, and `gate` does not call a configuration slower */
    int repeats_max;          /* largest number of repeated blocks */
    /* Timing options of a process of `ab` that the user did not set. */
    double preheat_s, warmup_ms, min_time_ms;
    int samples;
    double gate_delta; /* of `gate`: a slowdown up to this passes; its error is error_regress too */
    double gate_gemm;  /* of `gate`: largest change of the GEMM's time. A configuration that is slower either in time or
                          relative to the GEMM, but not in both, passes up to it and is inconclusive above it */
    /* Of `gate`: the standard deviation between processes, in logarithms, where neither the records nor other
     * configurations tell it: for a regression, for a pass. Not on the CPU, where nothing is assumed. */
    double gate_spread, gate_spread_pass;
    int gate_runs_max; /* of `gate`: largest number of processes that it measures */
    /* Of `gate` on the CPU: others used the machine where threads waited for a CPU for a larger share of the time, in
     * per cent; where the record does not say, where its load for each CPU was above gate_load. A run of this program
     * leaves a load of up to 1 itself. */
    double gate_wait_pct, gate_load;
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

/* The value of a process on a basis: the logarithm of time / time of the reference, up to a constant. NaN when it is
 * missing. */
double decide_logarithm(const struct decide_value *, enum decide_basis);
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

/* The values and differences of the pairs so far, their mean, and its one-sided bounds: regress_* with the error of a
 * regression, pass_* with that of a pass. In logarithms. */
struct decide_series {
    double from[DECIDE_PAIRS_MAX], to[DECIDE_PAIRS_MAX], d[DECIDE_PAIRS_MAX];
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
    double chance; /* of the randomisation test at the last decision; 1 = it was not asked */
};

struct decide_run {
    const struct decide_rules *rules;
    struct decide_config *configs; /* of the caller */
    int config_count;
    struct decide_series control;
    bool control_is_paired;
    int pairs;
    double chance_regress; /* the largest chance of the randomisation test that allows a regression */
    double t_regress[DECIDE_PAIRS_MAX + 1], t_pass[DECIDE_PAIRS_MAX + 1], t_control[DECIDE_PAIRS_MAX + 1];
};

void decide_begin(struct decide_run *, const struct decide_rules *, struct decide_config *configs, int count,
                  bool control_is_paired);
/* The pairs of the block that begins with pair number `first` (from 0): 2, or 1 where pairs_min or pairs_max is odd. */
int decide_block_pairs(const struct decide_rules *, int first);
/* Draws the order of its processes: order[i] is 0 for OLD, 1 for NEW, pairs of either. The same *state gives the same
 * orders on every machine; it is changed. */
void decide_draw_order(uint64_t *state, int pairs, int order[4]);
/* Adds one pair: the values of either process for each configuration (NaN: not in this pair), its cross-check (NaN, or
 * NULL: none), and d of the control (NaN: none). Decides after the last pair of a block. A configuration that is
 * decided keeps its state and figures. */
void decide_pair(struct decide_run *, const double *from, const double *to, const double *cross_check, double control);
/* The randomisation test: the share of all orders of the processes that give a sum of differences at least as far from
 * 0, in the direction of the measured one. The blocks are those of decide_block_pairs. */
double decide_chance(const struct decide_rules *, const struct decide_series *);
/* The fewest pairs after which `count` configurations can have a regression; 0 = not within pairs_max. */
int decide_pairs_needed(const struct decide_rules *, int count);
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

#endif
