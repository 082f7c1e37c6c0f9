/* Finds the rows of each configuration by binary search: the work grows little faster than the number of rows. */
#include "cmd/gate/gate_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/record/record.h"
#include "cmd/record/record_figures.h"

/* ---- rows in order ---- */

static int compare_entries(const void *left, const void *right)
{
    const struct gate_entry *a = left, *b = right;
    int order = problem_key_compare(&a->row->key, &b->row->key, false);
    if (!order)
        order = strcmp(a->row->impl, b->row->impl);
    if (!order)
        order = strcmp(a->row->asked, b->row->asked);
    return order ? order : (a->file > b->file) - (a->file < b->file);
}

void gate_side_index(struct gate_side *s)
{
    int total = 0, used = 0;
    for (int f = 0; f < s->count; f++)
        total += s->files[f].count;
    free(s->entries);
    s->entries = xcalloc((unsigned long)total + 1, sizeof *s->entries);
    for (int f = 0; f < s->count; f++)
        for (int i = 0; i < s->files[f].count; i++)
            s->entries[used++] = (struct gate_entry){&s->files[f].rows[i], f};
    s->entry_count = total;
    if (total > 1)
        qsort(s->entries, (size_t)total, sizeof *s->entries, compare_entries);
}

void gate_side_free(struct gate_side *s)
{
    for (int f = 0; f < s->count; f++)
        record_file_free(&s->files[f]);
    free(s->entries);
    s->entries = NULL;
    s->count = s->entry_count = 0;
}

/* The first entry of this problem, and the end of its entries. */
static int problem_range(const struct gate_side *s, const struct problem_key *key, int *end)
{
    int low = 0, high = s->entry_count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (problem_key_compare(&s->entries[middle].row->key, key, false) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (*end = low; *end < s->entry_count && problem_key_compare(&s->entries[*end].row->key, key, false) == 0;)
        ++*end;
    return low;
}

/* The row of the same configuration in one file of a side, or NULL. Where both requested `fused`, it may have resolved
 * to another kernel there: its successor. */
static const struct record_row *find_row(const struct gate_side *s, int first, int end, int file,
                                         const struct record_row *was)
{
    const struct record_row *successor = NULL;
    for (int i = first; i < end; i++) {
        const struct record_row *row = s->entries[i].row;
        if (s->entries[i].file != file)
            continue;
        if (strcmp(row->impl, was->impl) == 0)
            return row;
        if (strcmp(was->asked, "fused") == 0 && strcmp(row->asked, "fused") == 0)
            successor = row;
    }
    return successor;
}

/* ---- what is judged ---- */

bool gate_is_judged(const struct record_row *row, const char *control)
{
    const enum attn_role role = role_of_name(row->impl);
    return role != ATTN_ROLE_NOTHING && role != ATTN_ROLE_PEER && !(control && strcmp(row->impl, control) == 0);
}

bool gate_is_cpu(const struct gate_side *baseline)
{
    const char *arch =
        baseline->count ? json_string_value(header_value(baseline->files[0].header, "device.arch")) : NULL;
    return arch && strcmp(arch, "cpu") == 0;
}

const char *gate_control_of(const struct gate_side *baseline)
{
    const char *ours = NULL;
    bool has_other = false;
    if (!gate_is_cpu(baseline))
        return NULL;
    for (int i = 0; i < baseline->entry_count; i++) {
        const struct record_row *row = baseline->entries[i].row;
        const enum attn_role role = role_of_name(row->impl);
        if (role == ATTN_ROLE_NAIVE || role == ATTN_ROLE_NOTHING)
            continue;
        if (row->speedup_vs_naive > 0)
            return role_name(ATTN_ROLE_NAIVE);
        if (role_is_fused(row->impl))
            ours = ours ? ours : row->impl;
        else
            has_other = true;
    }
    return has_other ? ours : NULL;
}

static bool says_waits(const struct record_file *file)
{
    for (int i = 0; i < file->count; i++)
        if (isfinite(file->rows[i].cpu_wait_pct))
            return true;
    return false;
}

/* Was one of the records of a side measured while others used the machine, by its load? Not one whose rows say how long
 * threads waited, which tells more: a load is that of all CPUs, and its mean lags by a minute. A record that does not
 * say its load or its CPUs was not. */
static bool was_busy(const struct decide_rules *rules, const struct gate_side *s)
{
    for (int f = 0; f < s->count; f++) {
        const json_t *load = header_value(s->files[f].header, "host.load");
        const json_t *cpus = header_value(s->files[f].header, "host.cpus");
        if (json_is_number(load) && json_is_number(cpus) &&
            json_number_value(load) > rules->gate_load * json_number_value(cpus) && !says_waits(&s->files[f]))
            return true;
    }
    return false;
}

/* ---- times ---- */

static double over_control(const struct record_row *r, const char *control)
{
    if (!control)
        return NAN;
    return role_of_name(control) == ATTN_ROLE_NAIVE ? r->speedup_vs_naive : record_speedup_over(r, control);
}

static struct decide_stored stored(const struct record_row *r, const char *control)
{
    const bool has_interval = record_row_has_interval(r), reads = !(r->pct_of_gemm > 0) && r->pct_of_read > 0;
    return (struct decide_stored){.time_ms = r->time_ms,
                                  .ci_lo_ms = has_interval ? r->time_ms_ci_lo : NAN,
                                  .ci_hi_ms = has_interval ? r->time_ms_ci_hi : NAN,
                                  .share = reads ? r->pct_of_read : r->pct_of_gemm,
                                  .ceiling = reads ? r->read_gb_per_s : r->gemm_tflops,
                                  .over_control = over_control(r, control),
                                  .throttled_pct = r->throttled_pct,
                                  .samples = has_interval ? r->samples : 0,
                                  .cpu_wait_pct = r->cpu_wait_pct};
}

static bool has_failed(const struct record_row *row) { return row->status != STATUS_OK || row->check == CHECKED_FAIL; }
static bool counts(const struct record_row *row) { return record_row_is_checked(row) && record_row_is_timed(row); }

/* Adds the times of the rows that count. */
static void add_times(struct decide_stored **runs, int *count, const struct record_row *row, const char *control)
{
    if (!row || !counts(row))
        return;
    *runs = xrealloc(*runs, (unsigned long)(*count + 1) * sizeof **runs);
    (*runs)[(*count)++] = stored(row, control);
}

static void fill_case(struct gate_cases *g, struct gate_case *c, const struct record_row *row,
                      const struct gate_side *baseline, const struct gate_side *current)
{
    int end;
    c->was = row;
    int first = problem_range(baseline, &row->key, &end);
    for (int f = 0; f < baseline->count; f++) {
        const struct record_row *was = find_row(baseline, first, end, f, row);
        add_times(&c->times.was, &c->times.was_count, was, g->control);
        if (was && !counts(c->was) && counts(was))
            c->was = was;
    }
    first = problem_range(current, &row->key, &end);
    for (int f = 0; f < current->count; f++) {
        const struct record_row *now = find_row(current, first, end, f, row);
        if (!now)
            continue;
        c->now_rows[f] = now;
        add_times(&c->times.now, &c->times.now_count, now, g->control);
        if (!c->now || (has_failed(now) && !has_failed(c->now)))
            c->now = now;
    }
    c->is_compared = c->times.was_count > 0 && c->now && counts(c->now) && gate_is_judged(c->was, g->control);
}

/* Is this row the first of its configuration in the baseline? */
static bool is_first(const struct gate_side *s, const struct record_row *row, int file)
{
    int end;
    const int first = problem_range(s, &row->key, &end);
    for (int i = first; i < end; i++)
        if (s->entries[i].file < file && strcmp(s->entries[i].row->impl, row->impl) == 0 &&
            strcmp(s->entries[i].row->asked, row->asked) == 0)
            return false;
    return true;
}

void gate_cases_make(struct gate_cases *g, const struct decide_rules *rules, const struct gate_side *baseline,
                     const struct gate_side *current)
{
    struct decide_case *compared = xcalloc((unsigned long)baseline->entry_count + 1, sizeof *compared);
    int compared_count = 0;
    memset(g, 0, sizeof *g);
    g->items = xcalloc((unsigned long)baseline->entry_count + 1, sizeof *g->items);
    g->control = gate_control_of(baseline);
    for (int f = 0; f < baseline->count; f++)
        for (int i = 0; i < baseline->files[f].count; i++) {
            const struct record_row *row = &baseline->files[f].rows[i];
            if (!is_first(baseline, row, f))
                continue;
            struct gate_case *c = &g->items[g->count++];
            fill_case(g, c, row, baseline, current);
            if (c->is_compared)
                compared[compared_count++] = c->times;
        }
    g->family = decide_family_of(compared, compared_count, gate_is_cpu(baseline));
    g->family.is_busy = gate_is_cpu(baseline) && (was_busy(rules, baseline) || was_busy(rules, current));
    for (int i = 0; i < g->count; i++)
        if (g->items[i].is_compared)
            g->items[i].decision = decide_gate(rules, &g->family, &g->items[i].times);
    free(compared);
}

bool gate_cases_need_run(const struct gate_cases *g, const struct decide_rules *rules, int runs)
{
    for (int i = 0; i < g->count; i++)
        if (g->items[i].is_compared && decide_gate_needs_run(rules, &g->items[i].decision, runs))
            return true;
    return false;
}

void gate_cases_free(struct gate_cases *g)
{
    for (int i = 0; i < g->count; i++) {
        free(g->items[i].times.was);
        free(g->items[i].times.now);
    }
    free(g->items);
    memset(g, 0, sizeof *g);
}
