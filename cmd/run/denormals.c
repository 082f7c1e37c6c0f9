#include "cmd/run/denormals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"

/* Sums over the columns of an input; the unused slots of a cache, which are NaN, are not counted. */
struct column_sums {
    double squares;
    int64_t count;
};

/* Adds what one comparison says about an input: its columns as heads of width 1. The reference is any finite tensor y
 * of the same size, because sum x^2 = sum (x - y)^2 + 2 sum (x - y) y + sum y^2. */
static void add_columns(const struct compare_job *job, const struct compare_block *blocks, struct column_sums *sum,
                        struct input_size *size)
{
    const int64_t per_column = compare_blocks_per_head(job->len);
    for (int64_t column = 0; column < job->batch * job->heads; column++) {
        double squares = 0;
        int64_t count = job->len;
        for (int64_t n = column * per_column; n < (column + 1) * per_column; n++) {
            squares += blocks[n].err2 + 2 * blocks[n].err_dot + blocks[n].ref2;
            count -= blocks[n].nonfinite;
            size->largest = fmax(size->largest, (double)blocks[n].max_abs_x);
        }
        squares = fmax(0, squares);
        sum->squares += squares;
        sum->count += count;
        size->column = count > 0 ? fmax(size->column, sqrt(squares / (double)count)) : size->column;
    }
}

static enum attn_status measure(struct backend *be, const struct attn_problem *p, enum problem_tensor tensor,
                                struct attn_tensor x, const float *any, struct input_size *size,
                                struct attn_message *why)
{
    const struct tensor_shape s = tensor_shape_of(p, tensor);
    /* The fewer of batches and heads take turns; of large tensors the more, because the blocks need memory. */
    const bool is_small = (double)s.batch * (double)s.heads * (double)s.len * (double)s.head_dim < 0x1p26;
    const bool by_batch = (s.batch < s.heads) == is_small;
    const int64_t turns = by_batch ? s.batch : s.heads, others = by_batch ? s.heads : s.batch;
    const int64_t step = by_batch ? x.stride_batch : x.stride_head, bytes = (int64_t)attn_dtype_bytes(p->dtype);
    struct compare_job job = {.dtype = p->dtype, .ref = any, .batch = others, .heads = s.head_dim, .len = s.len};
    job.head_dim = 1;
    *size = (struct input_size){0, 0, 0};
    if (s.batch * s.heads * s.len == 0)
        return ATTN_OK;
    struct column_sums sum = {0, 0};
    enum attn_status status = ATTN_OK;
    const int64_t count = job.batch * job.heads * compare_blocks_per_head(job.len);
    struct compare_block *blocks = xmalloc((unsigned long)count * sizeof *blocks);
    for (int64_t turn = 0; turn < turns && status == ATTN_OK; turn++) {
        job.x = (struct attn_tensor){.data = (char *)x.data + turn * step * bytes,
                                     .stride_batch = by_batch ? x.stride_head : x.stride_batch,
                                     .stride_head = 1,
                                     .stride_row = x.stride_row};
        status = be->ops->compare(be, &job, blocks, why);
        if (status == ATTN_OK)
            add_columns(&job, blocks, &sum, size);
    }
    free(blocks);
    size->rms = sum.count > 0 ? sqrt(sum.squares / (double)sum.count) : 0;
    return status;
}

/* V of a forward, which has no other tensor of that size: compared with zeros. */
static enum attn_status measure_values(struct backend *be, const struct attn_problem *p, struct attn_tensor v,
                                       struct input_size *size, struct attn_message *why)
{
    const struct tensor_shape s = tensor_shape_of(p, TENSOR_V);
    const int64_t most = s.batch > s.heads ? s.batch : s.heads; /* that a turn of `measure` takes */
    const size_t bytes = (size_t)(most * s.len * s.head_dim) * sizeof(float);
    void *zeros = NULL;
    TRY(be->ops->alloc(be, bytes, &zeros, why));
    enum attn_status status = be->ops->pattern(be, zeros, bytes, 0, why);
    if (status == ATTN_OK)
        status = measure(be, p, TENSOR_V, v, zeros, size, why);
    be->ops->release(be, zeros);
    return status;
}

enum attn_status denormals_measure(struct backend *be, enum attn_mode mode, const struct attn_tensors *t,
                                   struct check_view *view, struct attn_message *why)
{
    const struct attn_problem *p = &view->problem;
    memset(&view->sizes, 0, sizeof view->sizes);
    if (p->dtype != ATTN_FP16 || attn_kv_dtype(p) != ATTN_FP16 || (mode == ATTN_FWD && p->dropout == 0))
        return ATTN_OK;
    if (mode == ATTN_FWD)
        return measure_values(be, p, t->v, &view->sizes.v, why);
    TRY(measure(be, p, TENSOR_Q, t->q, view->reference.dq, &view->sizes.q, why));
    TRY(measure(be, p, TENSOR_K, t->k, view->reference.dk, &view->sizes.k, why));
    TRY(measure(be, p, TENSOR_V, t->v, view->reference.dv, &view->sizes.v, why));
    return measure(be, p, TENSOR_DO, t->dout, view->reference.o, &view->sizes.dout, why);
}

/* Keys that a row sees, or rows that see a key: not more than this. */
static double seen(const struct attn_problem *p, int64_t all)
{
    const int64_t right = p->causal ? 0 : p->window_right;
    const bool is_band = p->window_left >= 0 && right >= 0;
    return is_band ? fmin((double)all, (double)p->window_left + (double)right + 1) : (double)all;
}

struct judge_denormals denormals_of(const struct check_view *view, enum problem_tensor tensor)
{
    const struct attn_problem *p = &view->problem;
    const struct input_sizes *x = &view->sizes;
    const double kept = 1 - (double)p->dropout, unit = 0x1p-24 / sqrt(12);
    const double rows = (double)(p->q_heads / p->kv_heads) * seen(p, p->q_len);
    /* dS itself and, where it is made from the rounded P, that times dP - D, which is as large as two dP. */
    const double dp2 = (double)attn_v_head_dim(p) * x->dout.rms * x->dout.rms * x->v.rms * x->v.rms / kept;
    const double ds = fabs((double)p->scale) * unit * sqrt(1 + 2 * dp2);
    struct input_size of = {0, 0, 0};
    double error = 0, one = 0;
    if (tensor == TENSOR_DV) {
        of = x->dout;
        error = unit * sqrt(rows / kept);
        one = 0x1p-25 / kept;
    } else if (tensor == TENSOR_O && p->dropout > 0) { /* a row's sum of P is at least 1 before it is divided by it */
        of = x->v;
        error = unit * sqrt(seen(p, p->kv_len) / kept);
        one = 0x1p-25 / kept;
    } else if (tensor == TENSOR_DK) {
        of = x->q;
        error = ds * sqrt(rows);
    } else if (tensor == TENSOR_DQ) {
        of = x->k;
        error = ds * sqrt(seen(p, p->kv_len));
    }
    return (struct judge_denormals){error * of.column, error * of.rms, one * of.largest,
                                    one * of.rms * sqrt((double)attn_v_head_dim(p))};
}
