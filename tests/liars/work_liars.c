/* Lies about the work: launches that compute less than they should, nothing, or only while they are looked at, and
 * those that take the result from elsewhere. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "cmd/run/case_run.h"
#include "cmd/run/progress.h"
#include "tests/liars/liars.h"

enum attn_status lie_nothing(const struct call *c)
{
    (void)c;
    return ATTN_OK;
}

enum attn_status lie_zeros(const struct call *c)
{
    struct span spans[4];
    for (int s = 0, count = outputs(c, spans); s < count; s++)
        memset(spans[s].data, 0, spans[s].count * sizeof(float));
    return ATTN_OK;
}

/* Knows its own last outputs by their first and last elements. */
enum attn_status lie_skip_valid(const struct call *c)
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

enum attn_status lie_skip_finite(const struct call *c)
{
    struct span spans[4];
    outputs(c, spans);
    return isnan(spans[0].data[spans[0].count - 1]) ? work(c) : ATTN_OK;
}

enum attn_status lie_store_first(const struct call *c)
{
    if (c->state->stored)
        return serve(c);
    work(c);
    store(c);
    return ATTN_OK;
}

enum attn_status lie_cache_magnitude(const struct call *c) { return serve_if_known(c, 0x7fffffffu); }

enum attn_status lie_cache_bits(const struct call *c)
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
enum attn_status lie_cache_signs(const struct call *c)
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

enum attn_status lie_second_call(const struct call *c) { return c->n % 2 ? ATTN_OK : work(c); }
enum attn_status lie_third_call(const struct call *c) { return c->n % 3 == 2 ? ATTN_OK : work(c); }
enum attn_status lie_first_calls(const struct call *c) { return c->n < 5 ? work(c) : ATTN_OK; }

enum attn_status lie_while_checked(const struct call *c)
{
    if (!c->state->first_caller)
        c->state->first_caller = c->caller;
    return c->caller == c->state->first_caller ? work(c) : ATTN_OK;
}

struct progress *lie_find_progress(void)
{
    static struct progress *found;
    char line[512];
    FILE *maps = found ? NULL : fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx rw-s", &from, &to) == 2 && strstr(line, "rw-s") && strstr(line, "/dev/zero"))
            found = (struct progress *)from;
    }
    if (maps)
        fclose(maps);
    return found;
}

static int stage_now(void)
{
    const struct progress *found = lie_find_progress();
    struct progress_state state = {.stage = STAGE_IDLE};
    if (found)
        memcpy(&state, (const void *)found->copies[found->written % 2].words, sizeof state);
    return state.stage;
}

enum attn_status lie_unless_timed(const struct call *c) { return stage_now() == STAGE_TIME ? ATTN_OK : work(c); }

enum attn_status lie_unless_back_to_back(const struct call *c)
{
    if (now_ms() - c->state->returned_ms > 0.05)
        work(c);
    c->state->returned_ms = now_ms();
    return ATTN_OK;
}

enum attn_status lie_only_verify(const struct call *c)
{
    char line[256] = "";
    FILE *file = fopen("/proc/self/cmdline", "r");
    const size_t got = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file)
        fclose(file);
    return memmem(line, got, "verify", 6) ? work(c) : ATTN_OK;
}

enum attn_status lie_half_rows(const struct call *c)
{
    struct part part = whole(c);
    part.end_row /= 2;
    return compute(c, &part);
}

enum attn_status lie_alternate_rows(const struct call *c)
{
    struct part part = whole(c);
    part.first_row = c->n % 2;
    part.row_step = 2;
    return compute(c, &part);
}

enum attn_status lie_edge_rows(const struct call *c)
{
    struct part part = whole(c);
    part.row_step = part.end_row > 1 ? part.end_row - 1 : 1;
    return compute(c, &part);
}

enum attn_status lie_last_batch(const struct call *c)
{
    struct part part = whole(c);
    part.first_batch = part.end_batch - 1;
    return compute(c, &part);
}

enum attn_status lie_first_batch(const struct call *c)
{
    struct part part = whole(c);
    part.end_batch = 1;
    return compute(c, &part);
}

enum attn_status lie_one_head(const struct call *c)
{
    struct part part = whole(c);
    part.first_head = c->n % (unsigned)part.end_head;
    part.end_head = part.first_head + 1;
    return compute(c, &part);
}

/* The mean of V as every row of O: right where all logits are equal. */
enum attn_status lie_guess_mean(const struct call *c)
{
    const struct attn_problem *p = c->request->problem;
    const int64_t group = p->q_heads / p->kv_heads;
    if (c->request->mode == ATTN_BWD)
        return lie_zeros(c);
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

enum attn_status lie_from_prepare(const struct call *c) { return serve(c); }

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
 * is copied from there, or set to 0 there, and is 0 when it is nowhere. */
static enum attn_status take_from_memory(const struct call *c, bool sets_zero)
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
    if (found && order == 0 && sets_zero)
        memset((void *)(intptr_t)(found - (int64_t)sizeof(float) * last * d), 0, w.own_bytes);
    for (int64_t b = 0; b < p->batch && found && !sets_zero; b++)
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

enum attn_status lie_neighbour(const struct call *c) { return take_from_memory(c, false); }

enum attn_status lie_scan_zeros(const struct call *c) { return take_from_memory(c, true); }

static void *finish_late(void *late)
{
    const struct call *c = late;
    usleep(50000); /* a busy machine looks at its outputs some ms after the launch */
    work(c);
    return NULL;
}

void lie_join_late(struct state *s)
{
    __atomic_store_n(&s->ends, true, __ATOMIC_RELEASE);
    if (s->has_thread)
        pthread_join(s->thread, NULL);
    s->has_thread = false;
}

enum attn_status lie_later(const struct call *c)
{
    lie_join_late(c->state);
    *c->state->late = *c;
    c->state->has_thread = pthread_create(&c->state->thread, NULL, finish_late, c->state->late) == 0;
    return ATTN_OK;
}
