/* The timing method, version RECORD_METHOD: interleaved rounds. Each round takes one sample of every member, so that
 * drift of clock and temperature affects all members alike and ratios can be computed within rounds. In 2 x count
 * rounds every member follows every other member equally often (rounds_order; the first of a round has no predecessor),
 * because the previous launch influences the clock and the caches.
 *
 * The steps of a sample: before_sample (which changes the inputs and fills the outputs with a pattern, cmd/run/work.h),
 * close the stream gate, flush L2 (cold), start event, one launch (a graph replay where the implementation can be
 * captured), stop event, open the gate, wait, after_sample. On the CPU: flush caches, read the monotonic clock, launch,
 * read a word of each page of the outputs, read the clock again. Without the flush (hot) a launch that is not
 * measured comes before before_sample, so that
 * caches hold what a launch leaves there, inputs and outputs included. Warm-up runs the same rounds, unrecorded, for
 * warmup_ms. Sampling ends
 *   "noise"  after >= samples rounds and >= min_time_ms, when the 95 % intervals of every member's median and of its
 *            ratio to the last member (stats_paired_half_width_pct) have half-widths within max_noise_pct;
 *   "limit"  after >= samples rounds and 8 x min_time_ms, or at the time limit with fewer rounds.
 * A clock that does not move for 1000 rounds, or more than a tenth of a member's samples at 0 ms, are an error.
 *
 * The time of a member is the median of its samples; the ratio of two members is stats_paired_ratio over the rounds
 * (since version 2; before, the median of the ratios). Up to version 2 the order was only rotated, so that a member
 * always followed the same other member: the same kernel, measured as two members, differed by 1.3 % for launches of 20
 * us and by 0.4 % for 100 us. Up to version 3 the inputs and the contents of the outputs were those of the launch
 * before, so that a launch could do less than a first one; in version 4 their columns alone changed sign, so that a
 * stored result could be made right. */
#ifndef FABENCH_ROUNDS_H
#define FABENCH_ROUNDS_H

#include "cmd/device/backend.h"

struct rounds_member {
    struct launcher launcher;
    double *samples_ms; /* owned by rounds_run's caller after it returns; one per round */
};

/* Times in milliseconds of wall-clock time. max_noise_pct: half-width of the 95 % intervals, in per cent. */
struct rounds_plan {
    double warmup_ms, min_time_ms, max_noise_pct, limit_ms;
    int64_t samples;
    bool cold;
    /* All are called with the member's index, outside the clock.
     * enter: a launch of the member follows; false ends the rounds as interrupted.
     * before_sample: changes its inputs and outputs; is_timed: for a sample, not for a launch that warms the caches.
     * after_launch: right after each of its launches, measured or not; may be NULL.
     * after_sample: looks at what the sample wrote; may be NULL. */
    bool (*enter)(void *context, int member);
    enum attn_status (*before_sample)(void *context, int member, bool is_timed, struct attn_message *why);
    void (*after_launch)(void *context, int member);
    enum attn_status (*after_sample)(void *context, int member, double time_ms, struct attn_message *why);
    void *context;
};

struct rounds_result {
    int64_t rounds;
    const char *stop; /* "noise", "limit" */
    bool interrupted;
    int failed_member; /* index of the member whose launch failed, when the status is not ATTN_OK */
};

/* The members' order in a round: a Williams square (E. J. Williams 1949, "Experimental designs balanced for the
 * estimation of residual effects of treatments") and its mirror image, row by row. */
void rounds_order(int count, int64_t round, int *order);

/* Runs warm-up and sampling. Fills samples_ms of the members; on failure *why has the reason. */
enum attn_status rounds_run(struct backend *, struct rounds_member *, int count, const struct rounds_plan *,
                            struct rounds_result *, struct attn_message *why);

#endif
