/* What results in fp16 may be off where P and dS of keys with little weight are denormal (docs/judging.md). */
#ifndef FABENCH_DENORMALS_H
#define FABENCH_DENORMALS_H

#include "cmd/device/backend.h"
#include "cmd/judge/judge.h"
#include "cmd/run/check_views.h"

/* Fills view->sizes from the inputs (device memory, those of the view) of a problem in fp16, whose references are
 * computed: of a backward, and V's of a forward with dropout; zeros for other problems. */
enum attn_status denormals_measure(struct backend *, enum attn_mode, const struct attn_tensors *, struct check_view *,
                                   struct attn_message *why);

/* Of an element of a gradient, or with dropout of O; one, row: of dV or O. All 0 for other tensors and where nothing
 * was measured. */
struct judge_denormals denormals_of(const struct check_view *, enum problem_tensor);

#endif
