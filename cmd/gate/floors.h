/* Absolute minima from a CSV file, for `gate --floors`.
 *
 *     # comment
 *     mode,causal,head_dim,q_len,impl,min_tflops,min_pct_of_gemm
 *     fwd,0,128,16384,fused,300,40
 *     bwd,,128,,fused,,35
 *
 * The first line names columns of the records. Columns named with the prefix min_ hold minima; the others select rows.
 * An empty cell selects all rows, or sets no minimum. fused in the column impl selects all fused implementations. A
 * line that selects no row is an error: the configuration that it should guard was not measured. */
#ifndef FABENCH_FLOORS_H
#define FABENCH_FLOORS_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/record/record_row.h"
#include "kernels/attention.h"

struct floors;

/* The caller frees it with floors_free. NULL on error, and *why begins with the path. */
struct floors *floors_read(const char *path, struct attn_message *why);
void floors_free(struct floors *);

/* Compares a row with the minima of all lines that select it. FLOORS_NO_MATCH: no line selects it. FLOORS_MISSED:
 * `missed` describes the first minimum that it does not reach. Marks the lines that select the row. */
enum floors_result { FLOORS_NO_MATCH, FLOORS_MET, FLOORS_MISSED };
enum floors_result floors_check(struct floors *, const struct record_row *, char *missed, size_t size);

/* False, with *why, when a line selected no row so far. */
bool floors_are_matched(const struct floors *, struct attn_message *why);

#endif
