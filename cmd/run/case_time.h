/* The timed part of a problem: rounds, sustained regions, their checks, and the rows. */
#ifndef FABENCH_CASE_TIME_H
#define FABENCH_CASE_TIME_H

#include "cmd/run/case_state.h"

/* Measures every implementation that runs and sends its row. On failure *failed is its slot, -1 = of none of them. */
enum attn_status case_time(struct problem_run *, int *failed, struct attn_message *why);

#endif
