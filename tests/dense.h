/* A problem of dense attention in one line, for tests. */
#ifndef FABENCH_TEST_DENSE_H
#define FABENCH_TEST_DENSE_H

#include "kernels/attention.h"

/* Initialiser of a struct attn_problem in the order of its fields; every attribute beyond dense attention is absent. */
#define DENSE(b, hq, hk, q, k, d, type, order, is_causal, left, right, factor, drop) \
    { \
        .batch = b, .q_heads = hq, .kv_heads = hk, .q_len = q, .kv_len = k, .head_dim = d, .dtype = type, \
        .layout = order, .causal = is_causal, .window_left = left, .window_right = right, .scale = factor, \
        .dropout = drop \
    }

#endif
