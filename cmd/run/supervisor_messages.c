/* The messages of a worker (cmd/run/worker.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/paths.h"
#include "cmd/base/process.h"
#include "cmd/run/floors.h"
#include "cmd/run/supervisor_state.h"
#include "cmd/run/worker.h"

/* Reads the worker's current step. The memory is shared with code of others: a time in the future, or a slot that there
 * is not, is not believed, and nobody who was called becomes one who was not. */
void supervisor_update_progress(struct supervisor *s)
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
                supervisor_apply_row(s, slot, &file->rows[i]);
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

/* What is not looked for where the inputs are the user's: said once where it may matter. */
static void say_what_is_off(const struct supervisor *s)
{
    bool has_files = false, has_loaded = false;
    for (int i = 0; i < s->plan.count; i++)
        has_files |= s->plan.items[i].folder != NULL;
    for (int i = 0; i < s->slot_count; i++)
        has_loaded |= s->slots[i].loaded;
    if (has_files && has_loaded && s->options->command == COMMAND_SWEEP && s->options->check != CHECK_OFF)
        log_note("--input: timed launches get these values with other signs of columns, not new ones; a library that "
                 "stores results by the magnitudes of its inputs and makes their signs right is not found, and FLOPs "
                 "have no floor");
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
    say_what_is_off(s);
    s->header = json_incref(json_object_get(message, "header"));
    s->outputs = s->sink ? run_outputs_forward(s->sink, s->header) : run_outputs_open(s->options, s->header, s->resume);
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

/* Does the worker's clock disagree with this process' own? */
static bool is_contradicted(const struct supervisor *s, int item, int slot, const struct record_row *row, char *why,
                            size_t size)
{
    const struct witness none = {0};
    const struct slot_state *of = &s->slots[slot];
    const struct witness *w = of->witness_item == item ? &of->witness : &none;
    /* Batches have warm caches, as samples with --l2 hot. On a CPU other work makes a batch long, and a median not. */
    const bool is_comparable = s->options->l2 == L2_HOT && strcmp(s->facts.device.arch, "cpu") != 0;
    if ((!of->loaded && w->tries == 0) || witness_confirms(w, is_comparable, row->time_ms))
        return false;
    witness_describe(w, row->time_ms, why, size);
    return true;
}

/* Is a claimed time one that the device cannot reach? */
static bool is_below_floor(const struct supervisor *s, int item, const struct record_row *row, char *why, size_t size)
{
    const struct floors f =
        floors_of(&s->facts.device, &s->plan.items[item], role_of_name(row->impl) == ATTN_ROLE_NAIVE);
    const double sustained_ms =
        row->sustain_passes > 0 ? 1e3 * row->sustain_s / (double)row->sustain_passes : (double)NAN;
    if (floors_allow(&f, row->time_ms, sustained_ms))
        return false;
    floors_describe(&f, row->time_ms, sustained_ms, row->samples, why, size);
    return true;
}

/* Whether what the row claims can be. False when the row does not count: it was timed beside loaded implementations, of
 * which one may have changed the clock of all, and they run apart from now on. */
static bool is_believed(struct supervisor *s, int item, int slot, struct record_row *row)
{
    char sentence[400];
    const struct slot_state *of = &s->slots[slot];
    if (s->options->command != COMMAND_SWEEP || row->status != STATUS_OK || row->check != CHECKED_PASS ||
        isnan(row->time_ms) || !isfinite(row->tflops))
        return true;
    const bool is_contrary = is_contradicted(s, item, slot, row, sentence, sizeof sentence);
    const bool is_low = !is_contrary && is_below_floor(s, item, row, sentence, sizeof sentence);
    if (!is_contrary && !is_low)
        return true;
    const bool is_alone = of->loaded && s->slot_count == 1;
    if (s->apart_now < 0 && !is_alone && (is_contrary || supervisor_loaded_here(s))) {
        char reason[512];
        snprintf(reason, sizeof reason, "%s: %s", of->name, sentence);
        supervisor_run_apart(s, supervisor_loaded_here(s), reason);
        s->skip[item] |= 1u << slot; /* this worker is not to bring it any more */
        return false;
    }
    if (of->loaded || is_low)
        row_withdraw(row, is_low ? FLOOR_RULE : WITNESS_RULE, sentence);
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
    else if (is_believed(s, item, slot, &row))
        supervisor_add_row(s, item, slot, &row);
    record_row_free(&row);
}

void supervisor_handle(struct supervisor *s, const char *line)
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
        supervisor_update_progress(s); /* the worker's current step, for the failed implementation's name */
        supervisor_blame(s, item, slot, STATUS_ERROR, 0, json_string_value(json_object_get(message, "reason")));
    } else if (!strcmp(kind, "apart")) {
        s->reported = true;
        supervisor_run_apart(s, (unsigned)json_integer_value(json_object_get(message, "slots")),
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
