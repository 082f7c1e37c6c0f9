/* A model of what a launch has to move and to compute, beside which stands what the hardware counted (--counters). It
 * has no measured constant. docs/counters.md explains it.
 *
 * Device memory, with an L2 that holds nothing before and is written back afterwards:
 *   naive      each input and output once (dO twice), and S and P as they are written and read between the passes:
 *              they do not fit in the L2. Row kernels read visible keys only and write all.
 *   otherwise  each input and output once; backward dO twice, and dQ and two statistics of each row in fp32 written and
 *              read, as in FlashAttention-2. Keys that many tiles read come from the L2 from the second time on.
 * Between L2 and multiprocessors, of an implementation that says its tiles: theorem 2 of the first FlashAttention paper
 * with these tiles: each tile of rows reads the keys that it sees, backward each tile of keys the rows that see it.
 *
 * Pure. */
#ifndef FABENCH_TRAFFIC_H
#define FABENCH_TRAFFIC_H

#include "cmd/plan/plan.h"

/* NaN = there is no model: lengths, masks and caches in arrays, attributes that naive takes with other kernels. */
struct traffic {
    double dram_bytes, l2_bytes;
    double flops; /* of all tiles, with what is masked inside them */
};

/* work: what the implementation says of itself, all 0 where it says nothing. */
struct traffic traffic_of(const struct plan_item *, bool is_naive, const struct attn_work *work);

#endif
