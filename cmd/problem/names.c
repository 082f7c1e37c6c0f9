/* Names of the enums of a problem. */
#include "cmd/problem/names.h"

const char *const problem_mode_names[] = {[ATTN_FWD] = "fwd", [ATTN_BWD] = "bwd", NULL};
const char *const problem_dtype_names[] = {[ATTN_FP32] = "fp32", [ATTN_FP16] = "fp16", [ATTN_BF16] = "bf16", NULL};
const char *const problem_layout_names[] = {[ATTN_BSHD] = "bshd", [ATTN_BHSD] = "bhsd", NULL};
const char *const problem_dist_names[] = {[FILL_NORMAL] = "normal",
                                          [FILL_UNIFORM] = "uniform",
                                          [FILL_ZEROS] = "zeros",
                                          [FILL_SHARP] = "sharp",
                                          [FILL_HUGE] = "huge",
                                          [FILL_CONSTANT] = "constant",
                                          [FILL_TINY] = "tiny",
                                          [FILL_PEAK] = "peak",
                                          [FILL_RISING] = "rising",
                                          [FILL_FALLING] = "falling",
                                          NULL};
const char *const problem_l2_names[] = {[L2_COLD] = "cold", [L2_HOT] = "hot", NULL};
const char *const problem_scope_names[] = {[CHECK_FULL] = "full", [CHECK_SAMPLE] = "sample", [CHECK_OFF] = "off", NULL};

const char *problem_mode_name(int mode) { return mode < 0 ? "" : problem_mode_names[mode]; }
const char *problem_dtype_name(int dtype) { return dtype < 0 ? "" : problem_dtype_names[dtype]; }
const char *problem_layout_name(int layout) { return layout < 0 ? "" : problem_layout_names[layout]; }
const char *problem_dist_name(int dist) { return dist < 0 ? "" : problem_dist_names[dist]; }
const char *problem_l2_name(int l2) { return l2 < 0 ? "" : problem_l2_names[l2]; }
const char *problem_scope_name(int scope) { return scope < 0 ? "" : problem_scope_names[scope]; }
