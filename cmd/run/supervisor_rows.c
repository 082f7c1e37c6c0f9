/* Rows as they come, and whose failure it is when a worker ends before its rows are there. */
#include <stdio.h>
#include <string.h>

#include "cmd/run/supervisor_state.h"

static void mark_done(struct supervisor *s, int item, int slot)
{
    s->done[item] |= 1u << slot;
    s->rows++;
    while (s->item < s->plan.count && s->done[s->item] == all_slots(s))
        s->item++;
}

/* The exit code after a row, and the error message of a row that failed, of --max-failures rows at most. */
void supervisor_apply_row(struct supervisor *s, int slot, const struct record_row *row)
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
void supervisor_add_row(struct supervisor *s, int item, int slot, const struct record_row *row)
{
    supervisor_apply_row(s, slot, row);
    if (s->outputs)
        worsen(s, run_outputs_add(s->outputs, row));
    if (row->status == STATUS_OK)
        s->ran[item] |= 1u << slot;
    mark_done(s, item, slot);
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
        supervisor_add_row(s, item, i, &row);
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
unsigned supervisor_loaded_here(const struct supervisor *s)
{
    return s->apart_now >= 0 ? 1u << s->apart_now : loaded_slots(s) & ~s->apart;
}

/* From now on each of these loaded slots has workers of its own. */
void supervisor_run_apart(struct supervisor *s, unsigned slots, const char *why)
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
void supervisor_blame(struct supervisor *s, int item, int slot, enum record_status status, int signal,
                      const char *reason)
{
    /* Those that it may have called: what the shared memory says of it may be made up. */
    const unsigned others = supervisor_loaded_here(s) & ~(slot >= 0 ? 1u << slot : 0);
    char sentence[512];
    if (s->apart_now >= 0 && slot != s->apart_now && !(s->done[item] & 1u << s->apart_now)) {
        snprintf(sentence, sizeof sentence, "%.300s, in a step of %s, which ran to its end without this implementation",
                 reason, slot >= 0 ? s->slots[slot].name : "the harness");
        handle_failure(s, item, s->apart_now, status, signal, sentence);
    } else if (s->apart_now < 0 && others) {
        snprintf(sentence, sizeof sentence, "%s: %.300s, perhaps because of another implementation",
                 slot >= 0 ? s->slots[slot].name : "harness", reason);
        supervisor_run_apart(s, supervisor_loaded_here(s), sentence);
    } else {
        handle_failure(s, item, slot, status, signal, reason);
    }
}

/* The next worker's slots: first all that can run together, then each of the others beside the program's own, which are
 * run again without rows. */
void supervisor_choose_slots(struct supervisor *s)
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

/* A worker that says that it has run all, and left rows out: one of its functions went on at another place of the
 * program. Its first missing row is that of the failure. */
void supervisor_check_complete(struct supervisor *s)
{
    for (int item = 0; item < s->plan.count; item++) {
        const unsigned missing = all_slots(s) & ~s->done[item] & ~s->skip[item];
        for (int slot = 0; slot < s->slot_count; slot++) {
            if (!(missing & 1u << slot))
                continue;
            s->ended = false; /* the next worker begins at the case that follows */
            supervisor_blame(s, item, slot, STATUS_ERROR, 0, "the worker process ended without a row for this case");
            return;
        }
    }
}

/* Two workers in turn without a new row, or a reason to run some slots apart: the first missing row is that of the
 * failure, so that the run comes to an end whatever the workers say. */
void supervisor_count_idle(struct supervisor *s, bool is_idle)
{
    s->idle_workers = is_idle && !s->finished && s->done ? s->idle_workers + 1 : 0;
    if (s->idle_workers < 2)
        return;
    s->idle_workers = 0;
    if (s->apart_now < 0 && supervisor_loaded_here(s)) {
        supervisor_run_apart(s, supervisor_loaded_here(s), "two worker processes in turn ended without a row");
        return;
    }
    for (int item = 0; item < s->plan.count; item++)
        for (int slot = 0; slot < s->slot_count; slot++)
            if (!(s->done[item] & 1u << slot) && (s->apart_now < 0 || slot == s->apart_now)) {
                handle_failure(s, item, slot, STATUS_ERROR, 0, "two worker processes in turn ended without a row");
                return;
            }
}
