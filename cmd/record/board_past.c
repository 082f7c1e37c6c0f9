/* A run is what one header is for: a record of several boards has several. */
#include "cmd/record/board_past.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/stats.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"
#include "cmd/record/record_folder.h"

const double board_assumed_pct = 0.6;

/* A healthy board is slower by 3.7 standard deviations of the difference, twice, in 0.4 of 100,000 runs: with two or
 * three earlier runs of each board of a host of 8, where most hangs on the estimate of the repeatability; with 3.5 it
 * was 0.9. (Both differences have the earlier runs in common.) Where the loss is 1.95 of them more, it is slower twice
 * in 95 of 100. */
static const double LIMIT_DEVIATIONS = 3.7, FOUND_DEVIATIONS = 1.95;

/* Of a quarter of the cases, of which the least repeatable ones have twice the deviation of all, and longer tails. */
static const double CASES_LIMIT_DEVIATIONS = 8;

/* ---- reading ---- */

struct run {
    json_t *header;
    const char *host, *pci, *uuid; /* of the header; "" = none */
    int board;                     /* runs of one board have one number */
    struct board_case *cases;
    int count, room;
};

struct board_records {
    struct run *runs;
    int count, room, boards;
    int files, first; /* files that were read; the first run of the last one */
};

static const char *text_at(const json_t *header, const char *path)
{
    const char *text = json_string_value(header_value(header, path));
    return text ? text : "";
}

/* A key of the header itself. */
static const char *word_at(const json_t *header, const char *key)
{
    const char *text = json_string_value(json_object_get(header, key));
    return text ? text : "";
}

static bool is_board(const struct run *run, const json_t *header)
{
    return !strcmp(run->pci, text_at(header, "device.pci_bus_id")) &&
           !strcmp(run->uuid, text_at(header, "device.uuid")) && !strcmp(run->host, text_at(header, "host.name"));
}

static struct run *add_run(struct board_records *r, json_t *header)
{
    int board = r->boards;
    for (int i = r->count - 1; i >= 0 && board == r->boards; i--)
        if (is_board(&r->runs[i], header))
            board = r->runs[i].board;
    if (r->count == r->room) {
        r->room = r->room ? 2 * r->room : 16;
        r->runs = xrealloc(r->runs, (unsigned long)r->room * sizeof *r->runs);
    }
    r->boards += board == r->boards;
    r->runs[r->count++] = (struct run){.header = json_incref(header),
                                       .host = text_at(header, "host.name"),
                                       .pci = text_at(header, "device.pci_bus_id"),
                                       .uuid = text_at(header, "device.uuid"),
                                       .board = board};
    return &r->runs[r->count - 1];
}

static void add_case(struct run *run, const struct board_case *c)
{
    if (run->count == run->room) {
        run->room = run->room ? 2 * run->room : 16;
        run->cases = xrealloc(run->cases, (unsigned long)run->room * sizeof *run->cases);
    }
    run->cases[run->count++] = *c;
}

static void add_row(struct board_records *r, const struct record_row *row)
{
    for (int i = r->first; i < r->count; i++) {
        struct run *run = &r->runs[i];
        struct board_case c;
        if (strcmp(run->pci, row->pci) != 0)
            continue;
        board_case_of(row, &c);
        add_case(run, &c);
        return;
    }
}

static bool read_file(void *context, const char *path)
{
    struct board_records *r = context;
    struct record_file file = {0};
    struct attn_message why = {""};
    if (!record_read(path, &file, &why)) {
        log_warn("%s: left out", why.text);
        return false;
    }
    r->first = r->count;
    add_run(r, file.header);
    for (size_t i = 0; i < json_array_size(file.later_headers); i++) {
        json_t *header = json_array_get(file.later_headers, i);
        if (!strcmp(word_at(header, "type"), "header"))
            add_run(r, header);
    }
    for (int i = 0; i < file.count; i++)
        add_row(r, &file.rows[i]);
    record_file_free(&file);
    r->files++;
    return true;
}

struct board_records *board_records_new(void) { return xcalloc(1, sizeof(struct board_records)); }

void board_records_add(struct board_records *r, json_t *header, const struct board_case *cases, int count)
{
    struct run *run = add_run(r, header);
    for (int i = 0; i < count; i++)
        add_case(run, &cases[i]);
}

struct board_records *board_records_read(const struct name_list *paths)
{
    struct board_records *r = board_records_new();
    struct name_list unread = {0};
    for (int i = 0; i < paths->count; i++)
        record_folder_each(paths->names[i], read_file, r, &unread);
    name_list_free(&unread);
    if (r->files > 0)
        return r;
    log_error("--board-baseline: no record was read");
    board_records_free(r);
    return NULL;
}

void board_records_free(struct board_records *r)
{
    for (int i = 0; r && i < r->count; i++) {
        json_decref(r->runs[i].header);
        free(r->runs[i].cases);
    }
    if (r)
        free(r->runs);
    free(r);
}

/* ---- limits ---- */

double board_repeatability(const double *distances_pct, const int *counts, int boards, double *margin)
{
    double squares = BOARD_ASSUMED_RUNS * board_assumed_pct * board_assumed_pct;
    int freedom = BOARD_ASSUMED_RUNS;
    for (int b = 0, at = 0; b < boards; at += counts[b++]) {
        /* The distance of a run from the others is n / (n - 1) times that from the mean of all. */
        const double part = (double)(counts[b] - 1) / counts[b];
        bool is_known = counts[b] > 1;
        for (int i = 0; i < counts[b]; i++)
            is_known &= isfinite(distances_pct[at + i]) != 0;
        for (int i = 0; i < counts[b] && is_known; i++)
            squares += part * part * distances_pct[at + i] * distances_pct[at + i];
        freedom += is_known ? counts[b] - 1 : 0;
    }
    /* The variance of the estimate of a standard deviation is its square x n / (2 freedom^2), n of the runs that are
     * not assumed; a tail that begins at z = 3 deviations moves by z^2 / 2 of that. */
    *margin = 1 + 2.25 * (freedom - BOARD_ASSUMED_RUNS) / (freedom * freedom);
    return sqrt(squares / freedom);
}

void board_past_limit(struct board_past *p, double runs_per_board, double least_pct)
{
    const double run = p->repeatability_pct * p->repeatability_pct;
    if (p->of == PAST_BOARD) {
        const double deviation_pct = sqrt(run * (1 + 1.0 / p->runs));
        p->limit_pct = fmax(least_pct, LIMIT_DEVIATIONS * p->margin * deviation_pct);
        p->least_loss_pct = p->limit_pct + FOUND_DEVIATIONS * deviation_pct;
        p->cases_limit_pct = fmax(p->limit_pct, CASES_LIMIT_DEVIATIONS * p->cases_pct * sqrt(1 + 1.0 / p->runs));
    } else {
        /* The spread between boards has the part of their own runs in it. */
        const double deviation_pct = sqrt(p->spread_pct * p->spread_pct + run * (1 - 1 / runs_per_board));
        p->limit_pct = fmax(least_pct, board_deviation_limit(p->runs) * deviation_pct);
        p->least_loss_pct = p->limit_pct + FOUND_DEVIATIONS * deviation_pct;
    }
}

/* ---- comparing ---- */

/* What must agree: else a difference says nothing about the board. A power limit that was lowered does. */
static const char *const facts[] = {"device.name",   "tool.commit",  "device.driver", "device.cudnn",
                                    "device.ecc",    "device.mig",   "policy.l2",     "policy.round_members",
                                    "policy.method", "policy.clocks"};

/* The runs that may be compared with, in the order of their boards. */
struct fitting {
    const struct run **runs;
    int count;
    char differs[160]; /* why one does not fit */
};

static int by_board(const void *left, const void *right)
{
    const struct run *a = *(const struct run *const *)left, *b = *(const struct run *const *)right;
    return a->board != b->board ? (a->board < b->board ? -1 : 1) : (a > b) - (a < b);
}

static void find_fitting(const struct board_records *r, const json_t *header, struct fitting *fit)
{
    const char *run_id = word_at(header, "run_id");
    char was[60], is[60];
    *fit = (struct fitting){.runs = xcalloc((unsigned long)r->count + 1, sizeof *fit->runs)};
    for (int i = 0; i < r->count; i++) {
        const char *other =
            header_difference(r->runs[i].header, header, facts, sizeof facts / sizeof *facts, was, is, sizeof was);
        if (other && (!fit->differs[0] || is_board(&r->runs[i], header)))
            snprintf(fit->differs, sizeof fit->differs, "the records' %s is %s, here %s", other, was, is);
        if (!other && r->runs[i].count && strcmp(word_at(r->runs[i].header, "run_id"), run_id) != 0)
            fit->runs[fit->count++] = &r->runs[i];
    }
    if (fit->count > 1)
        qsort(fit->runs, (size_t)fit->count, sizeof *fit->runs, by_board);
}

static struct board_cases cases_of(const struct run *run) { return (struct board_cases){"", run->cases, run->count}; }

/* The runs of each board that has several. cases_pct: of a single case, the median over these runs, and what a run is
 * taken to repeat at least. */
static double repeatability_of(const struct fitting *fit, double *margin, double *cases_pct)
{
    int several = 0;
    double *of_cases = xcalloc((unsigned long)fit->count + 1, sizeof *of_cases);
    double *distances = xcalloc((unsigned long)fit->count + 1, sizeof *distances);
    int *counts = xcalloc((unsigned long)fit->count + 1, sizeof *counts), boards = 0;
    struct board_cases *cases = xcalloc((unsigned long)fit->count + 1, sizeof *cases);
    struct board_figures *figures = xcalloc((unsigned long)fit->count + 1, sizeof *figures);
    for (int from = 0, to; from < fit->count; from = to) {
        for (to = from; to < fit->count && fit->runs[to]->board == fit->runs[from]->board; to++)
            cases[to - from] = cases_of(fit->runs[to]);
        counts[boards++] = to - from;
        board_figures_of(cases, to - from, figures);
        for (int i = from; i < to; i++)
            distances[i] = figures[i - from].distance_pct;
        /* As in board_repeatability, the distance from the others is too large. */
        for (int i = 0; i < to - from; i++)
            if (isfinite(figures[i].cases_pct))
                of_cases[several++] = figures[i].cases_pct * sqrt((double)(to - from - 1) / (to - from));
    }
    *cases_pct = fmax(board_assumed_pct, stats_median(of_cases, several)); /* fmax: not the NaN of none */
    free(of_cases);
    const double repeatability_pct = board_repeatability(distances, counts, boards, margin);
    free(figures);
    free(cases);
    free(counts);
    free(distances);
    return repeatability_pct;
}

/* All runs[from, to) as one board; the caller frees its cases. */
static struct board_cases joined(const struct fitting *fit, int from, int to)
{
    int count = 0;
    for (int i = from; i < to; i++)
        count += fit->runs[i]->count;
    struct board_case *cases = xcalloc((unsigned long)count + 1, sizeof *cases);
    count = 0;
    for (int i = from; i < to; i++) {
        memcpy(&cases[count], fit->runs[i]->cases, (unsigned long)fit->runs[i]->count * sizeof *cases);
        count += fit->runs[i]->count;
    }
    return (struct board_cases){"", cases, count};
}

/* figures[0] of the present run, the others of `count` boards, or of the board itself. */
static void say_what_differs(const struct board_figures *figures, int count, const json_t *header,
                             const json_t *earlier, struct board_past *p)
{
    const struct board_figures **all = xcalloc((unsigned long)count + 1, sizeof *all);
    const struct board_health health = board_health_of(header);
    struct text found = {0};
    for (int i = 0; i <= count; i++)
        all[i] = &figures[i];
    board_explain(all, count + 1, 0, &health, p->of == PAST_BOARD ? "before" : "others", &found);
    const double is_w = json_number_value(header_value(header, "device.power_limit_w"));
    const double was_w = json_number_value(header_value(earlier, "device.power_limit_w"));
    if (is_w > 0 && is_w < was_w)
        text_add(&found, ", power limit %g W, %s %g W", is_w, p->of == PAST_BOARD ? "before" : "others", was_w);
    snprintf(p->why, sizeof p->why, "%s", text_string(&found));
    text_free(&found);
    free(all);
}

/* boards[0] is the present run; the limits are known. */
static void find_slow_cases(const struct board_cases *boards, int count, const struct board_figures *now,
                            struct board_past *p)
{
    struct text slow = {0};
    p->quarter_pct = now->quarter_pct;
    if (!(p->quarter_pct < -p->cases_limit_pct))
        return;
    board_say_slow_cases(boards, count, 0, p->cases_limit_pct,
                         p->of == PAST_BOARD ? "its earlier runs" : "the boards of its model", &slow);
    snprintf(p->slow_cases, sizeof p->slow_cases, "%s", text_string(&slow));
    text_free(&slow);
}

static bool compare_own(const struct fitting *fit, const json_t *header, const struct board_cases *now,
                        double least_pct, struct board_past *p)
{
    struct board_figures figures[2];
    int from = 0, to;
    while (from < fit->count && !is_board(fit->runs[from], header))
        from++;
    for (to = from; to < fit->count && is_board(fit->runs[to], header);)
        to++;
    const struct board_cases then = joined(fit, from, to);
    const struct board_cases both[] = {{"", now->cases, now->count}, then};
    board_figures_of(both, 2, figures);
    if (!isfinite(figures[0].distance_pct)) {
        free((void *)then.cases);
        return false;
    }
    p->of = PAST_BOARD;
    p->runs = to - from;
    p->distance_pct = figures[0].distance_pct;
    board_past_limit(p, 1, least_pct);
    find_slow_cases(both, 2, &figures[0], p);
    free((void *)then.cases);
    say_what_differs(figures, 1, header, fit->runs[to - 1]->header, p);
    return true;
}

static void compare_fleet(const struct fitting *fit, const json_t *header, const struct board_cases *now,
                          double least_pct, struct board_past *p)
{
    struct board_cases *boards = xcalloc((unsigned long)fit->count + 2, sizeof *boards);
    struct board_figures *figures = xcalloc((unsigned long)fit->count + 2, sizeof *figures);
    double *distances = xcalloc((unsigned long)fit->count + 1, sizeof *distances);
    int count = 0, known = 0;
    boards[0] = (struct board_cases){"", now->cases, now->count};
    for (int from = 0, to; from < fit->count; from = to) {
        for (to = from; to < fit->count && fit->runs[to]->board == fit->runs[from]->board;)
            to++;
        boards[++count] = joined(fit, from, to);
    }
    board_figures_of(boards, count + 1, figures);
    for (int i = 1; i <= count; i++) {
        distances[i - 1] = figures[i].distance_pct;
        known += isfinite(figures[i].distance_pct) != 0;
    }
    if (known >= PAST_FEWEST && isfinite(figures[0].distance_pct)) {
        p->of = PAST_FLEET;
        p->runs = known;
        p->distance_pct = figures[0].distance_pct;
        p->spread_pct = board_spread_pct(distances, count);
        board_past_limit(p, (double)fit->count / count, least_pct);
        for (int i = 1; i <= count; i++)
            distances[i - 1] = figures[i].cases_pct;
        p->cases_limit_pct = fmax(p->limit_pct, board_cases_limit(distances, count));
        find_slow_cases(boards, count + 1, &figures[0], p);
        say_what_differs(figures, count, header, fit->runs[0]->header, p);
    } else if (fit->differs[0]) {
        snprintf(p->why, sizeof p->why, "%s", fit->differs);
    } else {
        snprintf(p->why, sizeof p->why,
                 "no record of this board has its cases, and of its model there are %d boards (it needs %d)", known,
                 PAST_FEWEST);
    }
    for (int i = 1; i <= count; i++)
        free((void *)boards[i].cases);
    free(distances);
    free(figures);
    free(boards);
}

void board_past_of(const struct board_records *r, const json_t *header, const struct board_cases *now, double least_pct,
                   struct board_past *p)
{
    struct fitting fit;
    *p = (struct board_past){.distance_pct = NAN, .limit_pct = NAN, .least_loss_pct = NAN};
    p->quarter_pct = p->cases_limit_pct = NAN;
    find_fitting(r, header, &fit);
    p->repeatability_pct = repeatability_of(&fit, &p->margin, &p->cases_pct);
    if (!compare_own(&fit, header, now, least_pct, p))
        compare_fleet(&fit, header, now, least_pct, p);
    free(fit.runs);
}
