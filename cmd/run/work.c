/* Changing the inputs before each sample, and comparing what the sample wrote. */
#include "cmd/run/work.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "cmd/base/clock.h"
#include "cmd/base/numbers.h"
#include "cmd/device/backend.h"
#include "cmd/device/inputs.h"

static const char rule_name[] = "work";

static uint64_t next_random(struct work *work) { return number_mix(work->random += NUMBER_MIX_STEP); }

/* A number from 0 to count - 1. */
static int64_t random_below(struct work *work, int64_t count) { return (int64_t)(next_random(work) % (uint64_t)count); }

void work_begin(struct work *work, struct backend *be, const struct plan_item *item, struct tensor_set *inputs,
                bool cold, bool has_files)
{
    *work = (struct work){.backend = be, .item = item, .inputs = inputs, .cold = cold, .has_files = has_files};
    work->began_ms = clock_ms();
    if (getrandom(&work->random, sizeof work->random, GRND_NONBLOCK) != (ssize_t)sizeof work->random) {
        struct timespec now = {0};
        clock_gettime(CLOCK_REALTIME, &now);
        work->random = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20;
    }
}

enum attn_status work_change(struct work *work, struct tensor_set *outputs, struct attn_message *why)
{
    struct input_signs to;
    for (size_t i = 0; i < sizeof to.qk.negated / sizeof to.qk.negated[0]; i++) {
        const uint64_t bits = next_random(work);
        to.qk.negated[i] = (uint32_t)bits;
        to.v.negated[i] = attn_v_is_in_k(&work->item->problem) ? to.qk.negated[i] : (uint32_t)(bits >> 32);
    }
    TRY(inputs_change_signs(work->backend, work->item, work->inputs, &to, why));
    outputs->signs = to;
    return outputs_poison(work->backend, outputs, why);
}

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

/* Rules 1, 2 and 3 on a random block of rows of a tensor whose bits may differ from launch to launch. */
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
    if (!(verdict.used <= 1)) {
        char sentence[sizeof verdict.failure];
        snprintf(sentence, sizeof sentence, "in sample %lld of the rounds: %.180s", (long long)m->samples,
                 verdict.failure);
        add_finding(m, tensor, sentence);
    }
    return ATTN_OK;
}

static enum attn_status compare_tensor(struct work *work, struct work_member *m, enum problem_tensor tensor,
                                       const struct digest *now, struct attn_message *why)
{
    const char *name = problem_tensor_name(tensor);
    char sentence[200];
    if (now->all_set) {
        snprintf(sentence, sizeof sentence,
                 "%s: in sample %lld of the rounds %llu of %lld elements still hold what was written before the launch",
                 name, (long long)m->samples, (unsigned long long)now->all_set, (long long)elements_of(work, tensor));
        add_finding(m, tensor, sentence);
        return ATTN_OK;
    }
    if (!(m->promised & problem_tensor_bit(tensor)))
        return compare_rows(work, m, tensor, why);
    if (now->hash != m->first[tensor].hash) {
        snprintf(sentence, sizeof sentence,
                 "%s: sample %lld of the rounds has other results than the first launch, signs of columns apart", name,
                 (long long)m->samples);
        add_finding(m, tensor, sentence);
    }
    return ATTN_OK;
}

enum attn_status work_compare(struct work *work, struct work_member *m, struct attn_message *why)
{
    int count;
    const enum problem_tensor *outputs = problem_outputs(&work->item->problem, work->item->mode, &count);
    struct digest now[TENSOR_COUNT];
    const double start_ms = clock_ms();
    m->samples++;
    if (m->check.reference->count == 0 || has_failed(m))
        return ATTN_OK;
    const bool is_within = work->compared_ms <= WORK_SHARE * (start_ms - work->began_ms);
    if (m->samples > WORK_ALWAYS && (!is_within || next_random(work) & 1))
        return ATTN_OK;
    TRY(outputs_digest(work->backend, work->item, m->outputs, now, why));
    for (int i = 0; i < count && !has_failed(m); i++)
        TRY(compare_tensor(work, m, outputs[i], &now[outputs[i]], why));
    work->compared_ms += clock_ms() - start_ms;
    return ATTN_OK;
}

/* The rows of one head whose results on new values are judged: the last ones, for which every mask of the whole problem
 * is the mask of a problem with fewer queries. */
static enum attn_status judge_new_values(struct work *work, struct work_member *m, uint64_t seed,
                                         struct attn_message *why)
{
    static const struct input_signs unchanged;
    const struct attn_problem *p = &work->item->problem;
    const int64_t batch = random_below(work, p->batch), head = random_below(work, p->q_heads);
    struct record_tensor verdicts[TENSOR_COUNT];
    int count = 0;
    TRY(inputs_change_signs(work->backend, work->item, work->inputs, &unchanged, why)); /* the outputs know theirs */
    TRY(check_last_rows(work->backend, &m->check, work->inputs, batch, head, verdicts, &count, why));
    for (int i = 0; i < count && !has_failed(m); i++) {
        char sentence[sizeof verdicts[i].failure];
        if (verdicts[i].used <= 1)
            continue;
        snprintf(sentence, sizeof sentence, "on other values (--seed %llu), batch %lld, head %lld, last rows: %.150s",
                 (unsigned long long)seed, (long long)batch, (long long)head, verdicts[i].failure);
        check_add_finding(m->tensors, m->tensor_count, verdicts[i].name, rule_name, sentence);
    }
    return ATTN_OK;
}

/* Values of this seed for the inputs: all of them for a forward; dO alone for a backward, whose O and LSE belong to the
 * rest. */
static enum attn_status fill(struct work *work, uint64_t seed, struct attn_message *why)
{
    struct plan_item item = *work->item;
    item.seed = seed;
    if (item.mode == ATTN_BWD)
        return input_fill_dout(work->backend, &item, NULL, work->inputs, why);
    return inputs_fill(work->backend, &item, NULL, work->inputs, why);
}

/* One timed launch after the inputs have been filled with the values of this seed (but for a user's files) and got new
 * signs. What the host does before the launch is the same whatever the seed: on a CPU with other work to do it decides
 * how long the launch takes. */
static enum attn_status timed_launch(struct work *work, struct work_member *m, uint64_t seed, bool cold,
                                     double *time_ms, struct attn_message *why)
{
    static const struct input_signs unchanged;
    struct backend *be = work->backend;
    if (!cold) {
        TRY(work_change(work, m->outputs, why));
        const enum attn_status warmed = be->ops->repeat(be, m->launcher, 1, why);
        work->launched(work->context);
        TRY(warmed);
    }
    if (!work->has_files) {
        TRY(inputs_change_signs(be, work->item, work->inputs, &unchanged, why));
        TRY(fill(work, seed, why));
    }
    TRY(work_change(work, m->outputs, why));
    const enum attn_status status = be->ops->sample(be, m->launcher, cold, time_ms, why);
    work->launched(work->context);
    return status;
}

static uint64_t new_seed(struct work *work) { return (next_random(work) >> 32) + 1; }

static bool took_too_long(double new_ms, double other_ms) { return new_ms > WORK_FACTOR * other_ms + WORK_EXTRA_MS; }

/* Judges a launch on new values, and compares its time with the rounds'. Where the device is slower now than it was in
 * the rounds, pairs of launches show it: one on new values, one on the values of the launch before it. Which comes
 * first is drawn, so that work of others that comes and goes in step with the pairs meets both kinds. */
static enum attn_status try_new_values(struct work *work, struct work_member *m, double median_ms,
                                       struct attn_message *why)
{
    double new_ms = 0, other_ms = median_ms;
    uint64_t seed = new_seed(work);
    TRY(timed_launch(work, m, seed, work->cold, &new_ms, why));
    TRY(judge_new_values(work, m, seed, why));
    for (int i = 1; i < WORK_TRIES && !has_failed(m) && took_too_long(new_ms, other_ms); i++) {
        const bool is_new_first = next_random(work) & 1;
        for (int k = 0; k < 2; k++) {
            const bool is_new = is_new_first == (k == 0);
            double time_ms = 0;
            if (is_new)
                seed = new_seed(work);
            TRY(timed_launch(work, m, seed, work->cold, &time_ms, why));
            if (is_new)
                new_ms = fmin(new_ms, time_ms);
            else
                other_ms = fmax(other_ms, time_ms);
        }
    }
    if (has_failed(m) || !took_too_long(new_ms, other_ms))
        return ATTN_OK;
    char sentence[200];
    snprintf(sentence, sizeof sentence,
             "launches on values that it had not seen took at least %.4g ms, others at most %.4g ms", new_ms, other_ms);
    add_finding(m, *problem_outputs(&work->item->problem, work->item->mode, &(int){0}), sentence);
    return ATTN_OK;
}

enum attn_status work_on_new_values(struct work *work, struct work_member *m, double median_ms,
                                    struct attn_message *why)
{
    static const struct input_signs unchanged;
    struct backend *be = work->backend;
    TRY(inputs_change_signs(be, work->item, work->inputs, &unchanged, why));
    if (work->has_files || m->check.reference->count == 0 || has_failed(m))
        return ATTN_OK;
    TRY(try_new_values(work, m, median_ms, why));
    TRY(inputs_change_signs(be, work->item, work->inputs, &unchanged, why));
    return fill(work, work->item->seed, why);
}

enum attn_status work_sustained_is_possible(struct work *work, struct work_member *m, double median_ms, double pass_ms,
                                            bool *is_possible, double *least_ms, struct attn_message *why)
{
    const bool is_cpu = work->backend->device.platform == ATTN_CPU;
    double hot_ms = INFINITY;
    *least_ms = 0.95 * median_ms;
    for (int i = 0; i < WORK_TRIES && pass_ms < *least_ms; i++) {
        double time_ms = 0;
        TRY(timed_launch(work, m, work->item->seed, false, &time_ms, why));
        hot_ms = fmin(hot_ms, time_ms);
        *least_ms = is_cpu ? 0.05 * fmin(hot_ms, median_ms) : 0.8 * hot_ms - WORK_OVERLAP_MS;
    }
    *is_possible = pass_ms >= *least_ms;
    return ATTN_OK;
}
