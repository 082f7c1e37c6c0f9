/* Names of the enums of a problem. */
#include "cmd/problem/names.h"

const char *const problem_mode_names[] = {[ATTN_FWD] = "fwd", [ATTN_BWD] = "bwd", NULL};
const char *const problem_dtype_names[] = {[ATTN_FP32] = "fp32", [ATTN_FP16] = "fp16", [ATTN_BF16] = "bf16", NULL};
const char *const problem_layout_names[] = {[ATTN_BSHD] = "bshd", [ATTN_BHSD] = "bhsd", NULL};
const char *const problem_dist_names[] = {
    [FILL_NORMAL] = "normal", [FILL_UNIFORM] = "uniform",   [FILL_ZEROS] = "zeros", [FILL_SHARP] = "sharp",
    [FILL_HUGE] = "huge",     [FILL_CONSTANT] = "constant", [FILL_TINY] = "tiny",
    [FILL_PEAK] = "peak",     NULL};
const char *const problem_l2_names[] = {[L2_COLD] = "cold", [L2_HOT] = "hot", NULL};

const char *problem_mode_name(enum attn_mode mode) { return problem_mode_names[mode]; }
const char *problem_dtype_name(enum attn_dtype dtype) { return problem_dtype_names[dtype]; }
const char *problem_layout_name(enum attn_layout layout) { return problem_layout_names[layout]; }
const char *problem_dist_name(enum fill_dist dist) { return problem_dist_names[dist]; }
const char *problem_l2_name(enum l2_policy l2) { return problem_l2_names[l2]; }
