/* See reference_sequences.cuh.
 *
 * One query head of one sequence after the other, in blocks of rows so that S fits in memory. The rows and the keys of
 * a sequence follow each other in every fp32 output, so the products write them in place. Per block:
 *   1 load      q, dO of the block, and k, v of the sequence's kv head when it begins, as contiguous fp32 times their
 *               scales, and their absolute values
 *   2 forward   s = scale q k^T;  s = softmax(s) of the visible elements after the softcap, LSE;  kept = M * s;
 *               O = kept v;  |O| = kept |v|
 *   3 backward  dV += kept^T dO;  |dV| += kept^T |dO|;  t = dO v^T;  D = rowsum(dO * O);
 *               t = s * (M * t - D) * slope;  dQ = scale t k;  dK += scale t^T q
 *   4 absolute  s = s * (max(sqrt(rowsum((dO * O)^2)) * slope, sqrt(rowsum(dS^2))) + |M * t - D| (1 - slope)) +
 *               lambda |dS|, where dS is the t of 3;  |dQ| = scale s |k|;  |dK| += scale s^T |q|
 *   5 squares   t = dS^2;  t k^2 and the sum of t^T q^2, of which reference_product takes the roots
 * A sink is one more term of the softmax's sum; dSink sums over the blocks of its head.
 * M is dropout's factor and `slope` the softcap's derivative; without them both are 1. dK and dV sum over the blocks of
 * a sequence and the query heads of a group. kept is s without dropout; forward writes it over s, backward into t.
 * Sums are cut and computed as those of reference_cuda.cu.
 */
#include "reference/reference_sequences.cuh"

#include <stdlib.h>

#include "reference/gather.cuh"
#include "reference/lengths.h"
#include "reference/sequence_kernels.cuh"
#include "reference/squares.cuh"
#include "reference/status.h"

enum {
    DEPTH_STEP = 2048,
    SCORES_MAX = 1 << 27 /* elements of s, t and slope: 512 MiB each */
};

/* Rows of a block, and byte offsets of the parts of the workspace. [1]: absolute values; squares: of k, and the sums of
 * dK. */
struct parts {
    int64_t rows, pitch;
    size_t q[2], k[2], v[2], dout[2], squares[2], s, t, slope, sink_rows, sinks, total;
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static size_t take(size_t *total, int64_t elements)
{
    const size_t at = *total;
    *total += align_bytes((size_t)elements * sizeof(float));
    return at;
}

static struct parts parts_of(const struct attn_problem *p, enum attn_mode mode)
{
    struct parts x = {};
    x.pitch = (p->kv_len + 3) / 4 * 4;
    x.rows = min64(p->q_len, max64(1, SCORES_MAX / x.pitch));
    for (int i = 0; i < 2; i++) {
        x.q[i] = take(&x.total, x.rows * p->head_dim);
        x.k[i] = take(&x.total, p->kv_len * p->head_dim);
        x.v[i] = take(&x.total, p->kv_len * attn_v_head_dim(p));
        x.dout[i] = take(&x.total, mode == ATTN_BWD ? x.rows * attn_v_head_dim(p) : 0);
        x.squares[i] = take(&x.total, mode == ATTN_BWD ? p->kv_len * p->head_dim : 0);
    }
    x.s = take(&x.total, x.rows * x.pitch);
    x.t = take(&x.total, mode == ATTN_BWD ? x.rows * x.pitch : 0);
    const bool has_dsink = mode == ATTN_BWD && p->has_sink;
    x.sink_rows = take(&x.total, has_dsink ? 2 * x.rows : 0);
    x.sinks = take(&x.total, has_dsink ? 4 * p->q_heads : 0); /* doubles */
    x.slope = take(&x.total, mode == ATTN_BWD && p->softcap != 0 ? x.rows * x.pitch : 0);
    return x;
}

size_t reference_sequences_bytes(const struct attn_problem *p, enum attn_mode mode) { return parts_of(p, mode).total; }

/* ---- one block of rows ------------------------------------------------------------------------------------------ */

/* [1]: absolute values. */
struct operands {
    float *q[2], *k[2], *v[2], *dout[2], *k_squared;
};

struct job {
    const struct attn_problem *problem;
    enum attn_mode mode;
    const struct attn_tensors *tensors; /* device memory */
    const struct attn_tensors *lengths; /* the same with the lengths in host memory */
    const struct reference_outputs *out;
    cublasHandle_t blas;
    cudaStream_t stream;
    struct operands in;
    int64_t block_rows, pitch;
    float *s, *t, *slope; /* slope: NULL without a softcap */
    float *key_squares;   /* of dK, summed over the blocks of a sequence and kv head */
    float *sink_rows;
    double *sinks;     /* two for each query head; NULL = dSink is not asked for */
    const float *sink; /* [q_heads] in host memory; NULL = none */
};

/* Rows [first, first + rows) of a query head of sequence b. `row` and `key`: where they begin in the outputs of rows,
 * and where the sequence's keys begin in the outputs of keys. */
struct block {
    int64_t b, head, kv_head, kv_len, first, rows, row, key;
    bool begins_keys; /* the first block that adds to dK and dV of these keys */
    struct score_block scores;
};

static enum attn_status load(const struct job *job, bool is_kv, int64_t b, int64_t head, int64_t first, int64_t rows,
                             int64_t d, struct attn_tensor from, enum attn_dtype dtype, const float *scales,
                             float *const to[2], struct attn_message *why)
{
    const struct gather_rows which = {b, 1, head, 1, first, rows, is_kv, d, job->out->first_row};
    enum attn_status status = ATTN_OK;
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        const struct gather_output out = {to[i], 0, 0, d, ATTN_FP32, i == 1};
        status = gather(job->problem, job->tensors, &which, from, dtype, scales, &out, job->stream, why);
    }
    return status;
}

static enum attn_status load_keys(const struct job *job, int64_t b, int64_t kv_head, int64_t kv_len,
                                  struct attn_message *why)
{
    const struct attn_problem *p = job->problem;
    const struct attn_tensors *t = job->tensors;
    const enum attn_dtype dtype = attn_kv_dtype(p);
    enum attn_status status =
        load(job, true, b, kv_head, 0, kv_len, p->head_dim, t->k, dtype, t->scale_k, job->in.k, why);
    if (status == ATTN_OK && job->mode == ATTN_BWD)
        status = squares_make(job->in.k[0], kv_len * p->head_dim, job->in.k_squared, job->stream, why);
    if (status != ATTN_OK)
        return status;
    return load(job, true, b, kv_head, 0, kv_len, attn_v_head_dim(p), t->v, dtype, t->scale_v, job->in.v, why);
}

static enum attn_status load_rows(const struct job *job, const struct block *at, struct attn_message *why)
{
    const struct attn_problem *p = job->problem;
    const struct attn_tensors *t = job->tensors;
    const enum attn_status status =
        load(job, false, at->b, at->head, at->first, at->rows, p->head_dim, t->q, p->dtype, t->scale_q, job->in.q, why);
    if (status != ATTN_OK || job->mode == ATTN_FWD)
        return status;
    return load(job, false, at->b, at->head, at->first, at->rows, attn_v_head_dim(p), t->dout, attn_output_dtype(p),
                NULL, job->in.dout, why);
}

static struct cublas_matrix matrix(const float *data, int64_t row_stride, bool transposed)
{
    const struct cublas_matrix m = {data, row_stride, {0, 0, 0}, transposed};
    return m;
}

static enum attn_status multiply(const struct job *job, int64_t rows, int64_t cols, int64_t depth, float alpha,
                                 float beta, struct cublas_matrix a, struct cublas_matrix b, struct cublas_matrix c,
                                 struct attn_message *why)
{
    const struct cublas_product product = {ATTN_FP32, ATTN_FP32, rows, cols, depth, {1, 1, 1}, DEPTH_STEP,
                                           NULL,      alpha,     beta, a,    b,     c};
    return cublas_multiply(job->blas, &product, why);
}

/* scores = alpha rows keys^T. */
static enum attn_status to_scores(const struct job *job, const struct block *at, int64_t d, float alpha,
                                  const float *rows, const float *keys, float *scores, struct attn_message *why)
{
    return multiply(job, at->rows, at->kv_len, d, alpha, 0, matrix(rows, d, false), matrix(keys, d, true),
                    matrix(scores, job->pitch, false), why);
}

/* The block's rows = alpha scores keys; nothing when they are NULL. */
static enum attn_status to_rows(const struct job *job, const struct block *at, int64_t d, float alpha,
                                const float *scores, const float *keys, float *rows, struct attn_message *why)
{
    if (!rows)
        return ATTN_OK;
    return multiply(job, at->rows, d, at->kv_len, alpha, 0, matrix(scores, job->pitch, false), matrix(keys, d, false),
                    matrix(rows, d, false), why);
}

/* The sequence's keys += alpha scores^T rows; nothing when they are NULL. */
static enum attn_status to_keys(const struct job *job, const struct block *at, int64_t d, float alpha,
                                const float *scores, const float *rows, float *keys, struct attn_message *why)
{
    if (!keys)
        return ATTN_OK;
    return multiply(job, at->kv_len, d, at->rows, alpha, at->begins_keys ? 0.0f : 1.0f,
                    matrix(scores, job->pitch, true), matrix(rows, d, false), matrix(keys, d, false), why);
}

/* Row `row` of an output with d columns; NULL for NULL. */
static float *row_of(float *out, int64_t row, int64_t d) { return out ? out + row * d : NULL; }

static enum attn_status block_softmax(const struct job *job, const struct block *at, struct attn_message *why)
{
    sequence_softmax<<<grid_size(at->rows), REFERENCE_THREADS, 0, job->stream>>>(at->scores, job->s, job->slope,
                                                                                 job->out->lse + at->row);
    return status_cuda(cudaGetLastError(), "sequence_softmax", why);
}

/* *kept = M * P. */
static enum attn_status block_dropout(const struct job *job, const struct block *at, float **kept,
                                      struct attn_message *why)
{
    *kept = job->s;
    if (job->problem->dropout == 0)
        return ATTN_OK;
    if (job->mode == ATTN_BWD)
        *kept = job->t;
    sequence_dropout<<<grid_size(at->rows), REFERENCE_THREADS, 0, job->stream>>>(at->scores, job->s, *kept);
    return status_cuda(cudaGetLastError(), "sequence_dropout", why);
}

static enum attn_status block_gradient(const struct job *job, const struct block *at, bool absolute,
                                       struct attn_message *why)
{
    sequence_gradient<<<grid_size(at->rows), REFERENCE_THREADS, 0, job->stream>>>(
        at->scores, job->s, job->t, job->slope, job->in.dout[0], job->out->o + at->row * attn_v_head_dim(job->problem),
        job->out->lse + at->row, absolute);
    return status_cuda(cudaGetLastError(), "sequence_gradient", why);
}

static enum attn_status block_sinks(const struct job *job, const struct block *at, struct attn_message *why)
{
    if (!job->sinks)
        return ATTN_OK;
    sequence_sink_rows<<<grid_size(at->rows), REFERENCE_THREADS, 0, job->stream>>>(
        at->scores, job->in.dout[0], job->out->o + at->row * attn_v_head_dim(job->problem), job->out->lse + at->row,
        job->sink_rows);
    const enum attn_status status = status_cuda(cudaGetLastError(), "sequence_sink_rows", why);
    if (status != ATTN_OK)
        return status;
    sequence_add_sinks<<<1, REFERENCE_THREADS, 0, job->stream>>>(job->sink_rows, at->rows, job->sinks + 2 * at->head);
    return status_cuda(cudaGetLastError(), "sequence_add_sinks", why);
}

/* O, dV and their products over absolute values. */
static enum attn_status block_values(const struct job *job, const struct block *at, struct attn_message *why)
{
    const struct reference_outputs *out = job->out;
    const bool backward = job->mode == ATTN_BWD;
    const int64_t d = job->problem->head_dim, dv = attn_v_head_dim(job->problem);
    float *kept = NULL;
    enum attn_status status = to_scores(job, at, d, job->problem->scale, job->in.q[0], job->in.k[0], job->s, why);
    if (status == ATTN_OK)
        status = block_softmax(job, at, why);
    if (status == ATTN_OK)
        status = block_dropout(job, at, &kept, why);
    if (status == ATTN_OK)
        status = to_rows(job, at, dv, 1, kept, job->in.v[0], row_of(out->o, at->row, dv), why);
    if (status == ATTN_OK)
        status = to_rows(job, at, dv, 1, kept, job->in.v[1], row_of(out->o_abs, at->row, dv), why);
    if (status == ATTN_OK && backward)
        status = to_keys(job, at, dv, 1, kept, job->in.dout[0], row_of(out->dv, at->key, dv), why);
    if (status == ATTN_OK && backward)
        status = to_keys(job, at, dv, 1, kept, job->in.dout[1], row_of(out->dv_abs, at->key, dv), why);
    return status;
}

/* Takes the squares into |dQ|, and sums those of |dK|. t = dS^2; q and its absolute values, of this block alone, are
 * written over. */
static enum attn_status block_squares(const struct job *job, const struct block *at, float *dq, const float *dk,
                                      struct attn_message *why)
{
    const int64_t d = job->problem->head_dim, elements = at->rows * d;
    enum attn_status status = squares_make(job->in.q[1], elements, job->in.q[1], job->stream, why);
    if (status == ATTN_OK && dq)
        status = to_rows(job, at, d, 1, job->t, job->in.k_squared, job->in.q[0], why);
    if (status == ATTN_OK && dq)
        status = squares_take(dq, job->in.q[0], (double)job->problem->scale, elements, job->stream, why);
    return status == ATTN_OK && dk ? to_keys(job, at, d, 1, job->t, job->in.q[1], job->key_squares, why) : status;
}

/* dQ and dK, or their products over absolute values. */
static enum attn_status block_gradients(const struct job *job, const struct block *at, bool absolute, float *dq,
                                        float *dk, struct attn_message *why)
{
    const float scale = absolute ? fabsf(job->problem->scale) : job->problem->scale;
    const int64_t d = job->problem->head_dim;
    enum attn_status status = ATTN_OK;
    if (!dq && !dk)
        return ATTN_OK;
    if (!absolute || job->slope)
        status = to_scores(job, at, attn_v_head_dim(job->problem), 1, job->in.dout[0], job->in.v[0], job->t, why);
    if (status == ATTN_OK)
        status = block_gradient(job, at, absolute, why);
    if (status == ATTN_OK)
        status = to_rows(job, at, d, scale, absolute ? job->s : job->t, job->in.k[absolute], dq, why);
    if (status == ATTN_OK)
        status = to_keys(job, at, d, scale, absolute ? job->s : job->t, job->in.q[absolute], dk, why);
    return status == ATTN_OK && absolute ? block_squares(job, at, dq, dk, why) : status;
}

/* Rows of d columns. */
static enum attn_status zero_rows(const struct job *job, float *out, int64_t row, int64_t rows, int64_t d,
                                  struct attn_message *why)
{
    if (!out || rows == 0)
        return ATTN_OK;
    return status_cuda(cudaMemsetAsync(out + row * d, 0, (size_t)(rows * d) * sizeof *out, job->stream),
                       "cudaMemsetAsync", why);
}

/* Rows of a sequence without keys: O = 0, LSE = -inf, dQ = 0. */
static enum attn_status block_without_keys(const struct job *job, const struct block *at, struct attn_message *why)
{
    float *const all[] = {job->out->o, job->out->o_abs, job->mode == ATTN_BWD ? job->out->dq : NULL,
                          job->mode == ATTN_BWD ? job->out->dq_abs : NULL};
    enum attn_status status = block_softmax(job, at, why);
    for (int i = 0; i < 4 && status == ATTN_OK; i++)
        status = zero_rows(job, all[i], at->row, at->rows,
                           i < 2 ? attn_v_head_dim(job->problem) : job->problem->head_dim, why);
    return status;
}

static enum attn_status compute_block(const struct job *job, const struct block *at, struct attn_message *why)
{
    const struct reference_outputs *out = job->out;
    const int64_t d = job->problem->head_dim;
    if (at->kv_len == 0)
        return block_without_keys(job, at, why);
    enum attn_status status = load_rows(job, at, why);
    if (status == ATTN_OK)
        status = block_values(job, at, why);
    if (status == ATTN_OK)
        status = block_sinks(job, at, why);
    if (status == ATTN_OK && job->mode == ATTN_BWD)
        status = block_gradients(job, at, false, row_of(out->dq, at->row, d), row_of(out->dk, at->key, d), why);
    if (status == ATTN_OK && job->mode == ATTN_BWD)
        status = block_gradients(job, at, true, row_of(out->dq_abs, at->row, d), row_of(out->dk_abs, at->key, d), why);
    return status;
}

/* ---- one sequence ----------------------------------------------------------------------------------------------- */

static void set_bias(const struct job *job, int64_t b, int64_t head, struct score_block *scores)
{
    const struct attn_problem *p = job->problem;
    const int64_t plane = (p->bias_batch > 1 ? b : 0) * p->bias_heads + (p->bias_heads > 1 ? head : 0);
    scores->bias_pitch = p->kv_len;
    if (p->bias_heads == 0 || job->mode == ATTN_FWD || !job->out->dbias)
        return;
    scores->dbias = job->out->dbias + plane * p->q_len * p->kv_len;
    if (job->out->dbias_abs)
        scores->dbias_abs = job->out->dbias_abs + plane * p->q_len * p->kv_len;
}

static struct block block_at(const struct job *job, int64_t b, int64_t head, int64_t first)
{
    const struct attn_problem *p = job->problem;
    const struct attn_sequence length = attn_sequence_at(p, job->lengths, b);
    const int64_t group = p->q_heads / p->kv_heads, kv_head = head / group;
    struct block at = {};
    at.b = b;
    at.head = head;
    at.kv_head = kv_head;
    at.kv_len = length.kv_len;
    at.first = first;
    at.rows = min64(job->block_rows, length.q_len - first);
    at.row = attn_lse_index(p, job->lengths, b, head, first);
    at.key =
        p->lengths == ATTN_PACKED ? kv_head * p->total_k + length.k_first : (b * p->kv_heads + kv_head) * p->kv_len;
    at.begins_keys = first == 0 && head % group == 0;
    at.scores.problem = *p;
    at.scores.tensors = *job->tensors;
    set_bias(job, b, head, &at.scores);
    at.scores.sink = job->sink ? job->sink[head] : -INFINITY;
    at.scores.mask = key_mask_of(p);
    at.scores.mask.q_len = length.q_len;
    at.scores.mask.kv_len = length.kv_len;
    at.scores.b = b;
    at.scores.head = head;
    at.scores.first = first;
    at.scores.rows = at.rows;
    at.scores.pitch = job->pitch;
    at.scores.first_batch = job->out->first_batch;
    at.scores.first_head = job->out->first_head;
    at.scores.first_row = job->out->first_row;
    return at;
}

/* dK and dV of a sequence that has no rows. */
static enum attn_status keys_without_rows(const struct job *job, const struct block *at, struct attn_message *why)
{
    float *const all[] = {job->out->dv, job->out->dv_abs, job->out->dk, job->out->dk_abs};
    enum attn_status status = ATTN_OK;
    for (int i = 0; i < 4 && status == ATTN_OK && job->mode == ATTN_BWD; i++)
        status = zero_rows(job, all[i], at->key, at->kv_len,
                           i < 2 ? attn_v_head_dim(job->problem) : job->problem->head_dim, why);
    return status;
}

static enum attn_status compute_kv_head(const struct job *job, int64_t b, int64_t kv_head, struct attn_message *why)
{
    const int64_t group = job->problem->q_heads / job->problem->kv_heads;
    const struct attn_sequence length = attn_sequence_at(job->problem, job->lengths, b);
    const struct block begin = block_at(job, b, kv_head * group, 0);
    if (length.q_len == 0)
        return keys_without_rows(job, &begin, why);
    enum attn_status status = load_keys(job, b, kv_head, length.kv_len, why);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t first = 0; first < length.q_len && status == ATTN_OK; first += job->block_rows) {
            const struct block at = block_at(job, b, head, first);
            status = compute_block(job, &at, why);
        }
    if (status != ATTN_OK || job->mode == ATTN_FWD || !job->out->dk_abs)
        return status;
    const int64_t d = job->problem->head_dim;
    return squares_take(row_of(job->out->dk_abs, begin.key, d), job->key_squares, (double)job->problem->scale,
                        length.kv_len * d, job->stream, why);
}

static enum attn_status compute(const struct job *job, struct attn_message *why)
{
    enum attn_status status = ATTN_OK;
    for (int64_t b = 0; b < job->problem->batch; b++)
        for (int64_t kv_head = 0; kv_head < job->problem->kv_heads && status == ATTN_OK; kv_head++)
            status = compute_kv_head(job, b, kv_head, why);
    return status;
}

static unsigned stride_grid(int64_t items)
{
    return (unsigned)min64(8192, max64(1, (items + REFERENCE_THREADS - 1) / REFERENCE_THREADS));
}

/* dBias is a sum over heads and sequences, from zero. */
static enum attn_status clear_biases(const struct job *job, int64_t elements, struct attn_message *why)
{
    float *const both[] = {job->out->dbias, job->out->dbias_abs};
    enum attn_status status = ATTN_OK;
    for (int i = 0; i < 2 && status == ATTN_OK; i++)
        if (both[i] && elements > 0)
            status = status_cuda(cudaMemsetAsync(both[i], 0, (size_t)elements * sizeof(float), job->stream),
                                 "cudaMemsetAsync", why);
    return status;
}

/* dSink is the sum of the blocks, in their order. */
static enum attn_status compute_all(const struct job *job, struct attn_message *why)
{
    const struct attn_problem *p = job->problem;
    const int64_t heads = p->q_heads;
    const int64_t biases = job->mode == ATTN_BWD ? p->bias_batch * p->bias_heads * p->q_len * p->kv_len : 0;
    enum attn_status status = clear_biases(job, biases, why);
    if (status != ATTN_OK)
        return status;
    if (job->sinks)
        status = status_cuda(cudaMemsetAsync(job->sinks, 0, (size_t)heads * 2 * sizeof(double), job->stream),
                             "cudaMemsetAsync", why);
    if (status == ATTN_OK)
        status = compute(job, why);
    if (status == ATTN_OK && biases > 0 && job->out->dbias_abs) {
        sequence_root<<<stride_grid(biases), REFERENCE_THREADS, 0, job->stream>>>(job->out->dbias_abs, biases);
        status = status_cuda(cudaGetLastError(), "sequence_root", why);
    }
    if (status != ATTN_OK || !job->sinks)
        return status;
    sequence_store_sinks<<<stride_grid(heads), REFERENCE_THREADS, 0, job->stream>>>(job->sinks, heads, job->out->dsink,
                                                                                    job->out->dsink_abs);
    return status_cuda(cudaGetLastError(), "sequence_store_sinks", why);
}

/* The sinks in host memory, which the caller frees; NULL where the problem has none. */
static enum attn_status copy_sink(const struct attn_problem *p, const struct attn_tensors *tensors, cudaStream_t stream,
                                  float **sink, struct attn_message *why)
{
    const size_t bytes = (size_t)p->q_heads * sizeof **sink;
    *sink = NULL;
    if (!p->has_sink)
        return ATTN_OK;
    *sink = (float *)malloc(bytes);
    if (!*sink)
        return status_fail(why, ATTN_NO_MEMORY, "the sinks of %lld heads need %zu bytes of host memory",
                           (long long)p->q_heads, bytes);
    const cudaError_t copied = cudaMemcpyAsync(*sink, tensors->sink, bytes, cudaMemcpyDeviceToHost, stream);
    const cudaError_t waited = cudaStreamSynchronize(stream);
    return status_cuda(copied != cudaSuccess ? copied : waited, "copying the sinks", why);
}

enum attn_status reference_sequences(const struct attn_problem *problem, enum attn_mode mode,
                                     const struct attn_tensors *tensors, const struct reference_outputs *out,
                                     cublasHandle_t blas, void *workspace, cudaStream_t stream,
                                     struct attn_message *why)
{
    const struct parts parts = parts_of(problem, mode);
    char *const base = (char *)workspace;
    struct lengths lengths;
    struct job job = {};
    job.problem = problem;
    job.mode = mode;
    job.tensors = tensors;
    job.lengths = &lengths.tensors;
    job.out = out;
    job.blas = blas;
    job.stream = stream;
    job.block_rows = parts.rows;
    job.pitch = parts.pitch;
    for (int i = 0; i < 2; i++) {
        job.in.q[i] = (float *)(base + parts.q[i]);
        job.in.k[i] = (float *)(base + parts.k[i]);
        job.in.v[i] = (float *)(base + parts.v[i]);
        job.in.dout[i] = (float *)(base + parts.dout[i]);
    }
    job.s = (float *)(base + parts.s);
    job.t = (float *)(base + parts.t);
    job.slope = problem->softcap != 0 && mode == ATTN_BWD ? (float *)(base + parts.slope) : NULL;
    job.in.k_squared = (float *)(base + parts.squares[0]);
    job.key_squares = (float *)(base + parts.squares[1]);
    job.sink_rows = (float *)(base + parts.sink_rows);
    job.sinks = problem->has_sink && mode == ATTN_BWD && out->dsink ? (double *)(base + parts.sinks) : NULL;
    float *sink = NULL;
    enum attn_status status = copy_sink(problem, tensors, stream, &sink, why);
    job.sink = sink;
    if (status == ATTN_OK)
        status = lengths_copy(problem, tensors, stream, &lengths, why);
    if (status == ATTN_OK) {
        status = compute_all(&job, why);
        lengths_free(&lengths);
    }
    free(sink);
    return status;
}
