/* The statistical decisions of `gate`: arithmetic only, no clock, file or process.
 *
 * A stored record is one process. `gate` compares the mean of one or several processes of the baseline with that of one
 * or several of the current build, in logarithms, in up to two measures: the time, and the time relative to a reference
 * of the same rounds (the GEMM or the read ceiling, on the CPU the control). Two things make these means uncertain:
 *
 * 1. Noise within a process: the 95 % interval of the median. In logarithms, half of its width divided by 1.96 is the
 *    standard error of the median. The interval is the distance of two order statistics about 1.96 sqrt(n) ranks apart,
 *    so the error itself is known about as well as one with sqrt(n) degrees of freedom; those of a difference follow
 *    from Welch and Satterthwaite.
 * 2. The spread between processes, which no interval of one process shows. From several processes of a side it is
 *    their standard deviation; with few degrees of freedom of its own, that of a configuration is drawn to the one of
 *    all configurations, which counts as four (Smyth, Statistical Applications in Genetics and Molecular Biology 3,
 *    2004). From one process on each side it is how widely the changes of all configurations lie apart: the shortest
 *    interval that holds half of them, so that a change of up to half of the configurations is not taken for noise
 *    (Rousseeuw and Leroy, Robust Regression and Outlier Detection, 1987). That does not show what all have in common,
 *    and nothing is known from fewer than six: there gate_spread_* of the rules stands for it.
 *
 * On the CPU other programs slow single processes down by any factor, also relative to the control: nothing stands for
 * the spread there. One record of the baseline decides nothing, and a change is called slower or faster only with two
 * processes on each side, measured while the machine was not busy. The noise within the processes counts for the time
 * relative to the control, too.
 *
 * A regression needs a change above the limit and a lower bound by Student's t above 0, with an error of 1 % that is
 * divided by the number of configurations. A pass needs an upper 95 % bound below the limit. */
#ifndef FABENCH_DECIDE_GATE_H
#define FABENCH_DECIDE_GATE_H

#include "cmd/gate/decide.h"

enum { GATE_RUNS_MAX = 16 }; /* processes on a side */

/* What one process measured of one configuration; NaN = not measured. */
struct decide_stored {
    double time_ms, ci_lo_ms, ci_hi_ms;
    double share;         /* pct_of_gemm, or pct_of_read in decode */
    double ceiling;       /* speed of that ceiling, in any unit */
    double over_control;  /* t_control / t, within rounds */
    double throttled_pct; /* share of its time in thermal slowdown */
    int64_t samples;      /* 0 = no interval */
    double cpu_wait_pct;  /* share of its time in which its threads waited for a CPU */
};

/* One configuration: its runs on both sides, 1 to GATE_RUNS_MAX of each; arrays of the caller. */
struct decide_case {
    struct decide_stored *was, *now;
    int was_count, now_count;
};

/* What the configurations of a gate have in common. variance: of one process in logarithms, by measure; freedom: its
 * degrees of freedom, 0 = not known. */
enum decide_measure { MEASURE_TIME, MEASURE_RELATIVE, MEASURES };
struct decide_family {
    int count;
    bool is_cpu;  /* only times relative to a control count */
    bool is_busy; /* on the CPU: others used the machine while a record was measured that has no cpu_wait_pct */
    double variance[MEASURES], freedom[MEASURES];
};
struct decide_family decide_family_of(const struct decide_case *, int count, bool is_cpu);

enum decide_reason {
    REASON_NONE,
    REASON_RAW_ONLY,     /* slower in time, not relative to the ceiling: the device was slower */
    REASON_GEMM_ONLY,    /* slower relative to the ceiling, not in time: the ceiling was faster */
    REASON_GEMM_CHANGED, /* one of these two, and the ceiling changed by more than gate_gemm */
    REASON_NOISE,        /* the intervals of the medians overlap */
    REASON_FAMILY,       /* the lower bound for that many configurations is not above 0 */
    REASON_SPREAD,       /* the runs differ by too much for this limit */
    REASON_NO_INTERVAL,  /* too few samples for an interval, on one side or both: nothing is decided */
    REASON_NO_CONTROL,   /* on the CPU, without an implementation that ran beside it in all records */
    REASON_ONE_BASELINE, /* on the CPU, with one record of the baseline: nothing is decided */
    REASON_ONE_NOW,      /* on the CPU, slower or faster in one process */
    REASON_BUSY,         /* on the CPU, slower or faster while others used the machine */
    REASON_THROTTLED,
    REASON_NO_GEMM /* decided by its time alone */
};
struct decide_gate {
    enum decide_state state;
    enum decide_reason reason;
    /* Changes in logarithms, positive = slower: of the time, of the time relative to the reference, of the time of the
     * ceiling. NaN = not measured. */
    double time_change, relative_change, gemm_change;
    double low, high;  /* the bounds of a regression, of the change that decides; NaN = none */
    double waited_pct; /* the largest share of a process's time in which it waited for a CPU; NaN = not known */
    double spread;     /* standard deviation of one process in that measure, in logarithms */
    double possible;   /* the smallest limit that an unchanged configuration could pass, in logarithms */
};
struct decide_gate decide_gate(const struct decide_rules *, const struct decide_family *, const struct decide_case *);

/* Where `gate` measures: is another process of the current build needed for this configuration, after `runs` of them? A
 * configuration that noise left open is measured up to gate_runs_max times; a regression is confirmed by a second
 * process, because one process may be slow for a reason of its own. */
bool decide_gate_needs_run(const struct decide_rules *, const struct decide_gate *, int runs);

#endif
