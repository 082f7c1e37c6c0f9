/* The timing method, version RECORD_METHOD: rounds of one sample of every member in turn, so that drift of clock and
 * temperature hits all alike and ratios can be paired. The member that begins rotates from round to round.
 *
 * A sample is: stream gate closed, L2 flushed (cold), start event, one launch (a graph replay where the implementation
 * can be captured), stop event, gate opened, wait. On the CPU: caches flushed, monotonic clock, launch, clock.
 * Warm-up runs the same rounds, unrecorded, for warmup_ms. Sampling ends
 *   "noise"  after >= samples rounds and >= min_time_ms, when the 95 % intervals of every member's median and of its
 *            ratio to the last member (stats_paired_half_width_pct) have half-widths within max_noise_pct;
 *   "limit"  after >= samples rounds and 8 x min_time_ms, or at the time limit with fewer rounds.
 *
 * A member's figure is the median of its samples; the ratio of two members is stats_paired_ratio over the rounds (since
 * version 2; the median of the ratios before). */
#ifndef FABENCH_ROUNDS_H
#define FABENCH_ROUNDS_H

#include "cmd/backend.h"

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

enum attn_status rounds_run(struct backend *, struct rounds_member *, int count, const struct rounds_plan *,
                            struct rounds_result *, struct attn_message *why);

#endif
