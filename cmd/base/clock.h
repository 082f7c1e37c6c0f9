/* The clock that never goes back: for durations, limits and samples on the CPU. */
#ifndef FABENCH_CLOCK_H
#define FABENCH_CLOCK_H

/* CLOCK_MONOTONIC, in milliseconds; the same in every process of this machine. */
double clock_ms(void);

#endif
