/* How the boards of a run compare: which are slow, and the summary by board. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/record/record.h"
#include "cmd/run/node_verdict.h"
#include "cmd/run/supervisor_boards.h"
#include "cmd/table/table.h"

/* What is compared of a round of a board; the caller frees its cases. */
static struct board_cases cases_of(const struct board_run *board, int round)
{
    const int count = board->counts[round];
    struct board_case *cases = xcalloc((unsigned long)count + 1, sizeof *cases);
    for (int k = 0; k < count; k++)
        board_case_of(&board->rows[round][k], &cases[k]);
    return (struct board_cases){board->device.name, cases, count};
}

static void free_cases(struct board_cases *c) { free((void *)c->cases); }

/* Of --max-board-spread, where a quarter of the cases is slower than the others' by more: single cases differ by more
 * than their median does. */
static double cases_limit_pct(const struct boards *b) { return 3 * b->options->max_board_spread_pct; }

struct board_figures *boards_figures(const struct boards *b, int round)
{
    struct board_figures *figures = xcalloc((unsigned long)b->count, sizeof *figures);
    struct board_cases *boards = xcalloc((unsigned long)b->count, sizeof *boards);
    for (int i = 0; i < b->count; i++)
        boards[i] = cases_of(&b->boards[i], round);
    board_figures_of(boards, b->count, figures);
    for (int i = 0; i < b->count; i++)
        free_cases(&boards[i]);
    free(boards);
    return figures;
}

/* Against the records of --board-baseline: bits of enum slower_than. */
static unsigned is_behind(const struct boards *b, struct board_run *board, int round)
{
    const double spread_pct = b->options->max_board_spread_pct;
    struct board_past *past = &board->past[round];
    if (!b->records || !board->header)
        return 0;
    struct board_cases now = cases_of(board, round);
    board_past_of(b->records, board->header, &now, isnan(spread_pct) ? board_least_loss_pct : spread_pct, past);
    free_cases(&now);
    if (past->of == PAST_NONE)
        return 0;
    return (past->distance_pct < -past->limit_pct ? SLOWER_THAN_BEFORE : 0) |
           (past->quarter_pct < -past->cases_limit_pct ? CASES_THAN_BEFORE : 0);
}

static void say_slow(const struct board_run *board, const struct board_figures *f, unsigned slow)
{
    const bool than_others = (slow & (SLOWER_THAN_OTHERS | CASES_THAN_OTHERS)) != 0;
    const bool of_all = (slow & (SLOWER_THAN_OTHERS | SLOWER_THAN_BEFORE)) != 0;
    const double all_pct = slow & SLOWER_THAN_OTHERS ? f->distance_pct : board->past[0].distance_pct;
    const double quarter_pct = than_others ? f->quarter_pct : board->past[0].quarter_pct;
    log_note("%s %s: %s%.1f %% slower than %s: all are measured again", board->name, board->device.pci_bus_id,
             of_all ? "" : "a quarter of its cases is at least ", of_all ? -all_pct : -quarter_pct,
             (of_all ? (slow & SLOWER_THAN_OTHERS) != 0 : than_others) ? "the median of the others" : "the records");
}

bool boards_find_slow(struct boards *b, int round)
{
    struct board_figures *figures = boards_figures(b, round);
    bool has_slow = false;
    for (int i = 0; i < b->count; i++) {
        struct board_run *const board = &b->boards[i];
        unsigned slow = 0;
        if (figures[i].distance_pct < -b->options->max_board_spread_pct) /* false for NaN */
            slow |= SLOWER_THAN_OTHERS;
        if (figures[i].quarter_pct < -cases_limit_pct(b))
            slow |= CASES_THAN_OTHERS;
        slow |= is_behind(b, board, round);
        if (slow && round == 0)
            say_slow(board, &figures[i], slow);
        if (round == 0)
            board->slow = slow;
        else
            board->named = board->slow & slow;
        has_slow |= (round == 0 ? board->slow : board->named) != 0;
    }
    free(figures);
    return has_slow;
}

bool boards_lack_records(const struct boards *b)
{
    bool has = false;
    for (int i = 0; i < b->count && b->records; i++) {
        const struct board_run *board = &b->boards[i];
        if (!board->counts[0] || board->past[0].of != PAST_NONE)
            continue;
        log_warn("%s %s: cannot be compared with earlier records: %s", board->name, board->device.pci_bus_id,
                 board->past[0].why);
        has = true;
    }
    return has;
}

/* The `board` of its rows. */
static const char *board_of(const struct board_run *board) { return board->counts[0] ? board->rows[0][0].board : ""; }

/* ---- the record ---- */

static json_t *board_object(const struct board_run *board, const struct board_figures *f,
                            const struct board_figures *again)
{
    json_t *object = record_must(json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:b, s:i}", "name", board->name, "pci",
                                           board->device.pci_bus_id, "board", board_of(board), "device",
                                           board->device.name, "rows", f->rows, "failed", f->failed, "compared",
                                           f->shared, "slow", (int)(board->named != 0), "exit", board->exit_code));
    record_put_real(object, "distance_pct", f->distance_pct);
    record_put_real(object, "distance_again_pct", again ? again->distance_pct : NAN);
    record_put_real(object, "quarter_pct", f->quarter_pct);
    record_put_real(object, "quarter_again_pct", again ? again->quarter_pct : NAN);
    record_put_real(object, "tflops", f->tflops);
    record_put_real(object, "noise_pct", f->noise_pct);
    record_put_real(object, "sm_clock_mhz", f->sm_clock_mhz);
    record_put_real(object, "temp_c", f->temp_c);
    record_put_real(object, "power_w", f->power_w);
    record_put_real(object, "power_capped_pct", f->power_capped_pct);
    record_put_real(object, "throttled_pct", f->throttled_pct);
    return object;
}

/* NULL where it was not compared. */
static json_t *past_object(const struct boards *b, const struct board_past *past)
{
    if (past[0].of == PAST_NONE)
        return NULL;
    json_t *object = record_must(
        json_pack("{s:s, s:i}", "than", past[0].of == PAST_BOARD ? "board" : "fleet", "runs", past[0].runs));
    record_put_real(object, "distance_pct", past[0].distance_pct);
    record_put_real(object, "distance_again_pct", b->round > 0 ? past[1].distance_pct : NAN);
    record_put_real(object, "limit_pct", past[0].limit_pct);
    record_put_real(object, "quarter_pct", past[0].quarter_pct);
    record_put_real(object, "quarter_again_pct", b->round > 0 ? past[1].quarter_pct : NAN);
    record_put_real(object, "cases_limit_pct", past[0].cases_limit_pct);
    record_put_real(object, "least_loss_pct", past[0].least_loss_pct);
    record_put_real(object, "repeatability_pct", past[0].repeatability_pct);
    record_put_real(object, "spread_pct", past[0].of == PAST_FLEET ? past[0].spread_pct : NAN);
    return object;
}

static int note_boards(const struct boards *b, const struct board_figures *first, const struct board_figures *again)
{
    json_t *list = json_array();
    for (int i = 0; i < b->count; i++) {
        json_t *object = board_object(&b->boards[i], &first[i], again ? &again[i] : NULL);
        json_t *past = past_object(b, b->boards[i].past);
        if (past)
            json_object_set_new(object, "before", past);
        json_array_append_new(list, object);
    }
    json_t *note = record_must(json_pack("{s:s, s:s, s:b, s:o}", "type", "boards", "run_id", b->run_id, "one_by_one",
                                         (int)b->options->one_by_one, "boards", list));
    record_put_real(note, "max_board_spread_pct", b->options->max_board_spread_pct);
    const int status = run_outputs_note(b->outputs, note);
    node_verdict_boards(json_incref(list));
    json_decref(note);
    return status;
}

/* ---- the terminal ---- */

/* A figure in `digits` digits behind the point; "-" where it was not measured. */
static void add_figure(struct text *line, int width, int digits, const char *sign, double value)
{
    char cell[32] = "-";
    if (isfinite(value)) {
        snprintf(cell, sizeof cell, *sign ? "%+.*f" : "%.*f", digits, value);
    }
    text_add(line, " %*s", width, cell);
}

static void print_board(FILE *page, const struct board_run *board, const struct board_figures *f,
                        const struct board_figures *again, bool is_verify)
{
    struct text line = {0};
    char tflops[CELL_SIZE];
    text_add(&line, "%-7s %-12s %-8s %5d %6d", board->name, board->device.pci_bus_id, board_of(board), f->rows,
             f->failed);
    if (!is_verify) {
        cell_figure(tflops, f->tflops);
        text_add(&line, " %7s", tflops);
        add_figure(&line, 7, 2, "+", f->distance_pct);
        if (again)
            add_figure(&line, 7, 2, "+", again->distance_pct);
        add_figure(&line, 6, 2, "", f->noise_pct);
        add_figure(&line, 5, 0, "", f->sm_clock_mhz);
        add_figure(&line, 4, 0, "", f->temp_c);
        add_figure(&line, 5, 0, "", f->power_w);
    }
    if (board->named)
        text_add(&line, "  SLOW");
    fprintf(page, "%s\n", text_string(&line));
    text_free(&line);
}

/* A sentence about a board and its records. */
static void print_past(FILE *page, int width, const struct board_run *board)
{
    const struct board_past *past = board->past;
    struct text line = {0};
    if (past[0].of == PAST_NONE)
        return;
    text_add(&line, "%s %s: %+.2f %% ", board->name, board->device.pci_bus_id, past[0].distance_pct);
    if (isfinite(past[1].distance_pct) && past[1].of != PAST_NONE)
        text_add(&line, "and %+.2f %% ", past[1].distance_pct);
    text_add(&line, past[0].of == PAST_BOARD ? "beside %d earlier run%s of its own" : "beside %d board%s of its model",
             past[0].runs, past[0].runs == 1 ? "" : "s");
    text_add(&line, "; slow beyond -%.2f %%, twice; a loss of %.2f %% is found in 95 of 100 (repeatability %.2f %%",
             past[0].limit_pct, past[0].least_loss_pct, past[0].repeatability_pct);
    if (past[0].of == PAST_FLEET)
        text_add(&line, ", spread between boards %.2f %%", past[0].spread_pct);
    text_add(&line, ")");
    wrap_words(page, width, 0, 2, text_string(&line));
    text_clear(&line);
    text_add(&line, "  a quarter of its cases: %+.2f %%", past[0].quarter_pct);
    if (isfinite(past[1].quarter_pct) && past[1].of != PAST_NONE)
        text_add(&line, " and %+.2f %%", past[1].quarter_pct);
    text_add(&line, " or slower; slow beyond -%.2f %%, twice", past[0].cases_limit_pct);
    if (isfinite(past[0].quarter_pct)) /* of one case there is none */
        wrap_words(page, width, 0, 2, text_string(&line));
    text_free(&line);
}

static void print_boards(const struct boards *b, FILE *page, int width, const struct board_figures *first,
                         const struct board_figures *again)
{
    const bool is_verify = b->options->command == COMMAND_VERIFY;
    char sentence[200];
    fprintf(page, "\n%-7s %-12s %-8s %5s %6s", "device", "pci", "board", "rows", "failed");
    if (!is_verify)
        fprintf(page, " %7s %7s%s %6s %5s %4s %5s", "TFLOPS", "speed%", again ? "   again" : "", "noise%", "MHz", "C",
                "W");
    fputc('\n', page);
    for (int i = 0; i < b->count; i++)
        print_board(page, &b->boards[i], &first[i], again ? &again[i] : NULL, is_verify);
    snprintf(sentence, sizeof sentence,
             "speed%%: of a board over the median of the others of its model, the median of the cases that they share; "
             "measured %s",
             b->options->one_by_one ? "one by one" : "together");
    if (!is_verify)
        wrap_words(page, width < 110 ? width : 110, 0, 2, sentence);
    for (int i = 0; i < b->count && b->records; i++)
        print_past(page, width < 110 ? width : 110, &b->boards[i]);
}

static void explain(const struct boards *b, int at, const struct board_figures *figures, struct text *cause)
{
    const struct board_figures *of_model[DEVICES_MAX];
    const struct board_health health = board_health_of(b->boards[at].header);
    int count = 0, here = 0;
    for (int i = 0; i < b->count; i++) {
        if (strcmp(b->boards[i].device.name, b->boards[at].device.name) != 0)
            continue;
        if (i == at)
            here = count;
        of_model[count++] = &figures[i];
    }
    board_explain(of_model, count, here, &health, "others", cause);
}

/* Says that a board is slow, and why it may be. */
static void name_slow(const struct boards *b, int at, const struct board_figures *first,
                      const struct board_figures *again)
{
    const double limit_pct = b->options->max_board_spread_pct;
    char measured[80], limit[80];
    struct text cause = {0};
    explain(b, at, again, &cause);
    log_error("%s %s: %.1f %% slower than the median of the others, %.1f %% when measured again (limit %g %%); %s",
              b->boards[at].name, b->boards[at].device.pci_bus_id, -first[at].distance_pct, -again[at].distance_pct,
              limit_pct, text_string(&cause));
    snprintf(measured, sizeof measured, "speed %.1f %% of the other boards' median", 100 + again[at].distance_pct);
    snprintf(limit, sizeof limit, "%g %%", 100 - limit_pct);
    node_verdict_add(
        &(struct node_finding){b->boards[at].device.pci_bus_id, measured, "100 %", limit, text_string(&cause)});
    text_free(&cause);
}

/* The same, of a board that is slower than its records. */
static void name_behind(const struct boards *b, int at)
{
    const struct board_run *board = &b->boards[at];
    const struct board_past *first = &board->past[0], *again = &board->past[1];
    const char *than = first->of == PAST_BOARD ? "its earlier runs" : "the boards of its model";
    char measured[80], limit[80];
    log_error("%s %s: %.1f %% slower than %s, %.1f %% when measured again (limit %.2f %%); %s", board->name,
              board->device.pci_bus_id, -first->distance_pct, than, -again->distance_pct, first->limit_pct, again->why);
    snprintf(measured, sizeof measured, "speed %.1f %% of %s", 100 + again->distance_pct, than);
    snprintf(limit, sizeof limit, "%.2f %%", 100 - first->limit_pct);
    node_verdict_add(&(struct node_finding){board->device.pci_bus_id, measured, "100 %", limit, again->why});
}

/* Of a board of which a quarter of the cases is slow. `slow`: them, in words. */
static void name_cases(const struct board_run *board, const char *slow, double limit_pct, const char *cause)
{
    char measured[160], limit[80];
    log_error("%s %s: %s; in both measurements (limit %.2f %% for a quarter of the cases); %s", board->name,
              board->device.pci_bus_id, slow, limit_pct, cause);
    snprintf(measured, sizeof measured, "%.159s", slow);
    snprintf(limit, sizeof limit, "%.2f %%", 100 - limit_pct);
    node_verdict_add(&(struct node_finding){board->device.pci_bus_id, measured, "100 %", limit, cause});
}

static void name_cases_of_others(const struct boards *b, int at, const struct board_figures *again)
{
    struct board_cases *cases = xcalloc((unsigned long)b->count, sizeof *cases);
    struct text slow = {0}, cause = {0};
    for (int i = 0; i < b->count; i++)
        cases[i] = cases_of(&b->boards[i], 1);
    board_say_slow_cases(cases, b->count, at, cases_limit_pct(b), "the median of the others", &slow);
    explain(b, at, again, &cause);
    name_cases(&b->boards[at], text_string(&slow), cases_limit_pct(b), text_string(&cause));
    for (int i = 0; i < b->count; i++)
        free_cases(&cases[i]);
    free(cases);
    text_free(&slow);
    text_free(&cause);
}

/* Each board that is slow again: of all cases, or where these are not, of a quarter of them. */
static void name_board(const struct boards *b, int at, const struct board_figures *first,
                       const struct board_figures *again)
{
    const struct board_run *board = &b->boards[at];
    const struct board_past *past = &board->past[1];
    if (board->named & SLOWER_THAN_OTHERS)
        name_slow(b, at, first, again);
    else if (board->named & CASES_THAN_OTHERS)
        name_cases_of_others(b, at, again);
    if (board->named & SLOWER_THAN_BEFORE)
        name_behind(b, at);
    else if (board->named & CASES_THAN_BEFORE)
        name_cases(board, past->slow_cases, past->cases_limit_pct, past->why);
}

int boards_report(const struct boards *b)
{
    int width;
    FILE *page = run_outputs_page(b->outputs, &width);
    struct board_figures *first = boards_figures(b, 0), *again = b->round > 0 ? boards_figures(b, 1) : NULL;
    if (page)
        print_boards(b, page, width, first, again);
    for (int i = 0; i < b->count; i++)
        name_board(b, i, first, again);
    const int status = note_boards(b, first, again);
    free(first);
    free(again);
    return status;
}
