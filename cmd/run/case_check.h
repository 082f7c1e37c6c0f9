/* Checks of one implementation's outputs and of what surrounds them: guards, inputs, repeated launches. */
#ifndef FABENCH_CASE_CHECK_H
#define FABENCH_CASE_CHECK_H

#include "cmd/run/case_state.h"

struct check_request case_check_request(const struct problem_run *, const struct contender *);
/* The tensors whose bits the implementation promises to repeat. */
unsigned case_promised_tensors(const struct problem_run *, const struct contender *);

/* Judges the outputs and adds the verdict to those of earlier launches. */
enum attn_status case_judge_outputs(struct problem_run *, struct contender *, struct attn_message *why);
/* The first launch, into poisoned outputs, and its verdict. */
enum attn_status case_launch_first(struct problem_run *, struct contender *, struct attn_message *why);
/* The check columns of the row, with the relative tolerance that was applied. */
void case_check_row(const struct problem_run *, struct contender *);

#endif
