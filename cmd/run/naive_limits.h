/* How large the logits of a problem are, and for which inputs naive is not judged: it rounds S to 16 bits, and large
 * logits that are close to each other lose what P depends on. Why and where the limits are is in docs/judging.md. No
 * device. */
#ifndef FABENCH_NAIVE_LIMITS_H
#define FABENCH_NAIVE_LIMITS_H

#include "cmd/plan/plan.h"

/* Why naive cannot meet the bounds on these inputs, a sentence; NULL where it can. On the CPU it has S in fp32 for
 * 8-bit inputs too. */
const char *naive_limits(const struct plan_item *, enum attn_platform);

/* The standard deviation of the logits before a softcap, without their common part; 0 where it is not known (files). */
double limits_logit_std(const struct plan_item *);

/* No |logit| of the problem is above this, as far as P of a row differ by it; INFINITY where that is not known. */
double limits_largest_logit(const struct plan_item *);

/* For 8-bit inputs whose V has values far above the others: half a unit of P in their type, which is the error of an
 * element of O that is one such value times its weight. Else 0. */
double limits_one_term(const struct plan_item *);

#endif
