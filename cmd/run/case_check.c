/* Checks of one implementation's outputs and of what surrounds them. */
#include "cmd/run/case_state.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/device/inputs.h"
#include "cmd/device/stored_outputs.h"
#include "cmd/device/tensor_dump.h"
#include "cmd/record/record_row.h"
#include "cmd/run/invariance.h"

/* ---- neighbours ---- */

/* The check columns, with the relative tolerance that was applied. */
void case_check_row(const struct problem_run *run, struct contender *c)
{
    const struct options *o = run->setting->options;
    const struct attn_problem *p = &run->item->problem;
    const bool is_naive = case_role_of(run, c) == ATTN_ROLE_NAIVE;
    const struct judge_bounds applied =
        judge_bounds_for(run->item->mode == ATTN_FWD ? TENSOR_O : TENSOR_DQ, attn_output_dtype(p), run->item->mode,
                         is_naive, o->atol, o->rtol, 0);
    row_check(&c->row, c->tensors, c->tensor_count, o->check, o->atol, applied.rtol);
    if (c->row.check == CHECKED_FAIL)
        row_failure_repro(&c->row, o, run->item);
}

/* Does not return when loaded implementations are to run in workers of their own. */
static void suspect(const struct problem_run *run, const struct contender *c, const char *what)
{
    char sentence[400];
    const char *name = impl_recorded_name(&run->setting->slots[c->slot], c->impl);
    snprintf(sentence, sizeof sentence, case_is_loaded(run, c) ? "%s: %.300s" : "when %s was checked: %.300s", name,
             what);
    run->setting->hooks.apart(run->setting->hooks.context, c->slot, sentence);
}

/* Who has changed what surrounds the launch of c, when suspect() has returned: a worker holds one loaded implementation
 * then, or none. */
static struct contender *breaker(struct problem_run *run, struct contender *c)
{
    for (int i = 0; i < run->count; i++)
        if (case_is_loaded(run, &run->contenders[i]))
            return &run->contenders[i];
    return c;
}

static enum attn_status restore_inputs(struct problem_run *run, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    run->inputs.signs = (struct input_signs){0};
    TRY(inputs_fill(be, run->item, run->item->folder, &run->inputs, why));
    TRY(check_forward_inputs(be, run->item, &run->inputs, why));
    return inputs_hash(be, run->item, &run->inputs, &run->inputs_hash, why);
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
    return restore_inputs(run, why);
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
    if (!case_is_loaded(run, c) || !(outputs || inputs || workspace))
        return ATTN_OK;
    case_check_row(run, c);
    row_end(&c->row, STATUS_OK, "");
    case_send_row(run, c);
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

/* The reference as it was computed, ahead of every verdict by it: who finds it in memory could set it, and its own
 * outputs, to the same numbers, and would fail whoever comes next. Does not return where loaded implementations are to
 * run in workers of their own. */
static enum attn_status mend_reference(struct problem_run *run, struct contender *c, bool *was_changed,
                                       struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    bool holds = true;
    TRY(check_reference_holds(be, &run->reference, &holds, why));
    *was_changed = !holds;
    if (holds)
        return ATTN_OK;
    suspect(run, c, "the reference was changed");
    TRY(restore_inputs(run, why));
    return check_reference_renew(be, run->item, &run->inputs, &run->reference, why);
}

/* Behind the verdict on c, whose tensors come first in its row. */
static void add_changed_reference(struct problem_run *run, struct contender *c)
{
    struct contender *who = breaker(run, c);
    check_add_finding(who->tensors, &who->tensor_count, "ref", "reference",
                      "the reference was changed: a launch wrote into the memory that results are compared with");
}

/* ---- verdicts ---- */

struct check_request case_check_request(const struct problem_run *run, const struct contender *c)
{
    return (struct check_request){.item = run->item,
                                  .reference = &run->reference,
                                  .outputs = &c->outputs,
                                  .is_naive = case_role_of(run, c) == ATTN_ROLE_NAIVE,
                                  .atol = run->setting->options->atol,
                                  .rtol = run->setting->options->rtol};
}

/* The tensors whose bits the implementation promises to repeat. */
unsigned case_promised_tensors(const struct problem_run *run, const struct contender *c)
{
    return c->request.deterministic ? c->impl->repeatable_deterministic[run->item->mode]
                                    : c->impl->repeatable[run->item->mode];
}

/* Judges the outputs and adds the verdict to those of earlier launches. */
enum attn_status case_judge_outputs(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    const struct options *o = run->setting->options;
    struct record_tensor now[RECORD_TENSORS_MAX];
    int count = 0;
    bool was_changed = false;
    TRY(mend_reference(run, c, &was_changed, why));
    const struct check_request request = case_check_request(run, c);
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
    if (was_changed)
        add_changed_reference(run, c);
    if (!case_is_loaded(run, c) && !check_passed(c->tensors, c->tensor_count))
        suspect(run, c, "a wrong result");
    return ATTN_OK;
}

enum attn_status case_poison(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    const uint32_t bits = c->fills == 0 ? POISON_PATTERN : (uint32_t)number_mix(run->item->seed + (uint64_t)c->fills);
    c->fills++;
    if (c->workspace.bytes)
        TRY(be->ops->pattern(be, c->workspace.data, c->workspace.bytes, bits, why));
    return outputs_poison(be, &c->outputs, why);
}

/* Rules 1 to 3 for a tensor of a repeated launch whose bits are not promised. */
static enum attn_status judge_repeat(struct problem_run *run, struct contender *c, int64_t number,
                                     struct attn_message *why)
{
    struct record_tensor now[RECORD_TENSORS_MAX];
    int count = 0;
    bool was_changed = false;
    TRY(mend_reference(run, c, &was_changed, why));
    struct check_request request = case_check_request(run, c);
    request.is_repeat = true;
    TRY(check_outputs(run->setting->backend, &request, now, &count, why));
    if (was_changed)
        add_changed_reference(run, c);
    for (int i = 0; i < count; i++) {
        char sentence[sizeof now[i].failure];
        if (now[i].used <= 1)
            continue;
        snprintf(sentence, sizeof sentence, "in run %lld: %.220s", (long long)number, now[i].failure);
        check_add_finding(c->tensors, &c->tensor_count, now[i].name, now[i].rule, sentence);
    }
    return ATTN_OK;
}

void case_watch(struct problem_run *run, struct contender *c)
{
    struct probe *probe = &c->work.probe;
    int count;
    const enum problem_tensor *outputs = problem_outputs(&run->item->problem, run->item->mode, &count);
    probe->count = 0;
    for (int i = 0; i < count && i < PROBE_SPANS; i++) {
        const struct buffer *buffer = &c->outputs.buffers[outputs[i]];
        probe->spans[probe->count].data = buffer->data;
        probe->spans[probe->count++].bytes = buffer->bytes;
    }
    c->launcher.probe = probe;
}

enum attn_status case_compare_promised(struct problem_run *run, struct contender *c, int n, struct attn_message *why)
{
    struct digest now[TENSOR_COUNT];
    int count;
    const enum problem_tensor *outputs = problem_outputs(&run->item->problem, run->item->mode, &count);
    const unsigned promised = case_promised_tensors(run, c);
    if (!run->reference.count || !check_passed(c->tensors, c->tensor_count))
        return ATTN_OK;
    TRY(outputs_digest(run->setting->backend, run->item, &c->outputs, now, why));
    for (int i = 0; i < count; i++) {
        const char *name = problem_tensor_name(outputs[i]);
        char sentence[160];
        if (!(promised & problem_tensor_bit(outputs[i])) || now[outputs[i]].hash == c->first[outputs[i]].hash)
            continue;
        snprintf(sentence, sizeof sentence, "%s: promised bit-equal over runs, differs in sample %d after the rounds",
                 name, n + 1);
        check_add_finding(c->tensors, &c->tensor_count, name, "repeat", sentence);
    }
    return ATTN_OK;
}

/* Launches again into poisoned outputs. A tensor whose bits are promised must have those of the first launch, the
 * others are judged. */
static enum attn_status check_repeats(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    int count;
    const enum problem_tensor *outputs = problem_outputs(&run->item->problem, run->item->mode, &count);
    const unsigned promised = case_promised_tensors(run, c);
    bool is_all_promised = true;
    for (int i = 0; i < count; i++)
        is_all_promised &= (promised & problem_tensor_bit(outputs[i])) != 0;
    for (int64_t n = 0; n < run->item->repeats; n++) {
        TRY(case_poison(run, c, why));
        case_report_stage(run, STAGE_CHECK, c->slot);
        const enum attn_status status = be->ops->launch(be, &c->launcher, why);
        case_after_call(run);
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
        if (!is_all_promised && check_passed(c->tensors, c->tensor_count))
            TRY(judge_repeat(run, c, n + 2, why));
    }
    return ATTN_OK;
}

/* ---- other batches ---- */

/* A call of the implementation whose batches are compared. */
struct invariance_call {
    const struct problem_run *run;
    int slot;
};

static void before_call(void *context)
{
    const struct invariance_call *call = context;
    case_report_stage(call->run, STAGE_CHECK, call->slot);
}

static void after_call(void *context) { case_after_call(((const struct invariance_call *)context)->run); }

/* --invariance: the outputs, as the last launch left them, beside those of the sequences in other batches. A tensor for
 * which this is promised fails where bits differ. */
static enum attn_status check_invariance(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    struct invariance_call call = {run, c->slot};
    const struct invariance_request asked = {.item = run->item,
                                             .inputs = &run->inputs,
                                             .outputs = &c->outputs,
                                             .impl = c->impl,
                                             .request = &c->request,
                                             .before_call = before_call,
                                             .after_call = after_call,
                                             .context = &call};
    static const enum problem_tensor tensors[] = {TENSOR_O, TENSOR_LSE};
    const unsigned promised = c->request.invariant ? c->impl->invariant[run->item->mode] : 0;
    struct invariance found;
    if (!check_passed(c->tensors, c->tensor_count))
        return ATTN_OK;
    TRY(invariance_measure(run->setting->backend, &asked, &found, why));
    invariance_text(&found, c->row.batch_invariant, sizeof c->row.batch_invariant);
    for (int i = 0; i < 2; i++) {
        const char *name = problem_tensor_name(tensors[i]);
        char sentence[160];
        if (!(promised & found.differs & problem_tensor_bit(tensors[i])))
            continue;
        snprintf(sentence, sizeof sentence, "%s: promised the same bits in every batch, differs: %s", name,
                 tensors[i] == TENSOR_O ? found.first_o : found.first_lse);
        check_add_finding(c->tensors, &c->tensor_count, name, "invariant", sentence);
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
                                      .row_offset = view->row_offset,
                                      .outputs = view->reference};
    }
    return (struct dump_reference){parts, run->reference.count};
}

/* Captures the launch in a CUDA graph, where that is possible, and judges what the graph writes into poisoned outputs.
 * The repeated launches come from the graph, too. */
static enum attn_status check_captured(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    case_report_stage(run, STAGE_CHECK, c->slot);
    const enum attn_status status = be->ops->capture(be, &c->launcher, why);
    case_after_call(run);
    TRY(status);
    if (!c->launcher.graph)
        return ATTN_OK;
    TRY(case_poison(run, c, why));
    TRY(be->ops->launch(be, &c->launcher, why));
    return case_judge_outputs(run, c, why);
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
enum attn_status case_launch_first(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    int count;
    const enum problem_tensor *outputs = problem_outputs(&run->item->problem, run->item->mode, &count);
    unsigned found = UINT_MAX;
    const char *bad = NULL;
    case_report_stage(run, STAGE_CHECK, c->slot);
    const struct impl_slot *slot = &run->setting->slots[c->slot];
    TRY(case_poison(run, c, why));
    const enum attn_status status = slot->is_stored
                                        ? stored_outputs_read(be, run->item, slot, &c->outputs, &found, &bad, why)
                                        : be->ops->launch(be, &c->launcher, why);
    case_after_call(run);
    TRY(status);
    c->runs = true;
    if (bad)
        check_add_finding(c->tensors, &c->tensor_count, bad, "file", why->text);
    if (case_role_of(run, c) == ATTN_ROLE_NOTHING || bad) /* there is no output */
        return ATTN_OK;
    TRY(case_judge_outputs(run, c, why));
    drop_unread(c, found);
    TRY(outputs_digest(be, run->item, &c->outputs, c->first, why));
    if (case_role_of(run, c) == ATTN_ROLE_NAIVE && check_passed(c->tensors, c->tensor_count))
        for (int i = 0; i < c->tensor_count; i++) /* where all passed these are the outputs alone */
            run->reference.max_abs_err[outputs[i]] = c->tensors[i].max_abs_err;
    if (run->setting->options->dump_dir && dump(run, c, why) != ATTN_OK) {
        log_error("--dump: %s", why->text);
        run->setting->hooks.io_failed(run->setting->hooks.context);
    }
    if (run->item->is_captured)
        TRY(check_captured(run, c, why));
    if (run->item->repeats)
        TRY(check_repeats(run, c, why));
    return run->setting->options->invariance ? check_invariance(run, c, why) : ATTN_OK;
}
