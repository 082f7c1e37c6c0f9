/* The honest computation of the liars, and what it is stored and known by. Tensors are runs of floats without gaps in
 * every problem that liars.sh asks for. */
#ifndef FABENCH_TESTS_LIARS_H
#define FABENCH_TESTS_LIARS_H

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/attention.h"

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
    bool ends;      /* its thread is to end */
    uint64_t ready; /* the hash of the inputs whose results a thread has stored */
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
    const float *kept_p; /* P of a backward that does not compute it, [rows][kv_len] */
};

/* The results that a launch stores: of these batches, heads and rows (of O, LSE and dQ; dK and dV whole). */
struct part {
    int64_t first_batch, end_batch, first_head, end_head, first_row, end_row, row_step;
};

static inline double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static inline float *row_of(const struct attn_tensor *t, int64_t b, int64_t h, int64_t i)
{
    return (float *)t->data + b * t->stride_batch + h * t->stride_head + i * t->stride_row;
}

static inline float dot(const float *a, const float *b, int64_t count)
{
    float sum = 0;
    for (int64_t c = 0; c < count; c++)
        sum += a[c] * b[c];
    return sum;
}

static inline void add_scaled(float *to, float factor, const float *from, int64_t count)
{
    for (int64_t c = 0; c < count; c++)
        to[c] += factor * from[c];
}

static inline void forward_row(const struct call *c, int64_t b, int64_t h, int64_t i)
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

static inline void backward_row(const struct call *c, int64_t b, int64_t h, int64_t i, bool stores_dq)
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
        const int64_t at = ((b * p->q_heads + h) * p->q_len + i) * p->kv_len + j;
        const float probability = c->kept_p ? c->kept_p[at] : expf(p->scale * dot(q, k, d) - lse);
        const float ds = p->scale * probability * (dot(dout, row_of(&c->t->v, b, kv, j), d) - delta);
        add_scaled(row_of(&c->t->dv, b, kv, j), probability, dout, d);
        add_scaled(row_of(&c->t->dk, b, kv, j), ds, q, d);
        if (stores_dq)
            add_scaled(dq, ds, k, d);
    }
}

static inline struct part whole(const struct call *c)
{
    const struct attn_problem *p = c->request->problem;
    return (struct part){0, p->batch, 0, p->q_heads, 0, p->q_len, 1};
}

static inline bool has_row(const struct part *part, int64_t b, int64_t h, int64_t i)
{
    return b >= part->first_batch && b < part->end_batch && h >= part->first_head && h < part->end_head &&
           i >= part->first_row && i < part->end_row && (i - part->first_row) % part->row_step == 0;
}

static inline enum attn_status compute(const struct call *c, const struct part *part)
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

static inline enum attn_status work(const struct call *c)
{
    const struct part all = whole(c);
    return compute(c, &all);
}

static inline enum attn_status compute_with(const struct call *c, const float *kept_p)
{
    struct call with = *c;
    with.kept_p = kept_p;
    return work(&with);
}

/* ---- tensors as runs of floats: without gaps in every problem that liars.sh asks for ---- */

struct span {
    float *data;
    size_t count;
};

static inline size_t query_floats(const struct attn_problem *p)
{
    return (size_t)(p->batch * p->q_heads * p->q_len * p->head_dim);
}
static inline size_t key_floats(const struct attn_problem *p)
{
    return (size_t)(p->batch * p->kv_heads * p->kv_len * p->head_dim);
}
static inline size_t rows(const struct attn_problem *p) { return (size_t)(p->batch * p->q_heads * p->q_len); }

static inline int outputs(const struct call *c, struct span *spans)
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

static inline int inputs(const struct call *c, struct span *spans)
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

static inline float *packed(const struct span *spans, int count)
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

static inline void store(const struct call *c)
{
    struct span spans[4];
    free(c->state->stored);
    c->state->stored = packed(spans, outputs(c, spans));
}

static inline enum attn_status serve(const struct call *c)
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
static inline uint64_t hash_inputs(const struct call *c, uint32_t mask)
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

static inline enum attn_status serve_if_known(const struct call *c, uint32_t mask)
{
    const uint64_t hash = hash_inputs(c, mask);
    if (c->state->stored && c->state->hash == hash)
        return serve(c);
    work(c);
    store(c);
    c->state->hash = hash;
    return ATTN_OK;
}

/* Lies about the work (work_liars.c, time_liars.c): X(name, what a launch does, fields that differ from those of every
 * row). */
#define WORK_LIES(X) \
    X(nothing, lie_nothing, ) \
    X(zeros, lie_zeros, ) \
    X(skip_valid, lie_skip_valid, ) \
    X(skip_finite, lie_skip_finite, ) \
    X(store_first, lie_store_first, ) \
    X(cache_magnitude, lie_cache_magnitude, ) \
    X(cache_bits, lie_cache_bits, ) \
    X(cache_signs, lie_cache_signs, ) \
    X(second_call, lie_second_call, ) \
    X(third_call, lie_third_call, ) \
    X(first_calls, lie_first_calls, ) \
    X(while_checked, lie_while_checked, ) \
    X(unless_timed, lie_unless_timed, ) \
    X(unless_back_to_back, lie_unless_back_to_back, ) \
    X(only_verify, lie_only_verify, ) \
    X(half_rows, lie_half_rows, ) \
    X(alternate_rows, lie_alternate_rows, ) \
    X(edge_rows, lie_edge_rows, ) \
    X(last_batch, lie_last_batch, ) \
    X(first_batch, lie_first_batch, ) \
    X(one_head, lie_one_head, ) \
    X(guess_mean, lie_guess_mean, ) \
    X(from_prepare, lie_from_prepare, .prepare = prepare_result) \
    X(neighbour, lie_neighbour, ) \
    X(scan_zeros, lie_scan_zeros, ) \
    X(later, lie_later, ) \
    X(hash_last_rows, lie_hash_last_rows, ) \
    X(hash_then_work, lie_hash_then_work, ) \
    X(slow_on_new, lie_slow_on_new, ) \
    X(while_flushing, lie_while_flushing, ) \
    X(when_read, lie_when_read, ) \
    X(burn, lie_burn, ) \
    X(keep_p, lie_keep_p, ) \
    X(clock, lie_clock, ) \
    X(frame, lie_frame, )

#define DECLARE_LIE(name, act, ...) enum attn_status act(const struct call *);
WORK_LIES(DECLARE_LIE)

/* The worker's own note of what it is doing, in memory that it shares with its parent; NULL when it is not found. */
struct progress *lie_find_progress(void);

/* Waits for what lie_later has left at work. */
void lie_join_late(struct state *);

#endif
