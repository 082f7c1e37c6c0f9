/* --counters: what the hardware counts in launches of each implementation of a problem, after its samples: as many as
 * the counters take passes (cmd/device/counters.h).
 *
 * Bytes of device memory: before each launch a buffer of EVICT_L2S times the L2 is read, so that the L2 holds nothing
 * of the launch's and nothing that is still to be written. Behind the launch half of the buffer is read again, counted
 * apart: what the launch has left in the L2 goes to memory, and belongs to it. What reading that half alone counts, is
 * taken off.
 *
 * Counters that do not see what is known are not believed: bytes, where the reads alone are fewer than half of what was
 * read; FLOPs, where a GEMM of known FLOPs, counted before the first row and launched as the rows are, has others. */
#include "cmd/run/case_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/device/buffers.h"
#include "cmd/device/counters.h"
#include "cmd/run/executed.h"

enum { EVICT_L2S = 4 };
static const size_t least_evict_bytes = (size_t)64 << 20;
static const uint32_t evict_pattern = 0x3f9d70a4u; /* not zeros, which draw less power */
#define GEMM_TOLERANCE 0.02
#define LEAST_READ 0.5 /* of what is read, as the L2 may have kept some */

/* Of this process. */
static struct {
    struct counting counting;
    bool is_open, is_refused, is_gemm_counted, are_flops_believed, counts_graphs, said_bytes;
} own;

static enum attn_status evict(struct backend *be, const void *buffer, size_t bytes, struct attn_message *why)
{
    uint64_t ignored;
    return be->ops->count_mismatch(be, buffer, bytes, evict_pattern, &ignored, why);
}

/* Says once why nothing is counted. */
static void refuse(const char *why)
{
    if (!own.is_refused)
        log_warn("--counters: %s; its columns stay empty", why);
    own.is_refused = true;
}

/* ---- one launcher ---- */

struct counting_job {
    struct problem_run *run;
    struct contender *contender;     /* NULL: the GEMM, or nothing */
    const struct launcher *launcher; /* NULL: nothing but the reads */
    void *buffer;                    /* NULL: none is read */
    size_t buffer_bytes;
};

static enum attn_status make_ready(void *context, struct attn_message *why)
{
    const struct counting_job *const job = context;
    if (job->contender) {
        case_report_stage(job->run, STAGE_CHECK, job->contender->slot);
        TRY(work_known(&job->run->work, &job->contender->work, false, why));
    }
    return job->buffer ? evict(job->run->setting->backend, job->buffer, job->buffer_bytes, why) : ATTN_OK;
}

static enum attn_status launch_it(void *context, struct attn_message *why)
{
    const struct counting_job *const job = context;
    struct backend *const be = job->run->setting->backend;
    const enum attn_status status = be->ops->launch(be, job->launcher, why);
    if (job->contender)
        case_after_call(job->run);
    return status;
}

static enum attn_status read_half(void *context, struct attn_message *why)
{
    const struct counting_job *const job = context;
    return evict(job->run->setting->backend, job->buffer, job->buffer_bytes / 2, why);
}

/* *is_counted false: the sentence in why->text says why not. */
static enum attn_status count_job(struct counting_job *job, struct counters *counters, bool *is_counted,
                                  struct attn_message *why)
{
    struct counters behind;
    const struct counted_steps steps = {.before = make_ready,
                                        .launch = job->launcher ? launch_it : read_half,
                                        .behind = job->launcher && job->buffer ? read_half : NULL,
                                        .context = job};
    TRY(counting_run(&own.counting, &steps, counters, &behind, is_counted, why));
    for (int i = COUNTER_DRAM_READ; i <= COUNTER_DRAM_WRITE && steps.behind; i++)
        counters->values[i] += behind.values[i];
    return ATTN_OK;
}

/* ---- whether they are believed ---- */

/* Counts a GEMM, from a graph where it can be captured, else or where its graph is not seen as a direct launch.
 * *is_counted false: as count_job says. */
static enum attn_status count_gemm(struct problem_run *run, bool in_graph, double *share, bool *is_counted,
                                   struct attn_message *why)
{
    struct backend *const be = run->setting->backend;
    struct attn_problem problem = run->item->problem;
    const struct attn_request request = {.problem = &problem, .device = &be->device, .mode = ATTN_FWD};
    struct launcher gemm = {.request = &request};
    struct counters counters;
    double flops = 0;
    *is_counted = true;
    problem.dtype = ATTN_BF16;
    *share = NAN;
    const enum attn_status prepared = be->ops->gemm_prepare(be, problem.dtype, &flops, why);
    if (prepared != ATTN_OK) /* no cuBLAS: nothing to compare with */
        return prepared == ATTN_ERROR || prepared == ATTN_UNSUPPORTED ? ATTN_OK : prepared;
    if (in_graph)
        TRY(be->ops->capture(be, &gemm, why));
    struct counting_job job = {.run = run, .launcher = &gemm};
    const bool is_there = !in_graph || gemm.graph;
    const enum attn_status status = is_there ? count_job(&job, &counters, is_counted, why) : ATTN_OK;
    be->ops->uncapture(be, &gemm);
    if (status == ATTN_OK && is_there && *is_counted)
        *share = counters_flop(&counters) / flops;
    return status;
}

/* *is_counted false: as count_job says. */
static enum attn_status check_gemm(struct problem_run *run, bool *is_counted, struct attn_message *why)
{
    double in_graph = NAN, direct = NAN;
    *is_counted = true;
    if (own.is_gemm_counted)
        return ATTN_OK;
    own.is_gemm_counted = true;
    TRY(count_gemm(run, true, &in_graph, is_counted, why));
    own.counts_graphs = fabs(in_graph - 1) <= GEMM_TOLERANCE;
    if (*is_counted && !own.counts_graphs)
        TRY(count_gemm(run, false, &direct, is_counted, why));
    if (!*is_counted)
        return ATTN_OK;
    own.are_flops_believed = own.counts_graphs || fabs(direct - 1) <= GEMM_TOLERANCE;
    if (isnan(direct) && !own.are_flops_believed)
        log_warn("--counters: no GEMM of known FLOPs could be counted: no flop_done, and no row is judged by it");
    else if (!own.are_flops_believed)
        log_warn("--counters: of a GEMM whose FLOPs are known %.4g of them were counted (in a graph %.4g): no "
                 "flop_done, and no row is judged by it",
                 direct, in_graph);
    else if (!own.counts_graphs)
        log_note("--counters: launches are counted one by one, as the counters do not see those of a graph (%.4g of a "
                 "GEMM)",
                 in_graph);
    return ATTN_OK;
}

/* Leaves the bytes of device memory empty where the reads that empty the L2 were not seen. */
static void check_reads(struct counters *evicting, size_t bytes)
{
    const double share = evicting->values[COUNTER_DRAM_READ] / (double)bytes;
    if (!(share < LEAST_READ))
        return;
    if (!own.said_bytes)
        log_warn("--counters: of %zu MB that were read from device memory %.4g were counted: no dram_read_gb and "
                 "dram_write_gb",
                 bytes >> 20, share * (double)(bytes >> 20));
    own.said_bytes = true;
    evicting->values[COUNTER_DRAM_READ] = evicting->values[COUNTER_DRAM_WRITE] = NAN;
}

/* ---- the implementations ---- */

/* NaN where one of them is. */
static double without(double all, double part) { return all - part < 0 ? 0 : all - part; }

static void judge_flops(struct problem_run *run, struct contender *c, const struct counters *counters)
{
    char sentence[400];
    if (!executed_allows(run->item, case_role_of(run, c) == ATTN_ROLE_NAIVE, counters, sentence, sizeof sentence))
        check_add_finding(c->tensors, &c->tensor_count, c->tensors[0].name, EXECUTED_RULE, sentence);
}

static enum attn_status count_contender(struct problem_run *run, struct contender *c, void *buffer, size_t bytes,
                                        const struct counters *evicting, bool *is_counted, struct attn_message *why)
{
    struct launcher launcher = c->launcher;
    struct counters counters;
    launcher.probe = NULL;
    launcher.graph = NULL;
    if (own.counts_graphs && c->launcher.graph) { /* another one, as the counters may not see what was made before */
        case_report_stage(run, STAGE_CHECK, c->slot);
        const enum attn_status captured = run->setting->backend->ops->capture(run->setting->backend, &launcher, why);
        case_after_call(run);
        TRY(captured);
    }
    struct counting_job job = {
        .run = run, .contender = c, .launcher = &launcher, .buffer = buffer, .buffer_bytes = bytes};
    const enum attn_status status = count_job(&job, &counters, is_counted, why);
    run->setting->backend->ops->uncapture(run->setting->backend, &launcher);
    if (status != ATTN_OK || !*is_counted)
        return status;
    for (int i = COUNTER_DRAM_READ; i <= COUNTER_DRAM_WRITE; i++)
        counters.values[i] = buffer ? without(counters.values[i], evicting->values[i]) : (double)NAN;
    if (!own.are_flops_believed)
        for (int i = 0; i < COUNTED_TYPES; i++)
            counters.values[COUNTER_FLOP + i] = NAN;
    row_counters(&c->row, &counters);
    if (c->tensor_count)
        judge_flops(run, c, &counters);
    return ATTN_OK;
}

static enum attn_status count_all(struct problem_run *run, void *buffer, size_t bytes, int *failed,
                                  struct attn_message *why)
{
    struct counters evicting = counters_none();
    bool is_counted = true;
    struct counting_job alone = {.run = run, .buffer = buffer, .buffer_bytes = bytes};
    *failed = -1;
    TRY(check_gemm(run, &is_counted, why));
    if (is_counted && buffer)
        TRY(count_job(&alone, &evicting, &is_counted, why));
    if (is_counted && buffer)
        check_reads(&evicting, bytes / 2);
    for (int i = 0; i < run->count && is_counted; i++) {
        struct contender *const c = &run->contenders[i];
        if (!c->runs || case_role_of(run, c) == ATTN_ROLE_NOTHING || run->rerun & 1u << c->slot)
            continue;
        if (run->setting->hooks.interrupted(run->setting->hooks.context))
            break;
        *failed = c->slot;
        TRY(count_contender(run, c, buffer, bytes, &evicting, &is_counted, why));
    }
    if (!is_counted)
        refuse(why->text);
    return ATTN_OK;
}

static bool open_counting(const struct case_setting *s, struct attn_message *why)
{
    if (!s->backend->info.pci_bus_id[0]) {
        refuse("a CPU has none of these counters");
        return false;
    }
    if (own.is_open || own.is_refused)
        return own.is_open && !own.is_refused;
    own.is_open = counting_begin(&own.counting, s->backend->device.ordinal, why->text, sizeof why->text);
    if (!own.is_open) {
        counting_end(&own.counting);
        refuse(why->text);
    }
    return own.is_open;
}

enum attn_status case_count(struct problem_run *run, int *failed, struct attn_message *why)
{
    struct backend *const be = run->setting->backend;
    const size_t wanted = EVICT_L2S * be->device.l2_bytes;
    const size_t bytes = wanted > least_evict_bytes ? wanted : least_evict_bytes;
    void *buffer = NULL;
    if (!run->setting->options->counters || !open_counting(run->setting, why))
        return ATTN_OK;
    if (!counting_attach(&own.counting, why->text, sizeof why->text)) {
        refuse(why->text);
        return ATTN_OK;
    }
    enum attn_status status = be->ops->alloc(be, bytes, &buffer, why);
    if (status == ATTN_NO_MEMORY) {
        log_warn("--counters: no memory for the %zu MB that empty the L2: no bytes of device memory", bytes >> 20);
        status = ATTN_OK;
    } else if (status == ATTN_OK) {
        status = be->ops->pattern(be, buffer, bytes, evict_pattern, why);
    }
    if (status == ATTN_OK)
        status = count_all(run, buffer, bytes, failed, why);
    if (buffer)
        be->ops->release(be, buffer);
    counting_detach(&own.counting);
    return status;
}
