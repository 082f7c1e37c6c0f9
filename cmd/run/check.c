/* Computes the reference of each view and judges outputs against it. */
#include "cmd/run/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/device/backend.h"
#include "cmd/device/inputs.h"
#include "cmd/run/denormals.h"
#include "cmd/run/naive_limits.h"

/* Assigns consecutive parts of `memory` to the arrays and returns their bytes; memory NULL = only counts. */
static size_t place_outputs(const struct attn_problem *p, enum attn_mode mode, bool with_abs,
                            struct reference_outputs *out, char *memory)
{
    const size_t lse = (size_t)(p->q_heads * problem_all_rows(p)) * sizeof(float);
    const size_t q = lse * (size_t)p->head_dim, o = lse * (size_t)attn_v_head_dim(p);
    const size_t key = (size_t)(p->kv_heads * problem_all_keys(p)) * sizeof(float);
    const size_t k = key * (size_t)p->head_dim, v = key * (size_t)attn_v_head_dim(p);
    const size_t sink = p->has_sink ? (size_t)p->q_heads * sizeof(float) : 0;
    const size_t bias = (size_t)(p->bias_batch * p->bias_heads * p->q_len * p->kv_len) * sizeof(float);
    const bool backward = mode == ATTN_BWD;
    const struct {
        float **pointer;
        size_t bytes;
        bool wanted;
    } all[] = {
        {&out->o, o, true},
        {&out->lse, lse, true},
        {&out->o_abs, o, with_abs && !backward},
        {&out->dq, q, backward},
        {&out->dk, k, backward},
        {&out->dv, v, backward},
        {&out->dq_abs, q, with_abs && backward},
        {&out->dk_abs, k, with_abs && backward},
        {&out->dv_abs, v, with_abs && backward},
        {&out->dsink, sink, backward},
        {&out->dsink_abs, sink, with_abs && backward},
        {&out->dbias, bias, backward},
        {&out->dbias_abs, bias, with_abs && backward},
    };
    size_t used = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        *all[i].pointer = all[i].wanted && memory ? (float *)(void *)(memory + used) : NULL;
        used += all[i].wanted ? (all[i].bytes + 255) / 256 * 256 : 0;
    }
    return used;
}

/* Where the view lies in the whole problem, from which dropout and masks count. */
static void set_place(struct check_view *view, int64_t first_row)
{
    view->reference.first_batch = view->batch_offset;
    view->reference.first_head = view->q_head_offset;
    view->reference.first_row = first_row;
}

static enum attn_status run_reference(struct backend *be, const struct attn_problem *p, enum attn_mode mode,
                                      const struct attn_tensors *tensors, const struct reference_outputs *out,
                                      struct attn_message *why)
{
    void *workspace = NULL;
    const size_t bytes = be->ops->reference_workspace(be, p, mode);
    TRY(be->ops->alloc(be, bytes, &workspace, why));
    const enum attn_status status = be->ops->reference(be, p, mode, tensors, out, workspace, bytes, why);
    be->ops->release(be, workspace);
    return status;
}

/* Backward's inputs o and lse, from the whole forward. */
enum attn_status check_forward_inputs(struct backend *be, const struct plan_item *item, struct tensor_set *inputs,
                                      struct attn_message *why)
{
    if (item->mode != ATTN_BWD)
        return ATTN_OK;
    const struct attn_problem *p = &item->problem;
    const struct tensor_shape s = tensor_shape_of(p, TENSOR_O);
    struct reference_outputs out = {0};
    void *memory = NULL;
    TRY(be->ops->alloc(be, place_outputs(p, ATTN_FWD, false, &out, NULL), &memory, why));
    place_outputs(p, ATTN_FWD, false, &out, memory);
    enum attn_status status = run_reference(be, p, ATTN_FWD, &inputs->tensors, &out, why);
    if (status == ATTN_OK)
        status = be->ops->round(be, out.o, inputs->tensors.o, p->dtype, s.batch, s.heads, s.len, s.head_dim, why);
    if (status == ATTN_OK) /* fp32 to fp32: a copy that stays on the device */
        status = be->ops->round(be, out.lse, tensor_of(p, &inputs->tensors, TENSOR_LSE), ATTN_FP32, s.batch, s.heads,
                                s.len, 1, why);
    be->ops->release(be, memory);
    return status;
}

struct peek_context {
    struct backend *be;
    const struct compare_job *job;
};

static void peek(void *context, int64_t b, int64_t h, int64_t row, int64_t col, float *got, float *want)
{
    const struct peek_context *from = context;
    const struct compare_job *job = from->job;
    struct attn_message ignored;
    unsigned char bytes[4] = {0};
    const size_t size = attn_dtype_bytes(job->dtype);
    const int64_t at = b * job->x.stride_batch + h * job->x.stride_head + row * job->x.stride_row + col;
    const int64_t ref_at = ((b * job->heads + h) * job->len + row) * job->head_dim + col;
    if (from->be->ops->download(from->be, bytes, (char *)job->x.data + at * (int64_t)size, size, &ignored) == ATTN_OK)
        *got = fill_load(bytes, job->dtype, 0);
    if (from->be->ops->download(from->be, want, job->ref + ref_at, sizeof *want, &ignored) != ATTN_OK)
        *want = NAN;
    if (column_is_negated(&job->signs, col))
        *want = -*want;
}

/* The comparison of one tensor of one view. */
static struct compare_job job_of(const struct check_request *request, const struct check_view *view,
                                 enum problem_tensor tensor, const struct judge_bounds *bounds)
{
    const struct reference_outputs *r = &view->reference;
    const float *const refs[TENSOR_COUNT] = {
        [TENSOR_O] = r->o,   [TENSOR_LSE] = r->lse,     [TENSOR_DQ] = r->dq,      [TENSOR_DK] = r->dk,
        [TENSOR_DV] = r->dv, [TENSOR_DSINK] = r->dsink, [TENSOR_DBIAS] = r->dbias};
    const float *const products[TENSOR_COUNT] = {
        [TENSOR_O] = r->o_abs,   [TENSOR_DQ] = r->dq_abs,       [TENSOR_DK] = r->dk_abs,
        [TENSOR_DV] = r->dv_abs, [TENSOR_DSINK] = r->dsink_abs, [TENSOR_DBIAS] = r->dbias_abs};
    const struct attn_problem *p = &view->problem;
    const struct tensor_shape shape = tensor_shape_of(p, tensor);
    struct compare_job job = {.ref = refs[tensor],
                              .abs = products[tensor],
                              .dtype = tensor_dtype_of(p, tensor),
                              .batch = shape.batch,
                              .heads = shape.heads,
                              .len = shape.len,
                              .head_dim = shape.head_dim,
                              .atol_absolute = bounds->atol_absolute,
                              .atol_rms = bounds->atol_rms,
                              .atol_abs = bounds->atol_abs,
                              .atol_element = bounds->atol_element,
                              .rtol = bounds->rtol,
                              .signs = tensor_signs(&request->outputs->signs, tensor)};
    if (problem_is_array(tensor)) {
        job.x = tensor_of(&request->item->problem, &request->outputs->tensors, tensor); /* strides of the whole LSE */
        job.x.data = check_element_at(&job.x, job.dtype, check_batch_of_rows(view), view->q_head_offset);
        job.x.data = check_row_at(&job.x, job.dtype, view->row_offset);
        return job;
    }
    const struct attn_tensors tensors = check_view_tensors(&request->outputs->tensors, view);
    job.x = tensor_of(p, &tensors, tensor);
    return job;
}

static int64_t block_count(const struct compare_job *job)
{
    return job->batch * job->heads * compare_blocks_per_head(job->len);
}

/* Over which errors of rows are averaged for rule 4. */
static int64_t independent_rows_of(const struct check_view *view, enum problem_tensor tensor)
{
    const bool is_kv = tensor == TENSOR_DK || tensor == TENSOR_DV;
    const struct attn_problem *p = &view->problem;
    const int64_t q_rows = p->q_heads * problem_all_rows(p), kv_rows = p->kv_heads * problem_all_keys(p);
    const int64_t rows = tensor == TENSOR_DSINK ? p->q_heads : is_kv && kv_rows < q_rows ? kv_rows : q_rows;
    const double sharing = view->rows_sharing[tensor];
    return sharing > 0 && sharing < (double)rows ? (int64_t)fmax(1, sharing) : rows;
}

/* What stands for the logits in the floors, beside the largest |LSE|: the softcap's derivative, about e^(-2 |x|) of
 * x = logit / cap, has twice the error of x, which may be far larger than that of S. 0 = nothing. */
static double slope_logits(const struct plan_item *item, enum problem_tensor tensor)
{
    const double cap = (double)item->problem.softcap;
    const bool has_slope = cap > 0 && (tensor == TENSOR_DQ || tensor == TENSOR_DK);
    return has_slope ? 2 * limits_logit_std(item) / cap : 0;
}

/* Do one or a few keys of most rows have nearly all of P: are the logits far apart, and no softcap puts them together?
 */
static bool one_key_has_all(const struct plan_item *item)
{
    const double cap = (double)item->problem.softcap;
    return limits_logit_std(item) > 4 && !(cap > 0 && cap <= 4);
}

/* The head of the whole tensor that is the view's first. */
static int64_t head_offset_of(const struct check_view *view, enum problem_tensor tensor)
{
    return tensor == TENSOR_DK || tensor == TENSOR_DV ? view->kv_head_offset : view->q_head_offset;
}

/* What judge_tensor needs for a job of a view. */
static struct judge_input judge_input_of(const struct check_request *request, const struct check_view *view,
                                         enum problem_tensor tensor)
{
    const struct attn_problem *p = &view->problem;
    struct judge_input in = {
        .tensor = tensor,
        .batch_offset = view->batch_offset,
        .head_offset = head_offset_of(view, tensor),
        .row_offset = view->row_offset,
        .independent_rows = independent_rows_of(view, tensor),
        .naive_max_abs_err = request->is_naive ? NAN : request->reference->max_abs_err[tensor],
        .peek = peek,
        .bounds = judge_bounds_for(tensor, attn_output_dtype(p), request->item->mode, request->is_naive, request->atol,
                                   request->rtol, view->rms[tensor]),
    };
    const double lse = view->largest_lse, slope = slope_logits(request->item, tensor);
    if (isnan(request->atol))
        judge_floor_of_sums(&in.bounds, tensor, p->dtype, request->is_naive, p->head_dim, fmax(lse, slope));
    if (isnan(request->atol) && isnan(request->rtol))
        judge_floor_of_logits(&in.bounds, tensor, p->dtype, request->is_naive, p->head_dim, lse, slope);
    struct judge_denormals lost = denormals_of(view, tensor);
    if (!isnan(request->atol))
        lost.column = lost.one = 0;
    judge_floor_of_denormals(&in.bounds, &lost);
    judge_floor_of_equal_weights(&in.bounds, tensor, attn_output_dtype(p), limits_largest_logit(request->item));
    if (one_key_has_all(request->item))
        judge_floor_of_dropout(&in.bounds, tensor, attn_output_dtype(p), (double)p->dropout);
    if (tensor == TENSOR_O && attn_dtype_is_8_bit(p->dtype))
        judge_rounded_p(&in.bounds, p->dtype, request->is_naive, request->atol);
    if (attn_dtype_is_8_bit(p->dtype) && !request->is_naive && isnan(request->atol) && isnan(request->rtol))
        judge_floor_of_8_bits(&in.bounds, tensor, p->head_dim, p->kv_len, lse, limits_one_term(request->item));
    if (request->is_repeat) {
        in.bounds.gain = INFINITY;
        in.naive_max_abs_err = NAN;
    }
    return in;
}

/* Compares a job and judges it. */
static enum attn_status judge_job(struct backend *be, const struct compare_job *job, struct judge_input *in,
                                  struct record_tensor *verdict, struct attn_message *why)
{
    struct peek_context context = {be, job};
    struct compare_block *memory = xmalloc((unsigned long)block_count(job) * sizeof *memory);
    in->batch = job->batch;
    in->heads = job->heads;
    in->len = job->len;
    in->head_dim = job->head_dim;
    in->blocks = memory;
    in->peek_context = &context;
    const enum attn_status status = be->ops->compare(be, job, memory, why);
    if (status == ATTN_OK)
        judge_tensor(in, verdict);
    free(memory);
    return status;
}

static enum attn_status judge_view(struct backend *be, const struct check_request *request,
                                   const struct check_view *view, enum problem_tensor tensor,
                                   struct record_tensor *verdict, double *by_rule, struct attn_message *why)
{
    struct judge_input in = judge_input_of(request, view, tensor);
    const struct compare_job job = job_of(request, view, tensor, &in.bounds);
    in.by_rule = by_rule;
    return judge_job(be, &job, &in, verdict, why);
}

/* For a block of rows: rule 3 in its form for blocks, without rules 4 and 5, which need the whole tensor. (An error in
 * gain is never above the rms error.) All bounds times `factor`. */
static void judge_rows_only(struct judge_input *in, double factor)
{
    struct judge_bounds *b = &in->bounds;
    b->block_rms *= factor;
    b->rms = b->gain = b->block_rms;
    b->rtol *= factor;
    b->atol_rms *= factor;
    b->atol_abs *= factor;
    b->atol_absolute *= factor;
    in->naive_max_abs_err = NAN;
}

enum attn_status check_block_of_rows(struct backend *be, const struct check_request *request,
                                     const struct check_view *view, enum problem_tensor tensor,
                                     const struct check_rows *rows, struct record_tensor *verdict,
                                     struct attn_message *why)
{
    struct judge_input in = judge_input_of(request, view, tensor);
    judge_rows_only(&in, 1);
    struct compare_job job = job_of(request, view, tensor, &in.bounds);
    const int64_t first = rows->block * COMPARE_BLOCK_ROWS, left = job.len - first;
    const int64_t size = (int64_t)attn_dtype_bytes(job.dtype);
    const int64_t reference_row = (rows->batch * job.heads + rows->head) * job.len + first;
    job.x.data = (char *)job.x.data +
                 (rows->batch * job.x.stride_batch + rows->head * job.x.stride_head + first * job.x.stride_row) * size;
    job.ref += reference_row * job.head_dim;
    job.abs = job.abs ? job.abs + reference_row * job.head_dim : NULL;
    job.batch = job.heads = 1;
    job.len = left < COMPARE_BLOCK_ROWS ? left : COMPARE_BLOCK_ROWS;
    in.batch_offset += rows->batch;
    in.head_offset += rows->head;
    in.row_offset += first;
    return judge_job(be, &job, &in, verdict, why);
}

/* The largest finite |LSE| of a view, by comparing it with zeros. */
static enum attn_status measure_lse(struct backend *be, const struct check_request *request, struct check_view *view,
                                    void *zeros, struct attn_message *why)
{
    const struct judge_bounds none = {0};
    struct compare_job job = job_of(request, view, TENSOR_LSE, &none);
    job.x = (struct attn_tensor){.data = zeros};
    struct compare_block *blocks = xmalloc((unsigned long)block_count(&job) * sizeof *blocks);
    const enum attn_status status = be->ops->compare(be, &job, blocks, why);
    view->largest_lse = 0;
    for (int64_t n = 0; n < block_count(&job) && status == ATTN_OK; n++)
        view->largest_lse = fmax(view->largest_lse, (double)blocks[n].max_abs_err);
    free(blocks);
    return status;
}

/* How many rows share the norm of one reference: where dropout leaves less than half of P, a few kept elements may have
 * most of it, and where a block mask leaves less than half of the rows, these have all of it. By comparing with zeros,
 * each row as a head of its own. */
static enum attn_status measure_rows(struct backend *be, const struct compare_job *of_view, struct check_view *view,
                                     enum problem_tensor tensor, struct attn_message *why)
{
    const bool drops_most = view->problem.dropout > 0.5f;
    view->rows_sharing[tensor] = 0;
    if (problem_is_array(tensor) || (!drops_most && view->problem.mask_block == 0))
        return ATTN_OK;
    struct compare_job job = *of_view;
    job.heads *= job.batch * job.len;
    job.batch = job.len = 1;
    struct compare_block *blocks = xmalloc((unsigned long)block_count(&job) * sizeof *blocks);
    const enum attn_status status = be->ops->compare(be, &job, blocks, why);
    int64_t rows = 0; /* that are not zero */
    for (int64_t n = 0; n < block_count(&job) && status == ATTN_OK; n++)
        rows += blocks[n].ref2 > 0;
    if (status == ATTN_OK && (drops_most || 2 * rows < block_count(&job)))
        view->rows_sharing[tensor] = judge_rows_sharing(blocks, block_count(&job));
    free(blocks);
    return status;
}

/* The number, over all heads, of the row of an element of block n. */
static int64_t row_of(const struct compare_job *job, int64_t n, int32_t at)
{
    const int64_t per_head = compare_blocks_per_head(job->len);
    return n / per_head * job->len + n % per_head * COMPARE_BLOCK_ROWS + at / job->head_dim;
}

/* The rms of each reference of a view, by comparing it with zeros: one row of them, with strides of 0. Fails where the
 * reference is not finite, because results could not be judged there. */
static enum attn_status measure_rms(struct backend *be, const struct plan_item *item, struct check_view *view,
                                    void *zeros, struct attn_message *why)
{
    const struct tensor_set no_outputs = {.buffers = {{0}}};
    const struct check_request request = {.item = item, .outputs = &no_outputs};
    const struct judge_bounds none = {0};
    int count;
    const enum problem_tensor *outputs = problem_outputs(&item->problem, item->mode, &count);
    TRY(measure_lse(be, &request, view, zeros, why));
    for (int i = 0; i < count; i++) {
        struct compare_job job = job_of(&request, view, outputs[i], &none);
        const double elements = (double)job.batch * (double)job.heads * (double)job.len * (double)job.head_dim;
        job.dtype = ATTN_FP32;
        job.x = (struct attn_tensor){.data = zeros};
        struct compare_block *blocks = xmalloc((unsigned long)block_count(&job) * sizeof *blocks);
        const enum attn_status status = be->ops->compare(be, &job, blocks, why);
        int64_t not_finite = 0, first = 0; /* the number of the first one's row, over all heads */
        for (int64_t n = block_count(&job) - 1; n >= 0 && status == ATTN_OK; n--) {
            not_finite += blocks[n].nonfinite;
            if (blocks[n].nonfinite)
                first = row_of(&job, n, blocks[n].first_nonfinite_at);
        }
        if (status == ATTN_OK)
            view->rms[outputs[i]] = judge_reference_rms(blocks, block_count(&job), elements);
        free(blocks);
        TRY(status);
        TRY(measure_rows(be, &job, view, outputs[i], why));
        if (not_finite && outputs[i] != TENSOR_LSE) { /* -inf is legal there */
            const int64_t head = first / job.len;
            snprintf(why->text, sizeof why->text,
                     "the reference's %s has %lld values that are not finite, the first in row %lld of b=%lld h=%lld",
                     problem_tensor_name(outputs[i]), (long long)not_finite,
                     (long long)(first % job.len + view->row_offset),
                     (long long)(head / job.heads + view->batch_offset),
                     (long long)(head % job.heads + head_offset_of(view, outputs[i])));
            return ATTN_ERROR;
        }
    }
    return ATTN_OK;
}

static enum attn_status measure_references(struct backend *be, const struct plan_item *item,
                                           struct check_reference *reference, struct attn_message *why)
{
    const struct attn_problem *p = &item->problem;
    const int64_t wider = p->head_dim > attn_v_head_dim(p) ? p->head_dim : attn_v_head_dim(p);
    const int64_t widest = p->bias_heads > 0 && p->kv_len > wider ? p->kv_len : wider;
    const size_t bytes = (size_t)widest * sizeof(float);
    void *zeros = NULL;
    TRY(be->ops->alloc(be, bytes, &zeros, why));
    enum attn_status status = be->ops->pattern(be, zeros, bytes, 0, why);
    for (int i = 0; i < reference->count && status == ATTN_OK; i++)
        status = measure_rms(be, item, &reference->views[i], zeros, why);
    be->ops->release(be, zeros);
    return status;
}

/* Adds the squares of the difference between a view's O and that of the inputs before they were quantised, and of the
 * latter. */
static enum attn_status add_difference(struct backend *be, const struct plan_item *before_item,
                                       const struct tensor_set *before, const struct check_view *after, double *err2,
                                       double *ref2, struct attn_message *why)
{
    struct check_view view = *after;
    struct reference_outputs out = after->reference; /* its place in the whole problem */
    void *memory = NULL;
    view.problem.dtype = before_item->problem.dtype;
    view.problem.cache_dtype = ATTN_FP32;
    view.problem.quant_scale = ATTN_SCALE_NONE;
    view.problem.scale_block = 0;
    const struct attn_problem *p = &view.problem;
    const struct attn_tensors tensors = check_view_tensors(&before->tensors, &view);
    const struct tensor_shape s = tensor_shape_of(p, TENSOR_O);
    struct compare_job job = {
        .dtype = ATTN_FP32, .batch = s.batch, .heads = s.heads, .len = s.len, .head_dim = s.head_dim};
    TRY(be->ops->alloc(be, place_outputs(p, ATTN_FWD, false, &out, NULL), &memory, why));
    place_outputs(p, ATTN_FWD, false, &out, memory);
    out.o_abs = NULL;
    job.ref = out.o;
    job.x = (struct attn_tensor){after->reference.o, s.heads * s.len * s.head_dim, s.len * s.head_dim, s.head_dim};
    enum attn_status status = run_reference(be, p, ATTN_FWD, &tensors, &out, why);
    struct compare_block *blocks = xmalloc((unsigned long)block_count(&job) * sizeof *blocks);
    if (status == ATTN_OK)
        status = be->ops->compare(be, &job, blocks, why);
    for (int64_t n = 0; n < block_count(&job) && status == ATTN_OK; n++) {
        *err2 += blocks[n].err2;
        *ref2 += blocks[n].ref2;
    }
    free(blocks);
    be->ops->release(be, memory);
    return status;
}

/* What quantising costs: the rms of the difference between attention on the inputs and on those before, divided by the
 * rms of the latter. */
static enum attn_status measure_quantising(struct backend *be, const struct plan_item *item,
                                           struct check_reference *reference, struct attn_message *why)
{
    struct tensor_set before;
    struct plan_item item_before;
    double err2 = 0, ref2 = 0;
    reference->quant_rms_err = NAN;
    if (reference->count == 0 || !inputs_are_quantised(item, item->folder))
        return ATTN_OK;
    enum attn_status status = inputs_make_before(be, item, item->folder, &item_before, &before, why);
    for (int i = 0; i < reference->count && status == ATTN_OK; i++)
        status = add_difference(be, &item_before, &before, &reference->views[i], &err2, &ref2, why);
    tensor_set_free(be, &before);
    if (ref2 > 0)
        reference->quant_rms_err = sqrt(err2 / ref2);
    return status;
}

enum attn_status check_reference_make(struct backend *be, const struct plan_item *item, enum check_scope scope,
                                      struct tensor_set *inputs, struct check_reference *reference,
                                      struct attn_message *why)
{
    memset(reference, 0, sizeof *reference);
    reference->quant_rms_err = NAN;
    for (int i = 0; i < TENSOR_COUNT; i++)
        reference->max_abs_err[i] = NAN;
    TRY(check_forward_inputs(be, item, inputs, why));
    reference->count = check_make_views(item, scope, reference->views);
    size_t bytes = 0;
    for (int i = 0; i < reference->count; i++)
        bytes += place_outputs(&reference->views[i].problem, item->mode, true, &reference->views[i].reference, NULL);
    if (reference->count == 0)
        return ATTN_OK;
    TRY(be->ops->alloc(be, bytes, &reference->memory, why));
    reference->bytes = bytes;
    TRY(be->ops->pattern(be, reference->memory, bytes, 0, why)); /* between the outputs, too */
    char *next = reference->memory;
    for (int i = 0; i < reference->count; i++) {
        struct check_view *view = &reference->views[i];
        const struct attn_tensors tensors = check_view_tensors(&inputs->tensors, view);
        next += place_outputs(&view->problem, item->mode, true, &view->reference, next);
        set_place(view, view->row_offset);
        TRY(run_reference(be, &view->problem, item->mode, &tensors, &view->reference, why));
        TRY(denormals_measure(be, item->mode, &tensors, view, why));
    }
    TRY(measure_references(be, item, reference, why));
    TRY(measure_quantising(be, item, reference, why));
    return check_reference_keep(be, reference, why);
}

enum attn_status check_reference_renew(struct backend *be, const struct plan_item *item,
                                       const struct tensor_set *inputs, struct check_reference *reference,
                                       struct attn_message *why)
{
    for (int i = 0; i < reference->count; i++) {
        const struct check_view *view = &reference->views[i];
        const struct attn_tensors tensors = check_view_tensors(&inputs->tensors, view);
        TRY(run_reference(be, &view->problem, item->mode, &tensors, &view->reference, why));
    }
    return check_reference_keep(be, reference, why);
}

/* Judges the outputs of a mode at a view. q_offset: of its first row in the tensors of a forward. */
static enum attn_status judge_new_view(struct backend *be, const struct check_request *request,
                                       const struct check_view *view, int64_t q_offset, struct record_tensor *tensors,
                                       int *count, struct attn_message *why)
{
    int outputs_count;
    const enum problem_tensor *outputs = problem_outputs(&request->item->problem, request->item->mode, &outputs_count);
    struct tensor_set as_is = *request->outputs; /* a copy that does not own its buffers */
    struct check_request here = *request;
    as_is.signs = (struct input_signs){.elements = {0}}; /* the reference has those of the inputs */
    here.outputs = &as_is;
    for (int i = 0; i < outputs_count; i++) {
        if (outputs[i] == TENSOR_DSINK || outputs[i] == TENSOR_DBIAS)
            continue; /* sums over all sequences */
        struct judge_input in = judge_input_of(&here, view, outputs[i]);
        judge_rows_only(&in, NEW_VALUES_FACTOR);
        struct compare_job job = job_of(&here, view, outputs[i], &in.bounds);
        job.x.data = (char *)job.x.data + q_offset * job.x.stride_row * (int64_t)attn_dtype_bytes(job.dtype);
        TRY(judge_job(be, &job, &in, &tensors[(*count)++], why));
    }
    return ATTN_OK;
}

/* The reference of one view in memory of its own, and the verdicts. `here`: the view's inputs. cu_seqlens: of a view of
 * some packed rows, else NULL. */
static enum attn_status judge_with_reference(struct backend *be, const struct check_request *request,
                                             struct check_view *view, struct attn_tensors here,
                                             const int32_t *cu_seqlens, int64_t q_offset, struct record_tensor *tensors,
                                             int *count, struct attn_message *why)
{
    enum { CU_SEQLENS_BYTES = 4 * sizeof(int32_t) };
    const struct plan_item *item = request->item;
    struct check_reference reference = {.count = 1, .views = {*view}};
    struct check_view *at = &reference.views[0];
    const size_t bytes = place_outputs(&at->problem, item->mode, true, &at->reference, NULL);
    TRY(be->ops->alloc(be, bytes + CU_SEQLENS_BYTES, &reference.memory, why));
    place_outputs(&at->problem, item->mode, true, &at->reference, reference.memory);
    enum attn_status status = ATTN_OK;
    if (cu_seqlens) {
        int32_t *const lengths = (int32_t *)(void *)((char *)reference.memory + bytes);
        status = be->ops->upload(be, lengths, cu_seqlens, CU_SEQLENS_BYTES, why);
        here.cu_seqlens_q = lengths;
        here.cu_seqlens_k = lengths + 2;
    }
    if (status == ATTN_OK)
        status = run_reference(be, &at->problem, item->mode, &here, &at->reference, why);
    if (status == ATTN_OK)
        status = denormals_measure(be, item->mode, &here, at, why);
    if (status == ATTN_OK)
        status = measure_references(be, item, &reference, why);
    if (status == ATTN_OK)
        status = judge_new_view(be, request, at, q_offset, tensors, count, why);
    be->ops->release(be, reference.memory);
    return status;
}

enum attn_status check_new_values(struct backend *be, const struct check_request *request,
                                  const struct tensor_set *inputs, const struct check_place *place,
                                  struct record_tensor *tensors, int *count, struct attn_message *why)
{
    const struct plan_item *item = request->item;
    *count = 0;
    if (item->mode == ATTN_BWD) {
        struct check_view view =
            check_group_of(item, place->batch, place->head / (item->problem.q_heads / item->problem.kv_heads));
        set_place(&view, 0);
        return judge_with_reference(be, request, &view, check_view_tensors(&inputs->tensors, &view), NULL, 0, tensors,
                                    count, why);
    }
    const int64_t batch = check_find_sequence(item, place->batch);
    if (batch < 0)
        return ATTN_OK;
    const int64_t blocks = compare_blocks_per_head(check_rows_of(item, batch));
    const int64_t first_row = place->row / COMPARE_BLOCK_ROWS % blocks * COMPARE_BLOCK_ROWS;
    struct check_some_rows rows = check_some_rows_of(item, batch, place->head, first_row);
    struct attn_tensors here = check_view_tensors(&inputs->tensors, &rows.view);
    check_skip_rows(&here, &item->problem, &rows);
    set_place(&rows.view, rows.first_row);
    rows.view.reference.first_batch = batch;
    return judge_with_reference(be, request, &rows.view, here,
                                attn_rows_are_packed(&item->problem) ? rows.cu_seqlens : NULL, rows.q_offset, tensors,
                                count, why);
}

void check_reference_free(struct backend *be, struct check_reference *reference)
{
    if (reference->memory)
        be->ops->release(be, reference->memory);
    memset(reference, 0, sizeof *reference);
}

enum attn_status check_outputs(struct backend *be, const struct check_request *request, struct record_tensor *tensors,
                               int *count, struct attn_message *why)
{
    int output_count;
    const enum problem_tensor *outputs = problem_outputs(&request->item->problem, request->item->mode, &output_count);
    *count = 0;
    if (request->reference->count == 0)
        return ATTN_OK;
    for (int i = 0; i < output_count; i++) {
        struct record_tensor *into = &tensors[*count];
        for (int v = 0; v < request->reference->count; v++) {
            struct record_tensor verdict;
            double by_rule[JUDGE_RULES];
            TRY(judge_view(be, request, &request->reference->views[v], outputs[i], &verdict, by_rule, why));
            for (int r = 0; request->by_rule && r < JUDGE_RULES; r++)
                request->by_rule[*count][r] = v == 0 ? by_rule[r] : fmax(request->by_rule[*count][r], by_rule[r]);
            if (v == 0)
                *into = verdict;
            else
                judge_merge(into, &verdict);
        }
        (*count)++;
    }
    return ATTN_OK;
}

double check_smallest_rms(const struct check_reference *reference, enum attn_mode mode)
{
    int count;
    const enum problem_tensor *outputs = problem_outputs(&reference->views[0].problem, mode, &count);
    double smallest = INFINITY;
    for (int v = 0; v < reference->count; v++)
        for (int i = 0; i < count; i++)
            if (outputs[i] != TENSOR_LSE)
                smallest = fmin(smallest, reference->views[v].rms[outputs[i]]);
    return smallest;
}
