/* The cases of all boards are sorted, so that those of one problem and implementation lie together. */
#include "cmd/record/board_figures.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/stats.h"
#include "cmd/record/record.h"

/* ---- one row ---- */

/* The straight line through the samples, from the first to the last, relative to its middle. */
static double slope_pct(const double *samples_ms, int64_t count)
{
    double mean_ms = 0, products = 0, squares = 0;
    if (!samples_ms || count < 6)
        return NAN;
    for (int64_t i = 0; i < count; i++)
        mean_ms += samples_ms[i] / (double)count;
    for (int64_t i = 0; i < count; i++) {
        const double at = (double)i - 0.5 * (double)(count - 1);
        products += at * (samples_ms[i] - mean_ms);
        squares += at * at;
    }
    return mean_ms > 0 ? 100 * products / squares * (double)(count - 1) / mean_ms : NAN;
}

void board_case_of(const struct record_row *row, struct board_case *c)
{
    const bool is_timed = record_row_is_timed(row) && row->time_ms > 0 && role_of_name(row->impl) != ATTN_ROLE_NOTHING;
    memset(c, 0, sizeof *c);
    c->key = row->key;
    memcpy(c->impl, row->impl, sizeof c->impl);
    c->time_ms = is_timed ? row->time_ms : NAN;
    c->tflops = row->tflops;
    c->noise_pct = row->noise_pct;
    c->slope_pct = slope_pct(row->samples_ms, row->samples);
    c->sm_clock_mhz = row->sm_clock_mhz;
    c->temp_c = row->temp_c;
    c->power_w = row->power_w;
    c->power_capped_pct = row->power_capped_pct;
    c->throttled_pct = row->throttled_pct;
    c->has_failed = record_row_failed(row);
}

/* ---- deviations ---- */

/* 1.4826 x the median of the absolute deviations of `known` values from their median; leaves these in `values`. */
static double robust_deviation(double *values, int known, double *middle)
{
    *middle = stats_median(values, known);
    for (int i = 0; i < known; i++)
        values[i] = fabs(values[i] - *middle);
    return 1.4826 * stats_median(values, known);
}

static int known_of(const double *distances_pct, int count, double *values)
{
    int known = 0;
    for (int i = 0; i < count; i++)
        if (isfinite(distances_pct[i]))
            values[known++] = distances_pct[i];
    return known;
}

int board_deviations(const double *distances_pct, int count, double *deviations)
{
    double *values = xcalloc((unsigned long)count + 1, sizeof *values), middle;
    const int known = known_of(distances_pct, count, values);
    const double deviation = robust_deviation(values, known, &middle);
    for (int i = 0; i < count; i++)
        deviations[i] = known >= BOARDS_FEWEST && deviation > 0 ? (distances_pct[i] - middle) / deviation : NAN;
    free(values);
    return known;
}

double board_spread_pct(const double *distances_pct, int count)
{
    double *values = xcalloc((unsigned long)count + 1, sizeof *values), middle;
    const int known = known_of(distances_pct, count, values);
    const double deviation = robust_deviation(values, known, &middle);
    free(values);
    return known >= BOARDS_FEWEST ? deviation : NAN;
}

const double board_least_loss_pct = 1;

double board_deviation_limit(int count) { return 5 + 64.0 / count; }

bool board_is_slow(double distance_pct, double deviation, int count)
{
    return deviation < -board_deviation_limit(count) && distance_pct < -board_least_loss_pct;
}

double board_cases_limit(const double *cases_pct, int count)
{
    double *values = xcalloc((unsigned long)count + 1, sizeof *values);
    const int known = known_of(cases_pct, count, values);
    const double deviation = stats_median(values, known);
    free(values);
    return known >= BOARDS_FEWEST ? fmax(5, 1.5 * board_deviation_limit(known) * deviation) : NAN;
}

/* ---- telemetry ---- */

static int64_t count_at(const json_t *header, const char *path)
{
    const json_t *value = header_value(header, path);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

struct board_health board_health_of(const json_t *header)
{
    return (struct board_health){.pcie_width = count_at(header, "device.pcie_width"),
                                 .pcie_width_max = count_at(header, "device.pcie_width_max"),
                                 .ecc_uncorrected = count_at(header, "device.ecc_uncorrected")};
}

/* The median of a figure over the other boards, NaN where none has it. */
static double median_of_others(const struct board_figures *const *figures, int count, int at, size_t offset)
{
    double *values = xcalloc((unsigned long)count + 1, sizeof *values);
    int known = 0;
    for (int i = 0; i < count; i++) {
        double value;
        memcpy(&value, (const char *)figures[i] + offset, sizeof value);
        if (i != at && isfinite(value))
            values[known++] = value;
    }
    const double median = stats_median(values, known);
    free(values);
    return median;
}

void board_explain(const struct board_figures *const *figures, int count, int at, const struct board_health *health,
                   const char *others, struct text *line)
{
    const struct board_figures *f = figures[at];
    const double clock_mhz = median_of_others(figures, count, at, offsetof(struct board_figures, sm_clock_mhz));
    const double capped_pct = median_of_others(figures, count, at, offsetof(struct board_figures, power_capped_pct));
    const double temp_c = median_of_others(figures, count, at, offsetof(struct board_figures, temp_c));
    struct text found = {0};
    if (f->throttled_pct > 1)
        text_join(&found, ", ", "thermal or brake %.0f %% of the time", f->throttled_pct);
    if (f->power_capped_pct > capped_pct + 10)
        text_join(&found, ", ", "power cap %.0f %% of the time, %s %.0f %%", f->power_capped_pct, others, capped_pct);
    if (f->sm_clock_mhz < 0.99 * clock_mhz)
        text_join(&found, ", ", "clock %.0f MHz, %s %.0f MHz", f->sm_clock_mhz, others, clock_mhz);
    if (f->temp_c > temp_c + 8)
        text_join(&found, ", ", "%.0f C, %s %.0f C", f->temp_c, others, temp_c);
    if (health->ecc_uncorrected > 0)
        text_join(&found, ", ", "%lld uncorrected ECC errors", (long long)health->ecc_uncorrected);
    if (health->pcie_width >= 0 && health->pcie_width < health->pcie_width_max)
        text_join(&found, ", ", "PCIe x%lld of x%lld", (long long)health->pcie_width,
                  (long long)health->pcie_width_max);
    text_add(line, "%s", found.length ? text_string(&found) : "not in its telemetry");
    text_free(&found);
}

/* ---- boards ---- */

/* A case on one board; after the first step its median time, once. */
struct entry {
    const char *model;
    const struct board_case *of;
    double time_ms;
    int board;
};

static int compare_cases(const struct entry *a, const struct entry *b)
{
    int order = strcmp(a->model, b->model);
    if (order == 0)
        order = strcmp(a->of->impl, b->of->impl);
    return order ? order : problem_key_compare(&a->of->key, &b->of->key, false);
}

static int by_case_and_board(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    const int order = compare_cases(a, b);
    return order ? order : a->board - b->board;
}

/* Equal times by board, so that the order is one alone. */
static int by_time(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->time_ms < b->time_ms || a->time_ms > b->time_ms)
        return a->time_ms < b->time_ms ? -1 : 1;
    return a->board - b->board;
}

/* The median time of the entries but the one at `left_out`, from at least two in the order of time. */
static double others_median_ms(const struct entry *entries, int count, int left_out)
{
    const int low = (count - 2) / 2, high = (count - 1) / 2;
    return (entries[low + (low >= left_out)].time_ms + entries[high + (high >= left_out)].time_ms) / 2;
}

/* The median of a member over the cases of a board that have it. */
#define MEDIAN_OF(result, board, member) \
    do { \
        int found = 0; \
        for (int k = 0; k < (board)->count; k++) \
            if (isfinite((board)->cases[k].member)) \
                values[found++] = (board)->cases[k].member; \
        (result) = stats_median(values, found); \
    } while (0)

static void describe(const struct board_cases *board, struct board_figures *f, double *values)
{
    *f = (struct board_figures){.rows = board->count, .distance_pct = NAN, .within_pct = NAN, .temp_c = NAN};
    for (int i = 0; i < board->count; i++) {
        f->failed += board->cases[i].has_failed;
        f->timed += !isnan(board->cases[i].time_ms);
        f->temp_c = fmax(f->temp_c, board->cases[i].temp_c); /* one that is NaN does not count */
    }
    MEDIAN_OF(f->tflops, board, tflops);
    MEDIAN_OF(f->noise_pct, board, noise_pct);
    MEDIAN_OF(f->slope_pct, board, slope_pct);
    MEDIAN_OF(f->sm_clock_mhz, board, sm_clock_mhz);
    MEDIAN_OF(f->power_w, board, power_w);
    MEDIAN_OF(f->power_capped_pct, board, power_capped_pct);
    MEDIAN_OF(f->throttled_pct, board, throttled_pct);
}

/* Joins the entries of one case and board to one, with their median time. Returns how many are left. spreads[b]:
 * appends the spread of each case that board b has several times, spread_counts[b] their number. */
static int join(struct entry *entries, int all, double **spreads, int *spread_counts, struct board_figures *figures)
{
    double *times = xcalloc((unsigned long)all + 1, sizeof *times);
    int kept = 0;
    for (int from = 0, to; from < all; from = to) {
        int count = 0;
        for (to = from; to < all && by_case_and_board(&entries[from], &entries[to]) == 0; to++)
            if (!isnan(entries[to].time_ms))
                times[count++] = entries[to].time_ms;
        const int board = entries[from].board;
        figures[board].distinct++;
        if (count == 0)
            continue;
        const struct stats of_case = stats_of(times, count);
        if (count > 1)
            spreads[board][spread_counts[board]++] = 100 * (of_case.max - of_case.min) / of_case.median;
        entries[kept] = entries[from];
        entries[kept++].time_ms = of_case.median;
    }
    free(times);
    return kept;
}

/* From the distances of its shared cases, which are sorted. */
static void find_distances(double *distances_pct, struct board_figures *f)
{
    const int quarter = f->shared <= 8 ? 2 : (f->shared + 3) / 4;
    f->distance_pct = stats_median(distances_pct, f->shared);
    stats_sort(distances_pct, f->shared);
    f->quarter_pct = f->shared >= quarter ? distances_pct[quarter - 1] : NAN;
    for (int i = 0; i < f->shared; i++)
        distances_pct[i] = fabs(distances_pct[i]);
    f->cases_pct = 1.4826 * stats_median(distances_pct, f->shared);
}

/* A case of one board, and its distance. */
struct distance {
    const struct board_case *of;
    double pct;
};

/* of_board: those of the shared cases of boards[at_board], as many as its `shared`; NULL = not asked for. */
static void compare(const struct board_cases *boards, int count, struct board_figures *figures, int at_board,
                    struct distance *of_board)
{
    int all = 0, at = 0, most = 1;
    for (int b = 0; b < count; b++) {
        all += boards[b].count;
        most = boards[b].count > most ? boards[b].count : most;
    }
    struct entry *entries = xcalloc((unsigned long)all + 1, sizeof *entries);
    double *values = xcalloc((unsigned long)most, sizeof *values);
    double **lists = xcalloc((unsigned long)count + 1, sizeof *lists); /* of each board: spreads, then distances */
    int *spread_counts = xcalloc((unsigned long)count + 1, sizeof *spread_counts);
    for (int b = 0; b < count; b++) {
        describe(&boards[b], &figures[b], values);
        lists[b] = xcalloc((unsigned long)boards[b].count + 1, sizeof **lists);
        for (int i = 0; i < boards[b].count; i++)
            entries[at++] = (struct entry){boards[b].model, &boards[b].cases[i], boards[b].cases[i].time_ms, b};
    }
    qsort(entries, (size_t)all, sizeof *entries, by_case_and_board);
    const int kept = join(entries, all, lists, spread_counts, figures);
    for (int b = 0; b < count; b++)
        figures[b].within_pct = stats_median(lists[b], spread_counts[b]);
    for (int from = 0, to; from < kept; from = to) {
        for (to = from + 1; to < kept && compare_cases(&entries[from], &entries[to]) == 0;)
            to++;
        qsort(&entries[from], (size_t)(to - from), sizeof *entries, by_time);
        for (int i = from; i < to && to - from > 1; i++) {
            const double others_ms = others_median_ms(&entries[from], to - from, i - from);
            const int b = entries[i].board;
            const double pct = 100 * (others_ms / entries[i].time_ms - 1);
            if (of_board && b == at_board)
                of_board[figures[b].shared] = (struct distance){entries[i].of, pct};
            lists[b][figures[b].shared++] = pct;
        }
    }
    for (int b = 0; b < count; b++) {
        find_distances(lists[b], &figures[b]);
        free(lists[b]);
    }
    free(spread_counts);
    free(lists);
    free(values);
    free(entries);
}

void board_figures_of(const struct board_cases *boards, int count, struct board_figures *figures)
{
    compare(boards, count, figures, 0, NULL);
}

/* In columns there are several. */
static char *one_space(char *words)
{
    char *to = words;
    for (const char *from = words; *from; from++)
        if (*from != ' ' || (to > words && to[-1] != ' '))
            *to++ = *from;
    *to = 0;
    return words;
}

void board_say_slow_cases(const struct board_cases *boards, int count, int at, double limit_pct, const char *others,
                          struct text *line)
{
    struct board_figures *figures = xcalloc((unsigned long)count, sizeof *figures);
    struct distance *distances = xcalloc((unsigned long)boards[at].count + 1, sizeof *distances);
    struct text names = {0};
    double least_pct = INFINITY, most_pct = 0;
    int slow = 0;
    compare(boards, count, figures, at, distances);
    for (int i = 0; i < figures[at].shared; i++) {
        const double loss_pct = -distances[i].pct;
        char label[PROBLEM_LABEL_SIZE];
        if (!(loss_pct > limit_pct))
            continue;
        least_pct = fmin(least_pct, loss_pct);
        most_pct = fmax(most_pct, loss_pct);
        if (++slow > 3)
            continue;
        problem_key_label(&distances[i].of->key, label, sizeof label);
        text_join(&names, ", ", "%s", one_space(label));
    }
    text_add(line, "%d of %d cases %.1f to %.1f %% slower than %s: %s", slow, figures[at].shared, least_pct, most_pct,
             others, text_string(&names));
    if (slow > 3)
        text_add(line, " and %d more", slow - 3);
    text_free(&names);
    free(distances);
    free(figures);
}
