/* The timing method, version RECORD_METHOD: rounds of one sample of every member in turn, so that drift of clock and
 * temperature hits all alike and ratios can be paired. Within 2 x count rounds every member follows every other equally often
 * (rounds_order; not counting the first of a round): what ran just before leaves its clock and its caches behind.
 *
 * A sample is: stream gate closed, L2 flushed (cold), start event, one launch (a graph replay where the implementation
 * can be captured), stop event, gate opened, wait. On the CPU: caches flushed, monotonic clock, launch, clock.
 * Warm-up runs the same rounds, unrecorded, for warmup_ms. Sampling ends
 *   "noise"  after >= samples rounds and >= min_time_ms, when the 95 % intervals of every member's median and of its
 *            ratio to the last member (stats_paired_half_width_pct) have half-widths within max_noise_pct;
 *   "limit"  after >= samples rounds and 8 x min_time_ms, or at the time limit with fewer rounds.
 *
 * A member's figure is the median of its samples; the ratio of two members is stats_paired_ratio over the rounds (since
 * version 2; the median of the ratios before). Up to version 2 the order was rotated only, so that a member always followed
 * the same other: the same kernel named twice differed by 1.3 % where a launch takes 20 us, by 0.4 % at 100 us. */
#ifndef FABENCH_ROUNDS_H
#define FABENCH_ROUNDS_H

#include "cmd/device/backend.h"

struct rounds_member {
    struct launcher launcher;
    double *samples_ms; /* owned by rounds_run's caller after it returns; one per round */
};

struct rounds_plan {
    double warmup_ms, min_time_ms, max_noise_pct, limit_ms;
    int64_t samples;
    bool cold;
    /* Called before each sample with the member's index; false ends the rounds (interrupted). */
    bool (*before_sample)(void *context, int member);
    void *context;
};

struct rounds_result {
    int64_t rounds;
    const char *stop;    /* "noise", "limit" */
    bool interrupted;
    int failed_member;   /* whose launch failed when the status is not ATTN_OK */
};

/* The members' order in a round: a Williams square (E. J. Williams 1949, "Experimental designs balanced for the estimation
 * of residual effects of treatments") and its mirror image, row by row. */
void rounds_order(int count, int64_t round, int *order);

enum attn_status rounds_run(struct backend *, struct rounds_member *, int count, const struct rounds_plan *,
                            struct rounds_result *, struct attn_message *why);

#endif
