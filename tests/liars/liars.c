/* CPU implementations that lie, loaded with --impl-lib, and one that does not: `honest`.
 *
 * All of them can compute attention (plain loops, fp32), and each has one function that says what it does instead. What
 * the program must make of each is in verdicts.txt; tests/cli/liars.sh runs them. liars_cuda.cu has those that need a
 * device. Only for short problems: a launch at 64 rows takes about a millisecond.
 *
 * With LIARS_NAME in the environment the table has one row, whose name is the lie.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "cmd/run/case_run.h"
#include "cmd/run/progress.h"
#include "kernels/attention.h"

/* ---- the honest computation ---- */

enum { MAX_KEYS = 4096 };

/* What one liar keeps between launches, as its plan. */
struct state {
    unsigned calls;
    float *stored; /* outputs of an earlier launch, one after the other */
    float *stored_inputs;
    uint64_t hash;
    unsigned served; /* launches that did not compute; some liars tell their number at the end */
    const char *name;
    const void *first_caller;
    double returned_ms; /* when the last launch ended */
    pthread_t thread;
    bool has_thread;
    bool tells_served;
    struct call *late;
};

/* The arguments of a launch; `n` is its number since prepare. */
struct call {
    const struct attn_request *request;
    const struct attn_tensors *t;
    const struct attn_run *run;
    struct attn_message *why;
    struct state *state;
    unsigned n;
    const void *caller;
};

/* The results that a launch stores: of these batches, heads and rows (of O, LSE and dQ; dK and dV whole). */
struct part {
    int64_t first_batch, end_batch, first_head, end_head, first_row, end_row, row_step;
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static float *row_of(const struct attn_tensor *t, int64_t b, int64_t h, int64_t i)
{
    return (float *)t->data + b * t->stride_batch + h * t->stride_head + i * t->stride_row;
}

static float dot(const float *a, const float *b, int64_t count)
{
    float sum = 0;
    for (int64_t c = 0; c < count; c++)
        sum += a[c] * b[c];
    return sum;
}

static void add_scaled(float *to, float factor, const float *from, int64_t count)
{
    for (int64_t c = 0; c < count; c++)
        to[c] += factor * from[c];
}

static void forward_row(const struct call *c, int64_t b, int64_t h, int64_t i)
{
    const struct attn_problem *p = c->request->problem;
    const int64_t kv = h / (p->q_heads / p->kv_heads);
    float s[MAX_KEYS], max = -INFINITY, sum = 0, *o = row_of(&c->t->o, b, h, i);
    int64_t first, last;
    attn_visible(p, i, &first, &last);
    for (int64_t j = first; j <= last; j++) {
        s[j] = p->scale * dot(row_of(&c->t->q, b, h, i), row_of(&c->t->k, b, kv, j), p->head_dim);
        max = fmaxf(max, s[j]);
    }
    memset(o, 0, sizeof(float) * (size_t)p->head_dim);
    for (int64_t j = first; j <= last; j++) {
        const float probability = expf(s[j] - max);
        sum += probability;
        add_scaled(o, probability, row_of(&c->t->v, b, kv, j), p->head_dim);
    }
    for (int64_t n = 0; n < p->head_dim && sum > 0; n++)
        o[n] /= sum;
    c->t->lse[(b * p->q_heads + h) * p->q_len + i] = sum > 0 ? max + logf(sum) : -INFINITY;
}

static void backward_row(const struct call *c, int64_t b, int64_t h, int64_t i, bool stores_dq)
{
    const struct attn_problem *p = c->request->problem;
    const int64_t kv = h / (p->q_heads / p->kv_heads), d = p->head_dim;
    const float *q = row_of(&c->t->q, b, h, i), *dout = row_of(&c->t->dout, b, h, i);
    const float delta = dot(dout, row_of(&c->t->o, b, h, i), d), lse = c->t->lse[(b * p->q_heads + h) * p->q_len + i];
    float *dq = row_of(&c->t->dq, b, h, i);
    int64_t first, last;
    attn_visible(p, i, &first, &last);
    if (stores_dq)
        memset(dq, 0, sizeof(float) * (size_t)d);
    for (int64_t j = first; j <= last; j++) {
        const float *k = row_of(&c->t->k, b, kv, j);
        const float probability = expf(p->scale * dot(q, k, d) - lse);
        const float ds = p->scale * probability * (dot(dout, row_of(&c->t->v, b, kv, j), d) - delta);
        add_scaled(row_of(&c->t->dv, b, kv, j), probability, dout, d);
        add_scaled(row_of(&c->t->dk, b, kv, j), ds, q, d);
        if (stores_dq)
            add_scaled(dq, ds, k, d);
    }
}

static struct part whole(const struct call *c)
{
    const struct attn_problem *p = c->request->problem;
    return (struct part){0, p->batch, 0, p->q_heads, 0, p->q_len, 1};
}

static bool has_row(const struct part *part, int64_t b, int64_t h, int64_t i)
{
    return b >= part->first_batch && b < part->end_batch && h >= part->first_head && h < part->end_head &&
           i >= part->first_row && i < part->end_row && (i - part->first_row) % part->row_step == 0;
}

static enum attn_status compute(const struct call *c, const struct part *part)
{
    const struct attn_problem *p = c->request->problem;
    const bool is_forward = c->request->mode == ATTN_FWD;
    for (int64_t b = 0; b < p->batch && !is_forward; b++)
        for (int64_t h = 0; h < p->kv_heads; h++)
            for (int64_t j = 0; j < p->kv_len; j++) {
                memset(row_of(&c->t->dk, b, h, j), 0, sizeof(float) * (size_t)p->head_dim);
                memset(row_of(&c->t->dv, b, h, j), 0, sizeof(float) * (size_t)p->head_dim);
            }
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < p->q_len; i++)
                if (!is_forward)
                    backward_row(c, b, h, i, has_row(part, b, h, i));
                else if (has_row(part, b, h, i))
                    forward_row(c, b, h, i);
    return ATTN_OK;
}

static enum attn_status work(const struct call *c)
{
    const struct part all = whole(c);
    return compute(c, &all);
}

/* ---- tensors as runs of floats: without gaps in every problem that liars.sh asks for ---- */

struct span {
    float *data;
    size_t count;
};

static size_t query_floats(const struct attn_problem *p)
{
    return (size_t)(p->batch * p->q_heads * p->q_len * p->head_dim);
}
static size_t key_floats(const struct attn_problem *p)
{
    return (size_t)(p->batch * p->kv_heads * p->kv_len * p->head_dim);
}
static size_t rows(const struct attn_problem *p) { return (size_t)(p->batch * p->q_heads * p->q_len); }

static int outputs(const struct call *c, struct span *spans)
{
    const struct attn_problem *p = c->request->problem;
    if (c->request->mode == ATTN_FWD) {
        spans[0] = (struct span){c->t->o.data, query_floats(p)};
        spans[1] = (struct span){c->t->lse, rows(p)};
        return 2;
    }
    spans[0] = (struct span){c->t->dq.data, query_floats(p)};
    spans[1] = (struct span){c->t->dk.data, key_floats(p)};
    spans[2] = (struct span){c->t->dv.data, key_floats(p)};
    return 3;
}

static int inputs(const struct call *c, struct span *spans)
{
    const struct attn_problem *p = c->request->problem;
    spans[0] = (struct span){c->t->q.data, query_floats(p)};
    spans[1] = (struct span){c->t->k.data, key_floats(p)};
    spans[2] = (struct span){c->t->v.data, key_floats(p)};
    if (c->request->mode == ATTN_FWD)
        return 3;
    spans[3] = (struct span){c->t->dout.data, query_floats(p)};
    return 4;
}

static float *packed(const struct span *spans, int count)
{
    size_t floats = 0, at = 0;
    for (int s = 0; s < count; s++)
        floats += spans[s].count;
    float *copy = malloc(floats * sizeof *copy);
    if (!copy)
        abort();
    for (int s = 0; s < count; at += spans[s++].count)
        memcpy(copy + at, spans[s].data, spans[s].count * sizeof *copy);
    return copy;
}

static void store(const struct call *c)
{
    struct span spans[4];
    free(c->state->stored);
    c->state->stored = packed(spans, outputs(c, spans));
}

static enum attn_status serve(const struct call *c)
{
    struct span spans[4];
    const int count = outputs(c, spans);
    size_t at = 0;
    for (int s = 0; s < count; at += spans[s++].count)
        memcpy(spans[s].data, c->state->stored + at, spans[s].count * sizeof(float));
    c->state->served++;
    return ATTN_OK;
}

/* FNV-1a over the words of all inputs, each with `mask` applied: without the sign bit it knows magnitudes only. */
static uint64_t hash_inputs(const struct call *c, uint32_t mask)
{
    struct span spans[4];
    const int count = inputs(c, spans);
    uint64_t hash = 14695981039346656037u;
    for (int s = 0; s < count; s++)
        for (size_t n = 0; n < spans[s].count; n++) {
            uint32_t word;
            memcpy(&word, &spans[s].data[n], sizeof word);
            hash = (hash ^ (word & mask)) * 1099511628211u;
        }
    return hash;
}

static enum attn_status serve_if_known(const struct call *c, uint32_t mask)
{
    const uint64_t hash = hash_inputs(c, mask);
    if (c->state->stored && c->state->hash == hash)
        return serve(c);
    work(c);
    store(c);
    c->state->hash = hash;
    return ATTN_OK;
}

/* ---- lies about the work ---- */

static enum attn_status nothing(const struct call *c)
{
    (void)c;
    return ATTN_OK;
}

static enum attn_status zeros(const struct call *c)
{
    struct span spans[4];
    for (int s = 0, count = outputs(c, spans); s < count; s++)
        memset(spans[s].data, 0, spans[s].count * sizeof(float));
    return ATTN_OK;
}

/* Knows its own last outputs by their first and last elements. */
static enum attn_status skip_valid(const struct call *c)
{
    struct span spans[4];
    const int count = outputs(c, spans);
    bool same = c->state->stored != NULL;
    size_t at = 0;
    for (int s = 0; s < count && same; at += spans[s++].count)
        same = !memcmp(spans[s].data, c->state->stored + at, sizeof(float)) &&
               !memcmp(&spans[s].data[spans[s].count - 1], &c->state->stored[at + spans[s].count - 1], sizeof(float));
    if (same)
        return ATTN_OK;
    work(c);
    store(c);
    return ATTN_OK;
}

static enum attn_status skip_finite(const struct call *c)
{
    struct span spans[4];
    outputs(c, spans);
    return isnan(spans[0].data[spans[0].count - 1]) ? work(c) : ATTN_OK;
}

static enum attn_status store_first(const struct call *c)
{
    if (c->state->stored)
        return serve(c);
    work(c);
    store(c);
    return ATTN_OK;
}

static enum attn_status cache_magnitude(const struct call *c) { return serve_if_known(c, 0x7fffffffu); }

static enum attn_status cache_bits(const struct call *c)
{
    c->state->tells_served = true;
    return serve_if_known(c, 0xffffffffu);
}

/* Multiplies each column of a stored output by the sign that the column of an input got since. */
static void flip_columns(const struct span *output, const float *input, const float *input_before, int64_t head_dim)
{
    for (size_t n = 0; n < output->count; n++) {
        const size_t column = n % (size_t)head_dim;
        if (signbit(input[column]) != signbit(input_before[column]))
            output->data[n] = -output->data[n];
    }
}

/* Knows how the inputs are changed between samples, and undoes it. */
static enum attn_status cache_signs(const struct call *c)
{
    const struct attn_problem *p = c->request->problem;
    const uint64_t hash = hash_inputs(c, 0x7fffffffu);
    struct span in[4], out[4];
    const int count = inputs(c, in);
    outputs(c, out);
    if (!c->state->stored || c->state->hash != hash) {
        work(c);
        store(c);
        free(c->state->stored_inputs);
        c->state->stored_inputs = packed(in, count);
        c->state->hash = hash;
        return ATTN_OK;
    }
    const float *q_before = c->state->stored_inputs, *v_before = q_before + in[0].count + in[1].count;
    serve(c);
    if (c->request->mode == ATTN_FWD) {
        flip_columns(&out[0], in[2].data, v_before, p->head_dim);
    } else {
        flip_columns(&out[0], in[0].data, q_before, p->head_dim);
        flip_columns(&out[1], in[0].data, q_before, p->head_dim);
        flip_columns(&out[2], in[2].data, v_before, p->head_dim);
    }
    return ATTN_OK;
}

static enum attn_status second_call(const struct call *c) { return c->n % 2 ? ATTN_OK : work(c); }
static enum attn_status third_call(const struct call *c) { return c->n % 3 == 2 ? ATTN_OK : work(c); }
static enum attn_status first_calls(const struct call *c) { return c->n < 5 ? work(c) : ATTN_OK; }

static enum attn_status while_checked(const struct call *c)
{
    if (!c->state->first_caller)
        c->state->first_caller = c->caller;
    return c->caller == c->state->first_caller ? work(c) : ATTN_OK;
}

/* The worker's own note of what it is doing, in memory that it shares with its parent. */
static int stage_now(void)
{
    static const struct progress *found;
    char line[512];
    FILE *maps = found ? NULL : fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx rw-s", &from, &to) == 2 && strstr(line, "rw-s") && strstr(line, "/dev/zero"))
            found = (const struct progress *)from;
    }
    if (maps)
        fclose(maps);
    struct progress_state state = {.stage = STAGE_IDLE};
    if (found)
        memcpy(&state, (const void *)found->copies[found->written % 2].words, sizeof state);
    return state.stage;
}

static enum attn_status unless_timed(const struct call *c) { return stage_now() == STAGE_TIME ? ATTN_OK : work(c); }

static enum attn_status unless_back_to_back(const struct call *c)
{
    if (now_ms() - c->state->returned_ms > 0.05)
        work(c);
    c->state->returned_ms = now_ms();
    return ATTN_OK;
}

static enum attn_status only_verify(const struct call *c)
{
    char line[256] = "";
    FILE *file = fopen("/proc/self/cmdline", "r");
    const size_t got = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file)
        fclose(file);
    return memmem(line, got, "verify", 6) ? work(c) : ATTN_OK;
}

static enum attn_status half_rows(const struct call *c)
{
    struct part part = whole(c);
    part.end_row /= 2;
    return compute(c, &part);
}

static enum attn_status alternate_rows(const struct call *c)
{
    struct part part = whole(c);
    part.first_row = c->n % 2;
    part.row_step = 2;
    return compute(c, &part);
}

static enum attn_status edge_rows(const struct call *c)
{
    struct part part = whole(c);
    part.row_step = part.end_row > 1 ? part.end_row - 1 : 1;
    return compute(c, &part);
}

static enum attn_status last_batch(const struct call *c)
{
    struct part part = whole(c);
    part.first_batch = part.end_batch - 1;
    return compute(c, &part);
}

static enum attn_status first_batch(const struct call *c)
{
    struct part part = whole(c);
    part.end_batch = 1;
    return compute(c, &part);
}

static enum attn_status one_head(const struct call *c)
{
    struct part part = whole(c);
    part.first_head = c->n % (unsigned)part.end_head;
    part.end_head = part.first_head + 1;
    return compute(c, &part);
}

/* The mean of V as every row of O: right where all logits are equal. */
static enum attn_status guess_mean(const struct call *c)
{
    const struct attn_problem *p = c->request->problem;
    const int64_t group = p->q_heads / p->kv_heads;
    if (c->request->mode == ATTN_BWD)
        return zeros(c);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < p->q_len; i++) {
                int64_t first, last;
                float *o = row_of(&c->t->o, b, h, i);
                attn_visible(p, i, &first, &last);
                memset(o, 0, sizeof(float) * (size_t)p->head_dim);
                for (int64_t j = first; j <= last; j++)
                    add_scaled(o, 1.0f / (float)(last - first + 1), row_of(&c->t->v, b, h / group, j), p->head_dim);
                c->t->lse[(b * p->q_heads + h) * p->q_len + i] = logf((float)(last - first + 1));
            }
    return ATTN_OK;
}

static enum attn_status from_prepare(const struct call *c) { return serve(c); }

/* ---- lies that take the result from elsewhere ---- */

/* A result that is somewhere in the memory of the process: `known` floats of it, and how far behind them others lie. */
struct wanted {
    const float *known, *other;
    int64_t floats, other_floats_behind[2]; /* in the two orders of head and row */
    const char *own;                        /* the liar's output, which does not count */
    size_t own_bytes;
};

static bool is_near(const float *a, const float *b, int64_t count)
{
    bool near = true;
    for (int64_t i = 0; i < count && near; i++)
        near = fabsf(a[i] - b[i]) <= 1e-5f + 1e-5f * fabsf(b[i]);
    return near;
}

/* The order of the result that has `known` at `here`: 0, 1, or -1 when it is none. */
static int order_at(int memory, const struct wanted *w, const char *here)
{
    float other[256];
    for (int order = 0; order < 2 && w->floats <= 256; order++) {
        const off_t at = (off_t)(intptr_t)here + (off_t)sizeof(float) * w->other_floats_behind[order];
        if (pread(memory, other, sizeof(float) * (size_t)w->floats, at) == (ssize_t)sizeof(float) * w->floats &&
            is_near(other, w->other, w->floats))
            return order;
    }
    return -1;
}

/* Looks for the result in one range of addresses. */
static const char *find_in_range(int memory, unsigned long from, unsigned long to, const struct wanted *w, int *order)
{
    enum { CHUNK = 1 << 20, OVERLAP = 4096 };
    static char chunk[CHUNK];
    const ssize_t bytes = (ssize_t)sizeof(float) * w->floats;
    for (unsigned long at = from; at < to; at += CHUNK - OVERLAP) {
        const ssize_t got = pread(memory, chunk, to - at < CHUNK ? to - at : CHUNK, (off_t)at);
        for (ssize_t n = 0; n + bytes <= got; n += 16) {
            const char *here = (const char *)at + n;
            if ((here >= w->own && here < w->own + w->own_bytes) || (here + bytes > chunk && here < chunk + CHUNK) ||
                !is_near((const float *)(const void *)(chunk + n), w->known, w->floats))
                continue;
            *order = order_at(memory, w, here);
            if (*order >= 0)
                return here;
        }
    }
    return NULL;
}

static const char *find_in_memory(const struct wanted *w, int *order)
{
    const unsigned long largest = 64ul << 20;
    char line[512];
    const char *found = NULL;
    FILE *maps = fopen("/proc/self/maps", "r");
    const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    while (maps && memory >= 0 && !found && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && strstr(line, "rw-p") && to - from <= largest)
            found = find_in_range(memory, from, to, w, order);
    }
    if (maps)
        fclose(maps);
    if (memory >= 0)
        close(memory);
    return found;
}

/* Keeps two rows of O and LSE of what it computed and looks for the rows in memory (the reference, another's output): O
 * is copied from there, and is 0 when it is nowhere. */
static enum attn_status neighbour(const struct call *c)
{
    const struct attn_problem *p = c->request->problem;
    struct span spans[4];
    int order = 0;
    if (c->request->mode == ATTN_BWD)
        return work(c);
    outputs(c, spans);
    work(c);
    const int64_t last = p->q_len - 1, middle = p->q_len / 2, d = p->head_dim;
    float *known = malloc(2 * sizeof(float) * (size_t)d);
    if (!known)
        abort();
    memcpy(known, row_of(&c->t->o, 0, 0, last), sizeof(float) * (size_t)d);
    memcpy(known + d, row_of(&c->t->o, 0, 0, middle), sizeof(float) * (size_t)d);
    const struct wanted w = {.known = known,
                             .other = known + d,
                             .floats = d,
                             .other_floats_behind = {(middle - last) * d, (middle - last) * d * p->q_heads},
                             .own = (const char *)spans[0].data,
                             .own_bytes = spans[0].count * sizeof(float)};
    memset(spans[0].data, 0, w.own_bytes);
    const char *found = find_in_memory(&w, &order);
    for (int64_t b = 0; b < p->batch && found; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < p->q_len; i++) {
                const int64_t head_major = (b * p->q_heads + h) * p->q_len + i - last;
                const int64_t row_major = (b * p->q_len + i - last) * p->q_heads + h;
                memcpy(row_of(&c->t->o, b, h, i),
                       found + (int64_t)sizeof(float) * d * (order == 0 ? head_major : row_major),
                       sizeof(float) * (size_t)d);
            }
    free(known);
    return ATTN_OK;
}

static void *finish_late(void *late)
{
    const struct call *c = late;
    usleep(5000);
    work(c);
    return NULL;
}

static void join_late(struct state *s)
{
    if (s->has_thread)
        pthread_join(s->thread, NULL);
    s->has_thread = false;
}

static enum attn_status later(const struct call *c)
{
    join_late(c->state);
    *c->state->late = *c;
    c->state->has_thread = pthread_create(&c->state->thread, NULL, finish_late, c->state->late) == 0;
    return ATTN_OK;
}

/* ---- lies about memory ---- */

static enum attn_status guard_behind(const struct call *c)
{
    struct span spans[4];
    outputs(c, spans);
    work(c);
    spans[0].data[spans[0].count + 64] = 1;
    return ATTN_OK;
}

static enum attn_status guard_before(const struct call *c)
{
    struct span spans[4];
    outputs(c, spans);
    work(c);
    spans[0].data[-64] = 1;
    return ATTN_OK;
}

static enum attn_status guard_of_k(const struct call *c)
{
    struct span spans[4];
    inputs(c, spans);
    work(c);
    spans[1].data[spans[1].count + 64] = 1;
    return ATTN_OK;
}

static enum attn_status guard_restored(const struct call *c)
{
    struct span spans[4];
    outputs(c, spans);
    volatile float *outside = &spans[0].data[spans[0].count + 64];
    const float there = *outside;
    *outside = 0;
    work(c);
    *outside = there;
    return ATTN_OK;
}

static enum attn_status far_outside(const struct call *c)
{
    struct span spans[4];
    outputs(c, spans);
    work(c);
    for (size_t n = 1; n < 1 << 16; n++)
        *(volatile float *)((char *)spans[0].data + (n << 16)) = 1;
    return ATTN_OK;
}

static enum attn_status touch_input(const struct call *c)
{
    work(c);
    *(float *)c->t->q.data += 1;
    return ATTN_OK;
}

static enum attn_status touch_later(const struct call *c)
{
    work(c);
    if (c->n == 4)
        *(float *)c->t->v.data += 1;
    return ATTN_OK;
}

static enum attn_status touch_restore(const struct call *c)
{
    struct span spans[4];
    inputs(c, spans);
    for (size_t n = 0; n < spans[0].count; n++)
        spans[0].data[n] = -spans[0].data[n];
    for (size_t n = 0; n < spans[0].count; n++)
        spans[0].data[n] = -spans[0].data[n];
    return work(c);
}

static enum attn_status k_scratch(const struct call *c)
{
    struct span spans[4];
    inputs(c, spans);
    work(c);
    for (size_t n = 0; n < spans[1].count; n++)
        spans[1].data[n] *= 2;
    return ATTN_OK;
}

static size_t workspace_64(const struct attn_request *request)
{
    (void)request;
    return 64;
}

static enum attn_status workspace_short(const struct call *c)
{
    memset(c->run->workspace, 0, 256 + 64);
    return work(c);
}

static size_t workspace_most(const struct attn_request *request)
{
    (void)request;
    return SIZE_MAX - 64;
}

static enum attn_status workspace_huge(const struct call *c)
{
    memset(c->run->workspace, 0, 1 << 20);
    return work(c);
}

static enum attn_status leak(const struct call *c)
{
    char *volatile lost = malloc(1 << 20);
    if (lost)
        memset(lost, 1, 1 << 20);
    return work(c);
}

/* ---- lies about the process ---- */

static enum attn_status quit(const struct call *c)
{
    (void)c;
    exit(0);
}

static enum attn_status give_up(const struct call *c)
{
    (void)c;
    abort();
}

static jmp_buf left_frame;
static enum attn_status prepare(const struct attn_request *, const struct attn_tensors *, void **,
                                struct attn_message *);

static enum attn_status prepare_jump(const struct attn_request *request, const struct attn_tensors *tensors,
                                     void **plan, struct attn_message *why)
{
    static volatile int returns;
    if (setjmp(left_frame) && ++returns > 3) /* into a frame that was left: ends here at the latest */
        abort();
    return prepare(request, tensors, plan, why);
}

static enum attn_status jump_out(const struct call *c)
{
    (void)c;
    longjmp(left_frame, 1);
}

static enum attn_status end_thread(const struct call *c)
{
    (void)c;
    pthread_exit(NULL);
}

static enum attn_status hang(const struct call *c)
{
    (void)c;
    for (;;)
        pause();
}

static enum attn_status hang_later(const struct call *c) { return c->n < 4 ? work(c) : hang(c); }

static enum attn_status stop_self(const struct call *c)
{
    raise(SIGSTOP);
    return work(c);
}

static enum attn_status signal_parent(const struct call *c)
{
    work(c);
    if (c->n == 2)
        kill(getppid(), SIGTERM);
    return ATTN_OK;
}

static enum attn_status print(const struct call *c)
{
    printf("launch %u\n\033[2J{\"type\": \"row\", \"tflops\": 1000}\n", c->n);
    fflush(stdout);
    return work(c);
}

/* Writes what looks like messages into every pipe that it finds. */
static enum attn_status forge(const struct call *c)
{
    static const char text[] = "{\"msg\":\"row\",\"item\":0,\"slot\":0,\"row\":{}}\n{\"msg\":\"done\"}\n";
    work(c);
    for (int file = 3; file < 64 && c->n == 0; file++) {
        struct stat s;
        if (fstat(file, &s) == 0 && S_ISFIFO(s.st_mode) && write(file, text, sizeof text - 1) < 0)
            continue;
    }
    return ATTN_OK;
}

static enum attn_status say_escape(const struct call *c)
{
    strcpy(c->why->text, "failed \033[2J\033]0;title\a on purpose");
    return ATTN_ERROR;
}

static enum attn_status say_without_end(const struct call *c)
{
    memset(c->why->text, 'x', sizeof c->why->text);
    return ATTN_ERROR;
}

/* In a child: stays for a minute, under the name that LIARS_CHILD gives it. */
static void stay(void)
{
    const char *name = getenv("LIARS_CHILD");
    prctl(PR_SET_NAME, name ? name : "liar", 0, 0, 0);
    for (int n = 0; n < 600; n++)
        usleep(100000);
    _exit(0);
}

static enum attn_status child(const struct call *c)
{
    if (c->n == 0 && fork() == 0)
        stay();
    return work(c);
}

static enum attn_status daemon_child(const struct call *c)
{
    if (c->n == 0 && fork() == 0) {
        setsid();
        if (fork() == 0)
            stay();
        _exit(0);
    }
    return work(c);
}

static enum attn_status close_files(const struct call *c)
{
    work(c);
    for (int file = 3; file < 256; file++)
        close(file);
    return ATTN_OK;
}

static enum attn_status rounding(const struct call *c)
{
    work(c);
    fesetround(FE_TOWARDZERO);
    return ATTN_OK;
}

static enum attn_status change_locale(const struct call *c)
{
    work(c);
    setlocale(LC_ALL, "C.UTF-8");
    return ATTN_OK;
}

static enum attn_status change_folder(const struct call *c)
{
    work(c);
    return chdir("/") == 0 ? ATTN_OK : ATTN_ERROR;
}

static enum attn_status signals(const struct call *c)
{
    sigset_t all;
    work(c);
    signal(SIGTERM, SIG_IGN);
    signal(SIGSEGV, SIG_IGN);
    signal(SIGINT, SIG_DFL);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    return ATTN_OK;
}

static enum attn_status timer(const struct call *c)
{
    const struct itimerval soon = {.it_value = {.tv_usec = 1}};
    work(c);
    setitimer(ITIMER_REAL, &soon, NULL);
    return ATTN_OK;
}

/* ---- lies about what it is ---- */

static enum attn_status accepts_all(const struct attn_request *request, struct attn_message *why)
{
    return attn_check_attributes(request, 0, why);
}

static enum attn_status always_fails(const struct call *c)
{
    strcpy(c->why->text, "not this one");
    return ATTN_ERROR;
}

static enum attn_status fails_later(const struct call *c)
{
    work(c);
    strcpy(c->why->text, "no more");
    return c->n < 4 ? ATTN_OK : ATTN_ERROR;
}

static enum attn_status late_refusal(const struct call *c)
{
    strcpy(c->why->text, "not after all");
    return ATTN_UNSUPPORTED;
}

static enum attn_status odd_status(const struct call *c)
{
    work(c);
    strcpy(c->why->text, "a status that there is not");
    return (enum attn_status)42;
}

static enum attn_status last_bits(const struct call *c)
{
    struct span spans[4];
    outputs(c, spans);
    work(c);
    for (size_t n = 0; n < spans[0].count && c->n % 3; n++)
        spans[0].data[n] = nextafterf(spans[0].data[n], INFINITY);
    return ATTN_OK;
}

static enum attn_status sleep_first(const struct call *c)
{
    if (c->n == 0)
        usleep(50000);
    return work(c);
}

static const char *long_variant(const struct attn_request *request)
{
    static char name[100000];
    (void)request;
    memset(name, 'v', sizeof name - 1);
    return name;
}

static const char *escape_variant(const struct attn_request *request)
{
    (void)request;
    return "v\033[2J\"\n,v";
}

static enum attn_status dies_at_96(const struct call *c)
{
    if (c->request->problem->q_len == 96)
        abort();
    return work(c);
}

/* ---- the table ---- */

static enum attn_status prepare(const struct attn_request *request, const struct attn_tensors *tensors, void **plan,
                                struct attn_message *why)
{
    struct state *s = calloc(1, sizeof *s);
    (void)request, (void)tensors, (void)why;
    if (s)
        s->late = calloc(1, sizeof *s->late);
    *plan = s;
    return s && s->late ? ATTN_OK : ATTN_NO_MEMORY;
}

/* Computes the result outside the clock, into memory of its own. */
static enum attn_status prepare_result(const struct attn_request *request, const struct attn_tensors *tensors,
                                       void **plan, struct attn_message *why)
{
    const enum attn_status status = prepare(request, tensors, plan, why);
    const struct call c = {.request = request, .t = tensors, .state = *plan};
    if (status != ATTN_OK)
        return status;
    work(&c);
    store(&c);
    return ATTN_OK;
}

static void release(void *plan)
{
    struct state *s = plan;
    join_late(s);
    if (s->tells_served)
        fprintf(stderr, "%s: %u of %u launches without work\n", s->name, s->served, s->calls);
    free(s->stored);
    free(s->stored_inputs);
    free(s->late);
    free(s);
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const enum attn_status status = attn_check_attributes(request, 0, why);
    if (status != ATTN_OK || (p->dtype == ATTN_FP32 && p->kv_len <= MAX_KEYS))
        return status;
    strcpy(why->text, "takes fp32, up to 4096 keys");
    return ATTN_UNSUPPORTED;
}

static size_t no_workspace(const struct attn_request *request)
{
    (void)request;
    return 0;
}

/* X(name, what a launch does, fields that differ from those of every row) */
#define LIES(X)                                                                                                        \
    X(honest, work, )                                                                                                  \
    X(nothing, nothing, )                                                                                              \
    X(zeros, zeros, )                                                                                                  \
    X(skip_valid, skip_valid, )                                                                                        \
    X(skip_finite, skip_finite, )                                                                                      \
    X(store_first, store_first, )                                                                                      \
    X(cache_magnitude, cache_magnitude, )                                                                              \
    X(cache_bits, cache_bits, )                                                                                        \
    X(cache_signs, cache_signs, )                                                                                      \
    X(second_call, second_call, )                                                                                      \
    X(third_call, third_call, )                                                                                        \
    X(first_calls, first_calls, )                                                                                      \
    X(while_checked, while_checked, )                                                                                  \
    X(unless_timed, unless_timed, )                                                                                    \
    X(unless_back_to_back, unless_back_to_back, )                                                                      \
    X(only_verify, only_verify, )                                                                                      \
    X(half_rows, half_rows, )                                                                                          \
    X(alternate_rows, alternate_rows, )                                                                                \
    X(edge_rows, edge_rows, )                                                                                          \
    X(last_batch, last_batch, )                                                                                        \
    X(first_batch, first_batch, )                                                                                      \
    X(one_head, one_head, )                                                                                            \
    X(guess_mean, guess_mean, )                                                                                        \
    X(from_prepare, from_prepare, .prepare = prepare_result)                                                           \
    X(neighbour, neighbour, )                                                                                          \
    X(later, later, )                                                                                                  \
    X(guard_behind, guard_behind, )                                                                                    \
    X(guard_before, guard_before, )                                                                                    \
    X(guard_of_k, guard_of_k, )                                                                                        \
    X(guard_restored, guard_restored, )                                                                                \
    X(far_outside, far_outside, )                                                                                      \
    X(touch_input, touch_input, )                                                                                      \
    X(touch_later, touch_later, )                                                                                      \
    X(touch_restore, touch_restore, )                                                                                  \
    X(k_scratch, k_scratch, )                                                                                          \
    X(workspace_short, workspace_short, .workspace_bytes = workspace_64)                                               \
    X(workspace_huge, workspace_huge, .workspace_bytes = workspace_most)                                               \
    X(leak, leak, )                                                                                                    \
    X(quit, quit, )                                                                                                    \
    X(give_up, give_up, )                                                                                              \
    X(jump_out, jump_out, .prepare = prepare_jump)                                                                     \
    X(end_thread, end_thread, )                                                                                        \
    X(hang, hang, )                                                                                                    \
    X(hang_later, hang_later, )                                                                                        \
    X(stop_self, stop_self, )                                                                                          \
    X(signal_parent, signal_parent, )                                                                                  \
    X(print, print, )                                                                                                  \
    X(forge, forge, )                                                                                                  \
    X(say_escape, say_escape, )                                                                                        \
    X(say_without_end, say_without_end, )                                                                              \
    X(child, child, )                                                                                                  \
    X(daemon_child, daemon_child, )                                                                                    \
    X(close_files, close_files, )                                                                                      \
    X(rounding, rounding, )                                                                                            \
    X(change_locale, change_locale, )                                                                                  \
    X(change_folder, change_folder, )                                                                                  \
    X(signals, signals, )                                                                                              \
    X(timer, timer, )                                                                                                  \
    X(always_fails, always_fails, .accepts = accepts_all)                                                              \
    X(fails_later, fails_later, )                                                                                      \
    X(late_refusal, late_refusal, )                                                                                    \
    X(odd_status, odd_status, )                                                                                        \
    X(last_bits, last_bits, )                                                                                          \
    X(sleep_first, sleep_first, )                                                                                      \
    X(long_variant, work, .variant = long_variant)                                                                     \
    X(escape_variant, work, .variant = escape_variant)                                                                 \
    X(dies_at_96, dies_at_96, )

#define THUNK(row_name, act, ...)                                                                                      \
    static enum attn_status launch_##row_name(const struct attn_request *request, const struct attn_tensors *tensors,  \
                                              const struct attn_run *run, struct attn_message *why)                    \
    {                                                                                                                  \
        struct state *state = run->plan;                                                                               \
        state->name = "liar_" #row_name;                                                                               \
        const struct call c = {request, tensors, run, why, state, state->calls++, __builtin_return_address(0)};        \
        return act(&c);                                                                                                \
    }
LIES(THUNK)

#define ALL_FWD (ATTN_O | ATTN_LSE)
#define ALL_BWD (ATTN_DQ | ATTN_DK | ATTN_DV)
#define ROW(row_name, act, ...)                                                                                        \
    {.abi = ATTN_ABI,                                                                                                  \
     .name = "liar_" #row_name,                                                                                        \
     .summary = "see tests/liars/verdicts.txt",                                                                        \
     .platform = ATTN_CPU,                                                                                             \
     .repeatable = {ALL_FWD, ALL_BWD},                                                                                 \
     .repeatable_deterministic = {ALL_FWD, ALL_BWD},                                                                   \
     .accepts = accepts,                                                                                               \
     .workspace_bytes = no_workspace,                                                                                  \
     .prepare = prepare,                                                                                               \
     .launch = launch_##row_name,                                                                                      \
     .release = release,                                                                                               \
     __VA_ARGS__},

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init" /* the fields that differ come second */
static const struct attn_impl table[] = {LIES(ROW){.name = NULL}};
#pragma GCC diagnostic pop

/* A table whose one name has 100000 letters. */
static const struct attn_impl *table_with_long_name(void)
{
    static char name[100001];
    static struct attn_impl rows_of[2];
    memset(name, 'n', sizeof name - 1);
    rows_of[0] = table[0];
    rows_of[0].name = name;
    return rows_of;
}

/* A table whose one name has no end: behind its page there is no memory. */
static const struct attn_impl *table_without_end_of_name(void)
{
    static struct attn_impl rows_of[2];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || munmap(memory + page, page) != 0)
        return NULL;
    memset(memory, 'n', page);
    rows_of[0] = table[0];
    rows_of[0].name = memory;
    return rows_of;
}

/* LIARS_NAME=long and LIARS_NAME=endless ask for a table whose name is the lie. */
const struct attn_impl *fabench_impls(int abi)
{
    const char *name = getenv("LIARS_NAME");
    if (abi != ATTN_ABI)
        return NULL;
    if (name && !strcmp(name, "long"))
        return table_with_long_name();
    if (name && !strcmp(name, "endless"))
        return table_without_end_of_name();
    return table;
}
