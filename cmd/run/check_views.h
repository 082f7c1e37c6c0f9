/* Views: the parts of a problem that are judged, each as a problem of its own, and where their tensors, scales and
 * masks begin in the whole one. No device. */
#ifndef FABENCH_CHECK_VIEWS_H
#define FABENCH_CHECK_VIEWS_H

#include "cmd/device/buffers.h"

/* --check sample takes whole heads up to so many rows, of longer ones CHECK_BLOCKS blocks of COMPARE_BLOCK_ROWS. */
enum { CHECK_WHOLE_ROWS = 16384, CHECK_BLOCKS = 8, CHECK_MAX_VIEWS = 2 * CHECK_BLOCKS };

/* The rms of an input, and of its largest column in any of its heads; its largest element. */
struct input_size {
    double rms, column, largest;
};
struct input_sizes {
    struct input_size q, k, v, dout;
};

/* The part of the problem that is judged: whole for --check full; for --check sample the query heads of the first and
 * of the last (batch, kv head), in a forward of long sequences blocks of rows of them. */
struct check_view {
    int64_t batch_offset, q_head_offset, kv_head_offset;
    int64_t row_offset;                      /* of a block of rows its first row; 0 = whole heads */
    int64_t bias_batch, bias_head;           /* where the view's part of the bias begins */
    int64_t mask_offset;                     /* where the view's part of the block mask begins */
    int64_t scale_q_offset, scale_kv_offset; /* of 8-bit inputs: where the scales of Q, of K and V begin */
    struct attn_problem problem;
    struct reference_outputs reference; /* device memory */
    double rms[TENSOR_COUNT];           /* of each judged reference */
    double largest_lse;                 /* the largest finite |LSE|; 0 when there is none */
    double rows_sharing[TENSOR_COUNT];  /* judge_rows_sharing of each; 0 = not measured (check.c) */
    struct input_sizes sizes;           /* of a backward in fp16, V's of a forward with dropout; else zeros */
};

/* The views of a problem; returns their number, 0 with --check off. */
int check_make_views(const struct plan_item *, enum check_scope, struct check_view views[CHECK_MAX_VIEWS]);

/* The tensors of a view: the same strides, starting at its first head and row. LSE does not move, because no view reads
 * it. */
struct attn_tensors check_view_tensors(const struct attn_tensors *, const struct check_view *);

/* Where the view's sequences begin in Q, O and LSE: 0 where rows are packed, as these have no batch dimension. */
int64_t check_batch_of_rows(const struct check_view *);

/* The first element of a head of a sequence; NULL for a tensor without data. */
void *check_element_at(const struct attn_tensor *, enum attn_dtype, int64_t batch, int64_t head);

/* A row of a tensor; NULL for a tensor without data. */
void *check_row_at(const struct attn_tensor *, enum attn_dtype, int64_t row);

/* One (sequence, kv head) with its query heads; of packed sequences all of them. */
struct check_view check_group_of(const struct plan_item *, int64_t batch, int64_t kv_head);

/* Some rows (at most COMPARE_BLOCK_ROWS) of one query head of one sequence, as a problem of its own with the keys that
 * they may see. */
struct check_some_rows {
    struct check_view view;
    int64_t first_row;           /* in its sequence */
    int64_t q_offset, kv_offset; /* of its first row and its first key in the tensors */
    int32_t cu_seqlens[4];       /* packed: {0, rows}, {0, keys} */
};

/* first_row: the first of them, in its sequence; the last rows where the mask of others is not that of a problem with
 * fewer queries. */
struct check_some_rows check_some_rows_of(const struct plan_item *, int64_t batch, int64_t head, int64_t first_row);
/* Moves the tensors of its view to its rows. */
void check_skip_rows(struct attn_tensors *, const struct attn_problem *whole, const struct check_some_rows *);
/* Rows of a sequence. */
int64_t check_rows_of(const struct plan_item *, int64_t batch);

/* A sequence with rows and keys, from `batch` on; -1 = there is none. */
int64_t check_find_sequence(const struct plan_item *, int64_t batch);

#endif
