/* The CPU as a device: host memory, a monotonic clock, the float64 oracle as reference. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cmd/device/backend.h"
#include "cmd/base/clock.h"
#include "cmd/base/host.h"
#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/device/others.h"
#include "reference/harness/read_host.h"

/* The caches are flushed by reading a buffer of twice the size of the last-level cache, and of at least this size. */
enum { FLUSH_BYTES_MIN = 64 << 20 };

/* Unused memory before and behind each buffer (the size of all lies at its start), so that an implementation that
 * writes too far does not hit the heap of this program. Pages that nobody touches cost nothing. */
#define MARGIN_BYTES ((size_t)1 << 16)

struct cpu_state {
    unsigned char *flush; /* NULL until a cold sample is asked for */
    size_t flush_bytes;
    void *read; /* of the read ceiling; NULL where there is none */
    uint64_t read_sum;
    int64_t l3_bytes; /* 0 = not known */
    struct others others;
    struct quiet quiet;
};

static size_t cpu_free_bytes(struct backend *be)
{
    unsigned long long available_kb = 0;
    char line[256];
    FILE *file = fopen("/proc/meminfo", "r");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &available_kb) == 1)
            break;
    fclose(file);
    const size_t available = (size_t)available_kb * 1024, most = be->device.memory_bytes;
    return most > 0 && available > most ? most : available;
}

static enum attn_status cpu_alloc(struct backend *be, size_t bytes, void **pointer, struct attn_message *why)
{
    *pointer = NULL;
    /* Linux overcommits memory: a large allocation would succeed, and the kernel would kill the process when it is
     * used. */
    if (bytes > (size_t)64 << 20 && bytes > cpu_free_bytes(be)) {
        snprintf(why->text, sizeof why->text, "out of host memory: %zu bytes", bytes);
        return ATTN_NO_MEMORY;
    }
    if (bytes <= SIZE_MAX - 2 * MARGIN_BYTES) {
        const size_t total = bytes + 2 * MARGIN_BYTES;
        void *base = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base != MAP_FAILED) {
            memcpy(base, &total, sizeof total);
            *pointer = (char *)base + MARGIN_BYTES;
            return ATTN_OK;
        }
    }
    snprintf(why->text, sizeof why->text, "out of host memory: %zu bytes", bytes);
    return ATTN_NO_MEMORY;
}

static void cpu_release(struct backend *be, void *pointer)
{
    (void)be;
    size_t total = 0;
    if (!pointer)
        return;
    void *base = (char *)pointer - MARGIN_BYTES;
    memcpy(&total, base, sizeof total);
    FABENCH_ASSERT(munmap(base, total) == 0, "the size of a buffer was overwritten");
}

static void cpu_close(struct backend *be)
{
    struct cpu_state *state = be->state;
    free(state->flush);
    cpu_release(be, state->read);
    free(state);
    be->state = NULL;
}

static enum attn_status cpu_copy(struct backend *be, void *to, const void *from, size_t bytes, struct attn_message *why)
{
    (void)be;
    (void)why;
    memcpy(to, from, bytes);
    return ATTN_OK;
}

static enum attn_status cpu_fill(struct backend *be, struct attn_tensor tensor, enum attn_dtype dtype, int64_t batch,
                                 int64_t heads, int64_t len, int64_t head_dim, const struct fill_spec *spec,
                                 enum fill_tensor id, struct attn_message *why)
{
    (void)be;
    (void)why;
    float *table = xmalloc(FILL_TABLE_SIZE * sizeof *table), gain;
    fill_table(spec->dist, id, table, &gain);
    if (id == FILL_Q && spec->logit_std > 0)
        gain = fill_logit_gain(spec, head_dim);
    fill_tensor_host(tensor, dtype, batch, heads, len, head_dim, spec->seed, id, table, gain);
    fill_stretch_host(tensor, dtype, batch, heads, len, head_dim, spec->seed, id, fill_stretch_of(spec->dist, id));
    fill_first_column_host(tensor, dtype, batch, heads, len, fill_first_column(spec, id, head_dim));
    free(table);
    return ATTN_OK;
}

static enum attn_status cpu_round(struct backend *be, const float *from, struct attn_tensor to, enum attn_dtype dtype,
                                  int64_t batch, int64_t heads, int64_t len, int64_t head_dim, struct attn_message *why)
{
    (void)be;
    (void)why;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < len; i++)
                for (int64_t c = 0; c < head_dim; c++)
                    fill_store(to.data, dtype, b * to.stride_batch + h * to.stride_head + i * to.stride_row + c,
                               from[((b * heads + h) * len + i) * head_dim + c]);
    return ATTN_OK;
}

static enum attn_status cpu_pattern(struct backend *be, void *buffer, size_t bytes, uint32_t pattern,
                                    struct attn_message *why)
{
    (void)be;
    (void)why;
    for (size_t i = 0; i < bytes; i += 4)
        memcpy((char *)buffer + i, &pattern, bytes - i < 4 ? bytes - i : 4);
    return ATTN_OK;
}

static enum attn_status cpu_count_mismatch(struct backend *be, const void *buffer, size_t bytes, uint32_t pattern,
                                           uint64_t *mismatches, struct attn_message *why)
{
    (void)be;
    (void)why;
    *mismatches = 0;
    for (size_t i = 0; i < bytes; i += 4)
        *mismatches += memcmp((const char *)buffer + i, &pattern, bytes - i < 4 ? bytes - i : 4) != 0;
    return ATTN_OK;
}

static enum attn_status cpu_settle(struct backend *be, double limit_ms, bool is_before_launch, bool *is_calm,
                                   struct attn_message *why)
{
    struct cpu_state *state = be->state;
    (void)why;
    quiet_end(&state->quiet); /* what waits for a handler is to run before */
    *is_calm = others_settle(&state->others, be->device.threads, limit_ms);
    if (is_before_launch)
        quiet_begin(&state->quiet);
    return ATTN_OK;
}

static void cpu_own_threads(struct backend *be)
{
    others_add_team(&((struct cpu_state *)be->state)->others, be->device.threads);
}

static uint64_t look_at(const struct probe *probe)
{
    uint64_t seen = 0, page = 0;
    for (int i = 0; i < probe->count; i++)
        for (size_t at = 0; at + sizeof(uint32_t) <= probe->spans[i].bytes; at += PROBE_PAGE, page++) {
            const size_t left = probe->spans[i].bytes - at, words = (left < PROBE_PAGE ? left : PROBE_PAGE) / 4;
            const size_t word = number_mix(probe->seed + page) % words;
            seen = seen * 31 + ((const volatile uint32_t *)probe->spans[i].data)[at / 4 + word];
        }
    return seen;
}

static enum attn_status cpu_look(struct backend *be, const struct probe *probe, uint64_t *seen,
                                 struct attn_message *why)
{
    (void)be;
    (void)why;
    *seen = look_at(probe);
    return ATTN_OK;
}

/* Offset of row `row` of the rows of all heads of all batches, counted in the order [batch, heads, len]. */
static int64_t row_offset(const struct attn_tensor *t, int64_t heads, int64_t len, int64_t row)
{
    return row / len / heads * t->stride_batch + row / len % heads * t->stride_head + row % len * t->stride_row;
}

/* What the elements of a row are XORed with to change their signs. Rows after the first need it only for single
 * elements. */
static void row_masks(const struct column_signs *signs, size_t element_bytes, int64_t row, int64_t head_dim,
                      uint32_t *masks)
{
    const bool has_elements = signs->seeds[0] || signs->seeds[1];
    const int64_t columns = head_dim < SIGNS_COLUMNS ? head_dim : SIGNS_COLUMNS; /* longer rows have no signs */
    uint32_t word = 0;
    for (int64_t c = 0; c < columns && (row == 0 || has_elements); c++, word >>= 1) {
        if (c == 0 || (row * head_dim + c) % 32 == 0)
            word = elements_negated(signs, row * head_dim + c, c);
        masks[c] = column_is_negated(signs, c) != (word & 1) ? sign_bit(element_bytes) : 0;
    }
}

static enum attn_status cpu_flip(struct backend *be, struct attn_tensor t, size_t element_bytes, int64_t batch,
                                 int64_t heads, int64_t len, int64_t head_dim, const struct column_signs *signs,
                                 struct attn_message *why)
{
    (void)be;
    (void)why;
    uint32_t masks[SIGNS_COLUMNS];
    for (int64_t row = 0; row < batch * heads * len; row++) {
        row_masks(signs, element_bytes, row, head_dim, masks);
        const int64_t at = row_offset(&t, heads, len, row);
        for (int64_t c = 0; c < head_dim; c++)
            if (element_bytes == 1)
                ((uint8_t *)t.data)[at + c] ^= (uint8_t)masks[c % SIGNS_COLUMNS];
            else if (element_bytes == 2)
                ((uint16_t *)t.data)[at + c] ^= (uint16_t)masks[c % SIGNS_COLUMNS];
            else
                ((uint32_t *)t.data)[at + c] ^= masks[c % SIGNS_COLUMNS];
    }
    return ATTN_OK;
}

static void digest_row(const struct digest_job *job, const uint32_t *masks, int64_t row, struct digest *digest)
{
    const uint32_t sign = sign_bit(job->element_bytes), all = sign | (sign - 1);
    const int64_t at = row_offset(&job->tensor, job->heads, job->len, row);
    for (int64_t c = 0; c < job->head_dim; c++) {
        const uint32_t value = job->element_bytes == 1   ? ((const uint8_t *)job->tensor.data)[at + c]
                               : job->element_bytes == 2 ? ((const uint16_t *)job->tensor.data)[at + c]
                                                         : ((const uint32_t *)job->tensor.data)[at + c];
        const uint32_t bits = value ^ masks[c % SIGNS_COLUMNS];
        digest->all_set += value == all;
        uint64_t z = ((uint64_t)(row * job->head_dim + c) << 32 | (bits & ~sign ? bits : 0)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 29)) * 0x94D049BB133111EBull;
        digest->hash += z ^ (z >> 32);
    }
}

static enum attn_status cpu_digest(struct backend *be, const struct digest_job *jobs, int count, struct digest *digests,
                                   struct attn_message *why)
{
    (void)be;
    (void)why;
    for (int i = 0; i < count; i++) {
        uint32_t masks[SIGNS_COLUMNS];
        digests[i] = (struct digest){0, 0};
        for (int64_t row = 0; row < jobs[i].batch * jobs[i].heads * jobs[i].len; row++) {
            row_masks(&jobs[i].signs, jobs[i].element_bytes, row, jobs[i].head_dim, masks);
            digest_row(&jobs[i], masks, row, &digests[i]);
        }
    }
    return ATTN_OK;
}

static enum attn_status cpu_compare(struct backend *be, const struct compare_job *job, struct compare_block *blocks,
                                    struct attn_message *why)
{
    (void)why;
    compare_blocks_cpu(job, blocks, be->device.threads);
    return ATTN_OK;
}

static size_t cpu_reference_workspace(struct backend *be, const struct attn_problem *p, enum attn_mode mode)
{
    (void)be;
    (void)p;
    (void)mode;
    return 0;
}

static enum attn_status cpu_reference(struct backend *be, const struct attn_problem *p, enum attn_mode mode,
                                      const struct attn_tensors *tensors, const struct reference_outputs *out,
                                      void *workspace, size_t workspace_bytes, struct attn_message *why)
{
    (void)workspace;
    (void)workspace_bytes;
    return oracle_attention(p, mode, tensors, out, be->device.threads, why);
}

static bool cpu_quantise_room(struct backend *be, const struct quantiser *q, size_t *workspace_bytes)
{
    (void)be;
    (void)q;
    *workspace_bytes = 0;
    return true;
}

static enum attn_status cpu_launch(struct backend *be, const struct launcher *l, struct attn_message *why)
{
    struct cpu_state *state = be->state;
    quiet_end(&state->quiet);
    if (l->quantiser) {
        for (int i = 0; i < l->quantiser->count; i++)
            quantise(&l->quantiser->jobs[i], be->device.threads);
        return ATTN_OK;
    }
    if (!l->impl) {
        state->read_sum =
            harness_read_host(state->read, (int64_t)(l->read_bytes / sizeof(uint64_t)), be->device.threads);
        return ATTN_OK;
    }
    return l->impl->launch(l->request, l->tensors, &l->run, why);
}

static enum attn_status cpu_capture(struct backend *be, struct launcher *l, struct attn_message *why)
{
    (void)be;
    (void)why;
    l->graph = NULL;
    return ATTN_OK;
}

static void cpu_uncapture(struct backend *be, struct launcher *l)
{
    (void)be;
    (void)l;
}

static enum attn_status cpu_make_flush(struct backend *be, struct attn_message *why)
{
    struct cpu_state *state = be->state;
    if (state->flush)
        return ATTN_OK;
    /* Twice the cache, but no more than a quarter of the memory that this process may use. */
    const size_t twice = 2 * (size_t)state->l3_bytes, most = be->device.memory_bytes / 4;
    state->flush_bytes = twice > FLUSH_BYTES_MIN ? twice : FLUSH_BYTES_MIN;
    if (most > 0 && state->flush_bytes > most)
        state->flush_bytes = most;
    state->flush = calloc(1, state->flush_bytes);
    if (state->flush)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "out of host memory: %zu bytes to flush the caches with", state->flush_bytes);
    return ATTN_NO_MEMORY;
}

static enum attn_status cpu_flush(struct backend *be, struct attn_message *why)
{
    struct cpu_state *state = be->state;
    TRY(cpu_make_flush(be, why));
    for (size_t i = 0; i < state->flush_bytes; i += 64)
        ((volatile unsigned char *)state->flush)[i]++;
    return ATTN_OK;
}

static enum attn_status cpu_sample(struct backend *be, const struct launcher *l, bool cold, double *time_ms,
                                   struct attn_message *why)
{
    struct cpu_state *state = be->state;
    if (cold && !(l->probe && l->probe->is_flushed))
        TRY(cpu_flush(be, why));
    if (l->probe)
        l->probe->others_ms = others_ms(&state->others);
    quiet_end(&state->quiet);
    const double start = clock_ms();
    const enum attn_status status = cpu_launch(be, l, why);
    if (l->probe) /* within the clock, so that nothing is computed when it is read */
        l->probe->seen = look_at(l->probe);
    *time_ms = clock_ms() - start;
    return status;
}

static enum attn_status cpu_repeat(struct backend *be, const struct launcher *l, int64_t count,
                                   struct attn_message *why)
{
    enum attn_status status = ATTN_OK;
    const double start = clock_ms();
    for (int64_t i = 0; i < count && status == ATTN_OK; i++)
        status = cpu_launch(be, l, why);
    if (l->probe)
        l->probe->repeat_ms = clock_ms() - start;
    return status;
}

struct pass_log {
    int count, max;
    char (*names)[16];
    double starts_ms[8];
};

static void pass_started(void *context, const char *name)
{
    struct pass_log *log = context;
    if (log->count == log->max)
        return;
    snprintf(log->names[log->count], 16, "%s", name);
    log->starts_ms[log->count++] = clock_ms();
}

static enum attn_status cpu_passes(struct backend *be, const struct launcher *l, int max, char names[][16],
                                   double *times_ms, int *count, struct attn_message *why)
{
    struct pass_log log = {.max = max < 8 ? max : 8, .names = names};
    struct launcher traced = *l;
    traced.run.pass = pass_started;
    traced.run.pass_context = &log;
    const enum attn_status status = cpu_launch(be, &traced, why);
    const double end = clock_ms();
    for (int i = 0; i < log.count; i++)
        times_ms[i] = (i + 1 < log.count ? log.starts_ms[i + 1] : end) - log.starts_ms[i];
    *count = log.count;
    return status;
}

static enum attn_status cpu_gemm_prepare(struct backend *be, enum attn_dtype dtype, double *flops,
                                         struct attn_message *why)
{
    (void)be;
    (void)dtype;
    (void)flops;
    snprintf(why->text, sizeof why->text, "no GEMM ceiling on the CPU");
    return ATTN_UNSUPPORTED;
}

/* Pages that were never written would all be the same one of zeros, which stays in the caches. */
static enum attn_status cpu_read_prepare(struct backend *be, size_t bytes, struct attn_message *why)
{
    struct cpu_state *state = be->state;
    cpu_release(be, state->read);
    state->read = NULL;
    if (bytes == 0)
        return ATTN_OK;
    TRY(cpu_alloc(be, bytes, &state->read, why));
    memset(state->read, 0x3f, bytes);
    return ATTN_OK;
}

static double cpu_copy_gbps(struct backend *be)
{
    (void)be;
    return NAN;
}

static void cpu_profile_range(struct backend *be, bool begin, const char *name)
{
    (void)be;
    (void)begin;
    (void)name;
}

static const struct backend_ops cpu_ops = {
    .close = cpu_close,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .free_bytes = cpu_free_bytes,
    .upload = cpu_copy,
    .download = cpu_copy,
    .fill = cpu_fill,
    .round = cpu_round,
    .copy = cpu_copy,
    .settle = cpu_settle,
    .own_threads = cpu_own_threads,
    .look = cpu_look,
    .pattern = cpu_pattern,
    .count_mismatch = cpu_count_mismatch,
    .flip = cpu_flip,
    .digest = cpu_digest,
    .compare = cpu_compare,
    .reference_workspace = cpu_reference_workspace,
    .reference = cpu_reference,
    .quantise_room = cpu_quantise_room,
    .launch = cpu_launch,
    .capture = cpu_capture,
    .uncapture = cpu_uncapture,
    .make_flush = cpu_make_flush,
    .flush = cpu_flush,
    .sample = cpu_sample,
    .repeat = cpu_repeat,
    .passes = cpu_passes,
    .gemm_prepare = cpu_gemm_prepare,
    .read_prepare = cpu_read_prepare,
    .copy_gbps = cpu_copy_gbps,
    .profile_range = cpu_profile_range,
};

/* arm64 gives no name: there the machine's architecture is used. */
static void cpu_name(char *name, size_t size)
{
    struct utsname machine;
    if (!host_cpu_name("", name, size))
        snprintf(name, size, "%s", uname(&machine) == 0 ? machine.machine : "CPU");
}

enum attn_status backend_open_cpu(struct backend *be, struct attn_message *why)
{
    const struct host_limits host = host_limits("");
    const char *limit = getenv("OMP_NUM_THREADS");
    const int wanted = host_threads_wanted(limit);
    memset(be, 0, sizeof *be);
    if (wanted < 0) {
        snprintf(why->text, sizeof why->text, "OMP_NUM_THREADS=%.40s: must be a whole number from 1 to %d", limit,
                 HOST_THREADS_MAX);
        return ATTN_ERROR;
    }
    struct cpu_state *state = xcalloc(1, sizeof *state);
    state->l3_bytes = host.l3_bytes;
    be->ops = &cpu_ops;
    be->state = state;
    be->device.platform = ATTN_CPU;
    be->device.threads = wanted > 0 ? wanted : host.threads;
    be->device.memory_bytes = (size_t)host.memory_limit;
    be->info.memory_bytes = (double)be->device.memory_bytes;
    be->info.multiprocessors = be->device.threads;
    cpu_name(be->info.name, sizeof be->info.name);
    snprintf(be->info.arch, sizeof be->info.arch, "cpu");
    return ATTN_OK;
}
