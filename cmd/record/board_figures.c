/* Cases of all boards are sorted, so that those of one problem and implementation lie together. */
#include "cmd/record/board_figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/record/record.h"

struct timed_case {
    const char *model;
    const struct record_row *row;
    int board;
};

static int compare_cases(const struct timed_case *a, const struct timed_case *b)
{
    int order = strcmp(a->model, b->model);
    if (order == 0)
        order = strcmp(a->row->impl, b->row->impl);
    return order ? order : problem_key_compare(&a->row->key, &b->row->key, false);
}

/* In a case by time; equal times by board, so that the order is one alone. */
static int compare(const void *left, const void *right)
{
    const struct timed_case *a = left, *b = right;
    const int order = compare_cases(a, b);
    if (order)
        return order;
    if (a->row->time_ms < b->row->time_ms || a->row->time_ms > b->row->time_ms)
        return a->row->time_ms < b->row->time_ms ? -1 : 1;
    return a->board - b->board;
}

static int compare_reals(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

double board_median(double *values, int count)
{
    if (count == 0)
        return NAN;
    qsort(values, (size_t)count, sizeof *values, compare_reals);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* The median time of the cases but the one at `left_out`, from at least two in the order of time. */
static double median_of_others(const struct timed_case *cases, int count, int left_out)
{
    const int low = (count - 2) / 2, high = (count - 1) / 2;
    const double a = cases[low + (low >= left_out)].row->time_ms, b = cases[high + (high >= left_out)].row->time_ms;
    return (a + b) / 2;
}

/* The median of a column over the rows of a board that have it. */
#define MEDIAN_OF(result, board, column)                                                                               \
    do {                                                                                                               \
        int found = 0;                                                                                                 \
        for (int k = 0; k < (board)->count; k++)                                                                       \
            if (isfinite((board)->rows[k].column))                                                                     \
                values[found++] = (board)->rows[k].column;                                                             \
        (result) = board_median(values, found);                                                                        \
    } while (0)

static void describe(const struct board_rows *board, struct board_figures *f, double *values)
{
    *f = (struct board_figures){.rows = board->count, .distance_pct = NAN, .temp_c = NAN};
    for (int i = 0; i < board->count; i++) {
        const struct record_row *row = &board->rows[i];
        f->failed += record_row_failed(row);
        f->timed += record_row_is_timed(row);
        f->temp_c = fmax(f->temp_c, row->temp_c); /* one that is NaN does not count */
    }
    MEDIAN_OF(f->tflops, board, tflops);
    MEDIAN_OF(f->noise_pct, board, noise_pct);
    MEDIAN_OF(f->sm_clock_mhz, board, sm_clock_mhz);
    MEDIAN_OF(f->power_w, board, power_w);
    MEDIAN_OF(f->power_capped_pct, board, power_capped_pct);
    MEDIAN_OF(f->throttled_pct, board, throttled_pct);
}

/* A board may have a case several times, as where its record was joined: then it is its own other one only if another
 * board has the case too. */
static bool has_two_boards(const struct timed_case *cases, int count)
{
    for (int i = 1; i < count; i++)
        if (cases[i].board != cases[0].board)
            return true;
    return false;
}

void board_figures_of(const struct board_rows *boards, int count, struct board_figures *figures)
{
    int rows = 0, all = 0, most = 1;
    for (int b = 0; b < count; b++) {
        rows += boards[b].count;
        most = boards[b].count > most ? boards[b].count : most;
    }
    struct timed_case *cases = xcalloc((unsigned long)rows + 1, sizeof *cases);
    double *values = xcalloc((unsigned long)most, sizeof *values);
    double **distances = xcalloc((unsigned long)count + 1, sizeof *distances);
    for (int b = 0; b < count; b++) {
        describe(&boards[b], &figures[b], values);
        distances[b] = xcalloc((unsigned long)boards[b].count + 1, sizeof **distances);
        for (int i = 0; i < boards[b].count; i++)
            if (record_row_is_timed(&boards[b].rows[i]) && boards[b].rows[i].time_ms > 0 &&
                role_of_name(boards[b].rows[i].impl) != ATTN_ROLE_NOTHING)
                cases[all++] = (struct timed_case){boards[b].model, &boards[b].rows[i], b};
    }
    qsort(cases, (size_t)all, sizeof *cases, compare);
    for (int from = 0, to; from < all; from = to) {
        for (to = from + 1; to < all && compare_cases(&cases[from], &cases[to]) == 0;)
            to++;
        for (int i = from; i < to && has_two_boards(&cases[from], to - from); i++) {
            const double others_ms = median_of_others(&cases[from], to - from, i - from);
            const int b = cases[i].board;
            distances[b][figures[b].shared++] = 100 * (others_ms / cases[i].row->time_ms - 1);
        }
    }
    for (int b = 0; b < count; b++) {
        figures[b].distance_pct = board_median(distances[b], figures[b].shared);
        free(distances[b]);
    }
    free(distances);
    free(values);
    free(cases);
}
