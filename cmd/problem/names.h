/* The enums of a problem and their names, as typed on the command line and written in records. */
#ifndef FABENCH_PROBLEM_NAMES_H
#define FABENCH_PROBLEM_NAMES_H

#include "kernels/attention.h"
#include "reference/harness/fill.h"

enum l2_policy { L2_COLD, L2_HOT };                       /* what a sample finds in the L2 cache */
enum check_scope { CHECK_FULL, CHECK_SAMPLE, CHECK_OFF }; /* how much of a result is compared with the reference */

/* Indexed by their enum; NULL ends each. */
extern const char *const problem_mode_names[];   /* attn_mode: fwd bwd */
extern const char *const problem_dtype_names[];  /* attn_dtype: fp32 fp16 bf16 */
extern const char *const problem_layout_names[]; /* attn_layout: bshd bhsd */
extern const char
    *const problem_dist_names[]; /* fill_dist: normal uniform zeros sharp huge constant tiny peak rising falling */
extern const char *const problem_l2_names[];    /* l2_policy: cold hot */
extern const char *const problem_scope_names[]; /* check_scope: full sample off */

/* The name of one value; "" for -1, which stands for absent. */
const char *problem_mode_name(int);
const char *problem_dtype_name(int);
const char *problem_layout_name(int);
const char *problem_dist_name(int);
const char *problem_l2_name(int);
const char *problem_scope_name(int);

#endif
