/* The time until the last multiprocessor has finished, for thread blocks or work tiles that each go to the one that is
 * free first, as the hardware and the tile schedulers do it. Only for estimates on the host. C. */
#ifndef FABENCH_MAKESPAN_H
#define FABENCH_MAKESPAN_H

#include <stdint.h>

enum { ATTN_MAX_MULTIPROCESSORS = 256 };

/* How many multiprocessors are free at which time, ascending. Times are in any unit, from 0 on. */
struct attn_makespan {
    struct {
        double time;
        int64_t multiprocessors;
    } free[ATTN_MAX_MULTIPROCESSORS];
    int count; /* entries of `free` */
};

/* All are free at 0. `multiprocessors` is cut to 1 to ATTN_MAX_MULTIPROCESSORS. */
struct attn_makespan attn_makespan_begin(int64_t multiprocessors);

/* Adds `blocks` blocks that take `time` each, one after the other. The cost of a call grows with blocks /
 * multiprocessors. */
void attn_makespan_add(struct attn_makespan *, int64_t blocks, double time);

/* When the last multiprocessor is free. */
double attn_makespan_end(const struct attn_makespan *);

#endif
