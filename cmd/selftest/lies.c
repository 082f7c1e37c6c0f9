/* The lies of `fabench selftest`, and the way of a timed implementation that each of them goes. */
#include "cmd/selftest/faults.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/device/backend.h"
#include "cmd/device/inputs.h"
#include "cmd/base/clock.h"
#include "cmd/run/witness.h"
#include "cmd/run/work.h"

/* One implementation behind a lie; the plan of its launches. */
struct liar {
    const struct lies_job *job;
    const struct lie *lie;
    void *plan; /* of the implementation itself */
    const struct tensor_set *inputs;
    struct tensor_set *outputs;
    const struct attn_request *request; /* of the launch that follows */
    bool computes;                      /* the launch that follows does */
    int calls, timed, idle, untimed_idle;
    /* What it keeps. */
    const struct attn_request *first_request;
    bool has_result;
    uint64_t inputs_hash;
    struct digest digests[TENSOR_COUNT];
    void *stored[TENSOR_COUNT]; /* host memory, the outputs as a launch left them */
};

struct lie {
    const char *name;
    bool may_compute; /* at each timed launch it finds that it has to compute */
    bool has_files;   /* the inputs are taken for a user's, which keep their values */
    bool slows_clock; /* the clock that its launches are timed with shows a tenth */
    /* Sets `computes`, and where it does not, does with the outputs what the lie does instead. */
    enum attn_status (*before)(struct liar *, struct attn_message *why);
    enum attn_status (*after)(struct liar *, struct attn_message *why); /* NULL = nothing */
};

/* ---- what they do ---- */

/* Digests of the outputs as they are, signs of columns included. */
static enum attn_status digest_as_is(const struct liar *liar, struct digest *digests, struct attn_message *why)
{
    struct tensor_set as_is = *liar->outputs; /* a copy that does not own its buffers */
    as_is.signs = (struct input_signs){0};
    return outputs_digest(liar->job->backend, liar->job->item, &as_is, digests, why);
}

static enum attn_status unless_valid(struct liar *liar, struct attn_message *why)
{
    struct digest now[TENSOR_COUNT];
    TRY(digest_as_is(liar, now, why));
    liar->computes = !liar->has_result || memcmp(now, liar->digests, sizeof now);
    return ATTN_OK;
}

static enum attn_status remember_digests(struct liar *liar, struct attn_message *why)
{
    liar->has_result = true;
    return digest_as_is(liar, liar->digests, why);
}

static enum attn_status copy_stored(const struct liar *liar, struct attn_message *why)
{
    struct backend *be = liar->job->backend;
    for (int i = 0; i < TENSOR_COUNT; i++)
        if (liar->stored[i])
            TRY(be->ops->upload(be, liar->outputs->buffers[i].data, liar->stored[i], liar->outputs->buffers[i].bytes,
                                why));
    return ATTN_OK;
}

static enum attn_status store(struct liar *liar, struct attn_message *why)
{
    struct backend *be = liar->job->backend;
    for (int i = 0; i < TENSOR_COUNT; i++) {
        const struct buffer *buffer = &liar->outputs->buffers[i];
        if (!buffer->base)
            continue;
        if (!liar->stored[i])
            liar->stored[i] = xmalloc(buffer->bytes);
        TRY(be->ops->download(be, liar->stored[i], buffer->data, buffer->bytes, why));
    }
    liar->has_result = true;
    return ATTN_OK;
}

static enum attn_status unless_known(struct liar *liar, struct attn_message *why)
{
    uint64_t hash = 0;
    TRY(inputs_hash(liar->job->backend, liar->job->item, liar->inputs, &hash, why));
    liar->computes = !liar->has_result || hash != liar->inputs_hash;
    liar->inputs_hash = hash;
    return liar->computes ? ATTN_OK : copy_stored(liar, why);
}

/* Its first result was of inputs whose signs were as they had been filled. */
static enum attn_status first_result_with_signs(struct liar *liar, struct attn_message *why)
{
    struct backend *be = liar->job->backend;
    const struct attn_problem *p = &liar->job->item->problem;
    liar->computes = !liar->has_result;
    if (liar->computes)
        return ATTN_OK;
    TRY(copy_stored(liar, why));
    int count;
    const enum problem_tensor *outputs = problem_outputs(p, liar->job->item->mode, &count);
    for (int i = 0; i < count; i++) {
        const struct column_signs signs = tensor_signs(&liar->inputs->signs, outputs[i]);
        const struct tensor_shape s = tensor_shape_of(p, outputs[i]);
        TRY(be->ops->flip(be, tensor_of(p, &liar->outputs->tensors, outputs[i]),
                          attn_dtype_bytes(tensor_dtype_of(p, outputs[i])), s.batch, s.heads, s.len, s.head_dim, &signs,
                          why));
    }
    return ATTN_OK;
}

static enum attn_status every_second(struct liar *liar, struct attn_message *why)
{
    (void)why;
    liar->computes = liar->calls % 2 == 0;
    return ATTN_OK;
}

/* The checked launch, and as many as are compared in any case. */
static enum attn_status first_calls(struct liar *liar, struct attn_message *why)
{
    (void)why;
    liar->computes = liar->calls <= WORK_ALWAYS;
    return ATTN_OK;
}

/* The second timed launch is one of those that are compared in any case; all checks that follow see right results. */
static enum attn_status but_for_one(struct liar *liar, struct attn_message *why)
{
    (void)why;
    liar->computes = liar->calls != 2;
    return ATTN_OK;
}

static enum attn_status first_of_two(struct liar *liar, struct attn_message *why)
{
    (void)why;
    if (!liar->first_request)
        liar->first_request = liar->request;
    liar->computes = liar->request == liar->first_request;
    return ATTN_OK;
}

static enum attn_status always(struct liar *liar, struct attn_message *why)
{
    (void)why;
    liar->computes = true;
    return ATTN_OK;
}

static const struct lie lies[] = {
    {"lazy on valid output", true, false, false, unless_valid, remember_digests},
    {"cached by input hash", false, false, false, unless_known, store},
    {"the same, inputs of files", false, true, false, unless_known, store},
    {"first result, right signs", false, false, false, first_result_with_signs, store},
    {"every second call", false, false, false, every_second, NULL},
    {"only while checked", false, false, false, first_calls, NULL},
    {"one launch left out", false, false, false, but_for_one, NULL},
    {"first of two streams", false, false, false, first_of_two, NULL},
    {"a slow clock", false, false, true, always, NULL},
};

const struct lie *lie_at(int index) { return index < (int)(sizeof lies / sizeof lies[0]) ? &lies[index] : NULL; }

const char *lie_name(const struct lie *lie) { return lie->name; }

/* ---- between program and kernel ---- */

static enum attn_status launch_or_not(const struct attn_request *request, const struct attn_tensors *tensors,
                                      const struct attn_run *run, struct attn_message *why)
{
    const struct liar *liar = run->plan;
    struct attn_run own = *run;
    own.plan = liar->plan;
    return liar->computes ? liar->job->impl->launch(request, tensors, &own, why) : ATTN_OK;
}

static enum attn_status before_call(struct liar *liar, const struct launcher *l, struct attn_message *why)
{
    liar->request = l->request;
    liar->computes = true;
    if (liar->lie)
        TRY(liar->lie->before(liar, why));
    liar->calls++;
    liar->job->calling(liar->job->context, true);
    return ATTN_OK;
}

static enum attn_status after_call(struct liar *liar, struct attn_message *why)
{
    liar->job->calling(liar->job->context, false);
    return liar->computes && liar->lie && liar->lie->after ? liar->lie->after(liar, why) : ATTN_OK;
}

static enum attn_status sample(struct backend *be, const struct launcher *l, bool cold, double *time_ms,
                               struct attn_message *why)
{
    struct liar *liar = l->run.plan;
    (void)be;
    TRY(before_call(liar, l, why));
    liar->timed++;
    liar->idle += !liar->computes;
    TRY(liar->job->backend->ops->sample(liar->job->backend, l, cold, time_ms, why));
    return after_call(liar, why);
}

static enum attn_status repeat(struct backend *be, const struct launcher *l, int64_t count, struct attn_message *why)
{
    struct liar *liar = l->run.plan;
    const double start_ms = clock_ms();
    (void)be;
    for (int64_t i = 0; i < count; i++) {
        TRY(before_call(liar, l, why));
        liar->untimed_idle += !liar->computes;
        TRY(liar->job->backend->ops->launch(liar->job->backend, l, why));
        TRY(after_call(liar, why));
    }
    if (l->probe)
        l->probe->repeat_ms = (clock_ms() - start_ms) * (liar->lie && liar->lie->slows_clock ? 0.1 : 1);
    return ATTN_OK;
}

static enum attn_status launch(struct backend *be, const struct launcher *l, struct attn_message *why)
{
    return repeat(be, l, 1, why);
}

/* ---- the way of a timed implementation ---- */

/* One implementation on its problem. The backend is the job's, but for the functions that launch. */
struct stage {
    const struct lies_job *job;
    struct backend backend;
    struct backend_ops ops;
    /* Two equal ones in turn: the first and the second stream, of which the program has one. */
    struct attn_request requests[2];
    struct tensor_set inputs, outputs;
    struct check_reference reference;
    struct buffer workspace;
    void *plan;
    bool is_prepared;
};

static enum attn_status judge(struct stage *s, const struct work_member *m, struct attn_message *why)
{
    struct record_tensor now[RECORD_TENSORS_MAX];
    int count = 0;
    TRY(check_outputs(&s->backend, &m->check, now, &count, why));
    for (int i = 0; i < count; i++)
        if (*m->tensor_count == 0)
            m->tensors[i] = now[i];
        else
            judge_merge(&m->tensors[i], &now[i]);
    *m->tensor_count = *m->tensor_count ? *m->tensor_count : count;
    return ATTN_OK;
}

/* Rounds with one member, then the checks that follow them (cmd/run/case_time.c). */
static enum attn_status run_rounds(struct stage *s, struct work *work, struct work_member *m,
                                   const struct launcher *launchers, struct attn_message *why)
{
    struct backend *be = &s->backend;
    double time_ms = 0;
    bool is_calm = true;
    for (int i = 0; i < LIE_SAMPLES; i++) {
        TRY(work_change(work, m, true, why));
        TRY(be->ops->sample(be, &launchers[i % 2], false, &time_ms, why));
        TRY(work_compare(work, m, time_ms, &is_calm, why));
    }
    TRY(work_known(work, m, true, why));
    TRY(be->ops->sample(be, &launchers[0], false, &time_ms, why));
    TRY(judge(s, m, why));
    return work_restore(work, why);
}

/* Batches by two clocks, of which this one is the supervisor's. */
static enum attn_status try_witness(struct stage *s, struct work_member *m, double launch_ms, struct attn_message *why)
{
    struct witness witness = {0};
    char sentence[300];
    for (int i = 0; i < WITNESS_TRIES && !witness.agrees; i++) {
        const int64_t launches = witness_launches(launch_ms, i, INFINITY);
        const double start_ms = clock_ms();
        TRY(s->backend.ops->repeat(&s->backend, m->launcher, launches, why));
        const double own_ms = clock_ms() - start_ms;
        witness_add(&witness, m->probe.repeat_ms, own_ms, launches);
        launch_ms = own_ms / (double)launches;
    }
    if (witness_confirms(&witness, false, launch_ms))
        return ATTN_OK;
    witness_describe(&witness, launch_ms, sentence, sizeof sentence);
    check_add_finding(m->tensors, m->tensor_count, m->tensors[0].name, WITNESS_RULE, sentence);
    return ATTN_OK;
}

static enum attn_status time_member(struct stage *s, struct work_member *m, const struct launcher *launchers,
                                    const struct lie *lie, struct attn_message *why)
{
    struct work work;
    const bool has_files = lie && lie->has_files;
    enum attn_status status = work_begin(&work, &s->backend, s->job->item, &s->inputs, false, has_files, false, why);
    if (status == ATTN_OK)
        status = run_rounds(s, &work, m, launchers, why);
    if (status == ATTN_OK && (!lie || lie->slows_clock))
        status = try_witness(s, m, m->timed_ms / LIE_SAMPLES, why);
    work_end(&work);
    return status;
}

static enum attn_status try_liar(struct stage *s, struct liar *liar, struct lie_verdict *v, struct attn_message *why)
{
    struct backend *be = &s->backend;
    struct digest first[TENSOR_COUNT];
    struct attn_impl impl = *s->job->impl;
    struct launcher launchers[2];
    impl.launch = launch_or_not;
    for (int i = 0; i < 2; i++)
        launchers[i] = (struct launcher){
            .impl = &impl,
            .request = &s->requests[i],
            .tensors = &s->outputs.tensors,
            .run = {.workspace = s->workspace.data, .workspace_bytes = s->workspace.bytes, .plan = liar}};
    struct work_member m = {.launcher = &launchers[0],
                            .outputs = &s->outputs,
                            .check = {.item = s->job->item,
                                      .reference = &s->reference,
                                      .outputs = &s->outputs,
                                      .is_naive = s->job->is_naive,
                                      .atol = NAN,
                                      .rtol = NAN},
                            .first = first,
                            .promised = impl.repeatable[s->job->item->mode],
                            .keeps_values = s->job->is_naive,
                            .tensors = v->tensors,
                            .tensor_count = &v->tensor_count};
    launchers[0].probe = launchers[1].probe = &m.probe;
    s->outputs.signs = s->inputs.signs;
    TRY(outputs_poison(be, &s->outputs, why));
    TRY(be->ops->launch(be, &launchers[0], why));
    TRY(judge(s, &m, why));
    TRY(outputs_digest(be, s->job->item, &s->outputs, first, why));
    if (liar->lie && liar->lie->may_compute)
        TRY(be->ops->launch(be, &launchers[0], why));
    const bool was_idle = liar->untimed_idle > 0;
    TRY(time_member(s, &m, launchers, liar->lie, why));
    v->timed = liar->timed;
    v->idle = liar->lie && liar->lie->slows_clock ? liar->timed : liar->idle; /* the time of all is hidden */
    lie_decide(v, was_idle);
    return ATTN_OK;
}

void lie_decide(struct lie_verdict *v, bool was_idle)
{
    const bool passes = v->tensor_count > 0 && check_passed(v->tensors, v->tensor_count);
    if (!v->lie)
        v->is_good = passes;
    else if (v->lie->may_compute)
        v->is_good = was_idle && passes && v->timed > 0 && v->idle == 0;
    else
        v->is_good = v->idle > 0 && v->tensor_count > 0 && !passes;
}

static enum attn_status try_lie(struct stage *s, const struct lie *lie, bool *is_good, struct attn_message *why)
{
    struct liar liar = {.job = s->job, .lie = lie, .plan = s->plan, .inputs = &s->inputs, .outputs = &s->outputs};
    struct lie_verdict verdict = {.lie = lie, .item = s->job->item};
    const enum attn_status status = try_liar(s, &liar, &verdict, why);
    for (int i = 0; i < TENSOR_COUNT; i++)
        free(liar.stored[i]);
    if (status == ATTN_OK)
        s->job->found(s->job->context, &verdict);
    *is_good = verdict.is_good;
    return status;
}

static enum attn_status prepare(struct stage *s, struct attn_message *why)
{
    const struct lies_job *job = s->job;
    TRY(inputs_make(job->backend, job->item, NULL, &s->inputs, why));
    TRY(check_reference_make(job->backend, job->item, CHECK_FULL, &s->inputs, &s->reference, why));
    TRY(outputs_make(job->backend, job->item, &s->inputs, &s->outputs, why));
    TRY(buffer_alloc(job->backend, job->impl->workspace_bytes(&s->requests[0]), &s->workspace, why));
    if (!job->impl->prepare)
        return ATTN_OK;
    job->calling(job->context, true);
    const enum attn_status status = job->impl->prepare(&s->requests[0], &s->outputs.tensors, &s->plan, why);
    job->calling(job->context, false);
    s->is_prepared = status == ATTN_OK;
    return status;
}

static enum attn_status run_all(struct stage *s, struct attn_message *why)
{
    bool is_good = false;
    TRY(prepare(s, why));
    TRY(try_lie(s, NULL, &is_good, why));
    for (int i = 0; is_good && lie_at(i); i++) {
        bool is_caught;
        TRY(try_lie(s, lie_at(i), &is_caught, why));
    }
    return ATTN_OK;
}

enum attn_status lies_run(const struct lies_job *job, struct attn_message *why)
{
    struct stage s = {.job = job, .backend = *job->backend, .ops = *job->backend->ops};
    s.ops.launch = launch;
    s.ops.repeat = repeat;
    s.ops.sample = sample;
    s.backend.ops = &s.ops;
    s.backend.device.threads = 1; /* waiting for other threads would cost more than they save in so short a launch */
    s.requests[0] = s.requests[1] =
        (struct attn_request){.problem = &job->item->problem, .device = &s.backend.device, .mode = job->item->mode};
    const enum attn_status status = run_all(&s, why);
    if (s.is_prepared)
        job->impl->release(s.plan);
    check_reference_free(job->backend, &s.reference);
    tensor_set_free(job->backend, &s.outputs);
    tensor_set_free(job->backend, &s.inputs);
    buffer_free(job->backend, &s.workspace);
    return status;
}
