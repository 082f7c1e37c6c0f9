/* The timed part of a problem: rounds, sustained regions, their checks, and the rows. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/host.h"
#include "cmd/base/log.h"
#include "cmd/base/stats.h"
#include "cmd/measure/rounds.h"
#include "cmd/problem/problem.h"
#include "cmd/record/record_row.h"
#include "cmd/run/case_state.h"
#include "cmd/run/witness.h"

/* ---- rounds ---- */

static bool enter_sample(void *context, int member)
{
    const struct problem_run *run = context;
    case_report_stage(run, STAGE_TIME, run->member_slots[member]);
    return !run->setting->hooks.interrupted(run->setting->hooks.context);
}

static enum attn_status before_sample(void *context, int member, bool is_timed, struct attn_message *why)
{
    struct problem_run *run = context;
    struct contender *c = run->member_contenders[member];
    return c ? work_change(&run->work, &c->work, is_timed, why) : ATTN_OK;
}

static void after_launch(void *context, int member)
{
    const struct problem_run *run = context;
    const struct contender *c = run->member_contenders[member];
    if (c && case_is_loaded(run, c))
        case_after_call(run);
}

static void launched(void *context)
{
    const struct problem_run *run = context;
    case_after_call(run);
    case_report_stage(run, STAGE_CHECK, run->current_slot); /* another launch may follow */
}

static enum attn_status after_sample(void *context, int member, double time_ms, struct attn_message *why)
{
    struct problem_run *run = context;
    struct contender *c = run->member_contenders[member];
    bool is_calm = true;
    if (!c)
        return ATTN_OK;
    TRY(work_compare(&run->work, &c->work, time_ms, &is_calm, why));
    if (!is_calm)
        run->setting->hooks.apart(run->setting->hooks.context, -1, "threads go on between launches");
    return ATTN_OK;
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
    case_report_stage(run, STAGE_SUSTAIN, run->current_slot);
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
        if (case_role_of(run, c) == ATTN_ROLE_NOTHING || run->rerun & 1u << c->slot ||
            (c->tensor_count && !check_passed(c->tensors, c->tensor_count)))
            continue;
        *failed = run->current_slot = c->slot;
        TRY(work_known(&run->work, &c->work, false, why));
        const enum attn_status status = sustain_run(run->setting->backend, &c->launcher, &plan, &c->sustained, why);
        case_after_call(run);
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
        const bool is_wanted = slot ? !strcmp(run->setting->slots[c->slot].name, slot) : case_role_of(run, c) == role;
        if (is_wanted && check_passed(c->tensors, c->tensor_count)) {
            if (name)
                *name = c->row.impl;
            return members[m].samples_ms;
        }
        m++;
    }
    return NULL;
}

/* Judges the outputs of the sustained region, where there was one; then those of samples on the values that the
 * inputs were filled with, taken as all others were: whole, and bit for bit where that is promised. */
enum { LAST_SAMPLES = 4 };

static enum attn_status judge_timed_path(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    double ignored_ms = 0;
    if (case_role_of(run, c) == ATTN_ROLE_NOTHING)
        return ATTN_OK;
    if (c->sustained.passes > 0)
        TRY(case_judge_outputs(run, c, why));
    for (int n = 0; n < LAST_SAMPLES; n++) {
        case_report_stage(run, STAGE_CHECK, c->slot);
        TRY(work_known(&run->work, &c->work, true, why));
        const enum attn_status status =
            be->ops->sample(be, &c->launcher, run->setting->options->l2 == L2_COLD, &ignored_ms, why);
        case_after_call(run);
        TRY(status);
        TRY(n == 0 ? case_judge_outputs(run, c, why) : case_compare_promised(run, c, n, why));
    }
    return ATTN_OK;
}

static enum attn_status time_passes(struct problem_run *run, struct contender *c, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    char names[8][16];
    double times_ms[8];
    case_report_stage(run, STAGE_CHECK, c->slot);
    const enum attn_status status = be->ops->passes(be, &c->launcher, 8, names, times_ms, &c->row.pass_count, why);
    case_after_call(run);
    TRY(status);
    for (int i = 0; i < c->row.pass_count; i++) {
        snprintf(c->row.passes[i].name, sizeof c->row.passes[i].name, "%s", names[i]);
        c->row.passes[i].time_ms = times_ms[i];
    }
    return ATTN_OK;
}

/* Makes the ceiling of the problem ready, what it is measured against: reading as many bytes as a forward against a
 * cache has to, else the GEMM. Nothing of it has a row of its own: without it some columns stay empty. */
static bool make_ceiling(struct problem_run *run, struct launcher *launcher, struct row_baselines *baselines,
                         struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    const struct attn_problem *p = &run->item->problem;
    const bool is_read = p->lengths == ATTN_CACHE;
    const double bytes = problem_min_bytes(p, run->item->mode, problem_used_keys(p, run->item->arrays));
    if (is_read)
        launcher->read_bytes = ((size_t)bytes + READ_MULTIPLE - 1) / READ_MULTIPLE * READ_MULTIPLE;
    baselines->read_gb = (double)launcher->read_bytes * 1e-9;
    enum attn_status status = is_read ? be->ops->read_prepare(be, launcher->read_bytes, why)
                                      : be->ops->gemm_prepare(be, p->dtype, &baselines->gemm_flops, why);
    if (is_read && status == ATTN_OK) /* launched as what it is compared with, whose launches may take as long */
        status = be->ops->capture(be, launcher, why);
    if (status != ATTN_OK && status != ATTN_UNSUPPORTED)
        log_warn("no %s ceiling for this problem: %s", is_read ? "read" : "GEMM", why->text);
    return status == ATTN_OK;
}

/* The buffer of the read ceiling is as large as a cache: the next problem may need the memory. */
static void drop_ceiling(struct problem_run *run, struct rounds_member *last)
{
    struct backend *be = run->setting->backend;
    struct attn_message ignored;
    if (!last->launcher.impl)
        be->ops->uncapture(be, &last->launcher);
    (void)be->ops->read_prepare(be, 0, &ignored);
}

/* Captures every contender in a graph and lists them, then quantising where its time counts, and then the ceiling, as
 * members of the rounds. */
static enum attn_status make_members(struct problem_run *run, struct rounds_member *members, int *slots,
                                     struct contender **contenders, int *count, struct attn_request *ceiling_request,
                                     struct row_baselines *baselines, struct attn_message *why)
{
    struct backend *be = run->setting->backend;
    *count = 0;
    for (int i = 0; i < run->count; i++) {
        struct contender *c = &run->contenders[i];
        if (!c->runs)
            continue;
        case_report_stage(run, STAGE_PREPARE, c->slot);
        TRY(outputs_poison(be, &c->outputs, why));
        TRY(be->ops->capture(be, &c->launcher, why));
        snprintf(c->row.launch, sizeof c->row.launch, "%s",
                 be->device.platform == ATTN_CPU ? "host"
                 : c->launcher.graph             ? "graph"
                                                 : "direct");
        slots[*count] = c->slot;
        contenders[*count] = case_role_of(run, c) == ATTN_ROLE_NOTHING ? NULL : c;
        c->work = (struct work_member){.launcher = &c->launcher,
                                       .outputs = &c->outputs,
                                       .check = case_check_request(run, c),
                                       .first = c->first,
                                       .promised = case_promised_tensors(run, c),
                                       .is_loaded = case_is_loaded(run, c),
                                       .keeps_values = case_role_of(run, c) == ATTN_ROLE_NAIVE,
                                       .workspace = &c->workspace,
                                       .tensors = c->tensors,
                                       .tensor_count = &c->tensor_count};
        case_watch(run, c);
        members[(*count)++] = (struct rounds_member){.launcher = c->launcher};
    }
    if (*count == 0)
        return ATTN_OK;
    case_report_stage(run, STAGE_PREPARE, -1);
    if (run->item->quant_in_time) {
        slots[*count] = -1;
        contenders[*count] = NULL;
        members[(*count)++] = (struct rounds_member){.launcher = {.quantiser = &run->quantising.quantiser}};
    }
    *ceiling_request = run->contenders[0].request;
    struct launcher ceiling = {.request = ceiling_request};
    if (!make_ceiling(run, &ceiling, baselines, why))
        return ATTN_OK;
    slots[*count] = -1;
    contenders[*count] = NULL;
    members[(*count)++] = (struct rounds_member){.launcher = ceiling};
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
        if (i == index || case_role_of(run, other) == ATTN_ROLE_NOTHING ||
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

/* One measurement of a problem: its members, and what came of it. */
struct timing {
    struct rounds_member members[IMPL_MAX_SLOTS + 2]; /* and quantising, and the ceiling */
    struct contender *contenders[IMPL_MAX_SLOTS + 2];
    int slots[IMPL_MAX_SLOTS + 2], count;
    struct attn_request ceiling_request;
    struct rounds_result result;
    struct row_baselines baselines;
    struct telemetry_region around;
    double cpu_wait_pct; /* NaN = not known */
};

static double median_ms_of(const struct timing *t, int member)
{
    return stats_of(t->members[member].samples_ms, t->result.rounds).median;
}

static bool has_loaded(const struct problem_run *run)
{
    bool has = false;
    for (int i = 0; i < run->count; i++)
        has |= run->contenders[i].runs && case_is_loaded(run, &run->contenders[i]);
    return has;
}

/* The rounds, then the sustained regions. */
static enum attn_status measure(struct problem_run *run, struct timing *t, int *failed, struct attn_message *why)
{
    const struct case_setting *s = run->setting;
    struct telemetry telemetry;
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
    run->member_slots = t->slots;
    run->member_contenders = t->contenders;
    TRY(work_begin(&run->work, s->backend, run->item, &run->inputs, plan.cold, run->item->folder != NULL,
                   has_loaded(run), why));
    run->work.launched = launched;
    run->work.context = run;
    struct host_thread_times began, ended;
    const bool is_told = s->backend->device.platform == ATTN_CPU && host_thread_times("", &began);
    telemetry_begin(&telemetry, s->use_nvml);
    const enum attn_status status = rounds_run(s->backend, t->members, t->count, &plan, &t->result, why);
    t->around = telemetry_end(&telemetry);
    t->cpu_wait_pct = is_told && host_thread_times("", &ended) ? host_wait_pct(&began, &ended) : NAN;
    case_after_call(run);
    if (status != ATTN_OK) {
        *failed = t->slots[t->result.failed_member];
        return status;
    }
    TRY(check_device_present(&t->around, why)); /* of no single implementation: *failed is -1 */
    if (!t->result.interrupted && s->plan->sustain_s > 0)
        TRY(sustain_all(run, t->members, t->result.rounds, failed, &t->result.interrupted, why));
    return ATTN_OK;
}

/* Threads of an OpenMP pool may wait actively for some ms before they sleep. */
#define AFTER_MS 20.0

/* CPU time of threads between the launches. Where several loaded implementations have run here it is not known whose it
 * is: hooks.apart does not return then. */
static void account(struct problem_run *run, struct contender *c)
{
    struct attn_message sentence;
    const double after_ms = c->work.samples > 0 ? c->work.waited_ms / (double)c->work.samples : 0;
    if (work_is_beside(&run->work, &c->work, &sentence)) {
        run->setting->hooks.apart(run->setting->hooks.context, -1, sentence.text);
        work_add_finding(&run->work, &c->work, sentence.text);
    }
    if (after_ms > AFTER_MS)
        log_warn("%s: its threads computed on for %.3g ms after a launch, on average; the others waited for them "
                 "(OpenMP threads that spin: OMP_WAIT_POLICY=passive)",
                 c->row.impl, after_ms);
}

/* Batches that the supervisor times, too. On a busy machine one may take many times as long as its launches do alone.
 * */
static enum attn_status witness(struct problem_run *run, struct contender *c, double median_ms,
                                struct attn_message *why)
{
    const struct case_hooks *hooks = &run->setting->hooks;
    bool is_again = run->work.has_loaded && check_passed(c->tensors, c->tensor_count);
    double launch_ms = median_ms, own_ms = 0;
    for (int i = 0; i < WITNESS_TRIES && is_again; i++) {
        const int64_t launches = witness_launches(launch_ms, i, 0.1e3 * run->setting->options->timeout_s);
        run->current_slot = c->slot;
        case_report_stage(run, STAGE_SUSTAIN, c->slot);
        hooks->witness(hooks->context, c->slot, 0, 0, &own_ms);
        const enum attn_status status =
            run->setting->backend->ops->repeat(run->setting->backend, &c->launcher, launches, why);
        case_after_call(run);
        TRY(status);
        is_again = hooks->witness(hooks->context, c->slot, launches, c->work.probe.repeat_ms, &own_ms);
        launch_ms = fmax(own_ms, c->work.probe.repeat_ms) / (double)launches;
    }
    return ATTN_OK;
}

/* Whether what was timed is right, and whether it was the work. */
static enum attn_status check_timed(struct problem_run *run, struct timing *t, int *failed, struct attn_message *why)
{
    for (int i = 0; i < run->count; i++) {
        struct contender *c = &run->contenders[i];
        if (!c->runs)
            continue;
        *failed = c->slot;
        case_report_stage(run, STAGE_CHECK, c->slot);
        TRY(judge_timed_path(run, c, why));
        if (run->setting->options->verbose)
            TRY(time_passes(run, c, why));
    }
    for (int m = 0; m < t->count; m++) {
        if (!t->contenders[m])
            continue;
        *failed = run->current_slot = t->slots[m];
        case_report_stage(run, STAGE_CHECK, t->slots[m]);
        TRY(check_sustained(run, t->contenders[m], median_ms_of(t, m), why));
        account(run, t->contenders[m]);
        TRY(witness(run, t->contenders[m], median_ms_of(t, m), why));
    }
    TRY(case_count(run, failed, why));
    return work_restore(&run->work, why);
}

/* --quant-in-time: what quantising took in a round is part of each launch of the round. */
static void add_quantising(struct problem_run *run, struct timing *t)
{
    const double *quant_ms = NULL;
    for (int m = 0; m < t->count; m++)
        if (t->members[m].launcher.quantiser)
            quant_ms = t->members[m].samples_ms;
    for (int m = 0; m < t->count && quant_ms; m++)
        for (int64_t n = 0; n < t->result.rounds && t->members[m].launcher.impl; n++)
            t->members[m].samples_ms[n] += quant_ms[n];
    for (int i = 0; i < run->count && quant_ms; i++)
        run->contenders[i].row.quant_ms = stats_of(quant_ms, t->result.rounds).median;
}

/* After all checks, because rows that failed are not compared with. */
static void send_timed_rows(struct problem_run *run, struct timing *t)
{
    const struct rounds_member *last = &t->members[t->count - 1];
    const bool is_ceiling = !last->launcher.impl && !last->launcher.quantiser, is_read = last->launcher.read_bytes > 0;
    add_quantising(run, t);
    t->baselines.gemm_ms = is_ceiling && !is_read ? last->samples_ms : NULL;
    t->baselines.read_ms = is_ceiling && is_read ? last->samples_ms : NULL;
    t->baselines.naive_ms = samples_of(run, t->members, ATTN_ROLE_NAIVE, NULL, NULL);
    const struct case_setting *const s = run->setting;
    const char *const peer = impls_peer(s->slots, s->slot_count, s->options->peer);
    t->baselines.peer_ms = samples_of(run, t->members, ATTN_ROLE_PEER, peer, &t->baselines.peer);
    for (int i = 0, m = 0; i < run->count; i++) {
        struct contender *c = &run->contenders[i];
        if (!c->runs)
            continue;
        case_check_row(run, c);
        row_times(&c->row, t->members[m++].samples_ms, t->result.rounds, t->result.stop, &t->baselines);
        row_telemetry(&c->row, &t->around);
        c->row.cpu_wait_pct = t->cpu_wait_pct;
        row_sustained(&c->row, &c->sustained);
        row_end(&c->row, STATUS_OK, "");
    }
    for (int i = 0; i < run->count; i++) /* before any row is sent: case_send_row takes it out of the comparison */
        if (run->contenders[i].runs)
            put_speedups(run, t->members, t->result.rounds, i);
    for (int i = 0; i < run->count; i++)
        if (run->contenders[i].runs)
            case_send_row(run, &run->contenders[i]);
}

enum attn_status case_time(struct problem_run *run, int *failed, struct attn_message *why)
{
    struct timing t = {.count = 0};
    *failed = -1;
    TRY(make_members(run, t.members, t.slots, t.contenders, &t.count, &t.ceiling_request, &t.baselines, why));
    if (t.count == 0)
        return ATTN_OK;
    enum attn_status status = measure(run, &t, failed, why);
    if (status == ATTN_OK && !t.result.interrupted)
        status = check_timed(run, &t, failed, why);
    if (status == ATTN_OK && !t.result.interrupted)
        send_timed_rows(run, &t);
    work_end(&run->work);
    drop_ceiling(run, &t.members[t.count - 1]);
    for (int m = 0; m < t.count; m++)
        free(t.members[m].samples_ms);
    return status;
}
