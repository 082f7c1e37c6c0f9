/* The list of work tiles of packed sequences (schedule.h) for kernels whose blocks wait for those of the tiles before
 * in the same sequence: tile by tile, first the first one of each sequence. C and CUDA C++. */
#ifndef FABENCH_FAMILY_SCHEDULE_IN_ORDER_H
#define FABENCH_FAMILY_SCHEDULE_IN_ORDER_H

#include "kernels/family/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FAMILY_MOST_TILES_IN_ORDER = FAMILY_SCHEDULE_THREADS }; /* of a sequence */

extern const family_schedule_kernel family_schedule_work_in_order;

/* In place of family_launch_schedule. */
enum attn_status family_launch_schedule_in_order(const struct attn_request *, const struct attn_tensors *,
                                                 const struct family_tiling *, const struct attn_run *,
                                                 struct attn_message *why);

#ifdef __cplusplus
}
#endif
#endif
