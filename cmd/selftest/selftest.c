/* For each problem: computes the right result, makes every wrong one from it, and has the judge check all of them. For
 * the first problem of each direction: lies about work. */
#include "cmd/selftest/selftest.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/terminal.h"
#include "cmd/device/backend.h"
#include "cmd/device/inputs.h"
#include "cmd/options/options_line.h"
#include "cmd/record/record.h"
#include "cmd/run/check.h"
#include "cmd/run/outputs.h"
#include "cmd/run/session.h"
#include "cmd/selftest/selftest_report.h"

/* One problem under test. */
struct tested_problem {
    struct session *session;
    const struct options *options;
    const struct plan_item *item;
    const struct attn_impl *impl; /* computes the right result */
    const char *asked;            /* the name in --impl, else the implementation's own */
    enum attn_dtype computed;     /* used by impl: the problem's, or fp32 where no implementation takes it */
    struct tensor_set inputs;
    uint64_t inputs_hash;
    struct check_reference reference;
    struct host_tensors correct;
    struct selftest_report *report;
    char *repro; /* the command that tests this problem again */
    int exit_code;
    int slot;                                     /* of --impl, 0 without it */
    bool has_lied[IMPL_MAX_SLOTS][2];             /* by slot and enum attn_mode: lies about work were tried */
    int tested[IMPL_MAX_SLOTS];                   /* problems, by slot */
    struct attn_message refusals[IMPL_MAX_SLOTS]; /* the first one of each slot */
    bool io_failed;                               /* a row could not be written: the self-test ends */
};

/* ---- launches that may hang ---- */

static char timeout_message[160]; /* the message of on_alarm, which must not call printf itself */

static void on_alarm(int number)
{
    (void)number;
    if (write(STDERR_FILENO, timeout_message, strlen(timeout_message)) < 0)
        _exit(EXIT_IO);
    _exit(EXIT_DEVICE);
}

/* Sets the time limit of a launch in seconds; 0 = none. */
static void set_limit(double limit_s, const char *impl)
{
    const struct itimerval limit = {
        .it_value = {.tv_sec = (time_t)limit_s, .tv_usec = (suseconds_t)(fmod(limit_s, 1) * 1e6)}};
    snprintf(timeout_message, sizeof timeout_message, "\nfabench: selftest: %.40s: no answer for %g s: killed\n", impl,
             limit_s);
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &limit, NULL);
}

/* ---- implementations ---- */

static const struct attn_impl *naive_of(const struct session *s)
{
    for (int i = 0; i < s->impls.count; i++)
        if (impls_role(&s->impls, s->impls.all[i]) == ATTN_ROLE_NAIVE &&
            s->impls.all[i]->platform == s->backend.device.platform)
            return s->impls.all[i];
    return NULL;
}

/* The best fused kernel for a request, else naive. */
static const struct attn_impl *any_implementation(const struct session *s, struct attn_request *request,
                                                  struct attn_message *why)
{
    const struct impl_slot fused = {.name = "fused"};
    const struct attn_impl *impl = impl_resolve(&fused, request, why), *naive = naive_of(s);
    return impl ? impl : naive && naive->accepts(request, why) == ATTN_OK ? naive : NULL;
}

/* Chooses who computes the right result. slot NULL: any implementation. The problem's own dtype is preferred. */
static bool choose_implementation(struct tested_problem *t, const struct impl_slot *slot, struct attn_message *why)
{
    struct attn_problem p = t->item->problem;
    struct attn_request request = {.problem = &p,
                                   .device = &t->session->backend.device,
                                   .mode = t->item->mode,
                                   .outputs = problem_wanted_outputs(&p, t->item->mode)};
    for (int i = 0; i < (t->item->problem.dtype == ATTN_FP32 ? 1 : 2); i++) {
        struct attn_message ignored;
        p.dtype = i == 0 ? t->item->problem.dtype : ATTN_FP32;
        struct attn_message *reason = i == 0 ? why : &ignored;
        t->impl = slot ? impl_resolve(slot, &request, reason) : any_implementation(t->session, &request, reason);
        t->computed = p.dtype;
        if (t->impl)
            return true;
    }
    return false;
}

/* The longest blocks with scales of their own that are tried: some kernels take those of whole tiles alone. */
enum { MOST_SCALE_BLOCK = 256 };

/* The same for scales of blocks of rows: the shortest that the implementation takes, of any implementation the best
 * fused kernel's. `item` is the problem; its blocks are the shortest that are of use. */
static bool choose_blocks(struct tested_problem *t, struct plan_item *item, const struct impl_slot *slot,
                          struct attn_message *why)
{
    const struct impl_slot fused = {.name = "fused"};
    const int64_t shortest = item->problem.scale_block;
    struct attn_message ignored;
    for (int64_t block = shortest; block > 0 && block <= MOST_SCALE_BLOCK; block *= 2) {
        item->problem.scale_block = block;
        if (choose_implementation(t, slot ? slot : &fused, block == shortest ? why : &ignored))
            return true;
    }
    item->problem.scale_block = shortest;
    return (!slot || shortest == 0) && choose_implementation(t, slot, why);
}

/* ---- the kernel as a function on host tensors ---- */

struct run_memory {
    struct tensor_set inputs, outputs;
    struct buffer workspace;
};

static enum attn_status launch_once(const struct tested_problem *t, const struct attn_impl *impl,
                                    const struct plan_item *item, struct run_memory *m, struct host_tensors *tensors,
                                    struct attn_message *why)
{
    struct backend *be = &t->session->backend;
    const struct attn_request request = {.problem = &item->problem,
                                         .device = &be->device,
                                         .mode = item->mode,
                                         .outputs = problem_wanted_outputs(&item->problem, item->mode)};
    TRY(inputs_make(be, item, NULL, &m->inputs, why));
    TRY(host_tensors_write(be, item, tensors, &m->inputs, why));
    TRY(outputs_make(be, item, &m->inputs, &m->outputs, why));
    const size_t bytes = impl->workspace_bytes(&request);
    TRY(buffer_alloc(be, bytes, &m->workspace, why));
    struct launcher launcher = {.impl = impl,
                                .request = &request,
                                .tensors = &m->outputs.tensors,
                                .run = {.workspace = m->workspace.data, .workspace_bytes = bytes}};
    set_limit(t->options->timeout_s, impl->name);
    enum attn_status status = ATTN_OK;
    if (impl->prepare)
        status = impl->prepare(&request, &m->outputs.tensors, &launcher.run.plan, why);
    const bool is_prepared = status == ATTN_OK && impl->prepare;
    if (status == ATTN_OK)
        status = be->ops->launch(be, &launcher, why);
    if (is_prepared)
        impl->release(launcher.run.plan);
    set_limit(0, impl->name);
    return status == ATTN_OK ? host_tensors_read(be, item, &m->outputs, tensors, why) : status;
}

static enum attn_status compute(const struct tested_problem *t, const struct attn_impl *impl,
                                const struct attn_problem *problem, enum attn_mode mode, struct host_tensors *tensors,
                                struct attn_message *why)
{
    struct backend *be = &t->session->backend;
    struct plan_item item = {.problem = *problem, .arrays = tensors->arrays, .mode = mode, .dist = FILL_ZEROS};
    struct run_memory m = {0};
    item.problem.dtype = t->computed;
    const enum attn_status status = launch_once(t, impl, &item, &m, tensors, why);
    tensor_set_free(be, &m.inputs);
    tensor_set_free(be, &m.outputs);
    buffer_free(be, &m.workspace);
    return status;
}

/* A fault_attend. When the kernel refuses a changed problem, another implementation computes it: only the result
 * matters. */
static enum attn_status attend(void *context, const struct attn_problem *problem, enum attn_mode mode,
                               struct host_tensors *tensors, struct attn_message *why)
{
    const struct tested_problem *t = context;
    struct attn_problem p = *problem;
    p.dtype = t->computed;
    struct attn_request request = {.problem = &p,
                                   .device = &t->session->backend.device,
                                   .mode = mode,
                                   .outputs = problem_wanted_outputs(&p, mode)};
    const struct attn_impl *impl =
        t->impl->accepts(&request, why) == ATTN_OK ? t->impl : any_implementation(t->session, &request, why);
    return impl ? compute(t, impl, problem, mode, tensors, why) : ATTN_UNSUPPORTED;
}

/* ---- between kernel and judge ---- */

/* Fills the outputs as a launch with this fault would have; fault NULL = as a correct one. */
static enum attn_status store_result(const struct tested_problem *t, const struct fault *fault, int tensor,
                                     const struct host_tensors *result, struct tensor_set *outputs,
                                     struct attn_message *why)
{
    struct backend *be = &t->session->backend;
    TRY(host_tensors_write(be, t->item, result, outputs, why));
    if (!fault || fault->way == FAULT_RESULT)
        return ATTN_OK;
    if (fault->way == FAULT_STALE) {
        struct tensor_set written = *outputs; /* all but one output; a copy that does not own its buffers */
        written.buffers[tensor] = (struct buffer){0};
        TRY(outputs_poison(be, outputs, why));
        return host_tensors_write(be, t->item, result, &written, why);
    }
    const struct buffer *buffer = &outputs->buffers[tensor];
    const enum attn_dtype dtype = tensor_dtype_of(&t->item->problem, (enum problem_tensor)tensor);
    unsigned char one[4];
    fill_store(one, dtype, 0, 1);
    return be->ops->upload(be, (char *)buffer->data + buffer->bytes, one, attn_dtype_bytes(dtype), why);
}

/* Judges a result as for a row of a sweep, on newly allocated outputs. */
static enum attn_status judge_result(struct tested_problem *t, const struct attn_impl *impl, const struct fault *fault,
                                     int tensor, const struct host_tensors *result, struct tensor_set *outputs,
                                     struct selftest_verdict *verdict, struct attn_message *why)
{
    struct backend *be = &t->session->backend;
    const struct buffer no_workspace = {0};
    struct record_tensor tensors[RECORD_TENSORS_MAX];
    double by_rule[RECORD_TENSORS_MAX][JUDGE_RULES];
    int count = 0;
    const struct check_request request = {.item = t->item,
                                          .reference = &t->reference,
                                          .outputs = outputs,
                                          .is_naive = impls_role(&t->session->impls, impl) == ATTN_ROLE_NAIVE,
                                          .atol = NAN,
                                          .rtol = NAN,
                                          .by_rule = by_rule};
    const struct check_surroundings around = {
        .inputs = &t->inputs, .outputs = outputs, .workspace = &no_workspace, .inputs_hash = t->inputs_hash};
    TRY(outputs_make(be, t->item, &t->inputs, outputs, why));
    TRY(store_result(t, fault, tensor, result, outputs, why));
    TRY(check_outputs(be, &request, tensors, &count, why));
    const int compared = count;
    TRY(check_untouched(be, t->item, &around, tensors, &count, why));
    for (int i = compared; i < count; i++)
        for (int r = 0; r < JUDGE_RULES; r++)
            by_rule[i][r] = NAN;
    selftest_decide(fault, tensor, t->item->mode, tensors, count, by_rule, verdict);
    return ATTN_OK;
}

static enum attn_status judge(struct tested_problem *t, const struct attn_impl *impl, const struct fault *fault,
                              int tensor, const struct host_tensors *result, struct selftest_verdict *verdict,
                              struct attn_message *why)
{
    struct tensor_set outputs = {.buffers = {{0}}};
    const enum attn_status status = judge_result(t, impl, fault, tensor, result, &outputs, verdict, why);
    tensor_set_free(&t->session->backend, &outputs);
    return status;
}

static void report(struct tested_problem *t, const struct selftest_verdict *verdict)
{
    struct record_row row;
    row_begin(&row, t->options, &t->session->facts, t->item, t->asked, t->impl->name);
    row_check(&row, verdict->tensors, verdict->tensor_count, CHECK_FULL, NAN, NAN);
    row_end(&row, STATUS_OK, "");
    row.method[0] = row.launch[0] = 0; /* nothing is timed */
    row.key.l2 = -1;
    free(row.repro);
    row.repro = xstrdup(t->repro);
    t->io_failed = selftest_report_add(t->report, verdict, &row) != EXIT_OK || t->io_failed;
    if (!verdict->is_good || t->io_failed)
        t->exit_code = exit_worst(t->exit_code, EXIT_IO); /* the judge failed, which is an internal error */
    record_row_free(&row);
}

/* ---- the faults of one problem ---- */

/* Measures naive's error, which rule 5 needs, where naive takes the dtype, fits into memory and passes. */
static enum attn_status measure_naive(struct tested_problem *t, struct attn_message *why)
{
    const struct attn_impl *naive = naive_of(t->session);
    const struct plan_item *item = t->item;
    const struct attn_request request = {.problem = &item->problem,
                                         .device = &t->session->backend.device,
                                         .mode = item->mode,
                                         .outputs = problem_wanted_outputs(&item->problem, item->mode)};
    struct selftest_verdict verdict;
    if (!naive || t->impl == naive || t->computed != item->problem.dtype || item->problem.dtype == ATTN_FP32 ||
        naive->accepts(&request, why) != ATTN_OK)
        return ATTN_OK;
    struct host_tensors result = host_tensors_copy(&t->correct, &item->problem, item->mode);
    enum attn_status status = compute(t, naive, &item->problem, item->mode, &result, why);
    if (status == ATTN_OK)
        status = judge(t, naive, NULL, -1, &result, &verdict, why);
    int count;
    const enum problem_tensor *outputs = problem_outputs(&item->problem, item->mode, &count);
    if (status == ATTN_OK && verdict.is_good)
        for (int i = 0; i < count; i++)
            t->reference.max_abs_err[outputs[i]] = verdict.tensors[i].max_abs_err;
    host_tensors_free(&result);
    return status == ATTN_NO_MEMORY ? ATTN_OK : status;
}

static enum attn_status inject(struct tested_problem *t, const struct fault *fault, int tensor,
                               struct attn_message *why)
{
    const struct attn_problem *p = &t->item->problem;
    const struct fault_job job = {
        .problem = p, .mode = t->item->mode, .correct = &t->correct, .attend = attend, .context = t};
    struct selftest_verdict verdict;
    struct host_tensors wrong = host_tensors_copy(&t->correct, p, t->item->mode);
    enum attn_status status = ATTN_OK;
    if (fault->make)
        status = fault->make(&job, tensor < 0 ? TENSOR_O : (enum problem_tensor)tensor, &wrong, why);
    if (status == ATTN_OK)
        status = judge(t, t->impl, fault, tensor, &wrong, &verdict, why);
    host_tensors_free(&wrong);
    if (status == ATTN_OK)
        report(t, &verdict);
    return status;
}

static enum attn_status inject_all(struct tested_problem *t, struct attn_message *why)
{
    int count, output_count;
    const struct fault *faults = fault_table(&count);
    const enum problem_tensor *outputs = problem_outputs(&t->item->problem, t->item->mode, &output_count);
    for (int i = 0; i < count; i++) {
        const struct fault *fault = &faults[i];
        if (!fault_applies(fault, &t->item->problem, t->item->mode))
            continue;
        if (!fault->each_output)
            TRY(inject(t, fault, fault->in_one ? (int)fault->tensor : -1, why));
        for (int n = 0; fault->each_output && n < output_count; n++)
            TRY(inject(t, fault, (int)outputs[n], why));
    }
    return ATTN_OK;
}

/* What a problem has beyond dense attention, in words; NULL for a dense one. */
static const char *beyond_dense(const struct attn_problem *p)
{
    static const struct {
        unsigned attribute;
        const char *name;
    } names[] = {{ATTN_WITH_8_BIT, "8-bit inputs"},
                 {ATTN_WITH_CACHE, "cache"},
                 {ATTN_WITH_PACKED_LENGTHS, "packed lengths"},
                 {ATTN_WITH_BLOCK_MASK, "block mask"},
                 {ATTN_WITH_DROPOUT, "dropout"},
                 {ATTN_WITH_WINDOW, "window"},
                 {ATTN_WITH_V_HEAD_DIM, "V's head dim"},
                 {ATTN_WITH_SINK, "sink"},
                 {ATTN_WITH_ALIBI, "ALiBi"},
                 {ATTN_WITH_BIAS, "bias"}};
    const struct attn_request request = {.problem = p};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (attn_attributes(&request) & names[i].attribute)
            return names[i].name;
    return NULL;
}

/* ---- lies about work ---- */

enum { LIE_LEN = 2 * FAULT_TILE }; /* a lie shows at any length, and this one is soon computed */

static void limit_call(void *context, bool begins)
{
    const struct tested_problem *t = context;
    set_limit(begins ? t->options->timeout_s : 0, t->impl->name);
}

static void report_lie(void *context, const struct lie_verdict *verdict)
{
    struct tested_problem *t = context;
    struct record_row row;
    row_begin(&row, t->options, &t->session->facts, verdict->item, t->asked, t->impl->name);
    row_check(&row, verdict->tensors, verdict->tensor_count, CHECK_FULL, NAN, NAN);
    row_end(&row, STATUS_OK, "");
    row.method[0] = row.launch[0] = 0; /* no time is reported */
    row.key.l2 = -1;
    free(row.repro);
    row.repro = selftest_repro(t->options, verdict->item, t->impl->name);
    t->io_failed = selftest_report_add_lie(t->report, verdict, &row) != EXIT_OK || t->io_failed;
    if (!verdict->is_good || t->io_failed)
        t->exit_code = exit_worst(t->exit_code, EXIT_IO);
    record_row_free(&row);
}

/* Lies about the work of this implementation, once for each direction, on dense attention in the dtype that it computes
 * in. */
static enum attn_status lie_about_work(struct tested_problem *t, struct attn_message *why)
{
    struct plan_item item = *t->item;
    struct attn_problem *p = &item.problem;
    const struct lies_job job = {.backend = &t->session->backend,
                                 .item = &item,
                                 .impl = t->impl,
                                 .is_naive = impls_role(&t->session->impls, t->impl) == ATTN_ROLE_NAIVE,
                                 .calling = limit_call,
                                 .found = report_lie,
                                 .context = t};
    if (t->has_lied[t->slot][item.mode] || beyond_dense(p))
        return ATTN_OK;
    t->has_lied[t->slot][item.mode] = true;
    const struct attn_request request = {.problem = p, .device = &job.backend->device, .mode = item.mode};
    p->dtype = t->computed;
    p->q_len = p->kv_len = LIE_LEN;
    if (t->impl->accepts(&request, why) != ATTN_OK)
        p->q_len = p->kv_len = t->item->problem.q_len;
    const enum attn_status status = lies_run(&job, why);
    limit_call(t, false);
    return status;
}

/* ---- one problem ---- */

static enum attn_status run_problem(struct tested_problem *t, struct attn_message *why)
{
    struct backend *be = &t->session->backend;
    const struct plan_item *item = t->item;
    struct selftest_verdict verdict;
    TRY(inputs_make(be, item, NULL, &t->inputs, why));
    TRY(check_reference_make(be, item, CHECK_FULL, &t->inputs, &t->reference, why));
    TRY(inputs_hash(be, item, &t->inputs, &t->inputs_hash, why));
    TRY(host_tensors_read(be, item, &t->inputs, &t->correct, why));
    TRY(measure_naive(t, why));
    TRY(compute(t, t->impl, &item->problem, item->mode, &t->correct, why));
    TRY(judge(t, t->impl, NULL, -1, &t->correct, &verdict, why));
    report(t, &verdict);
    /* When the right result fails, faults are not tested: their failure would prove nothing. */
    if (!verdict.is_good)
        return ATTN_OK;
    TRY(inject_all(t, why));
    return lie_about_work(t, why);
}

char *selftest_repro(const struct options *o, const struct plan_item *item, const char *impl)
{
    const struct attn_problem *p = &item->problem;
    struct problem_key key;
    problem_key_clear(&key); /* fields without an option of selftest stay absent */
    key.mode = problem_mode_of(p, item->mode);
    key.dtype = p->dtype;
    key.causal = p->causal;
    key.q_heads = p->q_heads;
    key.q_len = p->kv_len; /* --seqlen, also of packed lengths and caches */
    key.head_dim = p->head_dim;
    key.dist = item->dist;
    key.seed = (int64_t)item->seed;
    return options_repro(o, COMMAND_SELFTEST, "fabench selftest", o->impls.count ? impl : NULL, &key);
}

/* True for an implementation that was named, that takes this problem in the other direction only, and of which this
 * direction was not asked. */
static bool lacks_direction(const struct tested_problem *t, const struct impl_slot *slot)
{
    struct tested_problem other = *t;
    struct plan_item item = *t->item;
    struct attn_message ignored;
    if (!slot || t->options->mode_given)
        return false;
    item.mode = item.mode == ATTN_FWD ? ATTN_BWD : ATTN_FWD;
    other.item = &item;
    return choose_implementation(&other, slot, &ignored);
}

/* Tests one problem with one implementation and frees all memory. False when the device may be in an error state. */
static bool try_problem(struct tested_problem *t, const struct plan_item *planned, const struct impl_slot *slot)
{
    struct attn_message why = {""};
    char name[80];
    struct plan_item item = *planned;
    t->item = &item;
    const char *const attribute = beyond_dense(&item.problem);
    if (!choose_blocks(t, &item, slot, &why)) {
        const char *const what = attribute ? attribute : t->item->mode == ATTN_FWD ? "forward" : "backward";
        if (t->refusals[t->slot].text[0] == 0)
            t->refusals[t->slot] = why;
        if (attribute || lacks_direction(t, slot)) {
            selftest_report_left_out(t->report, t->item, slot ? slot->name : "any", what, why.text);
            return true;
        }
        selftest_report_absent(t->report, t->item, slot ? slot->name : "any", why.text);
        log_error("selftest: %s: %s", problem_print(&t->item->problem, t->item->mode, name, sizeof name), why.text);
        t->exit_code = exit_worst(t->exit_code, EXIT_DEVICE);
        return true;
    }
    t->asked = slot ? slot->name : t->impl->name;
    t->repro = selftest_repro(t->options, t->item, t->impl->name);
    t->correct = host_tensors_make(&t->item->problem, t->item->mode);
    const struct selftest_problem problem = {
        .item = t->item, .impl = t->impl->name, .computed = t->computed, .repro = t->repro};
    selftest_report_begin(t->report, &problem);
    const enum attn_status status = run_problem(t, &why);
    log_progress_clear();
    if (status == ATTN_OK) {
        selftest_report_end(t->report);
        t->tested[t->slot]++;
    } else if (status == ATTN_UNSUPPORTED && attribute) { /* by the reference */
        selftest_report_left_out(t->report, t->item, t->impl->name, attribute, why.text);
        t->refusals[t->slot] = why;
    } else {
        selftest_report_absent(t->report, t->item, t->impl->name, why.text);
        log_error("selftest: %s: %s", problem_print(&t->item->problem, t->item->mode, name, sizeof name), why.text);
        t->exit_code = exit_worst(t->exit_code, EXIT_DEVICE);
    }
    check_reference_free(&t->session->backend, &t->reference);
    tensor_set_free(&t->session->backend, &t->inputs);
    host_tensors_free(&t->correct);
    free(t->repro);
    return status != ATTN_ERROR;
}

/* ---- all of them ---- */

static int run_all(struct session *s, const struct options *o, struct selftest_report *report)
{
    struct tested_problem t = {.session = s, .options = o, .report = report, .exit_code = EXIT_OK};
    const int slots = o->impls.count ? s->slot_count : 1;
    bool goes_on = true;
    for (int i = 0; i < s->plan.count && goes_on; i++)
        for (int slot = 0; slot < slots && goes_on; slot++) {
            char name[80];
            const struct plan_item *item = &s->plan.items[i];
            t.slot = slot;
            log_progress("[%d/%d] %s", i + 1, s->plan.count,
                         problem_print(&item->problem, item->mode, name, sizeof name));
            goes_on = try_problem(&t, item, o->impls.count ? &s->slots[slot] : NULL) && !t.io_failed;
        }
    const bool is_said = t.exit_code != EXIT_OK; /* why */
    for (int slot = 0; slot < slots && goes_on && !is_said; slot++)
        if (t.tested[slot] == 0) {
            log_error("selftest: %s: none of %d problems was tested: %s",
                      o->impls.count ? s->slots[slot].name : "any implementation", s->plan.count,
                      t.refusals[slot].text);
            t.exit_code = EXIT_DEVICE;
        }
    return t.exit_code;
}

/* Refuses null, which computes nothing, and variants, which do not matter to the judge. */
static bool all_compute(const struct session *s, const struct options *o)
{
    for (int i = 0; i < s->slot_count && o->impls.count; i++) {
        if (s->slots[i].role == ATTN_ROLE_NOTHING)
            log_error("--impl null: computes nothing; must be one that does");
        else if (strchr(s->slots[i].name, ':'))
            log_error("--impl %s: selftest takes implementations, not their variants", s->slots[i].name);
        else
            continue;
        return false;
    }
    return true;
}

static int write_junit(struct junit *junit, int code, const char *path)
{
    const int failed = junit_count(junit, JUNIT_FAILED) + junit_count(junit, JUNIT_ERROR);
    char *summary = xasprintf("%d of %d tests failed, exit %d", failed, junit->count, code);
    if (code != EXIT_OK && failed == 0) /* the self-test failed, and no test case says so */
        junit_add(junit, "fabench", "selftest", JUNIT_ERROR, summary);
    const bool is_written = junit_write(junit, "fabench selftest", summary, path);
    free(summary);
    return is_written ? EXIT_OK : EXIT_IO;
}

int selftest_run(const struct options *o)
{
    struct session s;
    struct attn_message why = {""};
    struct record_writer *writer = NULL;
    char run_id[40];
    const double started_ms = clock_ms();
    snprintf(run_id, sizeof run_id, "%08llx%05x", (unsigned long long)time(NULL), (unsigned)getpid());
    if (o->junit_path && !path_discard(o->junit_path)) /* a run that ends early leaves no file of an earlier one */
        return EXIT_IO;
    int status = session_open(o, run_id, true, &s);
    if (status != EXIT_OK)
        return status;
    if (!all_compute(&s, o)) {
        session_close(&s);
        return EXIT_USAGE;
    }
    const struct header_input in = {.options = o,
                                    .plan = &s.plan,
                                    .facts = &s.facts,
                                    .backend = &s.backend,
                                    .nvml = &s.nvml,
                                    .nvml_problem = s.nvml_problem[0] ? s.nvml_problem : NULL,
                                    .copy_gbps = NAN};
    json_t *header = header_make(&in);
    json_object_set_new(header, "command", json_string("selftest"));
    json_object_del(header, "policy"); /* nothing is timed */
    char *line = header_line(header);
    if (o->jsonl_path && (writer = record_open_jsonl(o->jsonl_path, header, &why)) == NULL) {
        log_error("--jsonl: %s", why.text);
        status = EXIT_IO;
    }
    if (status == EXIT_OK) {
        const bool is_stream = o->jsonl_path && !strcmp(o->jsonl_path, "-");
        struct junit junit = {0};
        struct selftest_report *report =
            selftest_report_open(is_stream || o->quiet ? NULL : stdout, terminal_color(o->color), o->verbose,
                                 o->max_failures, writer, o->junit_path ? &junit : NULL);
        selftest_report_heading(report, line, s.plan.count);
        status = run_all(&s, o, report);
        const int error = writer ? record_close(writer) : 0;
        if (error) {
            log_error("--jsonl %s: %s", o->jsonl_path, strerror(error));
            status = exit_worst(status, EXIT_IO);
        }
        if (status == EXIT_OK && !selftest_report_is_good(report))
            status = EXIT_IO;
        if (o->junit_path)
            status = exit_worst(status, write_junit(&junit, status, o->junit_path));
        junit_free(&junit);
        selftest_report_close(report, 1e-3 * (clock_ms() - started_ms), o->jsonl_path, status);
    }
    free(line);
    json_decref(header);
    session_close(&s);
    return status;
}
