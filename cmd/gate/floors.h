/* Absolute minima from a CSV file, for `gate --floors`.
 *
 *     # comment
 *     mode,causal,head_dim,q_len,impl,min_tflops,min_pct_of_gemm
 *     fwd,0,128,16384,fused,300,40
 *     bwd,,128,,fused,,35
 *
 * The first line names columns of the records that choose rows, and, behind min_, columns that have a least value. An
 * empty chooser takes any row, an empty minimum asks for nothing. `impl` fused takes every implementation of that
 * family. A line that no row answers to is an error: what was to be guarded was not measured. */
#ifndef FABENCH_FLOORS_H
#define FABENCH_FLOORS_H

#include "cmd/record/record.h"

struct floors;

/* NULL after a sentence in *why (which begins with the path). */
struct floors *floors_read(const char *path, struct attn_message *why);
void floors_free(struct floors *);

/* Does this row keep the minima of the lines that choose it? The first one that it misses is in `missed`, in words.
 * Remembers which lines were answered by a row. */
enum floors_answer { FLOORS_NOT_ASKED, FLOORS_HELD, FLOORS_MISSED };
enum floors_answer floors_ask(struct floors *, const struct record_row *, char *missed, size_t size);

/* False with a sentence when a line was answered by no row. */
bool floors_are_answered(const struct floors *, struct attn_message *why);

#endif
