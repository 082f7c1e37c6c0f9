/* The page of a fleet: who is slow, who is missing, and every board. */
#include "cmd/report/boards.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/report/page.h"

/* ---- figures ---- */

static bool is_alike(const struct fleet_board *a, const struct fleet_board *b)
{
    return !strcmp(a->model, b->model) && a->options && b->options && !strcmp(a->options, b->options);
}

static int by_model(const void *left, const void *right)
{
    const struct fleet_board *a = *(const struct fleet_board *const *)left;
    const struct fleet_board *b = *(const struct fleet_board *const *)right;
    int order = strcmp(a->model, b->model);
    if (order == 0)
        order = strcmp(a->options ? a->options : "", b->options ? b->options : "");
    return order ? order : a < b ? -1 : a > b;
}

/* The deviations of the boards of one model, sorted[from, to). */
static void find_deviations(struct fleet_board **sorted, int from, int to)
{
    const int count = to - from;
    double *distances = xcalloc((unsigned long)count + 1, sizeof *distances);
    double *deviations = xcalloc((unsigned long)count + 1, sizeof *deviations);
    for (int i = 0; i < count; i++)
        distances[i] = sorted[from + i]->figures.distance_pct;
    const int known = board_deviations(distances, count, deviations);
    double *cases_pct = xcalloc((unsigned long)count + 1, sizeof *cases_pct);
    for (int i = 0; i < count; i++)
        cases_pct[i] = sorted[from + i]->figures.cases_pct;
    const double cases_limit_pct = board_cases_limit(cases_pct, count);
    free(cases_pct);
    for (int i = 0; i < count; i++) {
        struct fleet_board *b = sorted[from + i];
        b->deviation = deviations[i];
        b->cases_limit_pct = cases_limit_pct;
        b->is_slow = board_is_slow(distances[i], deviations[i], known);
        b->some_slow = !b->is_slow && b->figures.quarter_pct < -cases_limit_pct;
        b->is_slow |= b->some_slow;
    }
    free(distances);
    free(deviations);
}

static void make_figures(struct fleet *f)
{
    struct board_cases *boards = xcalloc((unsigned long)f->count + 1, sizeof *boards);
    struct board_figures *figures = xcalloc((unsigned long)f->count + 1, sizeof *figures);
    struct fleet_board **sorted = xcalloc((unsigned long)f->count + 1, sizeof(void *));
    for (int i = 0; i < f->count; i++)
        boards[i] = (struct board_cases){f->boards[i].model, f->boards[i].cases, f->boards[i].count};
    board_figures_of(boards, f->count, figures);
    for (int i = 0; i < f->count; i++) {
        f->boards[i].figures = figures[i];
        sorted[i] = &f->boards[i];
    }
    if (f->count > 1)
        qsort(sorted, (size_t)f->count, sizeof *sorted, by_model);
    for (int from = 0, to; from < f->count; from = to) {
        for (to = from; to < f->count && !strcmp(sorted[to]->model, sorted[from]->model);)
            to++;
        find_deviations(sorted, from, to);
    }
    for (int from = 0, to; from < f->count; from = to) {
        int most = 0;
        for (to = from; to < f->count && (to == from || is_alike(sorted[to], sorted[from])); to++)
            most = sorted[to]->figures.distinct > most ? sorted[to]->figures.distinct : most;
        for (int i = from; i < to; i++)
            sorted[i]->cases_asked = most;
    }
    free(sorted);
    free(figures);
    free(boards);
}

/* ---- the page ---- */

static void explain(const struct fleet *f, const struct fleet_board *b, struct text *line)
{
    const struct board_figures **figures = xcalloc((unsigned long)f->count, sizeof(void *));
    int count = 0, at = 0;
    for (int i = 0; i < f->count; i++) {
        if (strcmp(f->boards[i].model, b->model) != 0)
            continue;
        if (&f->boards[i] == b)
            at = count;
        figures[count++] = &f->boards[i].figures;
    }
    board_explain(figures, count, at, &b->health, "others", line);
    free(figures);
}

static void put_outliers(struct page *page, const struct fleet *f)
{
    int named = 0, judged = 0;
    page_heading(page, 2, "Slow boards");
    for (int i = 0; i < f->count; i++) {
        const struct fleet_board *b = &f->boards[i];
        struct text line = {0};
        judged += isfinite(b->deviation);
        if (!b->is_slow)
            continue;
        text_add(&line, "%s %s: ", b->host, b->pci);
        if (b->some_slow)
            text_add(&line, "a quarter of its cases is at least %.2f %% slower than the others' (limit %.2f %%); ",
                     -b->figures.quarter_pct, b->cases_limit_pct);
        else
            text_add(&line, "%.2f %% slower than the median of the others, %.1f robust standard deviations; ",
                     -b->figures.distance_pct, -b->deviation);
        explain(f, b, &line);
        page_item(page, "%s", text_string(&line));
        text_free(&line);
        named++;
    }
    if (judged == 0)
        page_text(page, "No board is judged: a model needs %d boards with cases in common.", BOARDS_FEWEST);
    else if (named == 0)
        page_text(page, "None of %d boards.", judged);
    page_text(
        page,
        "A board is named where it is slower than the others by more than %g %% and by more than 5 + 64 / n "
        "robust standard deviations of the n boards of its model (n at least %d); or a quarter of its cases, two at "
        "least, by more than 1.5 times as many deviations of single cases, and 5 %%.",
        board_least_loss_pct, BOARDS_FEWEST);
}

static void put_missing(struct page *page, const struct fleet *f)
{
    int said = 0;
    page_heading(page, 2, "Missing and failed");
    for (int i = 0; i < f->absent.count; i++, said++)
        page_item(page, "%s: no record", f->absent.names[i]);
    for (int i = 0; i < f->unread.count; i++, said++)
        page_item(page, "%s: cannot be read", f->unread.names[i]);
    for (int i = 0; i < f->count; i++) {
        const struct fleet_board *b = &f->boards[i];
        if (b->count == 0)
            page_item(page, "%s %s: no rows", b->host, b->pci);
        else if (b->figures.distinct < b->cases_asked)
            page_item(page, "%s %s: %d of %d cases, its record ends early", b->host, b->pci, b->figures.distinct,
                      b->cases_asked);
        if (b->figures.failed)
            page_item(page, "%s %s: %d of %d rows failed", b->host, b->pci, b->figures.failed, b->figures.rows);
        said += b->count == 0 || b->figures.distinct < b->cases_asked || b->figures.failed;
    }
    if (said == 0)
        page_text(page, "None.");
}

/* A cell with a figure, empty where it was not measured. */
static void put_figure(struct page *page, int digits, double value)
{
    char text[32] = "";
    if (isfinite(value))
        snprintf(text, sizeof text, "%.*f", digits, value);
    page_cell(page, CELL_PLAIN, "%s", text);
}

static void put_boards(struct page *page, const struct fleet *f)
{
    static const char *const names[] = {"host",     "pci",     "board",   "rows", "TFLOPS", "speed %", "deviation",
                                        "within %", "noise %", "slope %", "MHz",  "C",      "W",       "capped %"};
    page_heading(page, 2, "Boards");
    page_table(page, "lllrrrrrrrrrrr");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        page_cell(page, CELL_PLAIN, "%s", names[i]);
    for (int i = 0; i < f->count; i++) {
        const struct fleet_board *b = &f->boards[i];
        const struct board_figures *g = &b->figures;
        page_cell(page, b->is_slow ? CELL_BAD : CELL_PLAIN, "%s", b->host);
        page_cell(page, CELL_PLAIN, "%s", b->pci);
        page_cell(page, CELL_PLAIN, "%s", b->board);
        page_cell(page, CELL_PLAIN, "%d", g->rows);
        if (isfinite(g->tflops))
            page_cell(page, CELL_PLAIN, "%.4g", g->tflops);
        else
            page_cell(page, CELL_PLAIN, "%s", "");
        if (isfinite(g->distance_pct))
            page_cell(page, b->is_slow ? CELL_BAD : CELL_PLAIN, "%+.2f", g->distance_pct);
        else
            page_cell(page, CELL_PLAIN, "%s", "");
        put_figure(page, 1, b->deviation);
        put_figure(page, 2, g->within_pct);
        put_figure(page, 2, g->noise_pct);
        put_figure(page, 2, g->slope_pct);
        put_figure(page, 0, g->sm_clock_mhz);
        put_figure(page, 0, g->temp_c);
        put_figure(page, 0, g->power_w);
        put_figure(page, 0, g->power_capped_pct);
    }
    page_text(
        page,
        "speed: of a board over the median of the others of its model, the median over the cases that they share. "
        "deviation: of that, in robust standard deviations of the model. within: (longest - shortest) / median of a "
        "case that a board has several times, noise: spread of the samples of a row, slope: change of the time from "
        "the first sample to the last, as from heat; medians over its cases.");
}

static struct page *page_of(const struct fleet *f, bool has_map)
{
    struct page *page = page_open("Boards of a fleet");
    page_text(page, "%d boards of %d hosts in %d records.", f->count, f->hosts, f->records);
    if (f->unread.count)
        page_warning(page, "%d of the records and folders could not be read.", f->unread.count);
    put_outliers(page, f);
    put_missing(page, f);
    if (has_map)
        page_chart(page, "boards", "heat map: a line for each host, a cell for each of its boards");
    put_boards(page, f);
    return page;
}

static int write_failed(const char *path)
{
    log_error("%s: %s", path_shown(path).text, strerror(errno));
    return EXIT_IO;
}

/* boards.md, boards.csv and boards.svg. */
static int write_files(const struct fleet *f, const struct page *page, const char *dir)
{
    char *markdown = xasprintf("%s/boards.md", dir), *table = xasprintf("%s/boards.csv", dir);
    char *map = xasprintf("%s/boards.svg", dir);
    int status = path_make_dirs(dir) ? EXIT_OK : EXIT_IO;
    if (status == EXIT_OK && !page_store_markdown(page, markdown, true))
        status = EXIT_IO;
    if (status == EXIT_OK && !fleet_write_csv(f, table))
        status = write_failed(table);
    if (status == EXIT_OK && !fleet_write_svg(f, map))
        status = write_failed(map);
    free(markdown);
    free(table);
    free(map);
    return status;
}

int boards_run(const struct options *o)
{
    struct fleet f = {0};
    const bool is_none = o->out_dir && !strcmp(o->out_dir, "none"), has_files = o->out_dir && !is_none;
    int status = fleet_read(o, &f);
    if (f.records == 0) {
        log_error("report --boards: no record was read");
        status = EXIT_NOT_COMPARABLE;
    } else {
        make_figures(&f);
        struct page *page = page_of(&f, has_files);
        if (is_none)
            page_write_markdown(page, stdout, false);
        else if (!o->quiet)
            page_write_text(page, stdout, terminal_width());
        if (has_files)
            status = exit_worst(status, write_files(&f, page, o->out_dir));
        page_close(page);
    }
    fleet_free(&f);
    return status;
}
