/* reference_cuda: attention in fp32 by cuBLAS without TF32, for judging; see reference/reference.h. Problems with
 * attributes beyond windows are computed in reference_sequences.cu.
 *
 * Work is cut into blocks of query rows so that S fits in memory. A "slice" is one (batch, kv head) with its whole
 * group of query heads: its rows, group * q_len of them, follow each other in every fp32 output, and all of them use
 * the same keys. So grouped heads need no extra work, and dK, dV are plain sums over a slice's rows. A block is either
 * several whole slices or some rows of one. Per block:
 *   1 load      q, k, v, dO of the block to contiguous fp32
 *   2 forward   s = scale q k^T;  s = softmax(s), LSE;  O = s v
 *   3 backward  dV += s^T dO;  t = dO v^T;  D = rowsum(dO * O);  t = s * (t - D);  dQ = scale t k;  dK += scale t^T q
 *   4 absolute  the same with q, k, v, dO replaced by their absolute values and, in the place of t,
 *               s = s * max(sqrt(rowsum((dO * O)^2)), sqrt(rowsum(t^2))) + lambda |t|, where t is that of 3
 *   5 squares   t, k and q squared: t k and t^T q, of which reference_product takes the roots
 * Sums longer than DEPTH_STEP are computed in pieces, because the error of an fp32 sum grows with its length; sums over
 * rows of the softmax and of D are in double.
 *
 * The cuBLAS handle is one per device for the whole process, made at the first call: creating one allocates. */
#include "reference/reference.h"

#include <cuda_runtime.h>
#include <pthread.h>

#include "reference/cublas.h"
#include "reference/reference_sequences.cuh"
#include "reference/rows.cuh"
#include "reference/squares.cuh"
#include "reference/status.h"

enum {
    DEVICES_MAX = 64,
    DEPTH_STEP = 2048,
    SCORES_MAX = 1 << 27, /* elements of s and of t: 512 MiB each, enough to keep the products efficient */
    INPUTS_MAX = 1 << 26  /* elements of one fp32 copy of an input, unless one slice has more */
};

/* How a problem is divided into blocks, and the offsets of the parts of the workspace. */
struct blocking {
    int64_t slices, slice_rows;                 /* batch * kv_heads, group * q_len */
    int64_t block_slices, block_rows;           /* of a full block; block_slices == 1 or block_rows == slice_rows */
    int64_t pitch;                              /* of s and t */
    size_t q, k, v, dout, s, t, delta, squares; /* byte offsets; cuBLAS' workspace is at 0 */
    size_t total;
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static size_t take(size_t *total, int64_t elements)
{
    const size_t at = *total;
    *total += align_bytes((size_t)elements * sizeof(float));
    return at;
}

static struct blocking blocking_of(const struct attn_problem *p, enum attn_mode mode)
{
    struct blocking b = {};
    b.slices = p->batch * p->kv_heads;
    b.slice_rows = p->q_heads / p->kv_heads * p->q_len;
    b.pitch = (p->kv_len + 3) / 4 * 4;
    b.block_rows = min64(b.slice_rows, max64(1, SCORES_MAX / b.pitch));
    b.block_slices = 1;
    if (b.block_rows == b.slice_rows) {
        const int64_t by_scores = SCORES_MAX / (b.slice_rows * b.pitch);
        const int64_t by_inputs = INPUTS_MAX / (max64(b.slice_rows, p->kv_len) * p->head_dim);
        b.block_slices = min64(b.slices, max64(1, min64(by_scores, by_inputs)));
    }
    const int64_t rows = b.block_slices * b.block_rows;
    b.total = align_bytes(cublas_workspace_bytes());
    b.q = take(&b.total, rows * p->head_dim);
    b.k = take(&b.total, b.block_slices * p->kv_len * p->head_dim);
    b.v = take(&b.total, b.block_slices * p->kv_len * p->head_dim);
    b.s = take(&b.total, rows * b.pitch);
    if (mode == ATTN_BWD) {
        b.dout = take(&b.total, rows * p->head_dim);
        b.t = take(&b.total, rows * b.pitch);
        b.delta = take(&b.total, rows);
        b.squares = take(&b.total, b.block_slices * p->kv_len * p->head_dim);
    }
    return b;
}

/* Are there attributes beyond windows? Then reference_sequences.cu computes. */
static bool has_attributes(const struct attn_problem *p)
{
    struct attn_request request = {};
    request.problem = p;
    return (attn_attributes(&request) & ~(unsigned)ATTN_WITH_WINDOW) != 0;
}

size_t reference_cuda_workspace_bytes(const struct attn_problem *p, enum attn_mode mode)
{
    return has_attributes(p) ? align_bytes(cublas_workspace_bytes()) + reference_sequences_bytes(p, mode)
                             : blocking_of(p, mode).total;
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

/* Rows [first, first + rows) of [batch, heads, len] to contiguous fp32, or their absolute values. */
template <typename T>
__global__ void load_rows(struct attn_tensor tensor, int64_t heads, int64_t len, int64_t head_dim, int64_t first,
                          int64_t rows, bool absolute, float *out)
{
    const int64_t elements = rows * head_dim;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < elements;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = quotient(i, head_dim);
        const int64_t at = row_offset(tensor, heads, len, first + row) + (i - row * head_dim);
        const float x = to_float(static_cast<const T *>(tensor.data)[at]);
        out[i] = absolute ? fabsf(x) : x;
    }
}

/* S in, P out, in place. `first` is the number of the block's first row among all rows of all query heads. */
__global__ void __launch_bounds__(REFERENCE_THREADS)
    softmax_kernel(float *s, float *lse, int64_t rows, int64_t pitch, int64_t first, struct key_mask mask)
{
    __shared__ double sums[REFERENCE_THREADS / 32];
    __shared__ float maxima[REFERENCE_THREADS / 32];
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        float *const row = s + r * pitch;
        int64_t from, to;
        visible_keys(mask, (first + r) % mask.q_len, &from, &to);
        float maximum = -INFINITY;
        for (int64_t j = from + threadIdx.x; j < to; j += REFERENCE_THREADS)
            maximum = fmaxf(maximum, row[j]);
        maximum = block_max(maximum, maxima);
        double sum = 0;
        for (int64_t j = from + threadIdx.x; j < to; j += REFERENCE_THREADS)
            sum += expf(row[j] - maximum);
        sum = block_sum(sum, sums);
        const float inverse = (float)(1 / sum);
        for (int64_t j = threadIdx.x; j < pitch; j += REFERENCE_THREADS)
            row[j] = j >= from && j < to ? expf(row[j] - maximum) * inverse : 0;
        if (threadIdx.x == 0)
            lse[first + r] = from < to ? (float)((double)maximum + log(sum)) : -INFINITY;
    }
}

/* delta[r] = sum of dout[r] * o[r], or the root of the sum of their squares; a warp per row. */
__global__ void delta_kernel(const float *dout, const float *o, int64_t rows, int64_t head_dim, bool absolute,
                             float *delta)
{
    const int64_t warps = (int64_t)gridDim.x * (REFERENCE_THREADS / 32);
    for (int64_t r = blockIdx.x * (int64_t)(REFERENCE_THREADS / 32) + threadIdx.x / 32; r < rows; r += warps) {
        double sum = 0;
        for (int64_t c = threadIdx.x % 32; c < head_dim; c += 32) {
            const double x = (double)dout[r * head_dim + c] * (double)o[r * head_dim + c];
            sum += absolute ? x * x : x;
        }
        for (int lane = 16; lane > 0; lane >>= 1)
            sum += __shfl_xor_sync(0xffffffffu, sum, lane);
        if (threadIdx.x % 32 == 0)
            delta[r] = (float)(absolute ? sqrt(sum) : sum);
    }
}

/* t = p * (t - delta) on the visible keys, 0 elsewhere. absolute: p = p * max(delta, sqrt(rowsum(t^2))) + lambda |t|
 * and t = t^2, where the old t is what this kernel has written before. lse: of the block's first row. */
__global__ void __launch_bounds__(REFERENCE_THREADS)
    gradient_kernel(const __grid_constant__ struct attn_problem problem, float *p, float *t, const float *delta,
                    const float *lse, bool absolute, int64_t rows, int64_t pitch, int64_t first, struct key_mask mask)
{
    __shared__ double sums[REFERENCE_THREADS / 32];
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        int64_t from, to;
        visible_keys(mask, (first + r) % mask.q_len, &from, &to);
        double squares = 0;
        for (int64_t j = from + threadIdx.x; absolute && j < to; j += REFERENCE_THREADS)
            squares += (double)t[r * pitch + j] * (double)t[r * pitch + j];
        const float d = absolute ? fmaxf(delta[r], (float)sqrt(block_sum(squares, sums))) : delta[r];
        const float lambda = (float)reference_logit_error(&problem, (double)lse[r]);
        for (int64_t j = threadIdx.x; j < pitch; j += REFERENCE_THREADS) {
            const int64_t at = r * pitch + j;
            const bool is_visible = j >= from && j < to;
            const float ds = t[at];
            if (absolute)
                p[at] = is_visible ? p[at] * d + lambda * fabsf(ds) : 0;
            const float own = absolute ? ds * ds : p[at] * (ds - d);
            t[at] = is_visible ? own : 0;
        }
    }
}

/* ---- one block of rows ------------------------------------------------------------------------------------------ */

/* Arguments shared by the steps of a block. */
struct job {
    const struct attn_problem *problem;
    enum attn_mode mode;
    const struct attn_tensors *tensors;
    const struct reference_outputs *out;
    const struct blocking *blocking;
    cublasHandle_t blas;
    cudaStream_t stream;
    float *q, *k, *v, *dout, *s, *t, *delta;
    float *squares; /* of dK, summed over the blocks of a slice */
};

/* Slices [slice, slice + slices), rows [row, row + rows) of each. */
struct block {
    int64_t slice, slices, row, rows;
};

static int64_t first_row(const struct job *job, const struct block *at)
{
    return at->slice * job->blocking->slice_rows + at->row;
}

static unsigned stride_grid(int64_t items)
{
    return (unsigned)min64(8192, max64(1, (items + REFERENCE_THREADS - 1) / REFERENCE_THREADS));
}

static enum attn_status load(const struct job *job, struct attn_tensor tensor, int64_t heads, int64_t len,
                             int64_t first, int64_t rows, bool absolute, float *to, struct attn_message *why)
{
    const int64_t d = job->problem->head_dim;
    const unsigned grid = stride_grid(rows * d);
    const cudaStream_t s = job->stream;
    if (job->problem->dtype == ATTN_FP16)
        load_rows<__half><<<grid, REFERENCE_THREADS, 0, s>>>(tensor, heads, len, d, first, rows, absolute, to);
    else if (job->problem->dtype == ATTN_BF16)
        load_rows<__nv_bfloat16><<<grid, REFERENCE_THREADS, 0, s>>>(tensor, heads, len, d, first, rows, absolute, to);
    else
        load_rows<float><<<grid, REFERENCE_THREADS, 0, s>>>(tensor, heads, len, d, first, rows, absolute, to);
    return status_cuda(cudaGetLastError(), "load_rows", why);
}

static enum attn_status load_block(const struct job *job, const struct block *at, bool absolute,
                                   struct attn_message *why)
{
    const struct attn_problem *p = job->problem;
    const struct attn_tensors *t = job->tensors;
    const int64_t q_first = first_row(job, at), q_rows = at->slices * at->rows;
    const int64_t k_first = at->slice * p->kv_len, k_rows = at->slices * p->kv_len;
    enum attn_status status = load(job, t->q, p->q_heads, p->q_len, q_first, q_rows, absolute, job->q, why);
    if (status == ATTN_OK)
        status = load(job, t->k, p->kv_heads, p->kv_len, k_first, k_rows, absolute, job->k, why);
    if (status == ATTN_OK)
        status = load(job, t->v, p->kv_heads, p->kv_len, k_first, k_rows, absolute, job->v, why);
    if (status == ATTN_OK && job->mode == ATTN_BWD)
        status = load(job, t->dout, p->q_heads, p->q_len, q_first, q_rows, absolute, job->dout, why);
    return status;
}

/* A matrix of a block: `rows` rows per slice. */
static struct cublas_matrix matrix(const float *data, int64_t rows, int64_t row_stride)
{
    struct cublas_matrix m = {data, row_stride, {rows * row_stride, 0, 0}, false};
    return m;
}

static enum attn_status multiply(const struct job *job, const struct block *at, int64_t rows, int64_t cols,
                                 int64_t depth, float alpha, float beta, struct cublas_matrix a, bool a_transposed,
                                 struct cublas_matrix b, bool b_transposed, struct cublas_matrix c,
                                 struct attn_message *why)
{
    a.transposed = a_transposed;
    b.transposed = b_transposed;
    const struct cublas_product product = {
        ATTN_FP32, ATTN_FP32, rows, cols, depth, {at->slices, 1, 1}, DEPTH_STEP, NULL, alpha, beta, a, b, c};
    return cublas_multiply(job->blas, &product, why);
}

/* The three shapes of product: [rows, kv_len] from two [.., head_dim]; [rows, head_dim] from a score matrix;
 * [kv_len, head_dim] from a transposed one, summed over the blocks of a slice. */
static enum attn_status to_scores(const struct job *job, const struct block *at, float alpha, const float *rows,
                                  const float *keys, float *scores, struct attn_message *why)
{
    const int64_t d = job->problem->head_dim, n = job->problem->kv_len;
    return multiply(job, at, at->rows, n, d, alpha, 0, matrix(rows, at->rows, d), false, matrix(keys, n, d), true,
                    matrix(scores, at->rows, job->blocking->pitch), why);
}

static enum attn_status to_rows(const struct job *job, const struct block *at, float alpha, const float *scores,
                                const float *keys, float *of_block, struct attn_message *why)
{
    const int64_t d = job->problem->head_dim, n = job->problem->kv_len;
    return multiply(job, at, at->rows, d, n, alpha, 0, matrix(scores, at->rows, job->blocking->pitch), false,
                    matrix(keys, n, d), false, matrix(of_block, at->rows, d), why);
}

static enum attn_status to_keys(const struct job *job, const struct block *at, float alpha, const float *scores,
                                const float *rows, float *of_slice, struct attn_message *why)
{
    const int64_t d = job->problem->head_dim, n = job->problem->kv_len;
    return multiply(job, at, n, d, at->rows, alpha, at->row > 0 ? 1.0f : 0.0f,
                    matrix(scores, at->rows, job->blocking->pitch), true, matrix(rows, at->rows, d), false,
                    matrix(of_slice, n, d), why);
}

/* Where the rows of a block begin in an output of rows, and the keys of its slice in one of keys; NULL for NULL. */
static float *rows_of(const struct job *job, const struct block *at, float *out)
{
    return out ? out + first_row(job, at) * job->problem->head_dim : NULL;
}

static float *keys_of(const struct job *job, const struct block *at, float *out)
{
    return out ? out + at->slice * job->problem->kv_len * job->problem->head_dim : NULL;
}

static enum attn_status block_forward(const struct job *job, const struct block *at, struct attn_message *why)
{
    const int64_t rows = at->slices * at->rows;
    const enum attn_status status = to_scores(job, at, job->problem->scale, job->q, job->k, job->s, why);
    if (status != ATTN_OK)
        return status;
    softmax_kernel<<<grid_size(rows), REFERENCE_THREADS, 0, job->stream>>>(
        job->s, job->out->lse, rows, job->blocking->pitch, first_row(job, at), key_mask_of(job->problem));
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess)
        return status_cuda(error, "softmax_kernel", why);
    return to_rows(job, at, 1, job->s, job->v, rows_of(job, at, job->out->o), why);
}

/* t = dS from t = dP (absolute: s = dSa from s = P and t = dS, t = dS^2). */
static enum attn_status block_gradient(const struct job *job, const struct block *at, bool absolute,
                                       struct attn_message *why)
{
    const int64_t rows = at->slices * at->rows, d = job->problem->head_dim, first = first_row(job, at);
    delta_kernel<<<stride_grid(rows * 32), REFERENCE_THREADS, 0, job->stream>>>(job->dout, job->out->o + first * d,
                                                                                rows, d, absolute, job->delta);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess)
        return status_cuda(error, "delta_kernel", why);
    gradient_kernel<<<grid_size(rows), REFERENCE_THREADS, 0, job->stream>>>(
        *job->problem, job->s, job->t, job->delta, job->out->lse + first, absolute, rows, job->blocking->pitch, first,
        key_mask_of(job->problem));
    return status_cuda(cudaGetLastError(), "gradient_kernel", why);
}

/* reference_product of dq and dk, which may each be NULL. In: t = dS^2 and |q|, |k|; dout has the squares of dQ. */
static enum attn_status block_squares(const struct job *job, const struct block *at, float *dq, float *dk,
                                      struct attn_message *why)
{
    const int64_t d = job->problem->head_dim;
    const int64_t rows = at->slices * at->rows * d, keys = at->slices * job->problem->kv_len * d;
    const bool is_last = at->row + at->rows == job->blocking->slice_rows;
    const double scale = fabs((double)job->problem->scale);
    enum attn_status status = squares_make(job->q, rows, job->q, job->stream, why);
    if (status == ATTN_OK)
        status = squares_make(job->k, keys, job->k, job->stream, why);
    if (status == ATTN_OK && dq)
        status = to_rows(job, at, 1, job->t, job->k, job->dout, why);
    if (status == ATTN_OK && dq)
        status = squares_take(dq, job->dout, scale, rows, job->stream, why);
    if (status == ATTN_OK && dk)
        status = to_keys(job, at, 1, job->t, job->q, job->squares, why);
    if (status == ATTN_OK && dk && is_last)
        status = squares_take(dk, job->squares, scale, keys, job->stream, why);
    return status;
}

/* dq of the block, dk and dv of its slice; each may be NULL. q, k, v, dout of the block are loaded, or their absolute
 * values. */
static enum attn_status block_backward(const struct job *job, const struct block *at, bool absolute, float *dq,
                                       float *dk, float *dv, struct attn_message *why)
{
    const float scale = absolute ? fabsf(job->problem->scale) : job->problem->scale;
    enum attn_status status = ATTN_OK;
    if (dv)
        status = to_keys(job, at, 1, job->s, job->dout, dv, why);
    if (status != ATTN_OK || (!dq && !dk))
        return status;
    if (!absolute)
        status = to_scores(job, at, 1, job->dout, job->v, job->t, why);
    if (status == ATTN_OK)
        status = block_gradient(job, at, absolute, why);
    const float *const scores = absolute ? job->s : job->t;
    if (status == ATTN_OK && dq)
        status = to_rows(job, at, scale, scores, job->k, dq, why);
    if (status == ATTN_OK && dk)
        status = to_keys(job, at, scale, scores, job->q, dk, why);
    return status == ATTN_OK && absolute ? block_squares(job, at, dq, dk, why) : status;
}

static enum attn_status compute_block(const struct job *job, const struct block *at, struct attn_message *why)
{
    const struct reference_outputs *out = job->out;
    const bool backward = job->mode == ATTN_BWD;
    enum attn_status status = load_block(job, at, false, why);
    if (status == ATTN_OK)
        status = block_forward(job, at, why);
    if (status == ATTN_OK && backward)
        status = block_backward(job, at, false, rows_of(job, at, out->dq), keys_of(job, at, out->dk),
                                keys_of(job, at, out->dv), why);
    if (status != ATTN_OK || (!out->o_abs && !(backward && (out->dq_abs || out->dk_abs || out->dv_abs))))
        return status;
    status = load_block(job, at, true, why);
    if (status == ATTN_OK && out->o_abs)
        status = to_rows(job, at, 1, job->s, job->v, rows_of(job, at, out->o_abs), why);
    if (status == ATTN_OK && backward)
        status = block_backward(job, at, true, rows_of(job, at, out->dq_abs), keys_of(job, at, out->dk_abs),
                                keys_of(job, at, out->dv_abs), why);
    return status;
}

static enum attn_status compute(const struct job *job, struct attn_message *why)
{
    const struct blocking *b = job->blocking;
    for (int64_t slice = 0; slice < b->slices; slice += b->block_slices)
        for (int64_t row = 0; row < b->slice_rows; row += b->block_rows) {
            const struct block at = {slice, min64(b->block_slices, b->slices - slice), row,
                                     min64(b->block_rows, b->slice_rows - row)};
            const enum attn_status status = compute_block(job, &at, why);
            if (status != ATTN_OK)
                return status;
        }
    return ATTN_OK;
}

/* ---- the entry -------------------------------------------------------------------------------------------------- */

static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;
static cublasHandle_t handles[DEVICES_MAX];

/* Called with the lock held. */
static enum attn_status handle_for_device(cublasHandle_t *handle, struct attn_message *why)
{
    int device = 0;
    const enum attn_status status = status_cuda(cudaGetDevice(&device), "cudaGetDevice", why);
    if (status != ATTN_OK)
        return status;
    if (device < 0 || device >= DEVICES_MAX)
        return status_fail(why, ATTN_ERROR, "the reference serves CUDA devices 0 to %d, not %d", DEVICES_MAX - 1,
                           device);
    if (!handles[device]) {
        const enum attn_status created = cublas_create(&handles[device], why);
        if (created != ATTN_OK)
            return created;
    }
    *handle = handles[device];
    return ATTN_OK;
}

/* With the cuBLAS handle bound to the stream. */
static enum attn_status compute_dense(const struct attn_problem *problem, enum attn_mode mode,
                                      const struct attn_tensors *tensors, const struct reference_outputs *out,
                                      cublasHandle_t blas, char *base, cudaStream_t stream, struct attn_message *why)
{
    const struct blocking blocking = blocking_of(problem, mode);
    struct job job = {};
    job.problem = problem;
    job.mode = mode;
    job.tensors = tensors;
    job.out = out;
    job.blocking = &blocking;
    job.blas = blas;
    job.stream = stream;
    job.q = (float *)(base + blocking.q);
    job.k = (float *)(base + blocking.k);
    job.v = (float *)(base + blocking.v);
    job.dout = (float *)(base + blocking.dout);
    job.s = (float *)(base + blocking.s);
    job.t = (float *)(base + blocking.t);
    job.delta = (float *)(base + blocking.delta);
    job.squares = (float *)(base + blocking.squares);
    return compute(&job, why);
}

enum attn_status reference_cuda(const struct attn_problem *problem, enum attn_mode mode,
                                const struct attn_tensors *tensors, const struct reference_outputs *out,
                                void *workspace, size_t workspace_bytes, void *stream, struct attn_message *why)
{
    const size_t needed = reference_cuda_workspace_bytes(problem, mode);
    char *const base = (char *)workspace; /* cuBLAS' part of it comes first */
    cublasHandle_t blas = NULL;
    if (problem->lengths == ATTN_CACHE && mode == ATTN_BWD)
        return status_fail(why, ATTN_UNSUPPORTED, "attention against a cache has no backward");
    if (workspace_bytes < needed)
        return status_fail(why, ATTN_ERROR, "the reference needs %zu bytes of workspace, got %zu", needed,
                           workspace_bytes);
    pthread_mutex_lock(&handles_lock);
    enum attn_status status = handle_for_device(&blas, why);
    if (status == ATTN_OK)
        status = cublas_bind(blas, stream, base, why);
    if (status == ATTN_OK && has_attributes(problem))
        status = reference_sequences(problem, mode, tensors, out, blas, base + align_bytes(cublas_workspace_bytes()),
                                     (cudaStream_t)stream, why);
    else if (status == ATTN_OK)
        status = compute_dense(problem, mode, tensors, out, blas, base, (cudaStream_t)stream, why);
    pthread_mutex_unlock(&handles_lock);
    return status;
}
