/* New inputs before each sample, and a look at what the sample wrote. */
#include "cmd/run/work.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/clock.h"
#include "cmd/base/numbers.h"
#include "cmd/device/inputs.h"

static const char rule_name[] = "work";

static uint64_t next_random(struct work *work) { return number_mix(work->random += NUMBER_MIX_STEP); }

/* A number from 0 to count - 1. */
static int64_t random_below(struct work *work, int64_t count) { return (int64_t)(next_random(work) % (uint64_t)count); }

/* ---- begin and end ---- */

/* Keeps O and LSE of the inputs as they were filled. */
static enum attn_status keep_forward(struct work *work, struct attn_message *why)
{
    struct backend *be = work->backend;
    const struct buffer *o = &work->inputs->buffers[TENSOR_O], *lse = &work->inputs->buffers[TENSOR_LSE];
    TRY(buffer_alloc(be, o->bytes, &work->base_o, why));
    TRY(buffer_alloc(be, lse->bytes, &work->base_lse, why));
    TRY(be->ops->copy(be, work->base_o.data, o->data, o->bytes, why));
    return be->ops->copy(be, work->base_lse.data, lse->data, lse->bytes, why);
}

enum attn_status work_begin(struct work *work, struct backend *be, const struct plan_item *item,
                            struct tensor_set *inputs, bool cold, bool has_files, bool has_loaded,
                            struct attn_message *why)
{
    *work = (struct work){
        .backend = be, .item = item, .inputs = inputs, .cold = cold, .has_files = has_files, .has_loaded = has_loaded};
    work->began_ms = clock_ms();
    work->random = number_secret();
    return item->mode == ATTN_BWD && !has_files ? keep_forward(work, why) : ATTN_OK;
}

void work_end(struct work *work)
{
    if (!work->backend)
        return;
    buffer_free(work->backend, &work->base_o);
    buffer_free(work->backend, &work->base_lse);
}

/* ---- inputs ---- */

/* Q and K of these depend on each other, or have to be equal. */
static bool is_tied(const struct work *work, enum problem_tensor tensor)
{
    const enum fill_dist dist = work->item->dist;
    const bool is_qk = tensor == TENSOR_Q || tensor == TENSOR_K;
    return work->has_files || (is_qk && dist == FILL_PEAK) || (dist == FILL_CONSTANT && tensor != TENSOR_DO);
}

/* Are the outputs of a forward, or dQ, dK and dV for new dO alone, those of the first launch but for signs? */
static bool are_known(const struct input_signs *signs)
{
    bool has_elements = false;
    for (int i = 0; i < TENSOR_COUNT; i++)
        has_elements |= signs->elements[i] != 0;
    return !has_elements;
}

static void draw_columns(struct work *work, struct input_signs *to)
{
    const struct fill_spec spec = {.dist = work->item->dist, .logit_mean = work->item->logit_mean, .scale = 1};
    const bool has_own_column = fill_first_column(&spec, FILL_Q, 8).kind != FILL_FIRST_DRAWN;
    for (size_t i = 0; i < sizeof to->qk.negated / sizeof to->qk.negated[0]; i++) {
        const uint64_t bits = next_random(work);
        to->qk.negated[i] = (uint32_t)bits;
        to->v.negated[i] = attn_v_is_in_k(&work->item->problem) ? to->qk.negated[i] : (uint32_t)(bits >> 32);
    }
    to->qk.kept = has_own_column ? 1 : 0;
}

static void draw_elements(struct work *work, enum problem_tensor tensor, struct input_signs *to)
{
    if (!is_tied(work, tensor) && !(tensor == TENSOR_V && attn_v_is_in_k(&work->item->problem)))
        to->elements[tensor] = next_random(work) | 1;
}

static bool has_same_values(const struct input_signs *a, const struct input_signs *b)
{
    return a->elements[TENSOR_Q] == b->elements[TENSOR_Q] && a->elements[TENSOR_K] == b->elements[TENSOR_K] &&
           a->elements[TENSOR_V] == b->elements[TENSOR_V];
}

static enum attn_status flip_late(struct work *work, struct attn_message *why)
{
    const struct backend_ops *ops = work->backend->ops;
    for (int i = 0; i < work->late_count; i++) {
        const struct digest_job *late = &work->late[i];
        TRY(ops->flip(work->backend, late->tensor, late->element_bytes, late->batch, late->heads, late->len,
                      late->head_dim, &late->signs, why));
    }
    work->late_count = 0;
    return ATTN_OK;
}

static enum attn_status hold(struct work *work, bool is_wanted, struct attn_message *why)
{
    return is_wanted ? work->backend->ops->hold(work->backend, why) : ATTN_OK;
}

/* Gives the inputs these signs; in a backward O and LSE are those of Q, K and V then. holds: the device begins only
 * when the sample that follows is enqueued; a forward that is computed has to come before. */
static enum attn_status set_inputs(struct work *work, const struct input_signs *to, bool holds,
                                   struct attn_message *why)
{
    struct backend *be = work->backend;
    struct tensor_set *inputs = work->inputs;
    struct input_signs none = {.elements = {0}};
    const bool is_forward_due = work->item->mode == ATTN_BWD && !has_same_values(&inputs->signs, to);
    const bool is_base = has_same_values(to, &none);
    const bool computes = is_forward_due && !is_base;
    TRY(hold(work, holds && !computes, why));
    TRY(flip_late(work, why));
    if (is_forward_due && is_base) { /* the kept O has no signs */
        TRY(inputs_change_signs(be, work->item, inputs, &none, why));
        TRY(be->ops->copy(be, inputs->buffers[TENSOR_O].data, work->base_o.data, work->base_o.bytes, why));
        TRY(be->ops->copy(be, inputs->buffers[TENSOR_LSE].data, work->base_lse.data, work->base_lse.bytes, why));
    }
    TRY(inputs_change_signs(be, work->item, inputs, to, why));
    if (!computes)
        return ATTN_OK;
    const double start_ms = clock_ms();
    TRY(check_forward_inputs(be, work->item, inputs, why));
    be->ops->own_threads(be);
    work->forward_ms += clock_ms() - start_ms;
    return hold(work, holds, why);
}

/* What changes last, behind the flush of the caches: every WORK_LATE_ROWS-th row of each head of Q, K and V, of a
 * backward of dO alone, whose O and LSE belong to the others. */
static void draw_late(struct work *work, struct work_member *m, const struct input_signs *to)
{
    static const enum problem_tensor forward[] = {TENSOR_Q, TENSOR_K, TENSOR_V}, backward[] = {TENSOR_DO};
    const struct attn_problem *p = &work->item->problem;
    const bool is_backward = work->item->mode == ATTN_BWD;
    const enum problem_tensor *const tensors = is_backward ? backward : forward;
    struct probe *probe = &m->probe;
    probe->late_count = 0;
    for (int i = 0; i < (is_backward ? 1 : PROBE_LATE); i++) {
        const enum problem_tensor t = tensors[i];
        const struct tensor_shape s = tensor_shape_of(p, t);
        struct input_signs late = {.qk = {.kept = to->qk.kept}};
        draw_elements(work, t, &late);
        if (!late.elements[t] || s.len < WORK_LATE_LEAST)
            continue;
        struct attn_tensor rows = tensor_of(p, &work->inputs->tensors, t);
        const int64_t first = random_below(work, s.len < WORK_LATE_ROWS ? s.len : WORK_LATE_ROWS);
        const size_t bytes = attn_dtype_bytes(tensor_dtype_of(p, t));
        rows.data = (char *)rows.data + first * rows.stride_row * (int64_t)bytes;
        rows.stride_row *= WORK_LATE_ROWS;
        probe->late[probe->late_count++] =
            (struct digest_job){.tensor = rows,
                                .element_bytes = bytes,
                                .batch = s.batch,
                                .heads = s.heads,
                                .len = (s.len - first + WORK_LATE_ROWS - 1) / WORK_LATE_ROWS,
                                .head_dim = s.head_dim,
                                .signs = tensor_signs(&late, t)};
    }
    memcpy(work->late, probe->late, sizeof work->late);
    work->late_count = probe->late_count;
}

/* Whether a sample of a backward gets new Q, K and V. */
static bool renews_values(struct work *work, const struct work_member *m)
{
    const bool is_cpu = work->backend->device.platform == ATTN_CPU;
    if (m->keeps_values || is_tied(work, TENSOR_Q) || m->check.reference->count == 0)
        return false;
    if (is_cpu)
        return m->is_loaded;
    return work->forward_ms <= WORK_FORWARD_SHARE * (clock_ms() - work->began_ms) && next_random(work) % 4 == 0;
}

/* The signs of the inputs of the next launch of m. */
static struct input_signs draw_inputs(struct work *work, const struct work_member *m, bool is_timed)
{
    static const enum problem_tensor values[] = {TENSOR_Q, TENSOR_K, TENSOR_V};
    struct input_signs to = {.elements = {0}};
    const bool is_backward = work->item->mode == ATTN_BWD;
    draw_columns(work, &to);
    const bool renews = !is_backward || (is_timed && renews_values(work, m));
    for (int i = 0; i < 3; i++)
        if (renews)
            draw_elements(work, values[i], &to);
        else if (is_backward && !m->keeps_values)
            to.elements[values[i]] = work->inputs->signs.elements[values[i]];
    if (is_backward)
        draw_elements(work, TENSOR_DO, &to);
    return to;
}

static enum attn_status settle(struct work *work, bool is_before_launch, bool *is_calm, struct attn_message *why)
{
    *is_calm = true;
    if (!work->has_loaded || work->is_restless)
        return ATTN_OK;
    return work->backend->ops->settle(work->backend, WORK_SETTLE_MS, is_before_launch, is_calm, why);
}

static enum attn_status change_to(struct work *work, struct work_member *m, const struct input_signs *to, bool is_timed,
                                  struct attn_message *why)
{
    struct backend *be = work->backend;
    const struct buffer *w = m->workspace;
    bool is_calm = true;
    TRY(settle(work, is_timed, &is_calm, why));
    work->is_restless |= !is_calm;
    /* Whose threads do not rest gets its new inputs last: while the caches are flushed it cannot know them. */
    m->probe.is_flushed = work->is_restless && m->is_loaded && work->cold && be->ops->flush;
    if (m->probe.is_flushed)
        TRY(be->ops->flush(be, why));
    m->probe.is_held = is_timed && work->has_loaded && be->ops->hold;
    m->probe.late_count = 0;
    TRY(set_inputs(work, to, m->probe.is_held, why));
    if (m->probe.is_held && !are_known(to))
        draw_late(work, m, to);
    m->outputs->signs = *to;
    m->probe.seed = next_random(work);
    if (w && w->bytes)
        TRY(be->ops->pattern(be, w->data, w->bytes < WORK_FILLED ? w->bytes : WORK_FILLED, (uint32_t)next_random(work),
                             why));
    return outputs_poison(be, m->outputs, why);
}

enum attn_status work_change(struct work *work, struct work_member *m, bool is_timed, struct attn_message *why)
{
    const struct input_signs to = draw_inputs(work, m, is_timed);
    return change_to(work, m, &to, is_timed, why);
}

enum attn_status work_known(struct work *work, struct work_member *m, bool is_timed, struct attn_message *why)
{
    struct input_signs to = {.elements = {0}};
    draw_columns(work, &to);
    return change_to(work, m, &to, is_timed, why);
}

enum attn_status work_restore(struct work *work, struct attn_message *why)
{
    const struct input_signs none = {.elements = {0}};
    return set_inputs(work, &none, false, why);
}

/* ---- outputs ---- */

/* What failed already keeps its sentence: the first one says most. */
static bool has_failed(const struct work_member *m) { return !check_passed(m->tensors, *m->tensor_count); }

static void add_finding(struct work_member *m, enum problem_tensor tensor, const char *sentence)
{
    check_add_finding(m->tensors, m->tensor_count, problem_tensor_name(tensor), rule_name, sentence);
}

static int64_t elements_of(const struct work *work, enum problem_tensor tensor)
{
    const struct tensor_shape s = tensor_shape_of(&work->item->problem, tensor);
    return s.batch * s.heads * s.len * s.head_dim;
}

static void look_for_pattern(struct work *work, struct work_member *m, enum problem_tensor tensor,
                             const struct digest *now)
{
    char sentence[200];
    if (!now->all_set || has_failed(m))
        return;
    snprintf(sentence, sizeof sentence,
             "%s: in sample %lld of the rounds %llu of %lld elements still hold what was written before the launch",
             problem_tensor_name(tensor), (long long)m->samples, (unsigned long long)now->all_set,
             (long long)elements_of(work, tensor));
    add_finding(m, tensor, sentence);
}

/* Rules 1, 2 and 3 on a random block of rows of a tensor of known values whose bits may differ from launch to
 * launch. */
static enum attn_status compare_rows(struct work *work, struct work_member *m, enum problem_tensor tensor,
                                     struct attn_message *why)
{
    struct record_tensor verdict;
    const struct check_reference *reference = m->check.reference;
    const struct check_view *view = &reference->views[random_below(work, reference->count)];
    const struct tensor_shape shape = tensor_shape_of(&view->problem, tensor);
    const struct check_rows rows = {.batch = random_below(work, shape.batch),
                                    .head = random_below(work, shape.heads),
                                    .block = random_below(work, compare_blocks_per_head(shape.len))};
    TRY(check_block_of_rows(work->backend, &m->check, view, tensor, &rows, &verdict, why));
    bool holds = true;
    if (!(verdict.used <= 1)) /* a changed reference says nothing; it is found behind the rounds */
        TRY(check_reference_holds(work->backend, reference, &holds, why));
    if (!(verdict.used <= 1) && holds) {
        char sentence[sizeof verdict.failure];
        snprintf(sentence, sizeof sentence, "in sample %lld of the rounds: %.180s", (long long)m->samples,
                 verdict.failure);
        add_finding(m, tensor, sentence);
    }
    return ATTN_OK;
}

static enum attn_status compare_known(struct work *work, struct work_member *m, enum problem_tensor tensor,
                                      const struct digest *now, struct attn_message *why)
{
    char sentence[200];
    if (has_failed(m))
        return ATTN_OK;
    if (!(m->promised & problem_tensor_bit(tensor)))
        return compare_rows(work, m, tensor, why);
    if (now->hash == m->first[tensor].hash)
        return ATTN_OK;
    snprintf(sentence, sizeof sentence,
             "%s: sample %lld of the rounds has other results than the first launch, signs of columns apart",
             problem_tensor_name(tensor), (long long)m->samples);
    add_finding(m, tensor, sentence);
    return ATTN_OK;
}

/* Results on values of this launch alone, at random places. Where memory is too small for another reference, nothing is
 * judged. */
static enum attn_status judge_new_values(struct work *work, struct work_member *m, struct attn_message *why)
{
    const struct attn_problem *p = &work->item->problem;
    const double start_ms = clock_ms();
    for (int n = 0; n < WORK_PLACES && !has_failed(m) && (n == 0 || clock_ms() - start_ms < WORK_PLACES_MS); n++) {
        const struct check_place place = {.batch = random_below(work, p->batch),
                                          .head = random_below(work, p->q_heads),
                                          .row = random_below(work, INT32_MAX)};
        struct record_tensor verdicts[TENSOR_COUNT];
        int count = 0;
        const enum attn_status status =
            check_new_values(work->backend, &m->check, work->inputs, &place, verdicts, &count, why);
        if (status == ATTN_NO_MEMORY)
            return ATTN_OK;
        TRY(status);
        for (int i = 0; i < count && !has_failed(m); i++) {
            char sentence[sizeof verdicts[i].failure];
            if (verdicts[i].used <= 1)
                continue;
            snprintf(sentence, sizeof sentence,
                     "in sample %lld of the rounds, on new values, at %d times the bounds: %.300s",
                     (long long)m->samples, NEW_VALUES_FACTOR, verdicts[i].failure);
            check_add_finding(m->tensors, m->tensor_count, verdicts[i].name, rule_name, sentence);
        }
    }
    return ATTN_OK;
}

static enum attn_status judge_sample(struct work *work, struct work_member *m, struct attn_message *why)
{
    int count;
    const enum problem_tensor *outputs = problem_outputs(&work->item->problem, work->item->mode, &count);
    struct digest now[TENSOR_COUNT];
    TRY(outputs_digest(work->backend, work->item, m->outputs, now, why));
    for (int i = 0; i < count; i++)
        look_for_pattern(work, m, outputs[i], &now[outputs[i]]);
    if (!are_known(&m->outputs->signs))
        return judge_new_values(work, m, why);
    for (int i = 0; i < count; i++)
        TRY(compare_known(work, m, outputs[i], &now[outputs[i]], why));
    return ATTN_OK;
}

enum attn_status work_compare(struct work *work, struct work_member *m, double time_ms, bool *is_calm,
                              struct attn_message *why)
{
    m->samples++;
    *is_calm = true;
    m->others_ms += work->has_loaded ? m->probe.others_ms : 0;
    m->timed_ms += time_ms;
    if (m->is_loaded) {
        const double before_ms = clock_ms();
        TRY(settle(work, false, is_calm, why));
        m->waited_ms += clock_ms() - before_ms;
        work->is_restless |= !*is_calm;
    }
    if (m->check.reference->count == 0 || has_failed(m))
        return ATTN_OK;
    uint64_t seen = 0;
    TRY(work->backend->ops->look(work->backend, &m->probe, &seen, why));
    if (seen != m->probe.seen) {
        char sentence[160];
        snprintf(sentence, sizeof sentence,
                 "in sample %lld of the rounds outputs changed after the launch had returned", (long long)m->samples);
        add_finding(m, *problem_outputs(&work->item->problem, work->item->mode, &(int){0}), sentence);
        return ATTN_OK;
    }
    const double start_ms = clock_ms();
    const bool is_within = work->compared_ms <= WORK_SHARE * (start_ms - work->began_ms);
    if (m->samples > WORK_ALWAYS && (!is_within || next_random(work) & 1))
        return ATTN_OK;
    TRY(judge_sample(work, m, why));
    work->compared_ms += clock_ms() - start_ms;
    return ATTN_OK;
}

bool work_is_beside(const struct work *work, const struct work_member *m, struct attn_message *sentence)
{
    /* On a GPU the driver has threads of its own, and the CPU cannot do a kernel's work in its time. */
    if (work->backend->device.platform != ATTN_CPU || !m->is_loaded || work->is_restless || has_failed(m) ||
        m->check.reference->count == 0 ||
        m->others_ms <= WORK_OTHERS_SHARE * m->timed_ms + WORK_OTHERS_EACH_MS * (double)m->samples + WORK_OTHERS_MS)
        return false;
    snprintf(
        sentence->text, sizeof sentence->text,
        "other threads took %.4g ms of CPU time between new inputs and launches, in %lld samples whose launches took "
        "%.4g ms together",
        m->others_ms, (long long)m->samples, m->timed_ms);
    return true;
}

void work_add_finding(struct work *work, struct work_member *m, const char *sentence)
{
    add_finding(m, *problem_outputs(&work->item->problem, work->item->mode, &(int){0}), sentence);
}

/* ---- sustained regions ---- */

/* One timed launch with warm caches, on new inputs. */
static enum attn_status hot_launch(struct work *work, struct work_member *m, double *time_ms, struct attn_message *why)
{
    struct backend *be = work->backend;
    TRY(work_change(work, m, false, why));
    const enum attn_status warmed = be->ops->repeat(be, m->launcher, 1, why);
    work->launched(work->context);
    TRY(warmed);
    TRY(work_change(work, m, true, why));
    const enum attn_status status = be->ops->sample(be, m->launcher, false, time_ms, why);
    work->launched(work->context);
    return status;
}

enum attn_status work_sustained_is_possible(struct work *work, struct work_member *m, double median_ms, double pass_ms,
                                            bool *is_possible, double *least_ms, struct attn_message *why)
{
    enum { TRIES = 16 };
    const bool is_cpu = work->backend->device.platform == ATTN_CPU;
    double hot_ms = INFINITY;
    *least_ms = 0.95 * median_ms;
    for (int i = 0; i < TRIES && pass_ms < *least_ms; i++) {
        double time_ms = 0;
        TRY(hot_launch(work, m, &time_ms, why));
        hot_ms = fmin(hot_ms, time_ms);
        *least_ms = is_cpu ? 0.05 * fmin(hot_ms, median_ms) : 0.8 * hot_ms - WORK_OVERLAP_MS;
    }
    *is_possible = pass_ms >= *least_ms;
    return ATTN_OK;
}
