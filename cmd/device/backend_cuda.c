/* A CUDA device: runtime API calls and the kernels of reference/harness/harness_cuda.h. One stream, everything in order
 * on it. */
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NVTX consists of headers only; a toolkit made of Python wheels may lack them. */
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define RANGE_PUSH(name) nvtxRangePushA(name)
#define RANGE_POP() nvtxRangePop()
#else
#define RANGE_PUSH(name) ((void)(name))
#define RANGE_POP() ((void)0)
#endif

#include "cmd/device/backend.h"
#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/device/gate.h"
#include "cmd/device/others.h"
#include "reference/harness/harness_cuda.h"

/* LOOK: the counter of a probe, behind those of digests. */
enum { PASSES_MAX = 8, LOOK = 2 * DIGEST_MAX, COUNTERS };

struct cuda_state {
    cudaStream_t stream;
    cudaEvent_t start, stop, pass_events[PASSES_MAX + 1];
    struct stream_gate gate;
    void *flush; /* NULL until a cold sample is asked for */
    size_t flush_bytes;
    float *tables[FILL_DISTS][FILL_TENSORS]; /* quantile tables in device memory, by (dist, tensor) */
    unsigned long long *counters;            /* device memory for sums */
    uint64_t random;                         /* of what the sums begin with */
    void *blocks;                            /* device memory for the results of a comparison, kept between calls */
    size_t blocks_bytes;
    struct harness_gemm *gemm[3];
    void *read; /* of the read ceiling; NULL where there is none */
    unsigned long long *read_sums;
    struct others others;
    struct quiet quiet;
};

static enum attn_status failed(struct attn_message *why, const char *what, cudaError_t error)
{
    if (error == cudaSuccess)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
    cudaGetLastError();
    return error == cudaErrorMemoryAllocation ? ATTN_NO_MEMORY : ATTN_ERROR;
}

/* For a function that returns attn_status: returns its failure. */
#define TRY_CUDA(call) \
    do { \
        const enum attn_status try_status = failed(why, #call, (cudaError_t)(call)); \
        if (try_status != ATTN_OK) \
            return try_status; \
    } while (0)

static struct cuda_state *state_of(struct backend *be) { return be->state; }

static enum attn_status synchronize(struct backend *be, const char *what, struct attn_message *why)
{
    gate_open(&state_of(be)->gate);
    return failed(why, what, cudaStreamSynchronize(state_of(be)->stream));
}

static enum attn_status cuda_hold(struct backend *be, struct attn_message *why)
{
    return gate_hold(&state_of(be)->gate, why);
}

static void cuda_close(struct backend *be)
{
    struct cuda_state *s = be->state;
    for (int i = 0; i < 3; i++)
        if (s->gemm[i])
            harness_gemm_destroy(s->gemm[i]);
    for (int i = 0; i < FILL_DISTS; i++)
        for (int j = 0; j < FILL_TENSORS; j++)
            cudaFree(s->tables[i][j]);
    for (int i = 0; i <= PASSES_MAX; i++)
        if (s->pass_events[i])
            cudaEventDestroy(s->pass_events[i]);
    if (s->start)
        cudaEventDestroy(s->start);
    if (s->stop)
        cudaEventDestroy(s->stop);
    cudaFree(s->flush);
    cudaFree(s->counters);
    cudaFree(s->blocks);
    cudaFree(s->read);
    cudaFree(s->read_sums);
    gate_free(&s->gate);
    if (s->stream)
        cudaStreamDestroy(s->stream);
    free(s);
    be->state = NULL;
}

static enum attn_status cuda_alloc(struct backend *be, size_t bytes, void **pointer, struct attn_message *why)
{
    (void)be;
    *pointer = NULL;
    const cudaError_t error = cudaMalloc(pointer, bytes ? bytes : 256);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        snprintf(why->text, sizeof why->text, "out of device memory: %zu bytes", bytes);
        return ATTN_NO_MEMORY;
    }
    return failed(why, "cudaMalloc", error);
}

static void cuda_release(struct backend *be, void *pointer)
{
    (void)be;
    cudaFree(pointer);
}

static enum attn_status cuda_upload(struct backend *be, void *to, const void *from, size_t bytes,
                                    struct attn_message *why)
{
    TRY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, state_of(be)->stream));
    return synchronize(be, "upload", why);
}

static enum attn_status cuda_download(struct backend *be, void *to, const void *from, size_t bytes,
                                      struct attn_message *why)
{
    TRY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, state_of(be)->stream));
    return synchronize(be, "download", why);
}

static enum attn_status quantiles(struct backend *be, enum fill_dist dist, enum fill_tensor id, float **table,
                                  float *gain, struct attn_message *why)
{
    struct cuda_state *s = be->state;
    float *host = xmalloc(FILL_TABLE_SIZE * sizeof *host);
    enum attn_status status = ATTN_OK;
    fill_table(dist, id, host, gain);
    if (!s->tables[dist][id]) {
        status = cuda_alloc(be, FILL_TABLE_SIZE * sizeof *host, (void **)&s->tables[dist][id], why);
        if (status == ATTN_OK)
            status = cuda_upload(be, s->tables[dist][id], host, FILL_TABLE_SIZE * sizeof *host, why);
    }
    *table = s->tables[dist][id];
    free(host);
    return status;
}

static enum attn_status cuda_fill(struct backend *be, struct attn_tensor tensor, enum attn_dtype dtype, int64_t batch,
                                  int64_t heads, int64_t len, int64_t head_dim, const struct fill_spec *spec,
                                  enum fill_tensor id, struct attn_message *why)
{
    float *table = NULL, gain = 1;
    const struct fill_column column = fill_first_column(spec, id, head_dim);
    const enum fill_stretch stretch = fill_stretch_of(spec->dist, id);
    const enum attn_status status = quantiles(be, spec->dist, id, &table, &gain, why);
    if (status != ATTN_OK)
        return status;
    if (id == FILL_Q && spec->logit_std > 0)
        gain = fill_logit_gain(spec, head_dim);
    TRY_CUDA(
        harness_fill(tensor, dtype, batch, heads, len, head_dim, spec->seed, id, gain, table, state_of(be)->stream));
    if (stretch != FILL_STRETCH_NONE)
        TRY_CUDA(
            harness_stretch(tensor, dtype, batch, heads, len, head_dim, spec->seed, id, stretch, state_of(be)->stream));
    if (column.kind != FILL_FIRST_DRAWN)
        TRY_CUDA(harness_fill_first_column(tensor, dtype, batch, heads, len, column, state_of(be)->stream));
    return synchronize(be, "filling an input", why);
}

static enum attn_status cuda_round(struct backend *be, const float *from, struct attn_tensor to, enum attn_dtype dtype,
                                   int64_t batch, int64_t heads, int64_t len, int64_t head_dim,
                                   struct attn_message *why)
{
    TRY_CUDA(harness_round(from, to, dtype, batch, heads, len, head_dim, state_of(be)->stream));
    return synchronize(be, "rounding O", why);
}

static enum attn_status cuda_pattern(struct backend *be, void *buffer, size_t bytes, uint32_t pattern,
                                     struct attn_message *why)
{
    TRY_CUDA(harness_pattern(buffer, bytes, pattern, state_of(be)->stream));
    return ATTN_OK;
}

static enum attn_status cuda_copy(struct backend *be, void *to, const void *from, size_t bytes,
                                  struct attn_message *why)
{
    TRY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, state_of(be)->stream));
    return ATTN_OK;
}

/* Of other threads the host's time is accounted for; it is taken as calm. */
static enum attn_status cuda_settle(struct backend *be, double limit_ms, bool is_before_launch, bool *is_calm,
                                    struct attn_message *why)
{
    (void)limit_ms;
    gate_open(&state_of(be)->gate);
    TRY_CUDA(cudaDeviceSynchronize());
    quiet_end(&state_of(be)->quiet); /* what waits for a handler is to run before */
    others_begin(&state_of(be)->others, 1);
    if (is_before_launch)
        quiet_begin(&state_of(be)->quiet);
    *is_calm = true;
    return ATTN_OK;
}

static void cuda_own_threads(struct backend *be) { (void)be; }

/* Sums begin with a number that nobody knows, so that those which a kernel of somebody else sets to 0 are wrong. */
static enum attn_status begin_sums(struct cuda_state *s, int first, int count, uint64_t *start,
                                   struct attn_message *why)
{
    const uint32_t word = (uint32_t)number_mix(s->random += NUMBER_MIX_STEP);
    *start = (uint64_t)word << 32 | word;
    TRY_CUDA(harness_pattern(&s->counters[first], (size_t)count * sizeof *s->counters, word, s->stream));
    return ATTN_OK;
}

static enum attn_status end_sums(struct backend *be, int first, int count, uint64_t start, uint64_t *sums,
                                 struct attn_message *why)
{
    TRY(cuda_download(be, sums, &state_of(be)->counters[first], (size_t)count * sizeof *sums, why));
    for (int i = 0; i < count; i++)
        sums[i] -= start;
    return ATTN_OK;
}

static enum attn_status enqueue_look(struct cuda_state *s, const struct probe *probe, uint64_t *start,
                                     struct attn_message *why)
{
    struct harness_look look = {.count = probe->count, .page_bytes = PROBE_PAGE, .seed = probe->seed};
    for (int i = 0; i < probe->count; i++) {
        look.data[i] = probe->spans[i].data;
        look.bytes[i] = probe->spans[i].bytes;
    }
    TRY(begin_sums(s, LOOK, 1, start, why));
    TRY_CUDA(harness_look(&look, &s->counters[LOOK], s->stream));
    return ATTN_OK;
}

/* Samples of a run without loaded implementations are not looked at. */
static enum attn_status cuda_look(struct backend *be, const struct probe *probe, uint64_t *seen,
                                  struct attn_message *why)
{
    uint64_t start = 0;
    *seen = 0;
    if (!probe->is_held)
        return ATTN_OK;
    TRY(enqueue_look(state_of(be), probe, &start, why));
    return end_sums(be, LOOK, 1, start, seen, why);
}

static enum attn_status cuda_count_mismatch(struct backend *be, const void *buffer, size_t bytes, uint32_t pattern,
                                            uint64_t *mismatches, struct attn_message *why)
{
    struct cuda_state *s = be->state;
    uint64_t start = 0;
    TRY(begin_sums(s, 0, 1, &start, why));
    TRY_CUDA(harness_count_mismatch(buffer, bytes, pattern, s->counters, s->stream));
    return end_sums(be, 0, 1, start, mismatches, why);
}

static enum attn_status cuda_flip(struct backend *be, struct attn_tensor tensor, size_t element_bytes, int64_t batch,
                                  int64_t heads, int64_t len, int64_t head_dim, const struct column_signs *signs,
                                  struct attn_message *why)
{
    TRY_CUDA(harness_flip(tensor, element_bytes, batch, heads, len, head_dim, signs, state_of(be)->stream));
    return ATTN_OK;
}

static enum attn_status cuda_digest(struct backend *be, const struct digest_job *jobs, int count,
                                    struct digest *digests, struct attn_message *why)
{
    struct cuda_state *s = be->state;
    uint64_t sums[2 * DIGEST_MAX], start = 0;
    TRY(begin_sums(s, 0, 2 * DIGEST_MAX, &start, why));
    for (int i = 0; i < count; i++) {
        const struct digest_job *job = &jobs[i];
        TRY_CUDA(harness_digest(job->tensor, job->element_bytes, job->batch, job->heads, job->len, job->head_dim,
                                &job->signs, &s->counters[2 * i], s->stream));
    }
    const enum attn_status status = end_sums(be, 0, 2 * DIGEST_MAX, start, sums, why);
    for (int i = 0; i < count; i++)
        digests[i] = (struct digest){sums[2 * i], sums[2 * i + 1]};
    return status;
}

/* Device memory of at least `bytes` for the results of a comparison. It is kept, because an allocation waits for the
 * device. */
static enum attn_status room_for_blocks(struct backend *be, size_t bytes, struct attn_message *why)
{
    struct cuda_state *s = be->state;
    if (bytes <= s->blocks_bytes)
        return ATTN_OK;
    cudaFree(s->blocks);
    s->blocks = NULL;
    s->blocks_bytes = 0;
    const enum attn_status status = cuda_alloc(be, bytes, &s->blocks, why);
    if (status == ATTN_OK)
        s->blocks_bytes = bytes;
    return status;
}

static enum attn_status cuda_compare(struct backend *be, const struct compare_job *job, struct compare_block *blocks,
                                     struct attn_message *why)
{
    struct cuda_state *s = be->state;
    const size_t bytes = (size_t)(job->batch * job->heads * compare_blocks_per_head(job->len)) * sizeof *blocks;
    const enum attn_status status = room_for_blocks(be, bytes, why);
    if (status != ATTN_OK)
        return status;
    TRY_CUDA(compare_blocks_cuda(job, s->blocks, s->stream));
    return cuda_download(be, blocks, s->blocks, bytes, why);
}

static size_t cuda_reference_workspace(struct backend *be, const struct attn_problem *p, enum attn_mode mode)
{
    (void)be;
    return reference_cuda_workspace_bytes(p, mode);
}

static enum attn_status cuda_reference(struct backend *be, const struct attn_problem *p, enum attn_mode mode,
                                       const struct attn_tensors *tensors, const struct reference_outputs *out,
                                       void *workspace, size_t workspace_bytes, struct attn_message *why)
{
    const enum attn_status status =
        reference_cuda(p, mode, tensors, out, workspace, workspace_bytes, state_of(be)->stream, why);
    return status == ATTN_OK ? synchronize(be, "the reference", why) : status;
}

/* What is launched, for messages. */
static const char *name_of(const struct launcher *l)
{
    return l->quantiser ? "quantising" : l->impl ? l->impl->name : l->read_bytes ? "read" : "gemm";
}

/* Enqueues one launch and does not wait. */
static enum attn_status enqueue(struct backend *be, const struct launcher *l, struct attn_message *why)
{
    struct cuda_state *s = be->state;
    quiet_end(&s->quiet);
    if (l->quantiser)
        return failed(why, "quantising", (cudaError_t)backend_quantise_cuda(l->quantiser, s->stream));
    if (l->graph)
        return failed(why, "cudaGraphLaunch", cudaGraphLaunch(l->graph, s->stream));
    if (!l->impl && l->read_bytes)
        return failed(
            why, "the read ceiling",
            (cudaError_t)harness_read(s->read, l->read_bytes, be->device.multiprocessors, s->read_sums, s->stream));
    if (!l->impl)
        return harness_gemm_launch(s->gemm[l->request->problem->dtype], s->stream, why);
    struct attn_run run = l->run;
    run.stream = s->stream;
    cudaGetLastError(); /* clears an error of an earlier call, which is not this launch's */
    const enum attn_status status = l->impl->launch(l->request, l->tensors, &run, why);
    return status == ATTN_OK ? failed(why, l->impl->name, cudaGetLastError()) : status;
}

/* What another one has left in streams of its own ends before. */
static enum attn_status cuda_launch(struct backend *be, const struct launcher *l, struct attn_message *why)
{
    gate_open(&state_of(be)->gate);
    TRY_CUDA(cudaDeviceSynchronize());
    const enum attn_status status = enqueue(be, l, why);
    return status == ATTN_OK ? synchronize(be, name_of(l), why) : status;
}

static void cuda_uncapture(struct backend *be, struct launcher *l)
{
    (void)be;
    if (l->graph)
        cudaGraphExecDestroy(l->graph);
    l->graph = NULL;
}

static enum attn_status cuda_capture(struct backend *be, struct launcher *l, struct attn_message *why)
{
    struct cuda_state *s = be->state;
    struct attn_message ignored;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    l->graph = NULL;
    TRY_CUDA(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal));
    const enum attn_status enqueued = enqueue(be, l, &ignored);
    const cudaError_t ended = cudaStreamEndCapture(s->stream, &graph);
    if (enqueued == ATTN_OK && ended == cudaSuccess && cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess &&
        cudaGraphUpload(exec, s->stream) == cudaSuccess)
        l->graph = exec;
    else if (exec)
        cudaGraphExecDestroy(exec);
    if (graph)
        cudaGraphDestroy(graph);
    cudaGetLastError();
    return synchronize(be, "capturing a graph", why);
}

static enum attn_status cuda_make_flush(struct backend *be, struct attn_message *why)
{
    struct cuda_state *s = be->state;
    if (s->flush)
        return ATTN_OK;
    s->flush_bytes = 2 * be->device.l2_bytes;
    TRY(cuda_alloc(be, s->flush_bytes, &s->flush, why));
    /* Not zeros, which draw less power than any data. */
    TRY_CUDA(harness_pattern(s->flush, s->flush_bytes, 0x3f9d70a4u, s->stream));
    return synchronize(be, "filling the buffer that flushes L2", why);
}

/* Behind the closed gate: the flush of L2, what changes last, the launch between its events, and a look at what it
 * wrote. */
static enum attn_status enqueue_sample(struct backend *be, const struct launcher *l, bool cold, uint64_t *look_start,
                                       struct attn_message *why)
{
    struct cuda_state *s = be->state;
    struct probe *const probe = l->probe && l->probe->is_held ? l->probe : NULL;
    if (cold)
        TRY_CUDA(harness_flush_l2(s->flush, s->flush_bytes, s->stream));
    for (int i = 0; probe && i < probe->late_count; i++) {
        const struct digest_job *late = &probe->late[i];
        TRY(cuda_flip(be, late->tensor, late->element_bytes, late->batch, late->heads, late->len, late->head_dim,
                      &late->signs, why));
    }
    TRY_CUDA(cudaEventRecord(s->start, s->stream));
    TRY(enqueue(be, l, why));
    TRY_CUDA(cudaEventRecord(s->stop, s->stream));
    return probe ? enqueue_look(s, probe, look_start, why) : ATTN_OK;
}

/* The device runs from start to stop without waiting for the host. */
static enum attn_status cuda_sample(struct backend *be, const struct launcher *l, bool cold, double *time_ms,
                                    struct attn_message *why)
{
    struct cuda_state *s = be->state;
    float elapsed_ms = 0;
    uint64_t look_start = 0;
    if (cold) /* before the gate: an allocation may wait for the device */
        TRY(cuda_make_flush(be, why));
    if (!s->gate.is_held)
        TRY(gate_close(&s->gate, why));
    if (l->probe)
        l->probe->others_ms = others_ms(&s->others);
    enum attn_status status = enqueue_sample(be, l, cold, &look_start, why);
    gate_open(&s->gate);
    if (status != ATTN_OK) {
        cudaStreamSynchronize(s->stream);
        return status;
    }
    status = synchronize(be, name_of(l), why);
    if (status != ATTN_OK)
        return status;
    TRY(gate_check(&s->gate, why));
    TRY_CUDA(cudaEventElapsedTime(&elapsed_ms, s->start, s->stop));
    *time_ms = elapsed_ms;
    if (!l->probe)
        return ATTN_OK;
    l->probe->seen = 0;
    return l->probe->is_held ? end_sums(be, LOOK, 1, look_start, &l->probe->seen, why) : ATTN_OK;
}

/* The queue holds about a thousand launches. Enqueueing more blocks the host, but the device does not wait. */
static enum attn_status cuda_repeat(struct backend *be, const struct launcher *l, int64_t count,
                                    struct attn_message *why)
{
    struct cuda_state *s = be->state;
    float elapsed_ms = 0;
    gate_open(&s->gate);
    enum attn_status status = failed(why, "cudaEventRecord", cudaEventRecord(s->start, s->stream));
    for (int64_t i = 0; i < count && status == ATTN_OK; i++)
        status = enqueue(be, l, why);
    if (status == ATTN_OK)
        status = failed(why, "cudaEventRecord", cudaEventRecord(s->stop, s->stream));
    const enum attn_status finished = synchronize(be, name_of(l), why);
    if (status != ATTN_OK || finished != ATTN_OK || !l->probe)
        return status == ATTN_OK ? finished : status;
    TRY_CUDA(cudaEventElapsedTime(&elapsed_ms, s->start, s->stop));
    l->probe->repeat_ms = (double)elapsed_ms;
    return ATTN_OK;
}

struct pass_log {
    struct cuda_state *state;
    int count, max;
    char (*names)[16];
    cudaError_t error;
};

static void pass_started(void *context, const char *name)
{
    struct pass_log *log = context;
    if (log->count == log->max)
        return;
    snprintf(log->names[log->count], 16, "%s", name);
    const cudaError_t error = cudaEventRecord(log->state->pass_events[log->count++], log->state->stream);
    if (log->error == cudaSuccess)
        log->error = error;
}

static enum attn_status cuda_passes(struct backend *be, const struct launcher *l, int max, char names[][16],
                                    double *times_ms, int *count, struct attn_message *why)
{
    struct cuda_state *s = be->state;
    struct pass_log log = {.state = s, .max = max < PASSES_MAX ? max : PASSES_MAX, .names = names};
    struct launcher traced = *l;
    traced.graph = NULL;
    traced.run.pass = pass_started;
    traced.run.pass_context = &log;
    *count = 0;
    TRY(gate_close(&s->gate, why));
    enum attn_status status = enqueue(be, &traced, why);
    const cudaError_t end = cudaEventRecord(s->pass_events[log.count], s->stream);
    gate_open(&s->gate);
    const enum attn_status finished = synchronize(be, "timing the passes", why);
    if (status == ATTN_OK)
        status = finished;
    if (status != ATTN_OK)
        return status;
    TRY_CUDA(log.error);
    TRY_CUDA(end);
    for (int i = 0; i < log.count; i++) {
        float elapsed_ms = 0;
        TRY_CUDA(cudaEventElapsedTime(&elapsed_ms, s->pass_events[i], s->pass_events[i + 1]));
        times_ms[i] = elapsed_ms;
    }
    *count = log.count;
    return ATTN_OK;
}

static enum attn_status cuda_gemm_prepare(struct backend *be, enum attn_dtype dtype, double *flops,
                                          struct attn_message *why)
{
    struct cuda_state *s = be->state;
    float *table = NULL, gain = 1;
    enum attn_status status = ATTN_OK;
    if (attn_dtype_is_8_bit(dtype)) {
        snprintf(why->text, sizeof why->text, "no GEMM ceiling in 8-bit types");
        return ATTN_UNSUPPORTED;
    }
    if (!s->gemm[dtype]) {
        status = quantiles(be, FILL_NORMAL, FILL_GEMM, &table, &gain, why);
        if (status != ATTN_OK)
            return status;
        s->gemm[dtype] = harness_gemm_create(dtype, table, why);
        if (!s->gemm[dtype])
            return ATTN_ERROR;
    }
    *flops = harness_gemm_flops(s->gemm[dtype]);
    return ATTN_OK;
}

static enum attn_status cuda_read_prepare(struct backend *be, size_t bytes, struct attn_message *why)
{
    struct cuda_state *s = be->state;
    const size_t sum_bytes = (size_t)harness_read_sums(be->device.multiprocessors) * sizeof *s->read_sums;
    cudaFree(s->read);
    s->read = NULL;
    if (bytes == 0)
        return ATTN_OK;
    if (!s->read_sums)
        TRY(cuda_alloc(be, sum_bytes, (void **)&s->read_sums, why));
    TRY(cuda_alloc(be, bytes, &s->read, why));
    TRY_CUDA(harness_pattern(s->read, bytes, 0x3f9d70a4u, s->stream)); /* not zeros, which draw less power */
    return synchronize(be, "filling the buffer of the read ceiling", why);
}

static double cuda_copy_gbps(struct backend *be) { return backend_copy_gbps_cuda(state_of(be)->stream); }

static void cuda_profile_range(struct backend *be, bool begin, const char *name)
{
    (void)be;
    if (begin) {
        cudaProfilerStart();
        RANGE_PUSH(name);
    } else {
        RANGE_POP();
        cudaProfilerStop();
    }
}

static const struct backend_ops cuda_ops = {
    .close = cuda_close,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .free_bytes = backend_free_bytes_cuda,
    .upload = cuda_upload,
    .download = cuda_download,
    .fill = cuda_fill,
    .round = cuda_round,
    .copy = cuda_copy,
    .settle = cuda_settle,
    .own_threads = cuda_own_threads,
    .look = cuda_look,
    .hold = cuda_hold,
    .pattern = cuda_pattern,
    .count_mismatch = cuda_count_mismatch,
    .flip = cuda_flip,
    .digest = cuda_digest,
    .compare = cuda_compare,
    .reference_workspace = cuda_reference_workspace,
    .reference = cuda_reference,
    .quantise_room = backend_quantise_room_cuda,
    .launch = cuda_launch,
    .capture = cuda_capture,
    .uncapture = cuda_uncapture,
    .make_flush = cuda_make_flush,
    .sample = cuda_sample,
    .repeat = cuda_repeat,
    .passes = cuda_passes,
    .gemm_prepare = cuda_gemm_prepare,
    .read_prepare = cuda_read_prepare,
    .copy_gbps = cuda_copy_gbps,
    .profile_range = cuda_profile_range,
};

static enum attn_status open_resources(struct backend *be, struct attn_message *why)
{
    struct cuda_state *s = be->state;
    TRY_CUDA(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    TRY_CUDA(cudaEventCreate(&s->start));
    TRY_CUDA(cudaEventCreate(&s->stop));
    for (int i = 0; i <= PASSES_MAX; i++)
        TRY_CUDA(cudaEventCreate(&s->pass_events[i]));
    TRY_CUDA(cudaMalloc((void **)&s->counters, COUNTERS * sizeof *s->counters));
    return gate_make(&s->gate, s->counters, s->stream, why);
}

enum attn_status backend_open_cuda(struct backend *be, int ordinal, struct attn_message *why)
{
    int count = 0;
    memset(be, 0, sizeof *be);
    TRY(backend_count_cuda(&count, why));
    if (ordinal >= count) {
        snprintf(why->text, sizeof why->text, "cuda:%d: there are %d CUDA devices, numbered from 0", ordinal, count);
        return ATTN_ERROR;
    }
    TRY_CUDA(cudaSetDevice(ordinal));
    enum attn_status status = backend_describe_cuda(be, ordinal, why);
    if (status != ATTN_OK)
        return status;
    be->ops = &cuda_ops;
    be->state = xcalloc(1, sizeof(struct cuda_state));
    state_of(be)->random = number_secret();
    status = open_resources(be, why);
    if (status == ATTN_OK)
        return ATTN_OK;
    if (strstr(why->text, "cudaErrorNoKernelImageForDevice") || strstr(why->text, "cudaErrorInvalidDeviceFunction"))
        snprintf(why->text, sizeof why->text, "cuda:%d (%s, sm_%d): this build has no code for its architecture",
                 ordinal, be->info.name, be->device.sm);
    cuda_close(be);
    return ATTN_ERROR;
}
