/* The clock that never goes back: for durations, limits and samples on the CPU. */
#ifndef FABENCH_CLOCK_H
#define FABENCH_CLOCK_H

/* CLOCK_MONOTONIC, in milliseconds; the same in every process of this machine. */
double clock_ms(void);

/* The same clock without the times in which this process was suspended (Ctrl-Z, a paused virtual machine). Its children
 * were suspended as well, so such a time must not count against their limits. Starts as {0}. */
struct awake_clock {
    double last_ms;   /* of the last look, 0 = none yet */
    double paused_ms; /* sum of the times without a look for over AWAKE_GAP_MS */
};
enum { AWAKE_GAP_MS = 2000 };

/* To be called more often than every AWAKE_GAP_MS; now_ms: clock_ms(). Returns now_ms - paused_ms. */
double awake_clock_at(struct awake_clock *, double now_ms);

#endif
