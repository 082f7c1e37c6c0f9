/* Whether the tensor cores have done the work that a row claims, by the counters of the hardware: the rule "executed".
 * The FLOPs of products whose inputs and sums are as wide as the row says, or wider, must be at least those of the
 * visible pairs. What tiles compute beside that, and other work, is allowed.
 *
 * No rule for fp32 rows, which may do without tensor cores, and for decode, whose few rows may, too; nor where a kernel
 * may find that some pairs have no weight (cmd/run/floors.h); nor where the counters of a type that counts are absent.
 * Of fp16 products on Hopper's wgmma the chip does not tell in what they add. Pure. */
#ifndef FABENCH_EXECUTED_H
#define FABENCH_EXECUTED_H

#include "cmd/device/counters.h"
#include "cmd/plan/plan.h"

#define EXECUTED_RULE "executed"
/* Of the FLOPs of the visible pairs that may be missing. The convention counts half a square for a causal mask, where a
 * kernel has to compute a little more. */
#define EXECUTED_SHARE 0.001

/* keeps_p: `prepare` has computed P, so that a backward has one product less. False: the sentence says what is missing.
 */
bool executed_allows(const struct plan_item *, bool keeps_p, const struct counters *, char *sentence, size_t size);

/* "bf16=5.5e11 fp8=1.1e12": the types that were counted and are not 0; "none" where all are 0. */
void executed_types(const struct counters *, char *text, size_t size);

#endif
