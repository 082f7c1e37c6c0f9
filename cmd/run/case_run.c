/* buffers -> (poison, run, check) -> rounds -> check -> rows, for one problem. */
#include "cmd/run/case_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/run/check.h"
#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/measure/rounds.h"
#include "cmd/base/stats.h"
#include "cmd/measure/sustain.h"

/* One implementation of the problem in flight. */
struct contender {
    int slot;
    const struct attn_impl *impl;
    struct attn_request request;
    struct tensor_set outputs;
    struct buffer workspace;
    struct launcher launcher;
    bool prepared, runs; /* runs: launched once without failing, goes into the rounds */
    uint64_t first_hash[TENSOR_COUNT];
    struct record_tensor tensors[TENSOR_COUNT];
    int tensor_count;
    struct sustain_result sustained;
    struct record_row row;
};

struct arena {
    const struct case_setting *setting;
    const struct plan_item *item;
    unsigned companions; /* slots without a row of their own */
    struct tensor_set inputs;
    uint64_t inputs_hash;
    struct check_reference reference;
    struct contender contenders[IMPL_MAX_SLOTS];
    int count;
    const int *member_slots;
    int sustained_slot; /* of the region in flight */
};

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const enum attn_status try_status = (call);                                                                    \
        if (try_status != ATTN_OK)                                                                                     \
            return try_status;                                                                                         \
    } while (0)

const char *case_stage_doing(int s)
{
    static const char *const names[] = {"", "preparing", "checking", "timing", "sustained load"};
    return s >= 0 && s < (int)(sizeof names / sizeof names[0]) ? names[s] : "";
}

const char *case_stage_when(int s)
{
    static const char *const names[] = {"", "while being prepared", "in its checked launch", "while being timed",
                                        "under sustained load"};
    return s >= 0 && s < (int)(sizeof names / sizeof names[0]) ? names[s] : "";
}

static void stage(const struct arena *a, enum case_stage s, int slot)
{
    const char *impl = "";
    for (int i = 0; i < a->count; i++)
        if (a->contenders[i].slot == slot && a->contenders[i].impl)
            impl = impl_recorded_name(&a->setting->slots[slot], a->contenders[i].impl);
    a->setting->hooks.stage(a->setting->hooks.context, s, slot, impl);
}

static void deliver(const struct arena *a, struct contender *c)
{
    if (!(a->companions & 1u << c->slot))
        a->setting->hooks.row(a->setting->hooks.context, c->slot, &c->row);
    c->runs = false;
}

static void first_and_last(enum attn_mode mode, int *first, int *last)
{
    *first = mode == ATTN_FWD ? TENSOR_O : TENSOR_DQ;
    *last = mode == ATTN_FWD ? TENSOR_LSE : TENSOR_DV;
}

/* ---- one contender: memory, plan, first launch ---------------------------------------------------------------- */

static enum attn_status prepare(struct arena *a, struct contender *c, struct attn_message *why)
{
    struct backend *be = a->setting->backend;
    TRY(outputs_make(be, a->item, &a->inputs, &c->outputs, why));
    const size_t bytes = c->impl->workspace_bytes(&c->request);
    TRY(buffer_alloc(be, bytes, &c->workspace, why));
    c->launcher = (struct launcher){.impl = c->impl, .request = &c->request, .tensors = &c->outputs.tensors};
    c->launcher.run.workspace = c->workspace.data;
    c->launcher.run.workspace_bytes = bytes;
    if (c->impl->prepare) {
        TRY(c->impl->prepare(&c->request, &c->outputs.tensors, &c->launcher.run.plan, why));
        c->prepared = true;
    }
    const size_t plan_bytes = c->impl->plan_bytes ? c->impl->plan_bytes(&c->request, c->launcher.run.plan) : 0;
    c->row.workspace_mb = ((double)bytes + (double)plan_bytes) * 1e-6;
    return ATTN_OK;
}

static void dismiss(struct arena *a, struct contender *c)
{
    struct backend *be = a->setting->backend;
    be->ops->uncapture(be, &c->launcher);
    if (c->prepared)
        stage(a, STAGE_PREPARE, c->slot); /* whoever frees badly is named */
    if (c->prepared)
        c->impl->release(c->launcher.run.plan);
    c->prepared = false;
    tensor_set_free(be, &c->outputs);
    buffer_free(be, &c->workspace);
    record_row_free(&c->row);
}

/* ---- verdicts ------------------------------------------------------------------------------------------------------ */

/* Adds the verdict on what the outputs hold now to what earlier launches got. */
static enum attn_status judge_now(struct arena *a, struct contender *c, struct attn_message *why)
{
    const struct options *o = a->setting->options;
    struct record_tensor now[TENSOR_COUNT];
    int count = 0;
    const struct check_request request = {.item = a->item, .reference = &a->reference, .outputs = &c->outputs,
                                          .is_naive = !strcmp(c->impl->name, "naive"), .atol = o->atol,
                                          .rtol = o->rtol};
    TRY(check_outputs(a->setting->backend, &request, now, &count, why));
    if (c->tensor_count == 0) {
        memcpy(c->tensors, now, sizeof now);
        c->tensor_count = count;
        const double rms = check_smallest_rms(&a->reference, a->item->mode);
        if (count && !isnan(o->atol) && o->atol > 0.25 * rms)
            log_warn("--atol %g is over a quarter of the reference's rms (%.3g) at this length: rule 2 checks next to "
                     "nothing there; the RMS rules still hold", o->atol, rms);
    } else {
        for (int i = 0; i < count; i++)
            judge_merge(&c->tensors[i], &now[i]);
    }
    const struct check_surroundings around = {.inputs = &a->inputs, .outputs = &c->outputs,
                                              .workspace = &c->workspace, .inputs_hash = a->inputs_hash};
    return a->reference.count
               ? check_untouched(a->setting->backend, a->item, &around, c->tensors, &c->tensor_count, why)
               : ATTN_OK;
}

/* Launches again into poison; the bits of every promised tensor must come back. */
static enum attn_status check_repeats(struct arena *a, struct contender *c, struct attn_message *why)
{
    struct backend *be = a->setting->backend;
    int first, last;
    const unsigned promised = c->request.deterministic ? c->impl->repeatable_deterministic[a->item->mode]
                                                       : c->impl->repeatable[a->item->mode];
    first_and_last(a->item->mode, &first, &last);
    for (int64_t n = 0; n < a->item->repeats; n++) {
        TRY(outputs_poison(be, &c->outputs, why));
        stage(a, STAGE_CHECK, c->slot);
        TRY(be->ops->launch(be, &c->launcher, why));
        for (int t = first; t <= last; t++) {
            uint64_t hash = 0;
            char sentence[160];
            if (!(promised & 1u << t))
                continue;
            TRY(output_hash(be, a->item, &c->outputs, (enum problem_tensor)t, &hash, why));
            if (hash == c->first_hash[t])
                continue;
            snprintf(sentence, sizeof sentence, "%s: promised bit-equal over runs, differs in run %lld",
                     problem_tensor_name((enum problem_tensor)t), (long long)n + 2);
            check_add_finding(c->tensors, &c->tensor_count, problem_tensor_name((enum problem_tensor)t), "repeat",
                              sentence);
        }
    }
    return ATTN_OK;
}

/* --dump: inputs once per problem, outputs per implementation, below a folder named after the problem. */
static enum attn_status dump(struct arena *a, struct contender *c, struct attn_message *why)
{
    const struct options *o = a->setting->options;
    char name[96];
    problem_print(&a->item->problem, a->item->mode, name, sizeof name);
    for (char *at = name; *at; at++)
        *at = *at == ' ' || *at == '=' ? '-' : *at;
    char *problem_dir = xasprintf("%s/%s", o->dump_dir, name);
    char *impl_dir = xasprintf("%s/%s", problem_dir, impl_recorded_name(&a->setting->slots[c->slot], c->impl));
    enum attn_status status = path_make_dirs(impl_dir) ? ATTN_OK : ATTN_ERROR;
    if (status != ATTN_OK)
        snprintf(why->text, sizeof why->text, "no folder to write to");
    if (status == ATTN_OK)
        status = tensor_set_dump(a->setting->backend, a->item, &a->inputs, problem_dir, why);
    if (status == ATTN_OK)
        status = tensor_set_dump(a->setting->backend, a->item, &c->outputs, impl_dir, why);
    free(problem_dir);
    free(impl_dir);
    return status;
}

/* The first launch, into poison, and its verdict. */
static enum attn_status run_once(struct arena *a, struct contender *c, struct attn_message *why)
{
    struct backend *be = a->setting->backend;
    int first, last;
    stage(a, STAGE_CHECK, c->slot);
    TRY(be->ops->launch(be, &c->launcher, why));
    c->runs = true;
    if (!strcmp(c->impl->name, "null")) /* it writes nothing: there is nothing to judge */
        return ATTN_OK;
    TRY(judge_now(a, c, why));
    first_and_last(a->item->mode, &first, &last);
    for (int t = first; t <= last; t++)
        TRY(output_hash(be, a->item, &c->outputs, (enum problem_tensor)t, &c->first_hash[t], why));
    if (!strcmp(c->impl->name, "naive") && check_passed(c->tensors, c->tensor_count))
        for (int i = 0; i < c->tensor_count; i++)
            a->reference.max_abs_err[first + i] = c->tensors[i].max_abs_err;
    if (a->setting->options->dump_dir && dump(a, c, why) != ATTN_OK) {
        log_error("--dump: %s", why->text);
        a->setting->hooks.io_failed(a->setting->hooks.context);
    }
    return a->item->repeats ? check_repeats(a, c, why) : ATTN_OK;
}

/* Inputs on which an honest S in 16 bits cannot meet its bounds. */
static bool beyond_naive(const struct attn_impl *impl, const struct plan_item *item)
{
    return !strcmp(impl->name, "naive") && item->problem.dtype != ATTN_FP32 &&
           (item->dist == FILL_SHARP || item->dist == FILL_HUGE);
}

/* Resolves a slot; a refusal or lack of memory is a row, anything worse ends the problem. */
static enum attn_status enter(struct arena *a, int slot, struct attn_message *why)
{
    const struct case_setting *s = a->setting;
    struct contender *c = &a->contenders[a->count++];
    memset(c, 0, sizeof *c);
    c->slot = slot;
    c->request = (struct attn_request){.problem = &a->item->problem, .device = &s->backend->device,
                                       .mode = a->item->mode, .deterministic = a->item->deterministic,
                                       .variant = s->options->variant};
    stage(a, STAGE_PREPARE, slot);
    c->impl = impl_resolve(&s->slots[slot], &c->request, why);
    row_begin(&c->row, s->options, s->facts, a->item, s->slots[slot].name, impl_recorded_name(&s->slots[slot], c->impl));
    if (!c->impl) {
        row_end(&c->row, STATUS_UNSUPPORTED, why->text);
        deliver(a, c);
        return ATTN_OK;
    }
    if (beyond_naive(c->impl, a->item)) {
        row_end(&c->row, STATUS_SKIPPED, "naive rounds S to 16 bits: logits this close and this large are beyond it");
        deliver(a, c);
        return ATTN_OK;
    }
    const char *variant = c->impl->variant ? c->impl->variant(&c->request) : NULL;
    snprintf(c->row.variant, sizeof c->row.variant, "%s", variant ? variant : "");
    enum attn_status status = prepare(a, c, why);
    if (status == ATTN_OK)
        status = run_once(a, c, why);
    if (status == ATTN_NO_MEMORY || status == ATTN_UNSUPPORTED) {
        char needs[32];
        struct attn_message reason;
        const size_t bytes = c->impl->workspace_bytes(&c->request);
        snprintf(reason.text, sizeof reason.text, "%.400s%s%s", why->text, status == ATTN_NO_MEMORY ? "; workspace " : "",
                 status == ATTN_NO_MEMORY ? number_print_bytes((double)bytes, needs, sizeof needs) : "");
        row_end(&c->row, status == ATTN_NO_MEMORY ? STATUS_OOM : STATUS_UNSUPPORTED, reason.text);
        deliver(a, c);
        dismiss(a, c);
        a->count--;
        return ATTN_OK;
    }
    return status;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static bool before_sample(void *context, int member)
{
    const struct arena *a = context;
    stage(a, STAGE_TIME, a->member_slots[member]);
    return !a->setting->hooks.interrupted(a->setting->hooks.context);
}

/* A device that is gone leaves nothing to believe. */
static enum attn_status still_there(const struct telemetry_region *region, struct attn_message *why)
{
    if (!region->is_lost)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "NVML says that the device is lost or needs a reset");
    return ATTN_ERROR;
}

static bool before_batch(void *context)
{
    const struct arena *a = context;
    stage(a, STAGE_SUSTAIN, a->sustained_slot);
    return !a->setting->hooks.interrupted(a->setting->hooks.context);
}

/* The sustained region of every contender that is right so far; `null` computes nothing, so it sustains nothing. */
static enum attn_status sustain_all(struct arena *a, const struct rounds_member *members, int64_t rounds, int *failed,
                                    bool *interrupted, struct attn_message *why)
{
    struct sustain_plan plan = {.lead_s = SUSTAIN_LEAD_S, .seconds = a->setting->plan->sustain_s,
                                .use_nvml = a->setting->use_nvml, .before_batch = before_batch, .context = a};
    for (int i = 0, m = 0; i < a->count && !*interrupted; i++) {
        struct contender *c = &a->contenders[i];
        if (!c->runs)
            continue;
        plan.pass_ms = stats_of(members[m++].samples_ms, rounds).median;
        if (!strcmp(c->impl->name, "null") || a->companions & 1u << c->slot || (c->tensor_count && !check_passed(c->tensors, c->tensor_count)))
            continue;
        *failed = a->sustained_slot = c->slot;
        TRY(sustain_run(a->setting->backend, &c->launcher, &plan, &c->sustained, why));
        TRY(still_there(&c->sustained.telemetry, why));
        *interrupted = c->sustained.interrupted;
    }
    return ATTN_OK;
}

/* The samples of a rival to compare with: one that took part and passed its check. */
static const double *samples_of(const struct arena *a, const struct rounds_member *members, const char *impl)
{
    for (int i = 0, m = 0; i < a->count; i++) {
        const struct contender *c = &a->contenders[i];
        if (!c->runs)
            continue;
        if (!strcmp(c->impl->name, impl) && check_passed(c->tensors, c->tensor_count))
            return members[m].samples_ms;
        m++;
    }
    return NULL;
}

/* The check columns, with the relative tolerance that was applied. */
static void check_row(const struct arena *a, struct contender *c)
{
    const struct options *o = a->setting->options;
    const struct judge_bounds applied =
        judge_bounds_for(a->item->mode == ATTN_FWD ? TENSOR_O : TENSOR_DQ, a->item->problem.dtype, a->item->mode,
                         !strcmp(c->impl->name, "naive"), o->atol, o->rtol, 0);
    row_check(&c->row, c->tensors, c->tensor_count, o->check, o->atol, applied.rtol);
}

/* What the last timed launch left; then one more launch on the same path into poison, so that what is checked was
 * written by it and by no launch before it. */
static enum attn_status judge_timed_path(struct arena *a, struct contender *c, struct attn_message *why)
{
    struct backend *be = a->setting->backend;
    double ignored_ms = 0;
    if (!strcmp(c->impl->name, "null"))
        return ATTN_OK;
    TRY(judge_now(a, c, why));
    TRY(outputs_poison(be, &c->outputs, why));
    TRY(be->ops->sample(be, &c->launcher, a->setting->options->l2 == L2_COLD, &ignored_ms, why));
    return judge_now(a, c, why);
}

static enum attn_status trace_passes(struct arena *a, struct contender *c, struct attn_message *why)
{
    struct backend *be = a->setting->backend;
    char names[8][16];
    double times_ms[8];
    TRY(be->ops->passes(be, &c->launcher, 8, names, times_ms, &c->row.pass_count, why));
    for (int i = 0; i < c->row.pass_count; i++) {
        snprintf(c->row.passes[i].name, sizeof c->row.passes[i].name, "%s", names[i]);
        c->row.passes[i].time_ms = times_ms[i];
    }
    return ATTN_OK;
}

/* Every contender that runs, and the GEMM, into one table of members. */
static enum attn_status gather(struct arena *a, struct rounds_member *members, int *slots, int *count,
                               struct attn_request *gemm_request, double *gemm_flops, struct attn_message *why)
{
    struct backend *be = a->setting->backend;
    *count = 0;
    for (int i = 0; i < a->count; i++) {
        struct contender *c = &a->contenders[i];
        if (!c->runs)
            continue;
        stage(a, STAGE_PREPARE, c->slot);
        TRY(outputs_poison(be, &c->outputs, why));
        TRY(be->ops->capture(be, &c->launcher, why));
        snprintf(c->row.launch, sizeof c->row.launch, "%s",
                 be->device.platform == ATTN_CPU ? "host" : c->launcher.graph ? "graph" : "direct");
        slots[*count] = c->slot;
        members[(*count)++] = (struct rounds_member){.launcher = c->launcher};
    }
    if (*count == 0)
        return ATTN_OK;
    stage(a, STAGE_PREPARE, -1);
    const enum attn_status status = be->ops->gemm_prepare(be, a->item->problem.dtype, gemm_flops, why);
    if (status != ATTN_OK) { /* a ceiling is no row: without it two columns stay empty */
        if (status != ATTN_UNSUPPORTED)
            log_warn("no GEMM ceiling for this problem: %s", why->text);
        return ATTN_OK;
    }
    *gemm_request = a->contenders[0].request;
    slots[*count] = -1;
    members[(*count)++] = (struct rounds_member){.launcher = {.request = gemm_request}};
    return ATTN_OK;
}

static enum attn_status time_all(struct arena *a, int *failed, struct attn_message *why)
{
    const struct case_setting *s = a->setting;
    struct rounds_member members[IMPL_MAX_SLOTS + 1];
    int slots[IMPL_MAX_SLOTS + 1], count = 0;
    struct attn_request gemm_request;
    struct rounds_result result = {0};
    struct row_rivals rivals = {.gemm_flops = 0};
    struct telemetry telemetry;
    *failed = -1;
    TRY(gather(a, members, slots, &count, &gemm_request, &rivals.gemm_flops, why));
    if (count == 0)
        return ATTN_OK;
    const struct rounds_plan plan = {
        .warmup_ms = fmax(s->plan->warmup_ms, s->is_first ? s->plan->preheat_ms : 0),
        .min_time_ms = s->plan->min_time_ms, .max_noise_pct = s->plan->max_noise_pct,
        .limit_ms = s->options->timeout_s * 1e3, .samples = s->plan->samples, .cold = s->options->l2 == L2_COLD,
        .before_sample = before_sample, .context = a};
    a->member_slots = slots;
    telemetry_begin(&telemetry, s->use_nvml);
    enum attn_status status = rounds_run(s->backend, members, count, &plan, &result, why);
    const struct telemetry_region around = telemetry_end(&telemetry);
    if (status != ATTN_OK)
        *failed = slots[result.failed_member];
    else
        status = still_there(&around, why); /* everybody's failure: *failed is -1 */
    if (status == ATTN_OK && !result.interrupted && s->plan->sustain_s > 0)
        status = sustain_all(a, members, result.rounds, failed, &result.interrupted, why);
    const bool has_gemm = count && !members[count - 1].launcher.impl;
    rivals.gemm_ms = has_gemm ? members[count - 1].samples_ms : NULL;
    for (int i = 0; i < a->count && status == ATTN_OK && !result.interrupted; i++) {
        struct contender *c = &a->contenders[i];
        if (!c->runs)
            continue;
        *failed = c->slot;
        stage(a, STAGE_CHECK, c->slot);
        status = judge_timed_path(a, c, why);
        if (status == ATTN_OK && s->options->verbose)
            status = trace_passes(a, c, why);
    }
    if (status == ATTN_OK && !result.interrupted) { /* all verdicts are in: a rival that failed is none */
        rivals.naive_ms = samples_of(a, members, "naive");
        rivals.peer_ms = samples_of(a, members, "cudnn");
        rivals.peer = rivals.peer_ms ? "cudnn" : NULL;
    }
    for (int i = 0, m = 0; i < a->count && status == ATTN_OK && !result.interrupted; i++) {
        struct contender *c = &a->contenders[i];
        if (!c->runs)
            continue;
        check_row(a, c);
        row_times(&c->row, members[m++].samples_ms, result.rounds, result.stop, &rivals);
        row_telemetry(&c->row, &around);
        row_sustained(&c->row, &c->sustained);
        row_end(&c->row, STATUS_OK, "");
        deliver(a, c);
    }
    for (int m = 0; m < count; m++)
        free(members[m].samples_ms);
    return status;
}

/* verify: rows without times. */
static void deliver_verdicts(struct arena *a)
{
    for (int i = 0; i < a->count; i++) {
        struct contender *c = &a->contenders[i];
        if (!c->runs)
            continue;
        check_row(a, c);
        row_end(&c->row, STATUS_OK, "");
        deliver(a, c);
    }
}

/* ---- the problem ---------------------------------------------------------------------------------------------------- */

/* Inputs and reference. Lack of memory here is everybody's row. */
static enum attn_status open_arena(struct arena *a, struct attn_message *why)
{
    const struct case_setting *s = a->setting;
    stage(a, STAGE_PREPARE, -1);
    TRY(inputs_make(s->backend, a->item, s->options->input_dir, &a->inputs, why));
    TRY(check_reference_make(s->backend, a->item, s->options->check, &a->inputs, &a->reference, why));
    return inputs_hash(s->backend, a->item, &a->inputs, &a->inputs_hash, why);
}

static void close_arena(struct arena *a)
{
    for (int i = 0; i < a->count; i++)
        dismiss(a, &a->contenders[i]);
    check_reference_free(a->setting->backend, &a->reference);
    tensor_set_free(a->setting->backend, &a->inputs);
}

static void deliver_all_oom(struct arena *a, unsigned done, const char *reason)
{
    const struct case_setting *s = a->setting;
    for (int slot = 0; slot < s->slot_count; slot++) {
        struct contender c = {.slot = slot};
        if (done & 1u << slot)
            continue;
        row_begin(&c.row, s->options, s->facts, a->item, s->slots[slot].name, s->slots[slot].name);
        row_end(&c.row, STATUS_OOM, reason);
        deliver(a, &c);
        record_row_free(&c.row);
    }
}

enum attn_status case_run(const struct case_setting *setting, int index, unsigned done, unsigned companions,
                          int *failed, struct attn_message *why)
{
    struct arena *a = xcalloc(1, sizeof *a);
    a->setting = setting;
    a->companions = companions & done;
    a->item = &setting->plan->items[index];
    *failed = -1;
    enum attn_status status = open_arena(a, why);
    if (status == ATTN_NO_MEMORY) {
        char needs[32];
        struct attn_message reason;
        snprintf(reason.text, sizeof reason.text, "%.300s; inputs and outputs need %s, the reference more", why->text,
                 number_print_bytes(tensor_set_bytes(a->item), needs, sizeof needs));
        deliver_all_oom(a, done, reason.text);
        close_arena(a);
        free(a);
        return ATTN_OK;
    }
    /* naive first, whatever the order of the list: rule 5 judges the others by its error. */
    for (int n = 0; n < 2 * setting->slot_count && status == ATTN_OK; n++) {
        const int slot = n % setting->slot_count;
        const bool is_first_pass = n < setting->slot_count, is_naive = !strcmp(setting->slots[slot].name, "naive");
        if (is_first_pass != is_naive || (done & ~a->companions & 1u << slot) || setting->hooks.interrupted(setting->hooks.context))
            continue;
        *failed = slot;
        status = enter(a, slot, why);
    }
    if (status == ATTN_OK && !setting->hooks.interrupted(setting->hooks.context)) {
        if (setting->timed)
            status = time_all(a, failed, why);
        else
            deliver_verdicts(a);
    }
    if (status == ATTN_OK) {
        close_arena(a);
        free(a);
    } /* otherwise the process ends and the device takes its memory back */
    return status;
}

enum attn_status case_profile(const struct case_setting *setting, struct attn_message *why)
{
    struct backend *be = setting->backend;
    struct arena *a = xcalloc(1, sizeof *a);
    a->setting = setting;
    a->item = &setting->plan->items[0];
    TRY(inputs_make(be, a->item, setting->options->input_dir, &a->inputs, why));
    /* Backward needs a plausible O and LSE: the reference's, computed outside the profiled range. */
    TRY(check_reference_make(be, a->item, CHECK_OFF, &a->inputs, &a->reference, why));
    struct contender *c = &a->contenders[a->count++];
    c->request = (struct attn_request){.problem = &a->item->problem, .device = &be->device, .mode = a->item->mode,
                                       .deterministic = a->item->deterministic, .variant = setting->options->variant};
    c->impl = impl_resolve(&setting->slots[0], &c->request, why);
    if (!c->impl)
        return ATTN_UNSUPPORTED;
    TRY(prepare(a, c, why));
    be->ops->profile_range(be, true, c->impl->name);
    const enum attn_status status = be->ops->launch(be, &c->launcher, why);
    be->ops->profile_range(be, false, c->impl->name);
    close_arena(a);
    free(a);
    return status;
}
