/* Published points: figures from other sources, drawn with the measured ones as marks without a line, and never ranked.
 *
 * The file is CSV. Lines that begin with '#' are comments; the first comment is the source of the figures and is
 * printed with every chart that shows one. The line of column names must have impl, mode, dtype, causal, q_len,
 * head_dim and tflops; where it has batch, q_heads, kv_len, layout, dist or l2, a point is drawn only with rows of the
 * same value. Other columns are ignored. FLOPs are counted as section 3 of docs/design.md does. */
#ifndef FABENCH_OVERLAY_H
#define FABENCH_OVERLAY_H

#include "cmd/base/impl_name.h"
#include "cmd/record/record.h"

struct overlay_point {
    char impl[IMPL_NAME_SIZE], mode[4], dtype[8];
    int64_t causal, q_len, head_dim;
    int64_t batch, q_heads, kv_len;  /* 0 = the file does not say */
    char layout[8], dist[12], l2[8]; /* "" = the file does not say */
    double tflops;
};

struct overlay {
    char source[240]; /* the first comment, without its '#' */
    struct overlay_point *points;
    int count;
};

/* False with a sentence that names file and line. overlay_free frees what was read. */
bool overlay_read(const char *path, struct overlay *, struct attn_message *why);
void overlay_free(struct overlay *);

/* True when the point has the same problem and conditions as this row, in every column that the file has. */
bool overlay_fits(const struct overlay_point *, const struct record_row *);

#endif
