/* Some sequences of a problem, in an order of their own, as a problem. No device. */
#ifndef FABENCH_PROBLEM_SEQUENCES_H
#define FABENCH_PROBLEM_SEQUENCES_H

#include "cmd/problem/problem_arrays.h"

/* `to` becomes the problem of these sequences of `p`, in this order; one may come several times. Its longest lengths
 * are those of its sequences, with the bias and the mask that belong to them. page_size: of its cache, 0 = contiguous;
 * not used where there is no cache. seed: of the order of its pages. The arrays go to *to_arrays, which the caller
 * frees; their texts are empty. False, and nothing to be freed, where there is no such problem: one without any row or
 * key, or with more tokens than a problem can have. */
bool problem_take_sequences(const struct attn_problem *p, const struct problem_arrays *arrays, const int64_t *sequences,
                            int64_t count, int64_t page_size, uint64_t seed, struct attn_problem *to,
                            struct problem_arrays *to_arrays);

#endif
