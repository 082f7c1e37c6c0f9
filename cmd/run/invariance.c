/* Compares the bits of sequences in one batch with those in others. */
#include "cmd/run/invariance.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"

/* What all arrangements of a problem share. */
struct comparison {
    struct backend *backend;
    const struct invariance_request *asked;
    struct host_copy inputs, outputs; /* of the problem itself */
    struct invariance *found;
};

static const enum problem_tensor compared[] = {TENSOR_O, TENSOR_LSE};

/* ---- one launch ---- */

/* An implementation on an arrangement. */
struct trial {
    struct attn_request request;
    struct tensor_set outputs;
    struct buffer workspace;
    struct launcher launcher;
    bool is_prepared;
};

static void free_trial(struct comparison *c, struct trial *t)
{
    const struct invariance_request *asked = c->asked;
    if (t->is_prepared) {
        asked->before_call(asked->context);
        asked->impl->release(t->launcher.run.plan);
        asked->after_call(asked->context);
    }
    tensor_set_free(c->backend, &t->outputs);
    buffer_free(c->backend, &t->workspace);
}

static enum attn_status prepare(struct comparison *c, struct trial *t, struct attn_message *why)
{
    const struct invariance_request *asked = c->asked;
    if (!asked->impl->prepare)
        return ATTN_OK;
    asked->before_call(asked->context);
    const enum attn_status status = asked->impl->prepare(&t->request, &t->outputs.tensors, &t->launcher.run.plan, why);
    asked->after_call(asked->context);
    t->is_prepared = status == ATTN_OK;
    return status;
}

/* Launches the implementation on the arrangement, into poisoned outputs. */
static enum attn_status launch(struct comparison *c, const struct arrangement *made, struct trial *t,
                               struct attn_message *why)
{
    struct backend *be = c->backend;
    const struct invariance_request *asked = c->asked;
    t->request = *asked->request;
    t->request.problem = &made->item.problem;
    asked->before_call(asked->context);
    const enum attn_status accepted = asked->impl->accepts(&t->request, why);
    const size_t bytes = accepted == ATTN_OK ? asked->impl->workspace_bytes(&t->request) : 0;
    asked->after_call(asked->context);
    TRY(accepted);
    TRY(outputs_make(be, &made->item, &made->inputs, &t->outputs, why));
    TRY(buffer_alloc(be, bytes, &t->workspace, why));
    if (bytes)
        TRY(be->ops->pattern(be, t->workspace.data, bytes, POISON_PATTERN, why));
    t->launcher = (struct launcher){.impl = asked->impl, .request = &t->request, .tensors = &t->outputs.tensors};
    t->launcher.run.workspace = t->workspace.data;
    t->launcher.run.workspace_bytes = bytes;
    TRY(prepare(c, t, why));
    asked->before_call(asked->context);
    const enum attn_status status = be->ops->launch(be, &t->launcher, why);
    asked->after_call(asked->context);
    return status;
}

/* ---- comparing ---- */

/* Keeps the first row of an output that differs. */
static void add_row(struct invariance *found, enum problem_tensor tensor, int64_t b, int64_t head, int64_t row,
                    const char *batch)
{
    char *const first = tensor == TENSOR_O ? found->first_o : found->first_lse;
    if (!(found->differs & problem_tensor_bit(tensor)))
        snprintf(first, sizeof found->first_o, "%s[%" PRId64 ",%" PRId64 ",%" PRId64 "] %s",
                 problem_tensor_name(tensor), b, head, row, batch);
    found->differs |= problem_tensor_bit(tensor);
}

/* Both launches' row of one query head: sequence `b` of the problem, `at` of the arrangement. */
static void compare_row(struct comparison *c, const struct attn_problem *p, const struct attn_tensors *t, int64_t b,
                        int64_t at, int64_t head, int64_t row, const char *batch)
{
    const struct attn_problem *whole = &c->asked->item->problem;
    const struct attn_tensors *base = &c->outputs.tensors;
    const size_t bytes = attn_dtype_bytes(attn_output_dtype(p));
    const char *const o = (const char *)t->o.data + (size_t)attn_row_offset(p, t, t->o, at, head, row) * bytes;
    const char *const base_o =
        (const char *)base->o.data + (size_t)attn_row_offset(whole, base, base->o, b, head, row) * bytes;
    const float *const lse = t->lse + attn_lse_index(p, t, at, head, row);
    const float *const base_lse = base->lse + attn_lse_index(whole, base, b, head, row);
    if (memcmp(o, base_o, (size_t)attn_v_head_dim(p) * bytes) != 0)
        add_row(c->found, TENSOR_O, b, head, row, batch);
    if (memcmp(lse, base_lse, sizeof *lse) != 0)
        add_row(c->found, TENSOR_LSE, b, head, row, batch);
}

static enum attn_status compare(struct comparison *c, const struct arrangement *made, const struct trial *t,
                                const int64_t *sequences, const char *batch, struct attn_message *why)
{
    struct host_copy now;
    const struct attn_problem *p = &made->item.problem;
    const enum attn_status status = host_copy_make(c->backend, &made->item, &t->outputs, compared, 2, &now, why);
    for (int64_t b = 0; b < p->batch && status == ATTN_OK; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < attn_sequence_at(p, &now.tensors, b).q_len; i++)
                compare_row(c, p, &now.tensors, sequences[b], b, h, i, batch);
    c->found->compared += status == ATTN_OK;
    host_copy_free(&now);
    return status;
}

/* Runs the sequences as a batch and compares. */
static enum attn_status try_batch(struct comparison *c, const int64_t *sequences, int64_t count, int64_t page_size,
                                  const char *batch, struct attn_message *why)
{
    struct arrangement made;
    struct trial trial = {.is_prepared = false};
    bool exists = false;
    enum attn_status status = arrangement_make(c->backend, c->asked->item, &c->inputs, c->asked->inputs->scale_values,
                                               sequences, count, page_size, &made, &exists, why);
    if (!exists)
        return status;
    if (status == ATTN_OK)
        status = launch(c, &made, &trial, why);
    if (status == ATTN_OK)
        status = compare(c, &made, &trial, sequences, batch, why);
    free_trial(c, &trial);
    arrangement_free(c->backend, &made);
    return status == ATTN_UNSUPPORTED || status == ATTN_NO_MEMORY ? ATTN_OK : status;
}

/* ---- the arrangements ---- */

/* By Fisher and Yates. */
static void shuffle(int64_t *sequences, int64_t count, uint64_t seed)
{
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t j = (int64_t)(number_mix(seed + (uint64_t)i * NUMBER_MIX_STEP) % (uint64_t)(i + 1));
        const int64_t moved = sequences[i];
        sequences[i] = sequences[j];
        sequences[j] = moved;
    }
}

static enum attn_status try_alone(struct comparison *c, const int64_t *shuffled, struct attn_message *why)
{
    const struct attn_problem *p = &c->asked->item->problem;
    for (int64_t n = 0; n < p->batch && n < INVARIANCE_ALONE; n++) {
        const int64_t b = p->batch <= INVARIANCE_ALONE ? n : shuffled[n];
        TRY(try_batch(c, &b, 1, p->page_size, "alone", why));
    }
    return ATTN_OK;
}

static enum attn_status try_caches(struct comparison *c, const int64_t *in_order, struct attn_message *why)
{
    static const int64_t page_sizes[] = {16, 64};
    const struct attn_problem *p = &c->asked->item->problem;
    if (p->lengths != ATTN_CACHE)
        return ATTN_OK;
    if (p->page_size > 0)
        TRY(try_batch(c, in_order, p->batch, 0, "contiguous", why));
    for (int i = 0; i < 2; i++) {
        char name[24];
        snprintf(name, sizeof name, "pages %" PRId64, page_sizes[i]);
        if (page_sizes[i] != p->page_size)
            TRY(try_batch(c, in_order, p->batch, page_sizes[i], name, why));
    }
    return ATTN_OK;
}

/* `memory` has room for 3 x batch numbers, at least 3. */
static enum attn_status try_all(struct comparison *c, int64_t *memory, struct attn_message *why)
{
    const struct attn_problem *p = &c->asked->item->problem;
    const int64_t batch = p->batch, pages = p->page_size, twice = batch > 1 ? 2 * batch : 3;
    for (int64_t b = 0; b < batch; b++)
        memory[b] = b;
    shuffle(memory, batch, c->asked->item->seed);
    TRY(try_alone(c, memory, why));
    if (batch > 2)
        TRY(try_batch(c, memory, batch, pages, "shuffled", why));
    if (batch > 2)
        TRY(try_batch(c, memory, (batch + 1) / 2, pages, "half", why));
    for (int64_t b = 0; b < batch; b++)
        memory[b] = batch - 1 - b;
    if (batch > 1)
        TRY(try_batch(c, memory, batch, pages, "reversed", why));
    for (int64_t b = 0; b < twice; b++)
        memory[b] = b % batch;
    TRY(try_batch(c, memory, twice, pages, "twice", why));
    return try_caches(c, memory, why);
}

enum attn_status invariance_measure(struct backend *be, const struct invariance_request *asked,
                                    struct invariance *found, struct attn_message *why)
{
    static const enum problem_tensor inputs[] = {TENSOR_Q, TENSOR_K, TENSOR_V, TENSOR_BIAS};
    const struct attn_problem *p = &asked->item->problem;
    struct comparison c = {.backend = be, .asked = asked, .found = found};
    memset(found, 0, sizeof *found);
    if (asked->item->mode != ATTN_FWD || p->dropout != 0.0f)
        return ATTN_OK;
    int64_t *memory = xcalloc(3 * (unsigned long)p->batch, sizeof *memory);
    enum attn_status status = host_copy_make(be, asked->item, asked->inputs, inputs, 4, &c.inputs, why);
    if (status == ATTN_OK)
        status = host_copy_make(be, asked->item, asked->outputs, compared, 2, &c.outputs, why);
    if (status == ATTN_OK)
        status = try_all(&c, memory, why);
    host_copy_free(&c.inputs);
    host_copy_free(&c.outputs);
    free(memory);
    return status;
}

char *invariance_text(const struct invariance *found, char *buffer, size_t size)
{
    const char *const first = found->first_o[0] ? found->first_o : found->first_lse;
    if (found->compared == 0)
        snprintf(buffer, size, "%s", "");
    else if (found->differs)
        snprintf(buffer, size, "no %s", first);
    else
        snprintf(buffer, size, "yes");
    return buffer;
}
