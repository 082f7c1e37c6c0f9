/* The clock outside: a plugin is in the process that measures it, and may change what its clock says. Where a loaded
 * implementation takes part, each one is also launched in batches, without anything in between, which the worker and
 * the supervisor both time. Their clocks must agree; where they do not, another batch follows, four times as long,
 * up to WITNESS_TRIES. A row without a batch on which they agree fails by the rule "witness".
 *
 * The supervisor decides, by what arrived when in its own process; the worker learns the answer only to know whether
 * another batch is of use. */
#ifndef FABENCH_WITNESS_H
#define FABENCH_WITNESS_H

#include <stdbool.h>
#include <stdint.h>

#define WITNESS_RULE "witness"
#define WITNESS_MS 200.0   /* the least length of a batch */
#define WITNESS_SHARE 0.05 /* by which the clocks may differ, */
#define WITNESS_EXTRA_MS 1.0
#define WITNESS_GROWTH 4.0     /* what a busy machine adds to a batch does not grow with it */
#define WITNESS_HOT_FACTOR 3.0 /* a single launch with warm caches is no faster than those of a batch by this */
enum { WITNESS_TRIES = 3, WITNESS_ANSWER_MS = 1000 /* that the worker waits for an answer */ };

/* The batches of one row, as the supervisor saw them. */
struct witness {
    int tries;
    bool agrees;
    double worker_ms, own_ms; /* of the last batch */
    int64_t launches;
};

/* Launches of a batch: at least WITNESS_MS, and WITNESS_GROWTH times as many at each try; limit_ms at most. */
int64_t witness_launches(double launch_ms, int try, double limit_ms);
/* Takes a batch into account. */
void witness_add(struct witness *, double worker_ms, double own_ms, int64_t launches);
/* Is the claimed time of a launch possible? is_comparable: it was taken as those of the batches were. */
bool witness_confirms(const struct witness *, bool is_comparable, double claimed_ms);
/* Why not, in words. */
void witness_describe(const struct witness *, double claimed_ms, char *text, unsigned long size);

#endif
