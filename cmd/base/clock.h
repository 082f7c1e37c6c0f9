/* The monotonic clock: for durations, time limits and CPU samples. */
#ifndef FABENCH_CLOCK_H
#define FABENCH_CLOCK_H

/* CLOCK_MONOTONIC, in milliseconds; the same in every process of this machine. */
double clock_ms(void);

/* The same clock without the times in which this process was suspended (Ctrl-Z, a paused virtual machine). Its children
 * were suspended as well, so such a time must not count against their limits. Starts as {0}. */
struct awake_clock {
    double last_ms;   /* time of the last call, 0 = none yet */
    double paused_ms; /* sum of the gaps longer than AWAKE_GAP_MS */
};
enum { AWAKE_GAP_MS = 2000 };

/* Call it more often than every AWAKE_GAP_MS. now_ms is clock_ms(). Returns now_ms - paused_ms. */
double awake_clock_at(struct awake_clock *, double now_ms);

#endif
