/* The worker's side of the pipe. */
#include "cmd/run/worker.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/base/text.h"
#include "cmd/record/record.h"
#include "cmd/run/neighbours.h"
#include "cmd/run/session.h"
#include "cmd/run/witness.h"

struct worker {
    const struct worker_task *task;
    const struct session *session;
    struct neighbours *neighbours; /* NULL before the first case */
    FILE *pipe;
    int item;           /* -1 = none yet */
    bool has_timed;     /* a row with a time was sent */
    unsigned witnessed; /* batches that the supervisor has timed */
};

/* What the supervisor needs of the device for the least time of a launch (cmd/run/floors.h). */
enum { NUMBERS = 5 };
static const char *const number_names[NUMBERS] = {"compute_capability", "multiprocessors", "max_sm_clock_mhz",
                                                  "memory_gb_per_s", "l2_bytes"};

static double number_at(const struct device_info *d, int i)
{
    const double all[NUMBERS] = {d->compute_capability, d->multiprocessors, d->max_sm_clock_mhz, d->memory_gb_per_s,
                                 d->l2_bytes};
    return isfinite(all[i]) ? all[i] : 0;
}

json_t *worker_facts_json(const struct run_facts *f)
{
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "run_id", f->run_id, "commit", f->commit, "cudnn",
                  f->cudnn, "name", f->device.name, "arch", f->device.arch, "driver", f->device.driver, "cuda",
                  f->device.cuda, "board", f->board, "pci", f->device.pci_bus_id);
    record_put_real(object, "power_limit_w", f->power_limit_w);
    for (int i = 0; i < NUMBERS; i++)
        json_object_set_new(object, number_names[i], json_real(number_at(&f->device, i)));
    return object;
}

void worker_facts_parse(const json_t *object, struct run_facts *f)
{
    const struct {
        const char *key;
        char *into;
        size_t size;
    } texts[] = {
        {"run_id", f->run_id, sizeof f->run_id},
        {"commit", f->commit, sizeof f->commit},
        {"cudnn", f->cudnn, sizeof f->cudnn},
        {"name", f->device.name, sizeof f->device.name},
        {"arch", f->device.arch, sizeof f->device.arch},
        {"driver", f->device.driver, sizeof f->device.driver},
        {"cuda", f->device.cuda, sizeof f->device.cuda},
        {"board", f->board, sizeof f->board},
        {"pci", f->device.pci_bus_id, sizeof f->device.pci_bus_id},
    };
    memset(f, 0, sizeof *f);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *text = json_string_value(json_object_get(object, texts[i].key));
        snprintf(texts[i].into, texts[i].size, "%s", text ? text : "");
    }
    const json_t *limit = json_object_get(object, "power_limit_w");
    f->power_limit_w = limit ? json_number_value(limit) : NAN;
    double numbers[NUMBERS];
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = json_number_value(json_object_get(object, number_names[i]));
    f->device.compute_capability = (int)numbers[0];
    f->device.multiprocessors = (int)numbers[1];
    f->device.max_sm_clock_mhz = numbers[2];
    f->device.memory_gb_per_s = numbers[3];
    f->device.l2_bytes = numbers[4];
}

/* Sends the message and releases its reference. Ends the worker when the supervisor is gone, or the pipe. */
static void send_message(struct worker *w, json_t *message)
{
    const bool sent =
        json_dumpf(message, w->pipe, JSON_COMPACT) == 0 && fputc('\n', w->pipe) != EOF && fflush(w->pipe) == 0;
    json_decref(message);
    if (sent)
        return;
    struct progress_state now;
    if (progress_read(w->task->progress, &now)) {
        now.lost_pipe = 1;
        progress_write(w->task->progress, &now);
    }
    _exit(EXIT_IO);
}

static void on_stage(void *context, enum case_stage stage, int slot, const char *impl)
{
    struct worker *w = context;
    struct progress_state now = {.item = w->item, .slot = slot, .stage = (int)stage};
    if (w->neighbours) {
        neighbours_enter(w->neighbours, stage, slot, impl);
        now.called = neighbours_called(w->neighbours);
    }
    now.since_ms = clock_ms();
    snprintf(now.impl, sizeof now.impl, "%s", impl);
    progress_write(w->task->progress, &now);
}

/* Does not return when slots are to run in workers of their own. */
static void on_apart(void *context, int slot, const char *sentence)
{
    struct worker *w = context;
    char reason[512];
    const unsigned called = neighbours_called(w->neighbours);
    const unsigned slots = slot >= 0 && w->session->slots[slot].is_loaded ? 1u << slot : called;
    if (w->task->apart >= 0 || w->session->slot_count == 1 || !slots)
        return;
    text_clean(sentence, reason, sizeof reason);
    send_message(w, json_pack("{s:s, s:i, s:I, s:s}", "msg", "apart", "item", w->item, "slots", (json_int_t)slots,
                              "reason", reason));
    _exit(EXIT_OK); /* what these slots have changed in this process is not known */
}

static void on_renew(void *context)
{
    send_message(context, json_pack("{s:s}", "msg", "renew"));
    _exit(EXIT_OK);
}

static void on_returned(void *context)
{
    struct worker *w = context;
    char sentence[160];
    neighbours_leave(w->neighbours);
    const int slot = neighbours_runaway(w->neighbours);
    if (slot < 0)
        return;
    snprintf(sentence, sizeof sentence, "threads of %s go on", w->session->slots[slot].name);
    on_apart(w, slot, sentence);
}

/* Waits for the supervisor to have read the message, so that its clock begins and ends with the batch. */
static bool on_witness(void *context, int slot, int64_t launches, double worker_ms, double *own_ms)
{
    static const struct timespec nap = {.tv_nsec = 50000};
    struct worker *w = context;
    const double begin_ms = clock_ms();
    send_message(w, json_pack("{s:s, s:i, s:i, s:I, s:f}", "msg", "witness", "item", w->item, "slot", slot, "launches",
                              (json_int_t)launches, "ms", worker_ms));
    w->witnessed++;
    while (atomic_load(&w->task->progress->witnessed) < w->witnessed && clock_ms() - begin_ms < WITNESS_ANSWER_MS)
        nanosleep(&nap, NULL);
    *own_ms = 1e-3 * (double)atomic_load(&w->task->progress->witness_us);
    return !atomic_load(&w->task->progress->is_confirmed);
}

static bool on_interrupted(void *context)
{
    const struct worker *w = context;
    return atomic_load(&w->task->progress->stop);
}

static void on_io_failed(void *context) { send_message(context, json_pack("{s:s}", "msg", "io")); }

static void on_row(void *context, int slot, const struct record_row *row)
{
    struct worker *w = context;
    w->has_timed |= !isnan(row->time_ms);
    send_message(
        w, json_pack("{s:s, s:i, s:i, s:o}", "msg", "row", "item", w->item, "slot", slot, "row", record_row_json(row)));
}

static json_t *make_header(const struct worker *w, struct session *s)
{
    const struct options *o = w->task->options;
    const bool measures = w->task->is_first && o->command == COMMAND_SWEEP;
    const struct header_input in = {.options = o,
                                    .plan = &s->plan,
                                    .facts = &s->facts,
                                    .backend = &s->backend,
                                    .nvml = &s->nvml,
                                    .nvml_problem = s->nvml_problem[0] ? s->nvml_problem : NULL,
                                    .slots = s->slots,
                                    .slot_count = s->slot_count,
                                    .clocks = measures ? session_clock_policy(s) : NULL,
                                    .copy_gbps = measures ? s->backend.ops->copy_gbps(&s->backend) : NAN};
    return header_make(&in);
}

/* Takes the header's reference. */
static void send_hello(struct worker *w, const struct session *s, json_t *header)
{
    json_t *slots = json_array();
    for (int i = 0; i < s->slot_count; i++)
        json_array_append_new(slots, json_pack("{s:s, s:b, s:b}", "name", s->slots[i].name, "named",
                                               (int)s->slots[i].is_named, "loaded", (int)s->slots[i].is_loaded));
    send_message(w, json_pack("{s:s, s:i, s:o, s:o, s:o}", "msg", "hello", "platform", (int)s->backend.device.platform,
                              "slots", slots, "header", header, "facts", worker_facts_json(&s->facts)));
}

/* Finds the slots that have their rows already, from the supervisor or from the record to continue. EXIT_OK, or a code
 * after a sentence when they belong to another device or run. */
static int find_done(const struct worker *w, const struct session *s, const json_t *header, unsigned *done,
                     unsigned *rerun)
{
    static const char *const device[] = {"device.name", "device.arch", "device.pci_bus_id"};
    const struct worker_task *task = w->task;
    const char *names[IMPL_MAX_SLOTS];
    char was[100], is[100];
    struct attn_message why;
    for (int i = 0; i < s->slot_count; i++)
        names[i] = s->slots[i].name;
    if (task->header && header_difference(task->header, header, device, 3, was, is, sizeof was)) {
        log_error("the device of this run is gone: it was %s, now there is %s", was, is);
        return EXIT_DEVICE;
    }
    if (task->done)
        memcpy(done, task->done, (size_t)s->plan.count * sizeof *done);
    if (task->rerun)
        memcpy(rerun, task->rerun, (size_t)s->plan.count * sizeof *rerun);
    if (!task->resume || !task->is_first)
        return EXIT_OK;
    if (resume_fits(task->resume, header, &why) &&
        resume_match(task->resume, &s->plan, names, s->slot_count, done, rerun, &why))
        return EXIT_OK;
    log_error("--resume: %s", why.text);
    return EXIT_NOT_COMPARABLE;
}

/* Runs every item that is not complete, in order. */
static void run_items(struct worker *w, const struct session *s, struct case_setting *setting, const unsigned *done,
                      const unsigned *rerun)
{
    const unsigned all = (unsigned)((UINT64_C(1) << s->slot_count) - 1);
    for (int i = 0; i < s->plan.count && !on_interrupted(w); i++) {
        struct attn_message why = {""};
        int failed = -1;
        if (done[i] == all)
            continue;
        if (w->item >= 0 && clock_ms() >= w->task->until_ms) {
            send_message(w, json_pack("{s:s}", "msg", "late"));
            return;
        }
        w->item = i;
        setting->is_first = !w->has_timed;
        if (case_run(setting, i, done[i], rerun[i], &failed, &why) != ATTN_OK) {
            char reason[sizeof why.text];
            text_clean(why.text, reason, sizeof reason);
            send_message(
                w, json_pack("{s:s, s:i, s:i, s:s}", "msg", "failed", "item", i, "slot", failed, "reason", reason));
            _exit(EXIT_DEVICE); /* the device context may be lost, so nothing is freed */
        }
    }
}

int worker_run(const struct worker_task *task)
{
    struct worker w = {.task = task, .item = -1};
    struct session session;
    signal(SIGINT, SIG_IGN); /* the supervisor decides, by progress->stop */
    signal(SIGTERM, SIG_DFL);
    dup2(STDERR_FILENO, STDOUT_FILENO); /* stdout carries records: what a library prints does not belong there */
    on_stage(&w, STAGE_PREPARE, -1, "");
    w.pipe = fdopen(task->pipe, "w");
    if (!w.pipe)
        return EXIT_IO;
    int opened = session_open(task->options, task->run_id, task->is_first, &session);
    unsigned *done = NULL, *rerun = NULL;
    json_t *header = NULL;
    if (opened == EXIT_OK) {
        done = xcalloc((unsigned long)session.plan.count, sizeof *done);
        rerun = xcalloc((unsigned long)session.plan.count, sizeof *rerun);
        header = make_header(&w, &session);
        opened = find_done(&w, &session, header, done, rerun);
    }
    if (opened != EXIT_OK) {
        send_message(&w, json_pack("{s:s, s:i}", "msg", "fatal", "exit", opened));
        return opened;
    }
    send_hello(&w, &session, header);
    struct case_setting setting = {.backend = &session.backend,
                                   .options = task->options,
                                   .plan = &session.plan,
                                   .facts = &session.facts,
                                   .slots = session.slots,
                                   .slot_count = session.slot_count,
                                   .tuned = session.tuned.count > 0 ? &session.tuned : NULL,
                                   .timed = task->options->command == COMMAND_SWEEP,
                                   .use_nvml = session.nvml_problem[0] == 0,
                                   .hooks = {.context = &w,
                                             .stage = on_stage,
                                             .interrupted = on_interrupted,
                                             .io_failed = on_io_failed,
                                             .row = on_row,
                                             .returned = on_returned,
                                             .witness = on_witness,
                                             .apart = on_apart,
                                             .renew = on_renew}};
    w.session = &session;
    w.neighbours = neighbours_open(task->progress, session.slots, task->pipe);
    run_items(&w, &session, &setting, done, rerun);
    on_stage(&w, STAGE_IDLE, -1, "");
    send_message(&w, json_pack("{s:s}", "msg", "done"));
    free(done);
    free(rerun);
    neighbours_close(w.neighbours);
    session_close(&session);
    fclose(w.pipe);
    return EXIT_OK;
}
