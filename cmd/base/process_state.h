/* What a process has for all of its code alone, and what code of others may change in passing: recorded, compared, put
 * back. Of the calling thread where each thread has its own. */
#ifndef FABENCH_BASE_PROCESS_STATE_H
#define FABENCH_BASE_PROCESS_STATE_H

#include <stdbool.h>

/* Bits of the parts. */
enum process_part {
    PART_FLOATING_POINT = 1 << 0, /* rounding, traps, flushing of denormals; not the flags of what has happened */
    PART_LOCALE = 1 << 1,
    PART_SIGNAL_MASK = 1 << 2,
    PART_SIGNAL_HANDLERS = 1 << 3,
    PART_TIMERS = 1 << 4, /* alarm, setitimer */
    PART_FOLDER = 1 << 5, /* the working folder */
    PART_UMASK = 1 << 6,
    PART_ENVIRONMENT = 1 << 7, /* variables */
    PART_AFFINITY = 1 << 8,    /* the processors on which this thread may run */
    PART_STREAMS = 1 << 9,     /* descriptors 0, 1 and 2 */
};
enum {
    PROCESS_PARTS = 10,
    PARTS_ALL = (1 << PROCESS_PARTS) - 1,
    PARTS_QUICK = PARTS_ALL & ~PART_SIGNAL_HANDLERS, /* without the one that takes 64 calls of the system */
};

/* "the working folder", by the number of its bit. */
const char *process_part_name(int number);

struct process_state;

/* The state now; ends the program when memory is exhausted. */
struct process_state *process_state_record(void);
void process_state_free(struct process_state *);

/* Puts back which of these parts have changed since the record, and returns the bits of those. No part that cannot be
 * read counts as changed; one that cannot be put back is among *stuck, and again among the changed ones the next time.
 */
unsigned process_state_put_back(struct process_state *, unsigned parts, unsigned *stuck);

/* ---- one open file ---- */

/* Which file a descriptor is of, to see later whether it still is. */
struct file_identity {
    unsigned long long device, node; /* 0, 0: it was closed */
};
struct file_identity file_identity_of(int descriptor);
bool file_identity_holds(const struct file_identity *, int descriptor);

#endif
