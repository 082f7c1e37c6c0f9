/* One problem from its buffers to its rows:
 *   1. inputs and reference (cmd/run/check.c);
 *   2. each implementation: outputs are poisoned, that is filled with NaN, so that an element which is not written does
 *      not pass for a result of an earlier launch; one launch; the check;
 *   3. rounds of timed launches (cmd/measure/rounds.h), then sustained regions (cmd/measure/sustain.h);
 *   4. the outputs of the last timed launch are checked, and those of one more launch into poisoned outputs;
 *   5. the rows. */
#include "cmd/run/case_run.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/record/row_role.h"
#include "cmd/run/work.h"
#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/device/backend.h"
#include "cmd/device/stored_outputs.h"
#include "cmd/device/tensor_dump.h"
#include "cmd/measure/rounds.h"
#include "cmd/base/stats.h"
#include "cmd/measure/sustain.h"

/* One implementation on the current problem. */
struct contender {
    int slot;
    const struct attn_impl *impl;
    struct attn_request request;
    struct tensor_set outputs;
    struct buffer workspace;
    struct launcher launcher;
    bool prepared, runs;               /* runs: launched once without failing, goes into the rounds */
    struct digest first[TENSOR_COUNT]; /* of the first launch, by enum problem_tensor */
    struct work_member work;
    struct record_tensor tensors[RECORD_TENSORS_MAX];
    int tensor_count;
    struct sustain_result sustained;
    struct record_row row;
};

/* The current problem: its inputs, its reference and the implementations that run it. */
struct problem_run {
    const struct case_setting *setting;
    const struct plan_item *item;
    unsigned rerun; /* slots that have their row already and are timed again only for comparison */
    struct tensor_set inputs;
    uint64_t inputs_hash;
    struct check_reference reference;
    struct contender contenders[IMPL_MAX_SLOTS];
    int count;
    const int *member_slots;
    struct contender *const *member_contenders; /* NULL: a member without outputs to compare */
    struct work work;
    int current_slot; /* of the sustained region, or of the launches on new values */
};

static enum attn_role role_of(const struct problem_run *run, const struct contender *c)
{
    return run->setting->slots[c->slot].role;
}

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

static void report_stage(const struct problem_run *run, enum case_stage s, int slot)
{
    const char *impl = "";
    for (int i = 0; i < run->count; i++)
        if (run->contenders[i].slot == slot && run->contenders[i].impl)
            impl = impl_recorded_name(&run->setting->slots[slot], run->contenders[i].impl);
    run->setting->hooks.stage(run->setting->hooks.context, s, slot, impl);
}

static void send_row(const struct problem_run *run, struct contender *c)
{
    if (!(run->rerun & 1u << c->slot))
        run->setting->hooks.row(run->setting->hooks.context, c->slot, &c->row);
    c->runs = false;
}

static bool is_loaded(const struct problem_run *run, const struct contender *c)
{
    return run->setting->slots[c->slot].is_loaded;
}

/* After every function of an implementation, before anything of this program runs. */
static void after_call(const struct problem_run *run)
{
    if (run->setting->hooks.returned)
        run->setting->hooks.returned(run->setting->hooks.context);
}

/* ---- one contender: memory, plan, first launch ---- */

static enum attn_status prepare(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    TRY(outputs_make(be, run->item, &run->inputs, &c->outputs, why));
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

static void free_contender(struct problem_run *run, struct contender *c)
{
    struct backend *be = run->setting->backend;
    be->ops->uncapture(be, &c->launcher);
    if (c->prepared)
        report_stage(run, STAGE_PREPARE, c->slot); /* a crash in release() is reported under its name */
    if (c->prepared)
        c->impl->release(c->launcher.run.plan);
    c->prepared = false;
    tensor_set_free(be, &c->outputs);
    buffer_free(be, &c->workspace);
    record_row_free(&c->row);
}

/* ---- neighbours ---- */

/* The check columns, with the relative tolerance that was applied. */
static void check_row(const struct problem_run *run, struct contender *c)
{
    const struct options *o = run->setting->options;
    const struct judge_bounds applied =
        judge_bounds_for(run->item->mode == ATTN_FWD ? TENSOR_O : TENSOR_DQ, run->item->problem.dtype, run->item->mode,
                         role_of(run, c) == ATTN_ROLE_NAIVE, o->atol, o->rtol, 0);
    row_check(&c->row, c->tensors, c->tensor_count, o->check, o->atol, applied.rtol);
    if (c->row.check == CHECKED_FAIL)
        row_failure_repro(&c->row, o, run->item);
}

/* Does not return when loaded implementations are to run in workers of their own. */
static void suspect(const struct problem_run *run, const struct contender *c, const char *what)
{
    char sentence[400];
    const char *name = impl_recorded_name(&run->setting->slots[c->slot], c->impl);
    snprintf(sentence, sizeof sentence, is_loaded(run, c) ? "%s: %.300s" : "when %s was checked: %.300s", name, what);
    run->setting->hooks.apart(run->setting->hooks.context, c->slot, sentence);
}

/* Who has changed what surrounds the launch of c, when suspect() has returned: a worker holds one loaded implementation
 * then, or none. */
static struct contender *breaker(struct problem_run *run, struct contender *c)
{
    for (int i = 0; i < run->count; i++)
        if (is_loaded(run, &run->contenders[i]))
            return &run->contenders[i];
    return c;
}

/* Guards and inputs as they were, so that what comes next is judged by what it does itself. */
static enum attn_status restore_surroundings(struct problem_run *run, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    TRY(tensor_set_guard(be, &run->inputs, why));
    for (int i = 0; i < run->count; i++) {
        TRY(tensor_set_guard(be, &run->contenders[i].outputs, why));
        TRY(buffer_guard(be, &run->contenders[i].workspace, why));
    }
    run->inputs.signs = (struct input_signs){0};
    TRY(inputs_fill(be, run->item, run->item->folder, &run->inputs, why));
    TRY(check_forward_inputs(be, run->item, &run->inputs, why));
    return inputs_hash(be, run->item, &run->inputs, &run->inputs_hash, why);
}

/* A loaded implementation that wrote through its guards gets its row now, without a time: what it wrote behind them may
 * end this process at any later step. */
static enum attn_status end_overrun(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    bool outputs = false, inputs = false, workspace = false;
    TRY(tensor_set_overrun(be, &c->outputs, &outputs, why));
    TRY(tensor_set_overrun(be, &run->inputs, &inputs, why));
    TRY(buffer_overrun(be, &c->workspace, &workspace, why));
    if (!is_loaded(run, c) || !(outputs || inputs || workspace))
        return ATTN_OK;
    check_row(run, c);
    row_end(&c->row, STATUS_OK, "");
    send_row(run, c);
    run->setting->hooks.renew(run->setting->hooks.context);
    return ATTN_OK;
}

/* Guards of every buffer and the inputs after a launch of c. */
static enum attn_status check_surroundings(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    struct record_tensor found[RECORD_TENSORS_MAX];
    int count = 0;
    const struct check_surroundings around = {
        .inputs = &run->inputs, .outputs = &c->outputs, .workspace = &c->workspace, .inputs_hash = run->inputs_hash};
    TRY(check_untouched(run->setting->backend, run->item, &around, found, &count, why));
    if (count == 0)
        return ATTN_OK;
    suspect(run, c, found[0].failure);
    struct contender *who = breaker(run, c);
    for (int i = 0; i < count; i++)
        check_add_finding(who->tensors, &who->tensor_count, found[i].name, found[i].rule, found[i].failure);
    TRY(end_overrun(run, who, why));
    return restore_surroundings(run, why);
}

/* ---- verdicts ---- */

static struct check_request check_request_of(const struct problem_run *run, const struct contender *c)
{
    return (struct check_request){.item = run->item,
                                  .reference = &run->reference,
                                  .outputs = &c->outputs,
                                  .is_naive = role_of(run, c) == ATTN_ROLE_NAIVE,
                                  .atol = run->setting->options->atol,
                                  .rtol = run->setting->options->rtol};
}

/* The tensors whose bits the implementation promises to repeat. */
static unsigned promised_tensors(const struct problem_run *run, const struct contender *c)
{
    return c->request.deterministic ? c->impl->repeatable_deterministic[run->item->mode]
                                    : c->impl->repeatable[run->item->mode];
}

/* Judges the outputs and adds the verdict to those of earlier launches. */
static enum attn_status judge_outputs(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    const struct options *o = run->setting->options;
    struct record_tensor now[RECORD_TENSORS_MAX];
    int count = 0;
    const struct check_request request = check_request_of(run, c);
    TRY(check_outputs(run->setting->backend, &request, now, &count, why));
    if (c->tensor_count == 0) {
        memcpy(c->tensors, now, sizeof now);
        c->tensor_count = count;
        const double rms = check_smallest_rms(&run->reference, run->item->mode);
        if (count && !isnan(o->atol) && o->atol > 0.25 * rms)
            log_warn("--atol %g is over a quarter of the reference's rms (%.3g) at this length: rule 2 checks next to "
                     "nothing there; the RMS rules still hold",
                     o->atol, rms);
    } else {
        for (int i = 0; i < count; i++)
            judge_merge(&c->tensors[i], &now[i]);
    }
    if (run->reference.count)
        TRY(check_surroundings(run, c, why));
    if (!is_loaded(run, c) && !check_passed(c->tensors, c->tensor_count))
        suspect(run, c, "a wrong result");
    return ATTN_OK;
}

/* Launches again into poisoned outputs; every tensor that is promised as deterministic must be bit-equal. */
static enum attn_status check_repeats(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    int count;
    const enum problem_tensor *outputs = problem_outputs(run->item->mode, &count);
    const unsigned promised = promised_tensors(run, c);
    for (int64_t n = 0; n < run->item->repeats; n++) {
        TRY(outputs_poison(be, &c->outputs, why));
        report_stage(run, STAGE_CHECK, c->slot);
        const enum attn_status status = be->ops->launch(be, &c->launcher, why);
        after_call(run);
        TRY(status);
        struct digest now[TENSOR_COUNT];
        TRY(outputs_digest(be, run->item, &c->outputs, now, why));
        for (int i = 0; i < count; i++) {
            const enum problem_tensor t = outputs[i];
            const char *name = problem_tensor_name(t);
            char sentence[160];
            if (!(promised & problem_tensor_bit(t)) || now[t].hash == c->first[t].hash)
                continue;
            snprintf(sentence, sizeof sentence, "%s: promised bit-equal over runs, differs in run %lld", name,
                     (long long)n + 2);
            check_add_finding(c->tensors, &c->tensor_count, name, "repeat", sentence);
        }
    }
    return ATTN_OK;
}

/* The reference for --dump: `parts` of it, at most CHECK_MAX_VIEWS. */
static struct dump_reference dump_reference_of(const struct problem_run *run, struct dump_part *parts)
{
    for (int i = 0; i < run->reference.count; i++) {
        const struct check_view *view = &run->reference.views[i];
        parts[i] = (struct dump_part){.problem = view->problem,
                                      .batch_offset = view->batch_offset,
                                      .q_head_offset = view->q_head_offset,
                                      .kv_head_offset = view->kv_head_offset,
                                      .outputs = view->reference};
    }
    return (struct dump_reference){parts, run->reference.count};
}

/* --dump: inputs and reference once per problem, outputs per implementation, below a folder named after the problem. */
static enum attn_status dump(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    const struct options *o = run->setting->options;
    struct dump_part parts[CHECK_MAX_VIEWS];
    const struct dump_reference reference = dump_reference_of(run, parts);
    char *problem_dir = xasprintf("%s/%s", o->dump_dir, run->item->name);
    char *impl_dir = xasprintf("%s/%s", problem_dir, impl_recorded_name(&run->setting->slots[c->slot], c->impl));
    enum attn_status status = path_make_dirs(impl_dir) ? ATTN_OK : ATTN_ERROR;
    if (status != ATTN_OK)
        snprintf(why->text, sizeof why->text, "no folder to write to");
    if (status == ATTN_OK)
        status = tensor_set_dump(run->setting->backend, run->item, &run->inputs, &reference, problem_dir, o->dump_dtype,
                                 why);
    if (status == ATTN_OK)
        status =
            tensor_set_dump(run->setting->backend, run->item, &c->outputs, &reference, impl_dir, o->dump_dtype, why);
    free(problem_dir);
    free(impl_dir);
    return status;
}

/* Takes the tensors that were not among the results of --outputs out of the verdict. */
static void drop_unread(struct contender *c, unsigned found)
{
    int kept = 0;
    for (int i = 0; i < c->tensor_count; i++)
        if (found & problem_tensor_bit(TENSOR_LSE) || strcmp(c->tensors[i].name, problem_tensor_name(TENSOR_LSE)))
            c->tensors[kept++] = c->tensors[i];
    c->tensor_count = kept;
}

/* The first launch, into poisoned outputs, or the results of --outputs; and its verdict. */
static enum attn_status launch_first(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    int count;
    const enum problem_tensor *outputs = problem_outputs(run->item->mode, &count);
    unsigned found = UINT_MAX;
    const char *bad = NULL;
    report_stage(run, STAGE_CHECK, c->slot);
    const struct impl_slot *slot = &run->setting->slots[c->slot];
    const enum attn_status status = slot->is_stored
                                        ? stored_outputs_read(be, run->item, slot, &c->outputs, &found, &bad, why)
                                        : be->ops->launch(be, &c->launcher, why);
    after_call(run);
    TRY(status);
    c->runs = true;
    if (bad)
        check_add_finding(c->tensors, &c->tensor_count, bad, "file", why->text);
    if (role_of(run, c) == ATTN_ROLE_NOTHING || bad) /* there is no output */
        return ATTN_OK;
    TRY(judge_outputs(run, c, why));
    drop_unread(c, found);
    TRY(outputs_digest(be, run->item, &c->outputs, c->first, why));
    if (role_of(run, c) == ATTN_ROLE_NAIVE && check_passed(c->tensors, c->tensor_count))
        for (int i = 0; i < c->tensor_count; i++) /* where all passed these are the outputs alone */
            run->reference.max_abs_err[outputs[i]] = c->tensors[i].max_abs_err;
    if (run->setting->options->dump_dir && dump(run, c, why) != ATTN_OK) {
        log_error("--dump: %s", why->text);
        run->setting->hooks.io_failed(run->setting->hooks.context);
    }
    return run->item->repeats ? check_repeats(run, c, why) : ATTN_OK;
}

/* True for inputs on which naive cannot meet the bounds, because it rounds S to 16 bits: large logits close to each
 * other. docs/judging.md has the largest logit-std. */
static bool beyond_naive(enum attn_role role, const struct plan_item *item)
{
    const bool has_large_logits = item->logit_std > 0 ? item->logit_std > 2
                                                      : item->dist == FILL_SHARP || item->dist == FILL_HUGE ||
                                                            item->dist == FILL_RISING || item->dist == FILL_FALLING;
    return role == ATTN_ROLE_NAIVE && item->problem.dtype != ATTN_FP32 && has_large_logits;
}

/* Prepares the implementation of a slot. A refusal or lack of memory becomes a row; any other failure ends the
 * problem. */
static enum attn_status start_contender(struct problem_run *run, int slot, struct attn_message *why)
{
    const struct case_setting *s = run->setting;
    struct contender *c = &run->contenders[run->count++];
    memset(c, 0, sizeof *c);
    c->slot = slot;
    c->request = (struct attn_request){.problem = &run->item->problem,
                                       .device = &s->backend->device,
                                       .mode = run->item->mode,
                                       .deterministic = run->item->deterministic,
                                       .variant = s->options->variant};
    report_stage(run, STAGE_PREPARE, slot);
    c->impl = impl_resolve(&s->slots[slot], &c->request, why);
    after_call(run);
    row_begin(&c->row, s->options, s->facts, run->item, s->slots[slot].name,
              impl_recorded_name(&s->slots[slot], c->impl));
    if (!c->impl) {
        row_end(&c->row, STATUS_UNSUPPORTED, why->text);
        send_row(run, c);
        return ATTN_OK;
    }
    if (beyond_naive(role_of(run, c), run->item)) {
        row_end(&c->row, STATUS_SKIPPED, "naive rounds S to 16 bits: logits this close and this large are beyond it");
        send_row(run, c);
        return ATTN_OK;
    }
    report_stage(run, STAGE_PREPARE, slot);
    const char *variant = c->impl->variant ? c->impl->variant(&c->request) : NULL;
    snprintf(c->row.variant, sizeof c->row.variant, "%s", variant ? variant : "");
    enum attn_status status = prepare(run, c, why);
    after_call(run);
    if (status == ATTN_OK)
        status = launch_first(run, c, why);
    if (status == ATTN_NO_MEMORY || status == ATTN_UNSUPPORTED) {
        char needs[32];
        struct attn_message reason;
        const size_t bytes = c->impl->workspace_bytes(&c->request);
        snprintf(reason.text, sizeof reason.text, "%.400s%s%s", why->text,
                 status == ATTN_NO_MEMORY ? "; workspace " : "",
                 status == ATTN_NO_MEMORY ? number_print_bytes((double)bytes, needs, sizeof needs) : "");
        row_end(&c->row, status == ATTN_NO_MEMORY ? STATUS_OOM : STATUS_UNSUPPORTED, reason.text);
        send_row(run, c);
        free_contender(run, c);
        run->count--;
        return ATTN_OK;
    }
    return status;
}

/* ---- rounds ---- */

static bool enter_sample(void *context, int member)
{
    const struct problem_run *run = context;
    report_stage(run, STAGE_TIME, run->member_slots[member]);
    return !run->setting->hooks.interrupted(run->setting->hooks.context);
}

static enum attn_status before_sample(void *context, int member, struct attn_message *why)
{
    struct problem_run *run = context;
    struct contender *c = run->member_contenders[member];
    return c ? work_change(&run->work, &c->outputs, why) : ATTN_OK;
}

static void after_launch(void *context, int member)
{
    const struct problem_run *run = context;
    const struct contender *c = run->member_contenders[member];
    if (c && is_loaded(run, c))
        after_call(run);
}

static void launched(void *context)
{
    const struct problem_run *run = context;
    after_call(run);
    report_stage(run, STAGE_CHECK, run->current_slot); /* another launch may follow */
}

static enum attn_status after_sample(void *context, int member, struct attn_message *why)
{
    struct problem_run *run = context;
    struct contender *c = run->member_contenders[member];
    return c ? work_compare(&run->work, &c->work, why) : ATTN_OK;
}

/* Samples are discarded when the device was lost meanwhile. */
static enum attn_status check_device_present(const struct telemetry_region *region, struct attn_message *why)
{
    if (!region->is_lost)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "NVML says that the device is lost or needs a reset");
    return ATTN_ERROR;
}

static bool before_batch(void *context)
{
    const struct problem_run *run = context;
    report_stage(run, STAGE_SUSTAIN, run->current_slot);
    return !run->setting->hooks.interrupted(run->setting->hooks.context);
}

/* Takes the speed of a sustained region away when its launches were faster than launches that do their work. */
static enum attn_status check_sustained(struct problem_run *run, struct contender *c, double median_ms,
                                        struct attn_message *why)
{
    struct sustain_result *s = &c->sustained;
    const double pass_ms = s->seconds * 1e3 / (double)s->passes;
    bool is_possible = true;
    double least_ms = 0;
    if (s->passes <= 0)
        return ATTN_OK;
    TRY(work_sustained_is_possible(&run->work, &c->work, median_ms, pass_ms, &is_possible, &least_ms, why));
    if (is_possible)
        return ATTN_OK;
    log_warn("%s: a launch took %.4g ms under sustained load, where one on new inputs takes at least %.4g ms: no "
             "sustained figures",
             c->row.impl, pass_ms, least_ms);
    s->passes = 0;
    return ATTN_OK;
}

/* Runs the sustained region of every contender that passed its checks so far; not of `null`, which computes nothing.
 * Its last outputs are judged after all regions. */
static enum attn_status sustain_all(struct problem_run *run, const struct rounds_member *members, int64_t rounds,
                                    int *failed, bool *interrupted, struct attn_message *why)
{
    struct sustain_plan plan = {.lead_s = SUSTAIN_LEAD_S,
                                .seconds = run->setting->plan->sustain_s,
                                .use_nvml = run->setting->use_nvml,
                                .before_batch = before_batch,
                                .context = run};
    for (int i = 0, m = 0; i < run->count && !*interrupted; i++) {
        struct contender *c = &run->contenders[i];
        if (!c->runs)
            continue;
        plan.pass_ms = stats_of(members[m++].samples_ms, rounds).median;
        if (role_of(run, c) == ATTN_ROLE_NOTHING || run->rerun & 1u << c->slot ||
            (c->tensor_count && !check_passed(c->tensors, c->tensor_count)))
            continue;
        *failed = run->current_slot = c->slot;
        TRY(work_change(&run->work, &c->outputs, why));
        const enum attn_status status = sustain_run(run->setting->backend, &c->launcher, &plan, &c->sustained, why);
        after_call(run);
        TRY(status);
        TRY(check_device_present(&c->sustained.telemetry, why));
        *interrupted = c->sustained.interrupted;
    }
    return ATTN_OK;
}

/* The samples of an implementation to compare with, if it ran and passed its check; else NULL. `slot`: the name of its
 * slot, or NULL for the first in this role. *name, where it is not NULL: what its row is called. */
static const double *samples_of(const struct problem_run *run, const struct rounds_member *members, enum attn_role role,
                                const char *slot, const char **name)
{
    for (int i = 0, m = 0; i < run->count; i++) {
        const struct contender *c = &run->contenders[i];
        if (!c->runs)
            continue;
        const bool is_wanted = slot ? !strcmp(run->setting->slots[c->slot].name, slot) : role_of(run, c) == role;
        if (is_wanted && check_passed(c->tensors, c->tensor_count)) {
            if (name)
                *name = c->row.impl;
            return members[m].samples_ms;
        }
        m++;
    }
    return NULL;
}

/* Judges the outputs of the last timed launch (of the sustained region, where there was one); then those of one more
 * sample, which is taken as all others were. */
static enum attn_status judge_timed_path(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    double ignored_ms = 0;
    if (role_of(run, c) == ATTN_ROLE_NOTHING)
        return ATTN_OK;
    TRY(judge_outputs(run, c, why));
    TRY(work_change(&run->work, &c->outputs, why));
    report_stage(run, STAGE_CHECK, c->slot);
    const enum attn_status status =
        be->ops->sample(be, &c->launcher, run->setting->options->l2 == L2_COLD, &ignored_ms, why);
    after_call(run);
    TRY(status);
    return judge_outputs(run, c, why);
}

static enum attn_status time_passes(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    char names[8][16];
    double times_ms[8];
    report_stage(run, STAGE_CHECK, c->slot);
    const enum attn_status status = be->ops->passes(be, &c->launcher, 8, names, times_ms, &c->row.pass_count, why);
    after_call(run);
    TRY(status);
    for (int i = 0; i < c->row.pass_count; i++) {
        snprintf(c->row.passes[i].name, sizeof c->row.passes[i].name, "%s", names[i]);
        c->row.passes[i].time_ms = times_ms[i];
    }
    return ATTN_OK;
}

/* Captures every contender in a graph and lists them, and then the GEMM, as members of the rounds. */
static enum attn_status make_members(struct problem_run *run, struct rounds_member *members, int *slots,
                                     struct contender **contenders, int *count, struct attn_request *gemm_request,
                                     double *gemm_flops, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    *count = 0;
    for (int i = 0; i < run->count; i++) {
        struct contender *c = &run->contenders[i];
        if (!c->runs)
            continue;
        report_stage(run, STAGE_PREPARE, c->slot);
        TRY(outputs_poison(be, &c->outputs, why));
        TRY(be->ops->capture(be, &c->launcher, why));
        snprintf(c->row.launch, sizeof c->row.launch, "%s",
                 be->device.platform == ATTN_CPU ? "host"
                 : c->launcher.graph             ? "graph"
                                                 : "direct");
        slots[*count] = c->slot;
        contenders[*count] = role_of(run, c) == ATTN_ROLE_NOTHING ? NULL : c;
        c->work = (struct work_member){.launcher = &c->launcher,
                                       .outputs = &c->outputs,
                                       .check = check_request_of(run, c),
                                       .first = c->first,
                                       .promised = promised_tensors(run, c),
                                       .tensors = c->tensors,
                                       .tensor_count = &c->tensor_count};
        members[(*count)++] = (struct rounds_member){.launcher = c->launcher};
    }
    if (*count == 0)
        return ATTN_OK;
    report_stage(run, STAGE_PREPARE, -1);
    const enum attn_status status = be->ops->gemm_prepare(be, run->item->problem.dtype, gemm_flops, why);
    if (status != ATTN_OK) { /* the GEMM has no row of its own: without it two columns stay empty */
        if (status != ATTN_UNSUPPORTED)
            log_warn("no GEMM ceiling for this problem: %s", why->text);
        return ATTN_OK;
    }
    *gemm_request = run->contenders[0].request;
    slots[*count] = -1;
    contenders[*count] = NULL;
    members[(*count)++] = (struct rounds_member){.launcher = {.request = gemm_request}};
    return ATTN_OK;
}

/* The column speedups of contender number `index`, whose row has its figures: nothing for a row without TFLOPS. */
static void put_speedups(struct problem_run *run, const struct rounds_member *members, int64_t rounds, int index)
{
    struct contender *own = &run->contenders[index];
    const double *own_ms = own->row.samples_ms;
    size_t used = 0;
    for (int i = 0, m = 0; i < run->count && isfinite(own->row.tflops); i++) {
        const struct contender *other = &run->contenders[i];
        char word[80];
        if (!other->runs)
            continue;
        const double *other_ms = members[m++].samples_ms;
        if (i == index || role_of(run, other) == ATTN_ROLE_NOTHING ||
            !check_passed(other->tensors, other->tensor_count))
            continue;
        const int length = snprintf(word, sizeof word, "%s%s=%.6g", used ? " " : "", other->row.impl,
                                    stats_paired_ratio(other_ms, own_ms, rounds));
        if (used + (size_t)length >= sizeof own->row.speedups)
            return; /* whole words only */
        memcpy(own->row.speedups + used, word, (size_t)length + 1);
        used += (size_t)length;
    }
}

static enum attn_status time_all(struct problem_run *run, int *failed, struct attn_message *why)
{
    const struct case_setting *s = run->setting;
    struct rounds_member members[IMPL_MAX_SLOTS + 1];
    struct contender *contenders[IMPL_MAX_SLOTS + 1];
    int slots[IMPL_MAX_SLOTS + 1], count = 0;
    struct attn_request gemm_request;
    struct rounds_result result = {0};
    struct row_baselines baselines = {.gemm_flops = 0};
    struct telemetry telemetry;
    *failed = -1;
    TRY(make_members(run, members, slots, contenders, &count, &gemm_request, &baselines.gemm_flops, why));
    if (count == 0)
        return ATTN_OK;
    const struct rounds_plan plan = {.warmup_ms = fmax(s->plan->warmup_ms, s->is_first ? s->plan->preheat_ms : 0),
                                     .min_time_ms = s->plan->min_time_ms,
                                     .max_noise_pct = s->plan->max_noise_pct,
                                     .limit_ms = s->options->timeout_s * 1e3,
                                     .samples = s->plan->samples,
                                     .cold = s->options->l2 == L2_COLD,
                                     .enter = enter_sample,
                                     .before_sample = before_sample,
                                     .after_launch = after_launch,
                                     .after_sample = after_sample,
                                     .context = run};
    run->member_slots = slots;
    run->member_contenders = contenders;
    work_begin(&run->work, s->backend, run->item, &run->inputs, plan.cold, run->item->folder != NULL);
    run->work.launched = launched;
    run->work.context = run;
    telemetry_begin(&telemetry, s->use_nvml);
    enum attn_status status = rounds_run(s->backend, members, count, &plan, &result, why);
    const struct telemetry_region around = telemetry_end(&telemetry);
    after_call(run);
    if (status != ATTN_OK)
        *failed = slots[result.failed_member];
    else
        status = check_device_present(&around, why); /* of no single implementation: *failed is -1 */
    if (status == ATTN_OK && !result.interrupted && s->plan->sustain_s > 0)
        status = sustain_all(run, members, result.rounds, failed, &result.interrupted, why);
    const bool has_gemm = count && !members[count - 1].launcher.impl;
    baselines.gemm_ms = has_gemm ? members[count - 1].samples_ms : NULL;
    for (int i = 0; i < run->count && status == ATTN_OK && !result.interrupted; i++) {
        struct contender *c = &run->contenders[i];
        if (!c->runs)
            continue;
        *failed = c->slot;
        report_stage(run, STAGE_CHECK, c->slot);
        status = judge_timed_path(run, c, why);
        if (status == ATTN_OK && s->options->verbose)
            status = time_passes(run, c, why);
    }
    for (int m = 0; m < count && status == ATTN_OK && !result.interrupted; m++) {
        if (!contenders[m])
            continue;
        *failed = run->current_slot = slots[m];
        report_stage(run, STAGE_CHECK, slots[m]);
        const double median_ms = stats_of(members[m].samples_ms, result.rounds).median;
        status = check_sustained(run, contenders[m], median_ms, why);
        if (status == ATTN_OK)
            status = work_on_new_values(&run->work, &contenders[m]->work, median_ms, why);
    }
    if (status == ATTN_OK && !result.interrupted) { /* after all checks: failed rows are not compared */
        baselines.naive_ms = samples_of(run, members, ATTN_ROLE_NAIVE, NULL, NULL);
        baselines.peer_ms = samples_of(run, members, ATTN_ROLE_PEER, s->options->peer, &baselines.peer);
    }
    for (int i = 0, m = 0; i < run->count && status == ATTN_OK && !result.interrupted; i++) {
        struct contender *c = &run->contenders[i];
        if (!c->runs)
            continue;
        check_row(run, c);
        row_times(&c->row, members[m++].samples_ms, result.rounds, result.stop, &baselines);
        put_speedups(run, members, result.rounds, i);
        row_telemetry(&c->row, &around);
        row_sustained(&c->row, &c->sustained);
        row_end(&c->row, STATUS_OK, "");
        send_row(run, c);
    }
    for (int m = 0; m < count; m++)
        free(members[m].samples_ms);
    return status;
}

/* verify: rows without times. */
static void send_verdicts(struct problem_run *run)
{
    for (int i = 0; i < run->count; i++) {
        struct contender *c = &run->contenders[i];
        if (!c->runs)
            continue;
        check_row(run, c);
        row_end(&c->row, STATUS_OK, "");
        send_row(run, c);
    }
}

/* ---- the problem ---- */

/* Inputs and reference. When memory is too small for them, every implementation gets a row with the status oom; when
 * the reference does not know an attribute of the problem, one with the status unsupported. */
static enum attn_status prepare_problem(struct problem_run *run, struct attn_message *why)
{
    const struct case_setting *s = run->setting;
    report_stage(run, STAGE_PREPARE, -1);
    TRY(inputs_make(s->backend, run->item, run->item->folder, &run->inputs, why));
    TRY(check_reference_make(s->backend, run->item, s->options->check, &run->inputs, &run->reference, why));
    return inputs_hash(s->backend, run->item, &run->inputs, &run->inputs_hash, why);
}

static void free_problem(struct problem_run *run)
{
    for (int i = 0; i < run->count; i++)
        free_contender(run, &run->contenders[i]);
    check_reference_free(run->setting->backend, &run->reference);
    tensor_set_free(run->setting->backend, &run->inputs);
}

static void send_all(struct problem_run *run, unsigned done, enum record_status status, const char *reason)
{
    const struct case_setting *s = run->setting;
    for (int slot = 0; slot < s->slot_count; slot++) {
        struct contender c = {.slot = slot};
        if (done & 1u << slot)
            continue;
        row_begin(&c.row, s->options, s->facts, run->item, s->slots[slot].name, s->slots[slot].name);
        row_end(&c.row, status, reason);
        send_row(run, &c);
        record_row_free(&c.row);
    }
}

enum attn_status case_run(const struct case_setting *setting, int index, unsigned done, unsigned rerun, int *failed,
                          struct attn_message *why)
{
    struct problem_run *run = xcalloc(1, sizeof *run);
    run->setting = setting;
    run->rerun = rerun & done;
    run->item = &setting->plan->items[index];
    *failed = -1;
    enum attn_status status = prepare_problem(run, why);
    if (status == ATTN_NO_MEMORY) {
        char needs[32];
        struct attn_message reason;
        snprintf(reason.text, sizeof reason.text, "%.300s; inputs and outputs need %s, the reference more", why->text,
                 number_print_bytes(tensor_set_bytes(run->item), needs, sizeof needs));
        send_all(run, done, STATUS_OOM, reason.text);
        free_problem(run);
        free(run);
        return ATTN_OK;
    }
    if (status == ATTN_UNSUPPORTED) { /* no reference: no result could be judged */
        send_all(run, done, STATUS_UNSUPPORTED, why->text);
        free_problem(run);
        free(run);
        return ATTN_OK;
    }
    /* naive runs first, whatever the order of the list, because rule 5 compares the others with its error. */
    for (int n = 0; n < 2 * setting->slot_count && status == ATTN_OK; n++) {
        const int slot = n % setting->slot_count;
        const bool is_first_pass = n < setting->slot_count, is_naive = setting->slots[slot].role == ATTN_ROLE_NAIVE;
        if (is_first_pass != is_naive || (done & ~run->rerun & 1u << slot) ||
            setting->hooks.interrupted(setting->hooks.context))
            continue;
        *failed = slot;
        status = start_contender(run, slot, why);
    }
    if (status == ATTN_OK && !setting->hooks.interrupted(setting->hooks.context)) {
        if (setting->timed)
            status = time_all(run, failed, why);
        else
            send_verdicts(run);
    }
    if (status == ATTN_OK) {
        free_problem(run);
        free(run);
    } /* otherwise the process ends, and the driver frees its memory */
    return status;
}

enum attn_status case_profile(const struct case_setting *setting, struct attn_message *why)
{
    struct backend *be = setting->backend;
    struct problem_run *run = xcalloc(1, sizeof *run);
    run->setting = setting;
    run->item = &setting->plan->items[0];
    TRY(inputs_make(be, run->item, run->item->folder, &run->inputs, why));
    /* Backward needs a plausible O and LSE: the reference's, computed outside the profiled range. */
    TRY(check_reference_make(be, run->item, CHECK_OFF, &run->inputs, &run->reference, why));
    struct contender *c = &run->contenders[run->count++];
    c->request = (struct attn_request){.problem = &run->item->problem,
                                       .device = &be->device,
                                       .mode = run->item->mode,
                                       .deterministic = run->item->deterministic,
                                       .variant = setting->options->variant};
    c->impl = impl_resolve(&setting->slots[0], &c->request, why);
    if (!c->impl)
        return ATTN_UNSUPPORTED;
    TRY(prepare(run, c, why));
    be->ops->profile_range(be, true, c->impl->name);
    const enum attn_status status = be->ops->launch(be, &c->launcher, why);
    be->ops->profile_range(be, false, c->impl->name);
    free_problem(run);
    free(run);
    return status;
}
