/* Workers one after the other, messages, time limits, interruption. */
#include "cmd/run/supervisor.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/base/process.h"
#include "cmd/problem/problem.h"
#include "cmd/run/outputs.h"
#include "cmd/run/witness.h"
#include "cmd/run/worker.h"

/* Opening a device, loading libraries and preparing a problem may take this much longer than --timeout-s. */
static const double PREPARE_EXTRA_S = 120;
/* Interval in ms at which the supervisor checks the worker and shows progress. */
enum { TICK_MS = 100 };

struct slot_state {
    char name[40];
    bool named, has_run;
    bool loaded;            /* of a library of --impl-lib */
    struct witness witness; /* of its batches in the item witness_item */
    int witness_item;
};

struct supervisor {
    const struct options *options;
    char run_id[40];
    struct progress *progress;
    struct progress_state now;   /* the last complete state of the worker */
    struct awake_clock clock;    /* clock of the current worker */
    double paused_before_ms;     /* clock.paused_ms when its step was first seen */
    struct run_outputs *outputs; /* NULL until the first hello */
    struct plan plan;
    struct run_facts facts;
    struct slot_state slots[IMPL_MAX_SLOTS];
    int slot_count;
    unsigned *done;        /* slots of each item that have their row; NULL until the first hello */
    unsigned *ran;         /* those whose row is ok */
    unsigned *skip;        /* those without a row from the current worker */
    unsigned *rerun;       /* those that it runs nevertheless, to compare with */
    unsigned apart;        /* loaded slots that run in workers of their own from now on */
    int apart_now;         /* the one of them for which the current worker is, -1 = for all others */
    int item;              /* the first one that is not complete */
    int rows, rows_kept;   /* rows that there are, and that there were before this run */
    json_t *header;        /* of the first hello */
    struct resume *resume; /* the record that is continued, or NULL */
    int exit_code;
    int64_t broken_rows; /* that ended in an error or a timeout */
    double started_ms;
    bool is_late;     /* --max-time-s was over before all cases were done */
    bool finished;    /* no other worker is to be started */
    bool ended;       /* the worker said that it has run all that it was to run */
    bool reported;    /* the worker said how it failed */
    int idle_workers; /* that ended one after the other without a new row or a reason to run some apart */
    int witness_slot; /* whose batch is running, -1 = none; and when it began */
    double witness_ms;
    bool is_stopping; /* the worker was asked to stop, which it may not decide itself */
    bool garbled;     /* a message cannot be the worker's: something else wrote into its pipe, and it is killed */
};

static void worsen(struct supervisor *s, int code) { s->exit_code = exit_worst(s->exit_code, code); }

static unsigned all_slots(const struct supervisor *s) { return (unsigned)((UINT64_C(1) << s->slot_count) - 1); }

static void mark_done(struct supervisor *s, int item, int slot)
{
    s->done[item] |= 1u << slot;
    s->rows++;
    while (s->item < s->plan.count && s->done[s->item] == all_slots(s))
        s->item++;
}

/* The exit code after a row, and the error message of a row that failed, of --max-failures rows at most. */
static void apply_row(struct supervisor *s, int slot, const struct record_row *row)
{
    if (row->status == STATUS_OK)
        s->slots[slot].has_run = true;
    if (record_row_is_broken(row)) {
        if (s->broken_rows++ < s->options->max_failures)
            log_error("%s: %s: %s", row->impl, record_status_names[row->status], row->reason);
        worsen(s, EXIT_DEVICE);
    }
    if (row->check == CHECKED_FAIL)
        worsen(s, EXIT_CHECK_FAILED);
}

/* One finished row, from the worker or made here. */
static void handle_row(struct supervisor *s, int item, int slot, const struct record_row *row)
{
    apply_row(s, slot, row);
    if (s->outputs)
        worsen(s, run_outputs_add(s->outputs, row));
    if (row->status == STATUS_OK)
        s->ran[item] |= 1u << slot;
    mark_done(s, item, slot);
}

/* Reads the worker's current step. The memory is shared with code of others: a time in the future, or a slot that there
 * is not, is not believed, and nobody who was called becomes one who was not. */
static void update_progress(struct supervisor *s)
{
    const double since_ms = s->now.since_ms;
    const unsigned called = s->now.called;
    progress_read(s->progress, &s->now); /* on false s->now keeps the earlier state */
    s->now.impl[sizeof s->now.impl - 1] = 0;
    s->now.called |= called;
    if (!(s->now.since_ms <= clock_ms()))
        s->now.since_ms = since_ms;
    if (s->now.slot >= s->slot_count || s->now.item >= s->plan.count)
        s->now.slot = s->now.item = -1;
    if (s->now.since_ms > since_ms || s->now.since_ms < since_ms)
        s->paused_before_ms = s->clock.paused_ms;
}

/* signal: the one that ended the worker, 0 = none. */
static void handle_failure(struct supervisor *s, int item, int slot, enum record_status status, int signal,
                           const char *reason)
{
    struct record_row row;
    if (item < 0 || item >= s->plan.count || s->done[item] == all_slots(s) ||
        (slot >= 0 && s->done[item] & 1u << slot)) {
        log_error("%s: after its row was complete: %s", slot >= 0 ? s->slots[slot].name : "harness", reason);
        worsen(s, EXIT_DEVICE);
        return;
    }
    for (int i = 0; i < s->slot_count; i++) {
        /* A failure of the harness itself (slot -1) applies to every implementation that has no row yet. */
        if ((slot >= 0 && i != slot) || s->done[item] & 1u << i)
            continue;
        /* The row has the implementation's own name where it is known what `fused` resolved to. */
        const bool in_flight = i == slot && s->now.slot == slot && s->now.impl[0];
        row_begin(&row, s->options, &s->facts, &s->plan.items[item], s->slots[i].name,
                  in_flight ? s->now.impl : s->slots[i].name);
        row_end(&row, status, reason);
        if (signal)
            row.worker_signal = signal;
        handle_row(s, item, i, &row);
        record_row_free(&row);
    }
}

/* ---- who has done it ---- */

static unsigned loaded_slots(const struct supervisor *s)
{
    unsigned loaded = 0;
    for (int i = 0; i < s->slot_count; i++)
        loaded |= s->slots[i].loaded ? 1u << i : 0;
    return loaded;
}

/* Loaded slots that the current worker may call. */
static unsigned loaded_here(const struct supervisor *s)
{
    return s->apart_now >= 0 ? 1u << s->apart_now : loaded_slots(s) & ~s->apart;
}

/* From now on each of these loaded slots has workers of its own. */
static void run_apart(struct supervisor *s, unsigned slots, const char *why)
{
    char names[512] = "";
    for (int i = 0; i < s->slot_count; i++)
        if (slots & 1u << i)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", names[0] ? ", " : "",
                     s->slots[i].name);
    log_warn("%s; from now on in a worker process of its own: %s", why, names);
    s->apart |= slots & loaded_slots(s);
}

/* A worker failed in a step of `slot`. It is that slot's failure where no other loaded one was called before in this
 * worker. In the worker of one loaded slot it is this one's, because the others have run to their ends without it.
 * Otherwise it is not known whose it is: no row is made, and the loaded ones run apart. */
static void blame(struct supervisor *s, int item, int slot, enum record_status status, int signal, const char *reason)
{
    /* Those that it may have called: what the shared memory says of it may be made up. */
    const unsigned others = loaded_here(s) & ~(slot >= 0 ? 1u << slot : 0);
    char sentence[512];
    if (s->apart_now >= 0 && slot != s->apart_now && !(s->done[item] & 1u << s->apart_now)) {
        snprintf(sentence, sizeof sentence, "%.300s, in a step of %s, which ran to its end without this implementation",
                 reason, slot >= 0 ? s->slots[slot].name : "the harness");
        handle_failure(s, item, s->apart_now, status, signal, sentence);
    } else if (s->apart_now < 0 && others) {
        snprintf(sentence, sizeof sentence, "%s: %.300s, perhaps because of another implementation",
                 slot >= 0 ? s->slots[slot].name : "harness", reason);
        run_apart(s, loaded_here(s), sentence);
    } else {
        handle_failure(s, item, slot, status, signal, reason);
    }
}

/* The next worker's slots: first all that can run together, then each of the others beside the program's own, which are
 * run again without rows. */
static void choose_slots(struct supervisor *s)
{
    unsigned missing = 0;
    s->apart_now = -1;
    if (!s->done)
        return;
    for (int i = 0; i < s->plan.count; i++)
        missing |= all_slots(s) & ~s->done[i];
    for (int i = 0; i < s->slot_count && !(missing & ~s->apart) && s->apart_now < 0; i++)
        s->apart_now = missing & 1u << i ? i : -1;
    for (int i = 0; i < s->plan.count; i++) {
        s->skip[i] = s->done[i] | (s->apart_now < 0 ? s->apart : all_slots(s) & ~(1u << s->apart_now));
        s->rerun[i] = s->apart_now < 0 ? 0 : s->ran[i] & ~loaded_slots(s);
    }
}

/* Sends the rows that the record has already to every output but the record. */
static void show_kept_rows(struct supervisor *s)
{
    const struct record_file *file = &s->resume->file;
    const char *names[IMPL_MAX_SLOTS];
    struct attn_message why;
    for (int i = 0; i < s->slot_count; i++)
        names[i] = s->slots[i].name;
    FABENCH_ASSERT(resume_match(s->resume, &s->plan, names, s->slot_count, s->done, s->ran, &why), "%s", why.text);
    for (int i = 0; i < file->count; i++) {
        for (int slot = 0; slot < s->slot_count; slot++)
            if (!strcmp(names[slot], file->rows[i].asked))
                apply_row(s, slot, &file->rows[i]);
        worsen(s, run_outputs_show(s->outputs, &file->rows[i]));
    }
    while (s->item < s->plan.count && s->done[s->item] == all_slots(s))
        s->item++;
    s->rows = s->rows_kept = file->count;
    const int killed = s->resume->killed.count;
    if (killed)
        log_note("%s: %d row%s whose process was killed %s run again", file->path, killed, killed == 1 ? "" : "s",
                 killed == 1 ? "is" : "are");
    const int all = s->plan.count * s->slot_count;
    log_note("%s: %d of %d rows are there%s; %s", file->path, file->count, all,
             file->cut ? ", a cut line is dropped" : "",
             file->count < all ? "the rest is run" : "nothing is left to run");
}

static void handle_hello(struct supervisor *s, const json_t *message)
{
    if (s->outputs)
        return; /* a later worker: known already */
    const enum attn_platform platform = (enum attn_platform)json_integer_value(json_object_get(message, "platform"));
    const json_t *slots = json_object_get(message, "slots");
    s->slot_count = (int)json_array_size(slots);
    for (int i = 0; i < s->slot_count; i++) {
        const json_t *slot = json_array_get(slots, (size_t)i);
        snprintf(s->slots[i].name, sizeof s->slots[i].name, "%s", json_string_value(json_object_get(slot, "name")));
        s->slots[i].named = json_is_true(json_object_get(slot, "named"));
        s->slots[i].loaded = json_is_true(json_object_get(slot, "loaded"));
    }
    worker_facts_parse(json_object_get(message, "facts"), &s->facts);
    const int planned = s->options->command == COMMAND_VERIFY ? plan_make_verify(s->options, platform, &s->plan)
                                                              : plan_make(s->options, platform, &s->plan);
    FABENCH_ASSERT(planned == EXIT_OK, "the worker's plan was legal");
    unsigned **const masks[] = {&s->done, &s->ran, &s->skip, &s->rerun};
    for (int i = 0; i < 4; i++)
        *masks[i] = xcalloc((unsigned long)s->plan.count, sizeof **masks[i]);
    s->header = json_incref(json_object_get(message, "header"));
    s->outputs = run_outputs_open(s->options, s->header, s->resume);
    if (!s->outputs) { /* rows cannot be written: the worker may stop */
        s->is_stopping = true;
        atomic_store(&s->progress->stop, true);
        s->finished = true;
        worsen(s, EXIT_IO);
    } else if (s->resume) {
        show_kept_rows(s);
    }
}

/* A row that the current worker may send: of a case and slot that have none yet. */
static bool is_expected_row(const struct supervisor *s, int item, int slot)
{
    return s->outputs && item >= 0 && item < s->plan.count && slot >= 0 && slot < s->slot_count &&
           !(s->done[item] & 1u << slot);
}

/* The worker's clock beside this process' own, and what the row claims. False when the row does not count: it was timed
 * beside loaded implementations, of which one may have changed the clock of all, and they run apart from now on. */
static bool is_witnessed(struct supervisor *s, int item, int slot, struct record_row *row)
{
    char sentence[400];
    struct witness none = {0};
    struct slot_state *of = &s->slots[slot];
    const struct witness *w = of->witness_item == item ? &of->witness : &none;
    /* Batches have warm caches, as samples with --l2 hot. On a CPU other work makes a batch long, and a median not. */
    const bool is_comparable = s->options->l2 == L2_HOT && strcmp(s->facts.device.arch, "cpu") != 0;
    if ((!of->loaded && w->tries == 0) || s->options->command != COMMAND_SWEEP || row->status != STATUS_OK ||
        row->check != CHECKED_PASS || isnan(row->time_ms) || !isfinite(row->tflops) ||
        witness_confirms(w, is_comparable, row->time_ms))
        return true;
    witness_describe(w, row->time_ms, sentence, sizeof sentence);
    if (s->apart_now < 0 && !(of->loaded && s->slot_count == 1)) {
        char reason[512];
        snprintf(reason, sizeof reason, "%s: %s", of->name, sentence);
        run_apart(s, loaded_here(s), reason);
        s->skip[item] |= 1u << slot; /* this worker is not to bring it any more */
        return false;
    }
    if (of->loaded)
        row_withdraw(row, WITNESS_RULE, sentence);
    return true;
}

/* A batch begins or ends. */
static void handle_witness(struct supervisor *s, int item, int slot, int64_t launches, double worker_ms)
{
    const double now_ms = clock_ms();
    const bool ends = launches > 0;
    if (!s->outputs || item < 0 || item >= s->plan.count || slot < 0 || slot >= s->slot_count ||
        ends != (s->witness_slot == slot)) {
        s->garbled = true;
        return;
    }
    struct slot_state *of = &s->slots[slot];
    if (of->witness_item != item) {
        of->witness_item = item;
        of->witness = (struct witness){0};
    }
    if (ends)
        witness_add(&of->witness, worker_ms, now_ms - s->witness_ms, launches);
    s->witness_slot = ends ? -1 : slot;
    atomic_store(&s->progress->is_confirmed, ends && of->witness.agrees);
    atomic_store(&s->progress->witness_us, ends ? (unsigned)(1e3 * fmin(of->witness.own_ms, 1e6)) : 0);
    atomic_fetch_add(&s->progress->witnessed, 1);
    s->witness_ms = clock_ms();
}

static void handle_row_message(struct supervisor *s, int item, int slot, const json_t *json)
{
    struct record_row row;
    char why[128];
    memset(&row, 0, sizeof row);
    if (!is_expected_row(s, item, slot) || !record_row_parse(json, &row, why, sizeof why))
        s->garbled = true;
    else if (is_witnessed(s, item, slot, &row))
        handle_row(s, item, slot, &row);
    record_row_free(&row);
}

static void handle_message(struct supervisor *s, const char *line)
{
    json_error_t error;
    json_t *message = s->garbled ? NULL : json_loads(line, 0, &error);
    const char *kind = json_string_value(json_object_get(message, "msg"));
    const int item = (int)json_integer_value(json_object_get(message, "item"));
    const int slot = (int)json_integer_value(json_object_get(message, "slot"));
    if (!kind) {
        s->garbled = true;
        json_decref(message);
        return;
    }
    if (!strcmp(kind, "hello")) {
        handle_hello(s, message);
    } else if (process_signal_of_child()) { /* it is killed; what else it says does not count */
        json_decref(message);
        return;
    } else if (!strcmp(kind, "row")) {
        handle_row_message(s, item, slot, json_object_get(message, "row"));
    } else if (!strcmp(kind, "witness")) {
        handle_witness(s, item, slot, json_integer_value(json_object_get(message, "launches")),
                       json_number_value(json_object_get(message, "ms")));
    } else if (!strcmp(kind, "failed")) {
        s->reported = true;
        update_progress(s); /* the worker's current step, for the failed implementation's name */
        blame(s, item, slot, STATUS_ERROR, 0, json_string_value(json_object_get(message, "reason")));
    } else if (!strcmp(kind, "apart")) {
        s->reported = true;
        run_apart(s, (unsigned)json_integer_value(json_object_get(message, "slots")),
                  json_string_value(json_object_get(message, "reason")));
    } else if (!strcmp(kind, "renew")) {
        s->reported = true;
    } else if (!strcmp(kind, "late")) {
        s->is_late = s->finished = true;
    } else if (!strcmp(kind, "io")) {
        worsen(s, EXIT_IO);
    } else if (!strcmp(kind, "fatal")) {
        s->finished = true;
        if (!s->outputs)
            s->exit_code = (int)json_integer_value(json_object_get(message, "exit"));
        else
            worsen(s, EXIT_DEVICE); /* a later worker could not open what the first one could */
    } else if (!strcmp(kind, "done")) {
        s->ended = true;
    }
    json_decref(message);
}

/* ---- one worker ---- */

/* The input from the current worker, split into lines. */
struct input {
    struct supervisor *supervisor;
    char *text; /* the start of a line that is not complete yet */
    size_t used, capacity;
};

/* No case is begun later, but for the first one of the run. */
static double until_ms(const struct supervisor *s)
{
    return s->options->max_time_s > 0 ? s->started_ms + 1e3 * s->options->max_time_s : INFINITY;
}

/* In the child. */
static int run_worker(void *context, int pipe)
{
    const struct supervisor *s = context;
    const struct worker_task task = {.options = s->options,
                                     .run_id = s->run_id,
                                     .done = s->done ? s->skip : NULL,
                                     .rerun = s->rerun,
                                     .apart = s->apart_now,
                                     .header = s->header,
                                     .resume = s->resume,
                                     .is_first = s->outputs == NULL,
                                     .until_ms = until_ms(s),
                                     .pipe = pipe,
                                     .progress = s->progress};
    return worker_run(&task);
}

/* Reads what there is and handles every complete line. False at the end of the pipe. */
static bool receive_messages(void *context, int pipe)
{
    struct input *in = context;
    if (in->capacity - in->used < 65536) {
        in->capacity = in->capacity ? 2 * in->capacity : 1 << 18;
        in->text = xrealloc(in->text, in->capacity);
    }
    const ssize_t got = read(pipe, in->text + in->used, in->capacity - in->used - 1);
    if (got < 0)
        return errno == EINTR || errno == EAGAIN;
    if (got == 0)
        return false;
    in->used += (size_t)got;
    char *from = in->text, *end;
    while ((end = memchr(from, '\n', in->used - (size_t)(from - in->text))) != NULL) {
        *end = 0;
        handle_message(in->supervisor, from);
        from = end + 1;
    }
    in->used -= (size_t)(from - in->text);
    memmove(in->text, from, in->used);
    return true;
}

static void show_progress(const struct supervisor *s)
{
    const struct progress_state *p = &s->now;
    char problem[80], left[32] = "";
    if (!s->outputs || p->item < 0 || p->item >= s->plan.count)
        return;
    const double elapsed_s = (clock_ms() - s->started_ms) * 1e-3;
    if (s->rows > s->rows_kept)
        snprintf(left, sizeof left, ", about %.0f s left",
                 elapsed_s / (s->rows - s->rows_kept) * (s->plan.count * s->slot_count - s->rows));
    problem_print(&s->plan.items[p->item].problem, s->plan.items[p->item].mode, problem, sizeof problem);
    log_progress("[%d/%d] %s: %s %s%s", p->item + 1, s->plan.count, problem,
                 p->slot >= 0 && p->slot < s->slot_count ? s->slots[p->slot].name : "harness",
                 case_stage_doing(p->stage), left);
}

/* Duration of the current step in s, without time in which supervisor and worker were suspended. */
static double in_flight_s(struct supervisor *s)
{
    const double now_ms = clock_ms();
    awake_clock_at(&s->clock, now_ms);
    return (now_ms - s->now.since_ms - (s->clock.paused_ms - s->paused_before_ms)) * 1e-3;
}

static bool is_over_limit(struct supervisor *s)
{
    const double elapsed_s = in_flight_s(s);
    /* Slot -1 is the work that belongs to no implementation. On the CPU most of it is the float64 oracle, which takes
     * minutes on long problems. It waits for nothing that could fail to answer, so that it has no limit. */
    if (s->now.slot < 0 && !strcmp(s->facts.device.arch, "cpu"))
        return false;
    const double limit_s = s->options->timeout_s + (s->now.stage == STAGE_PREPARE ? PREPARE_EXTRA_S : 0);
    return s->now.stage != STAGE_IDLE && elapsed_s > limit_s;
}

/* False when the worker is to be killed for running over its limit. After an interrupt it has a limit of its own. */
static bool check_worker(void *context)
{
    struct supervisor *s = ((struct input *)context)->supervisor;
    update_progress(s);
    /* After EXIT_IO rows cannot be written, so that further measurements would be lost. */
    if (process_is_interrupted() || s->exit_code == EXIT_IO)
        s->is_stopping = true;
    if (s->is_stopping)
        atomic_store(&s->progress->stop, true);
    show_progress(s);
    return (!is_over_limit(s) && !process_signal_of_child() && !s->garbled) || process_is_interrupted();
}

/* A worker that says that it has run all, and left rows out: one of its functions went on at another place of the
 * program. Its first missing row is that of the failure. */
static void check_complete(struct supervisor *s)
{
    for (int item = 0; item < s->plan.count; item++) {
        const unsigned missing = all_slots(s) & ~s->done[item] & ~s->skip[item];
        for (int slot = 0; slot < s->slot_count; slot++) {
            if (!(missing & 1u << slot))
                continue;
            s->ended = false; /* the next worker begins at the case that follows */
            blame(s, item, slot, STATUS_ERROR, 0, "the worker process ended without a row for this case");
            return;
        }
    }
}

/* Reports how the worker ended, when it sent no message about it. */
static void report_end(struct supervisor *s, const struct process_result *result)
{
    char reason[256], how[100];
    update_progress(s);
    if (result->end == PROCESS_STUCK) {
        s->finished = true;
        worsen(s, EXIT_DEVICE);
    }
    const int sent = process_signal_of_child();
    if (sent && (s->reported || s->ended))
        log_warn("a worker process sent the supervisor signal %d (%s): ignored", sent, strsignal(sent));
    if (s->finished || s->reported || process_is_interrupted())
        return;
    if (s->ended) {
        if (s->outputs && !s->is_stopping)
            check_complete(s);
        return;
    }
    const bool is_timeout = result->end == PROCESS_STOPPED && !sent && !s->garbled;
    if (s->garbled)
        snprintf(reason, sizeof reason, "something wrote into the record pipe of the worker process %s: killed",
                 case_stage_when(s->now.stage));
    else if (s->now.lost_pipe)
        snprintf(reason, sizeof reason, "the worker process lost its record pipe %s: file descriptors were closed",
                 case_stage_when(s->now.stage));
    else if (sent)
        snprintf(reason, sizeof reason, "the worker process sent the supervisor signal %d (%s) %s: killed", sent,
                 strsignal(sent), case_stage_when(s->now.stage));
    else if (is_timeout)
        snprintf(reason, sizeof reason, "no answer for %.0f s %s: killed", in_flight_s(s),
                 case_stage_when(s->now.stage));
    else
        snprintf(reason, sizeof reason, "the worker process %s %s", process_describe(result, how, sizeof how),
                 case_stage_when(s->now.stage));
    if (!s->outputs || s->now.item < 0) { /* before the first case: another worker would fail in the same way */
        log_error("%s (opening the device)", reason);
        worsen(s, EXIT_DEVICE);
        s->finished = true;
        return;
    }
    blame(s, s->now.item, s->now.slot, is_timeout ? STATUS_TIMEOUT : STATUS_ERROR,
          result->end == PROCESS_SIGNALLED ? result->code : 0, reason);
}

/* One worker from start to end. False when it could not be started. */
static bool run_one_worker(struct supervisor *s)
{
    struct input input = {.supervisor = s};
    const struct process_request request = {.function = run_worker, .context = s, .has_pipe = true, .untrusted = true};
    const struct process_watch watch = {
        .tick_ms = TICK_MS, .tick = check_worker, .read = receive_messages, .context = &input};
    struct process worker;
    struct process_result result;
    s->now = (struct progress_state){.item = -1, .slot = -1, .stage = STAGE_PREPARE, .since_ms = clock_ms()};
    s->clock = (struct awake_clock){0};
    s->paused_before_ms = 0;
    progress_reset(s->progress, &s->now, process_is_interrupted());
    choose_slots(s);
    const bool keeps_children = process_has_children(); /* of the shell that became this program */
    s->finished = s->reported = s->ended = s->garbled = s->is_stopping = false;
    s->witness_slot = -1;
    for (int i = 0; i < s->slot_count; i++)
        s->slots[i].witness_item = -1;
    const int error = process_start(&request, &worker);
    if (error) {
        log_error("a worker process cannot be started: %s", strerror(error));
        return false;
    }
    process_watch(&worker, &watch, &result);
    if (result.end != PROCESS_STUCK && !keeps_children)
        process_end_children();
    if (result.end == PROCESS_STUCK)
        log_error("the worker process %d cannot be killed: it hangs in the driver", (int)worker.pid);
    report_end(s, &result);
    free(input.text);
    return true;
}

/* Two workers in turn without a new row, or a reason to run some slots apart: the first missing row is that of the
 * failure, so that the run comes to an end whatever the workers say. */
static void count_idle(struct supervisor *s, bool is_idle)
{
    s->idle_workers = is_idle && !s->finished && s->done ? s->idle_workers + 1 : 0;
    if (s->idle_workers < 2)
        return;
    s->idle_workers = 0;
    if (s->apart_now < 0 && loaded_here(s)) {
        run_apart(s, loaded_here(s), "two worker processes in turn ended without a row");
        return;
    }
    for (int item = 0; item < s->plan.count; item++)
        for (int slot = 0; slot < s->slot_count; slot++)
            if (!(s->done[item] & 1u << slot) && (s->apart_now < 0 || slot == s->apart_now)) {
                handle_failure(s, item, slot, STATUS_ERROR, 0, "two worker processes in turn ended without a row");
                return;
            }
}

static void run_workers(struct supervisor *s)
{
    int rows;
    do {
        const unsigned apart = s->apart;
        rows = s->rows;
        if (!run_one_worker(s)) {
            worsen(s, EXIT_IO);
            return;
        }
        count_idle(s, s->rows == rows && s->apart == apart && !s->ended);
        s->finished |= s->ended && s->rows == rows; /* another one would come no further */
        s->is_late |= !s->finished && s->item < s->plan.count && s->rows > s->rows_kept && clock_ms() >= until_ms(s);
    } while (!s->finished && !s->is_late && !process_is_interrupted() && s->item < s->plan.count &&
             s->exit_code != EXIT_IO);
}

/* An implementation that the user named and that ran on no problem is an error: exit 6. */
static void check_all_ran(struct supervisor *s)
{
    bool any_ran = false;
    for (int i = 0; i < s->slot_count; i++) {
        any_ran = any_ran || s->slots[i].has_run;
        if (s->slots[i].named && !s->slots[i].has_run) {
            log_error("--impl %s: ran nowhere; the rows say why", s->slots[i].name);
            worsen(s, EXIT_DEVICE);
        }
    }
    if (!any_ran && s->exit_code == EXIT_OK) {
        log_error("nothing ran; the rows say why");
        worsen(s, EXIT_DEVICE);
    }
}

int supervisor_run(const struct options *options)
{
    struct supervisor s = {.options = options, .started_ms = clock_ms()};
    struct resume resume;
    struct timespec t;
    s.progress = progress_open();
    if (!s.progress) {
        log_error("no memory to share with workers: %s", strerror(errno));
        return EXIT_IO;
    }
    process_catch_interrupts();
    process_adopt_orphans();
    clock_gettime(CLOCK_REALTIME, &t);
    snprintf(s.run_id, sizeof s.run_id, "%08llx%05lx%05x", (unsigned long long)t.tv_sec, (unsigned long)t.tv_nsec >> 12,
             (unsigned)getpid());
    if (options->resume) {
        const int opened = resume_open(&resume, options);
        if (opened != EXIT_OK) {
            progress_close(s.progress);
            return opened;
        }
        const char *run_id = json_string_value(json_object_get(resume.file.header, "run_id"));
        if (resume.file.header) {
            snprintf(s.run_id, sizeof s.run_id, "%s", run_id ? run_id : "");
            s.resume = &resume;
        } else {
            log_note("%s: no header yet; the run begins anew", path_shown(resume.file.path).text);
            resume_close(&resume);
        }
    }
    run_workers(&s);
    const bool is_stopped = process_is_interrupted() || s.is_late;
    if (is_stopped)
        worsen(&s, EXIT_INTERRUPTED);
    else if (s.outputs && s.exit_code != EXIT_IO)
        check_all_ran(&s);
    int code = s.exit_code;
    if (s.broken_rows > options->max_failures)
        log_error("%lld more rows ended in an error or a timeout (--max-failures)",
                  (long long)(s.broken_rows - options->max_failures));
    if (is_stopped)
        log_note("%s; the rows so far are complete",
                 process_is_interrupted() ? "interrupted" : "stopped at --max-time-s");
    if (s.outputs)
        code = run_outputs_close(s.outputs, (clock_ms() - s.started_ms) * 1e-3, s.exit_code);
    if (process_is_interrupted())
        code = exit_worst(code, EXIT_INTERRUPTED);
    if (s.resume)
        resume_close(s.resume);
    free(s.done);
    free(s.ran);
    free(s.skip);
    free(s.rerun);
    json_decref(s.header);
    plan_free(&s.plan);
    progress_close(s.progress);
    return code;
}

/* ---- one function ---- */

struct call {
    const struct options *options;
    const char *what;
    int (*function)(const struct options *);
};

/* In the child. */
static int run_call(void *context, int pipe)
{
    const struct call *call = context;
    (void)pipe;
    signal(SIGPIPE, SIG_IGN); /* a closed stdout is then a write error, not a signal */
    const int code = call->function(call->options);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    log_error("%s: stdout could not be written: %s", call->what, strerror(errno));
    return EXIT_IO;
}

int supervisor_call(const struct options *options, const char *what, int (*function)(const struct options *),
                    double limit_s)
{
    struct call call = {options, what, function};
    const struct process_request request = {.function = run_call, .context = &call};
    const struct process_watch watch = {.limit_s = limit_s};
    struct process child;
    struct process_result result;
    char how[100];
    process_catch_interrupts();
    const int error = process_start(&request, &child);
    if (error) {
        log_error("%s: a process cannot be started: %s", what, strerror(error));
        return EXIT_IO;
    }
    process_watch(&child, &watch, &result);
    if (result.end == PROCESS_EXITED)
        return result.code;
    const bool is_by_hand = result.end == PROCESS_SIGNALLED && (result.code == SIGINT || result.code == SIGTERM);
    if (result.end == PROCESS_INTERRUPTED || process_is_interrupted() || is_by_hand) {
        log_error("%s: interrupted", what);
        return EXIT_INTERRUPTED;
    }
    log_error("%s: %s", what, process_describe(&result, how, sizeof how));
    return EXIT_DEVICE;
}
