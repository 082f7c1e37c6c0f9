/* The enums of a problem and their names, as typed on the command line and written in records. */
#ifndef FABENCH_PROBLEM_NAMES_H
#define FABENCH_PROBLEM_NAMES_H

#include "kernels/attention.h"
#include "reference/harness/fill.h"

enum l2_policy { L2_COLD, L2_HOT }; /* what a sample finds in the L2 cache */

/* Indexed by their enum; NULL ends each. */
extern const char *const problem_mode_names[];   /* attn_mode: fwd bwd */
extern const char *const problem_dtype_names[];  /* attn_dtype: fp32 fp16 bf16 */
extern const char *const problem_layout_names[]; /* attn_layout: bshd bhsd */
extern const char *const problem_dist_names[];   /* fill_dist: normal uniform zeros sharp huge constant tiny peak */
extern const char *const problem_l2_names[];     /* l2_policy: cold hot */

const char *problem_mode_name(enum attn_mode);
const char *problem_dtype_name(enum attn_dtype);
const char *problem_layout_name(enum attn_layout);
const char *problem_dist_name(enum fill_dist);
const char *problem_l2_name(enum l2_policy);

#endif
