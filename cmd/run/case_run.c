/* One problem from its buffers to its rows:
 *   1. inputs and reference (cmd/run/check.c);
 *   2. each implementation: outputs are poisoned, that is filled with NaN, so that an element which is not written does
 *      not pass for a result of an earlier launch; one launch; the check;
 *   3. rounds of timed launches (cmd/measure/rounds.h), then sustained regions (cmd/measure/sustain.h);
 *   4. the outputs of the last timed launch are checked, and those of one more launch into poisoned outputs;
 *   5. the rows. */
#include "cmd/run/case_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/device/inputs.h"
#include "cmd/record/record_row.h"
#include "cmd/run/case_state.h"
#include "cmd/run/naive_limits.h"

/* ---- one contender: memory, plan, first launch ---- */

/* The model of what a launch moves and computes on a GPU. */
static void put_model(const struct problem_run *run, struct contender *c)
{
    struct attn_work work = {0};
    const enum attn_role role = case_role_of(run, c);
    if (run->setting->backend->device.platform != ATTN_CUDA || role == ATTN_ROLE_NOTHING)
        return;
    if (c->impl->work)
        c->impl->work(&c->request, &work);
    const struct traffic traffic = traffic_of(run->item, role == ATTN_ROLE_NAIVE, &work);
    row_model(&c->row, &traffic);
}

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
    put_model(run, c);
    c->row.workspace_mb = ((double)bytes + (double)plan_bytes) * 1e-6;
    return ATTN_OK;
}

static void free_contender(struct problem_run *run, struct contender *c)
{
    struct backend *be = run->setting->backend;
    be->ops->uncapture(be, &c->launcher);
    if (c->prepared)
        case_report_stage(run, STAGE_PREPARE, c->slot); /* a crash in release() is reported under its name */
    if (c->prepared)
        c->impl->release(c->launcher.run.plan);
    c->prepared = false;
    tensor_set_free(be, &c->outputs);
    buffer_free(be, &c->workspace);
    record_row_free(&c->row);
}

/* The variant that --tuned has for the problem, where neither the user nor a mode has one. NULL with the reason where
 * the implementation refuses it. */
static const struct attn_impl *take_tuned(const struct problem_run *run, const struct attn_impl *impl,
                                          struct attn_request *request, struct attn_message *why)
{
    const struct case_setting *s = run->setting;
    if (!impl || !s->tuned || request->variant || request->deterministic || request->invariant || request->splits)
        return impl;
    const struct problem_key key = plan_item_key(run->item, s->options->l2);
    const struct tuned_choice *choice = tuned_find(s->tuned, impl->name, &key);
    if (!choice || strcmp(choice->variant, choice->built_in) == 0)
        return impl;
    request->variant = choice->variant;
    return impl->accepts(request, why) == ATTN_OK ? impl : NULL;
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
                                       .splits = run->item->splits,
                                       .outputs = problem_wanted_outputs(&run->item->problem, run->item->mode),
                                       .variant = s->options->variant};
    case_report_stage(run, STAGE_PREPARE, slot);
    c->impl = take_tuned(run, impl_resolve(&s->slots[slot], &c->request, why), &c->request, why);
    case_after_call(run);
    row_begin(&c->row, s->options, s->facts, run->item, s->slots[slot].name,
              impl_recorded_name(&s->slots[slot], c->impl));
    c->row.quant_ms = run->inputs.quant_ms;
    c->row.quant_rms_err = run->reference.quant_rms_err;
    if (!c->impl) {
        row_end(&c->row, STATUS_UNSUPPORTED, why->text);
        case_send_row(run, c);
        return ATTN_OK;
    }
    const char *limit =
        case_role_of(run, c) == ATTN_ROLE_NAIVE ? naive_limits(run->item, s->backend->device.platform) : NULL;
    if (limit) {
        row_end(&c->row, STATUS_SKIPPED, limit);
        case_send_row(run, c);
        return ATTN_OK;
    }
    case_report_stage(run, STAGE_PREPARE, slot);
    const char *variant = c->impl->variant ? c->impl->variant(&c->request) : NULL;
    snprintf(c->row.variant, sizeof c->row.variant, "%s", variant ? variant : "");
    enum attn_status status = prepare(run, c, why);
    case_after_call(run);
    if (status == ATTN_OK)
        status = case_launch_first(run, c, why);
    if (status == ATTN_NO_MEMORY || status == ATTN_UNSUPPORTED) {
        char needs[32];
        struct attn_message reason;
        const size_t bytes = c->impl->workspace_bytes(&c->request);
        snprintf(reason.text, sizeof reason.text, "%.400s%s%s", why->text,
                 status == ATTN_NO_MEMORY ? "; workspace " : "",
                 status == ATTN_NO_MEMORY ? number_print_bytes((double)bytes, needs, sizeof needs) : "");
        row_end(&c->row, status == ATTN_NO_MEMORY ? STATUS_OOM : STATUS_UNSUPPORTED, reason.text);
        case_send_row(run, c);
        free_contender(run, c);
        run->count--;
        return ATTN_OK;
    }
    return status;
}

/* verify: rows without times. */
static void send_verdicts(struct problem_run *run)
{
    for (int i = 0; i < run->count; i++) {
        struct contender *c = &run->contenders[i];
        if (!c->runs)
            continue;
        case_check_row(run, c);
        row_end(&c->row, STATUS_OK, "");
        case_send_row(run, c);
    }
}

/* ---- the problem ---- */

/* Inputs and reference. When memory is too small for them, every implementation gets a row with the status oom; when
 * the reference does not know an attribute of the problem, one with the status unsupported. */
static enum attn_status prepare_problem(struct problem_run *run, struct attn_message *why)
{
    const struct case_setting *s = run->setting;
    case_report_stage(run, STAGE_PREPARE, -1);
    TRY(inputs_make(s->backend, run->item, run->item->folder, &run->inputs, why));
    TRY(check_reference_make(s->backend, run->item, s->options->check, &run->inputs, &run->reference, why));
    if (run->item->quant_in_time && s->timed)
        TRY(quantising_make(s->backend, run->item, &run->quantising, why));
    return inputs_hash(s->backend, run->item, &run->inputs, &run->inputs_hash, why);
}

static void free_problem(struct problem_run *run)
{
    for (int i = 0; i < run->count; i++)
        free_contender(run, &run->contenders[i]);
    check_reference_free(run->setting->backend, &run->reference);
    tensor_set_free(run->setting->backend, &run->inputs);
    quantising_free(run->setting->backend, &run->quantising);
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
        case_send_row(run, &c);
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
            status = case_time(run, failed, why);
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
                                       .splits = run->item->splits,
                                       .outputs = problem_wanted_outputs(&run->item->problem, run->item->mode),
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
