/* For which inputs naive is not judged: it rounds S to 16 bits, and large logits that are close to each other lose what
 * P depends on. Why and where the limits are is in docs/judging.md. No device. */
#ifndef FABENCH_NAIVE_LIMITS_H
#define FABENCH_NAIVE_LIMITS_H

#include "cmd/plan/plan.h"

/* Why naive cannot meet the bounds on these inputs, a sentence; NULL where it can. On the CPU it has S in fp32 for
 * 8-bit inputs too. */
const char *naive_limits(const struct plan_item *, enum attn_platform);

#endif
