/* Computes points, figures, ranks and geomeans from record rows. */
#include "cmd/report/report_data.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/stats.h"
#include "cmd/record/record_figures.h"
#include "cmd/record/record_row.h"

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

/* ---- points ---- */

/* Orders rows by dtype, mode, mask, head dim, length, then the rest of the problem and the timing method. Seed, device
 * and policy of the run are not compared. */
static int compare_problems(const struct record_row *a, const struct record_row *b)
{
    const struct problem_key *x = &a->key, *y = &b->key;
    const int64_t counts[][2] = {
        {x->mode, y->mode}, {x->causal, y->causal}, {x->head_dim, y->head_dim}, {x->q_len, y->q_len}};
    int order = strcmp(problem_dtype_name(x->dtype), problem_dtype_name(y->dtype));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && !order; i++)
        order = (counts[i][0] > counts[i][1]) - (counts[i][0] < counts[i][1]);
    if (!order)
        order = problem_key_compare(x, y, true);
    return order ? order : strcmp(a->method, b->method);
}

static bool is_attention(const struct record_row *row)
{
    return row->key.mode >= 0 && row->key.dtype >= 0 && row->impl[0] && role_of_name(row->impl) != ATTN_ROLE_NOTHING &&
           row->key.q_len > 0 && row->key.kv_len > 0 && row->key.head_dim > 0;
}

int report_set_index(const struct record_row *r)
{
    const bool is_long = r->key.q_len == 16384, is_wide = r->key.head_dim == 128;
    char extras[PROBLEM_LABEL_SIZE];
    if (problem_key_extras(&r->key, extras, sizeof extras)[0])
        return -1;
    if (r->key.dtype != ATTN_BF16 || !is_attention(r) || (r->key.causal != 0 && r->key.causal != 1) ||
        r->key.kv_len != r->key.q_len || (r->key.q_len != 4096 && !is_long) || (r->key.head_dim != 64 && !is_wide) ||
        r->key.batch != 16384 / r->key.q_len || r->key.q_heads != 2048 / r->key.head_dim ||
        r->key.kv_heads != r->key.q_heads || r->key.layout != ATTN_BSHD || r->key.dist != FILL_NORMAL ||
        !isnan(r->key.logit_std) || r->key.l2 != L2_COLD ||
        !(fabs(r->key.scale * sqrt((double)r->key.head_dim) - 1) < 1e-5))
        return -1;
    return 8 * (r->key.mode == ATTN_BWD) + 4 * (int)r->key.causal + 2 * is_wide + is_long;
}

static int compare_points(const void *left, const void *right)
{
    return compare_problems(((const struct report_point *)left)->row, ((const struct report_point *)right)->row);
}

/* Collects each problem that has a valid row, once. */
static void collect_points(struct report *r)
{
    const struct report_input *in = r->input;
    int room = 0;
    for (int f = 0; f < in->file_count; f++)
        room += in->files[f].count;
    r->points = xcalloc((unsigned long)room + 1, sizeof *r->points);
    for (int f = 0; f < in->file_count; f++)
        for (int i = 0; i < in->files[f].count; i++)
            if (is_attention(&in->files[f].rows[i]) && report_row_is_valid(&in->files[f].rows[i]))
                r->points[r->point_count++].row = &in->files[f].rows[i];
    if (r->point_count)
        qsort(r->points, (size_t)r->point_count, sizeof *r->points, compare_points);
    int kept = 0;
    for (int i = 0; i < r->point_count; i++)
        if (!kept || compare_points(&r->points[kept - 1], &r->points[i]) != 0)
            r->points[kept++] = r->points[i];
    r->point_count = kept;
    for (int i = 0; i < kept; i++)
        r->points[i].set_index = report_set_index(r->points[i].row);
}

static int compare_places(const void *left, const void *right)
{
    const struct record_row *a = *(const struct record_row *const *)left, *b = *(const struct record_row *const *)right;
    const int order = compare_problems(a, b);
    return order ? order : (a > b) - (a < b); /* rows of one array: in the order of the file */
}

static int compare_impls(const void *left, const void *right)
{
    const struct record_row *a = *(const struct record_row *const *)left, *b = *(const struct record_row *const *)right;
    int order = compare_problems(a, b);
    if (!order)
        order = strcmp(a->impl, b->impl);
    return order ? order : (a > b) - (a < b);
}

static const struct record_row **sorted_rows(const struct record_file *file, int (*compare)(const void *, const void *))
{
    const struct record_row **rows = xcalloc((unsigned long)file->count + 1, sizeof *rows);
    for (int i = 0; i < file->count; i++)
        rows[i] = &file->rows[i];
    if (file->count > 1)
        qsort(rows, (size_t)file->count, sizeof *rows, compare);
    return rows;
}

/* Sorts the rows of each file, so that those of a problem are found by binary search, and those of an implementation
 * there. */
static void sort_rows(struct report *r)
{
    const struct report_input *in = r->input;
    r->rows = xcalloc((unsigned long)in->file_count + 1, sizeof *r->rows);
    r->impls = xcalloc((unsigned long)in->file_count + 1, sizeof *r->impls);
    for (int f = 0; f < in->file_count; f++) {
        r->rows[f] = sorted_rows(&in->files[f], compare_places);
        r->impls[f] = sorted_rows(&in->files[f], compare_impls);
    }
}

/* The first row of a problem among the sorted ones of a file; *end: behind the last. */
static int rows_of(const struct report *r, int file, const struct record_row *problem, int *end)
{
    const int count = r->input->files[file].count;
    int low = 0, high = count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (compare_problems(r->rows[file][middle], problem) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (*end = low; *end < count && compare_problems(r->rows[file][*end], problem) == 0;)
        ++*end;
    return low;
}

/* The row of an implementation at a point, the last one in the file; NULL = none. */
static const struct record_row *find_row(const struct report *r, int file, const struct record_row *problem,
                                         const char *impl)
{
    int low = 0, high = r->input->files[file].count; /* behind the last row that is not above it */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const struct record_row *row = r->impls[file][middle];
        const int order = compare_problems(row, problem);
        if (order < 0 || (!order && strcmp(row->impl, impl) <= 0))
            low = middle + 1;
        else
            high = middle;
    }
    const struct record_row *row = low ? r->impls[file][low - 1] : NULL;
    return row && compare_problems(row, problem) == 0 && is(row->impl, impl) ? row : NULL;
}

/* ---- figures ---- */

/* Fields of which a figure has the median over its files. */
static const size_t median_fields[] = {
    offsetof(struct record_row, tflops),           offsetof(struct record_row, tflops_sustained),
    offsetof(struct record_row, gemm_tflops),      offsetof(struct record_row, pct_of_gemm),
    offsetof(struct record_row, speedup_vs_naive), offsetof(struct record_row, workspace_mb),
    offsetof(struct record_row, err_used),         offsetof(struct record_row, sm_clock_mhz),
    offsetof(struct record_row, temp_c),           offsetof(struct record_row, power_capped_pct),
    offsetof(struct record_row, throttled_pct),    offsetof(struct record_row, power_w),
    offsetof(struct record_row, energy_j),         offsetof(struct record_row, tflops_per_w),
};

static double field(const struct record_row *row, size_t offset)
{
    return *(const double *)((const char *)row + offset);
}

/* The median of the finite values, NaN where there are none. */
static double median_of(const struct record_row *const *rows, int count, size_t offset)
{
    double *values = xcalloc((unsigned long)count + 1, sizeof *values);
    int there = 0;
    for (int i = 0; i < count; i++)
        if (isfinite(field(rows[i], offset)))
            values[there++] = field(rows[i], offset);
    const double median = stats_median(values, there);
    free(values);
    return median;
}

/* Copies a row without what it owns: samples and repro stay with the record. */
static void copy_row(const struct record_row *from, struct record_row *to)
{
    *to = *from;
    to->samples_ms = NULL;
    to->repro = NULL;
    to->samples = 0;
}

/* TFLOPS of a row at one end of its time interval; its own TFLOPS where it has no interval. */
static double tflops_at(const struct record_row *row, double time_ms)
{
    return isfinite(time_ms) && time_ms > 0 ? row->tflops * row->time_ms / time_ms : row->tflops;
}

static void fill_figure(const struct record_row *const *rows, int count, struct report_figure *figure)
{
    copy_row(rows[count - 1], &figure->best);
    for (size_t i = 0; i < sizeof median_fields / sizeof median_fields[0]; i++)
        *(double *)((char *)&figure->best + median_fields[i]) = median_of(rows, count, median_fields[i]);
    figure->is_there = figure->has_interval = true;
    figure->file_count = count;
    figure->lo = figure->least = INFINITY;
    figure->hi = figure->most = 0;
    for (int i = 0; i < count; i++) {
        figure->has_interval &= record_row_has_interval(rows[i]);
        figure->lo = fmin(figure->lo, fmin(rows[i]->tflops, tflops_at(rows[i], rows[i]->time_ms_ci_hi)));
        figure->hi = fmax(figure->hi, fmax(rows[i]->tflops, tflops_at(rows[i], rows[i]->time_ms_ci_lo)));
        figure->least = fmin(figure->least, rows[i]->tflops);
        figure->most = fmax(figure->most, rows[i]->tflops);
    }
    figure->best.time_ms = figure->best.flops / figure->best.tflops * 1e-9;
    figure->best.time_ms_ci_lo = figure->best.flops / figure->hi * 1e-9;
    figure->best.time_ms_ci_hi = figure->best.flops / figure->lo * 1e-9;
}

/* The figure of one implementation over the given files; false where it has no valid row, or failed a check in a file.
 * */
static bool make_candidate(const struct report *r, const int *files, int file_count, const struct record_row *problem,
                           const char *impl, struct report_figure *figure)
{
    const struct record_row **rows = xcalloc((unsigned long)file_count + 1, sizeof *rows);
    int count = 0;
    bool has_failed = false;
    for (int i = 0; i < file_count; i++) {
        const struct record_row *row = find_row(r, files[i], problem, impl);
        has_failed |= row && row->check == CHECKED_FAIL;
        if (row && report_row_is_valid(row))
            rows[count++] = row;
    }
    if (count && !has_failed)
        fill_figure(rows, count, figure);
    free(rows);
    return count && !has_failed;
}

static void note_naive(const struct record_row *row, struct report_figure *figure)
{
    figure->has_naive |= report_row_is_valid(row);
    figure->naive_is_oom |= row->status == STATUS_OOM;
    if (report_row_is_valid(row) && isfinite(row->workspace_mb))
        figure->naive_workspace_mb = row->workspace_mb;
}

static void add_tie(struct report_figure *figure, const char *impl)
{
    const size_t used = strlen(figure->ties);
    snprintf(figure->ties + used, sizeof figure->ties - used, "%s%s", used ? ", " : "", impl);
}

enum { IMPLS_MAX = 64 };

/* Is the whole interval of a above that of b? A figure without an interval is above none. */
static bool is_above(const struct report_figure *a, const struct report_figure *b)
{
    return a->has_interval && b->has_interval && a->lo > b->hi;
}

/* The best of all implementations at a point, over the given files of one label. */
static void make_figure(const struct report *r, const int *files, int file_count, const struct record_row *problem,
                        struct report_figure *figure)
{
    const char *impls[IMPLS_MAX];
    int impl_count = 0, best = -1;
    memset(figure, 0, sizeof *figure);
    figure->naive_workspace_mb = NAN;
    for (int f = 0; f < file_count; f++) {
        int end;
        for (int i = rows_of(r, files[f], problem, &end); i < end; i++) {
            const struct record_row *row = r->rows[files[f]][i];
            bool is_known = false;
            if (!is_attention(row))
                continue;
            for (int k = 0; k < impl_count; k++)
                is_known |= is(impls[k], row->impl);
            if (!is_known && impl_count < IMPLS_MAX)
                impls[impl_count++] = row->impl;
            if (find_row(r, files[f], problem, row->impl) != row)
                continue;
            figure->failed += row->check == CHECKED_FAIL;
            if (role_of_name(row->impl) == ATTN_ROLE_NAIVE)
                note_naive(row, figure);
        }
    }
    struct report_figure *candidates = xcalloc((unsigned long)impl_count + 1, sizeof *candidates);
    for (int i = 0; i < impl_count; i++)
        if (make_candidate(r, files, file_count, problem, impls[i], &candidates[i]) &&
            (best < 0 || candidates[i].best.tflops > candidates[best].best.tflops))
            best = i;
    if (best >= 0) {
        const struct report_figure counts = *figure;
        *figure = candidates[best];
        figure->failed = counts.failed;
        figure->has_naive = counts.has_naive;
        figure->naive_is_oom = counts.naive_is_oom;
        figure->naive_workspace_mb = counts.naive_workspace_mb;
        for (int i = 0; i < impl_count; i++)
            if (i != best && candidates[i].is_there && !is_above(figure, &candidates[i]))
                add_tie(figure, impls[i]);
    }
    free(candidates);
}

const struct report_figure *report_figure_at(const struct report *r, int point, int label)
{
    return &r->figures[(size_t)point * (size_t)r->input->label_count + (size_t)label];
}

/* The rank of a label is 1 + the number of labels whose whole interval lies above its own. Overlapping intervals tie.
 * */
static void rank_point(const struct report *r, int point)
{
    struct report_figure *row = &r->figures[(size_t)point * (size_t)r->input->label_count];
    const int count = r->input->label_count;
    int there = 0;
    for (int i = 0; i < count; i++)
        there += row[i].is_there;
    for (int i = 0; i < count && there > 1; i++) {
        row[i].rank = row[i].is_there ? 1 : 0;
        for (int k = 0; k < count && row[i].is_there; k++)
            row[i].rank += row[k].is_there && is_above(&row[k], &row[i]);
    }
    for (int i = 0; i < count && there > 1; i++)
        for (int k = 0; k < count; k++)
            row[i].is_tied |= k != i && row[i].is_there && row[k].is_there && row[k].rank == row[i].rank &&
                              !is_above(&row[i], &row[k]) && !is_above(&row[k], &row[i]);
}

/* ---- over points ---- */

/* Geometric mean of a field over `count` figures; NaN unless count is `wanted` and all have a value above 0. */
static double geomean_of(const struct report_figure *const *figures, int count, int wanted, size_t offset)
{
    double values[REPORT_SET_POINTS];
    if (count != wanted)
        return NAN;
    for (int i = 0; i < count; i++) {
        values[i] = field(&figures[i]->best, offset);
        if (!isfinite(values[i]) || values[i] <= 0)
            return NAN;
    }
    return stats_geomean(values, count);
}

/* figures[i]: the figure at index i of the published set, or NULL. */
static struct report_geomeans make_geomeans(const struct report_figure *const *figures)
{
    const struct report_figure *there[REPORT_SET_POINTS], *by_mode[2][REPORT_SET_POINTS];
    int count = 0, mode_count[2] = {0, 0};
    struct report_geomeans g = {.sustained_points = 0};
    for (int i = 0; i < REPORT_SET_POINTS; i++) {
        if (!figures[i] || !figures[i]->is_there)
            continue;
        const int mode = i >= REPORT_SET_POINTS / 2;
        there[count++] = figures[i];
        by_mode[mode][mode_count[mode]++] = figures[i];
        g.sustained_points += isfinite(figures[i]->best.tflops_sustained);
    }
#define OVER_SET(name) geomean_of(there, count, REPORT_SET_POINTS, offsetof(struct record_row, name))
    g.points = count;
    g.tflops = OVER_SET(tflops);
    g.tflops_sustained = OVER_SET(tflops_sustained);
    g.pct_of_gemm = OVER_SET(pct_of_gemm);
    g.tflops_per_w = OVER_SET(tflops_per_w);
    g.speedup_vs_naive = OVER_SET(speedup_vs_naive);
#undef OVER_SET
    /* A direction has a geomean only where the whole set is there. */
    if (count == REPORT_SET_POINTS) {
        const size_t tflops = offsetof(struct record_row, tflops);
        g.tflops_fwd = geomean_of(by_mode[0], mode_count[0], REPORT_SET_POINTS / 2, tflops);
        g.tflops_bwd = geomean_of(by_mode[1], mode_count[1], REPORT_SET_POINTS / 2, tflops);
    } else {
        g.tflops_fwd = g.tflops_bwd = NAN;
    }
    return g;
}

static struct report_geomeans geomeans_of_label(const struct report *r, int label)
{
    const struct report_figure *figures[REPORT_SET_POINTS] = {NULL};
    for (int p = 0; p < r->point_count; p++)
        if (r->points[p].set_index >= 0 && report_figure_at(r, p, label)->is_there)
            figures[r->points[p].set_index] = report_figure_at(r, p, label);
    return make_geomeans(figures);
}

/* The spread between files: the lowest and highest geomean of files that hold the whole set. */
static void spread_files(const struct report *r, int label, struct report_summary *summary)
{
    const struct report_label *l = &r->input->labels[label];
    struct report_figure *own = xcalloc(REPORT_SET_POINTS, sizeof *own);
    double least = INFINITY, most = 0;
    int whole = 0;
    for (int f = 0; f < l->file_count && l->file_count > 1; f++) {
        const struct report_figure *figures[REPORT_SET_POINTS] = {NULL};
        for (int p = 0; p < r->point_count; p++) {
            const int index = r->points[p].set_index;
            if (index < 0)
                continue;
            make_figure(r, &l->files[f], 1, r->points[p].row, &own[index]);
            if (own[index].is_there)
                figures[index] = &own[index];
        }
        const double geomean = make_geomeans(figures).tflops;
        if (isfinite(geomean)) {
            whole++;
            least = fmin(least, geomean);
            most = fmax(most, geomean);
        }
    }
    summary->file_least = whole > 1 ? least : NAN;
    summary->file_most = whole > 1 ? most : NAN;
    free(own);
}

static void count_rows(const struct report *r, int label, struct report_counts *c)
{
    const struct report_label *l = &r->input->labels[label];
    for (int f = 0; f < l->file_count; f++) {
        const struct record_file *file = &r->input->files[l->files[f]];
        for (int i = 0; i < file->count; i++) {
            const struct record_row *row = &file->rows[i];
            if (!is_attention(row))
                continue;
            if (find_row(r, l->files[f], row, row->impl) != row) {
                c->repeated++;
                continue;
            }
            c->rows++;
            c->pass += row->status == STATUS_OK && row->check == CHECKED_PASS;
            c->fail += row->check == CHECKED_FAIL;
            c->off += row->status == STATUS_OK && row->check == CHECKED_OFF;
            c->oom += row->status == STATUS_OOM;
            c->unsupported += row->status == STATUS_UNSUPPORTED;
            c->broken += record_row_is_broken(row) || row->status == STATUS_SKIPPED;
        }
    }
}

static void summarize(const struct report *r, int label, struct report_summary *summary)
{
    double *capped = xcalloc((unsigned long)r->point_count + 1, sizeof *capped);
    double *clocks = xcalloc((unsigned long)r->point_count + 1, sizeof *clocks);
    int capped_count = 0, clock_count = 0;
    summary->geomeans = geomeans_of_label(r, label);
    summary->capped_pct = summary->throttled_pct = summary->clock_mhz = NAN;
    spread_files(r, label, summary);
    count_rows(r, label, &summary->counts);
    for (int p = 0; p < r->point_count; p++) {
        const struct report_figure *figure = report_figure_at(r, p, label);
        if (!figure->is_there)
            continue;
        summary->points++;
        summary->best_points += figure->rank == 1 && !figure->is_tied;
        summary->tied_points += figure->rank == 1 && figure->is_tied;
        if (isfinite(figure->best.power_capped_pct))
            capped[capped_count++] = figure->best.power_capped_pct;
        if (isfinite(figure->best.sm_clock_mhz))
            clocks[clock_count++] = figure->best.sm_clock_mhz;
        if (isfinite(figure->best.throttled_pct))
            summary->throttled_pct =
                fmax(isnan(summary->throttled_pct) ? 0 : summary->throttled_pct, figure->best.throttled_pct);
    }
    if (capped_count)
        summary->capped_pct = stats_of(capped, capped_count).median;
    if (clock_count)
        summary->clock_mhz = stats_of(clocks, clock_count).median;
    free(capped);
    free(clocks);
}

/* ---- the report ---- */

static void choose_unit(struct report *r)
{
    double most = 0;
    for (int i = 0; i < r->point_count * r->input->label_count; i++)
        if (r->figures[i].is_there) /* fmax ignores NaN */
            most = fmax(most, fmax(r->figures[i].best.tflops, r->figures[i].best.tflops_sustained));
    r->unit = most < 1 ? "GFLOPS" : "TFLOPS";
    r->unit_scale = most < 1 ? 1000 : 1;
}

void report_make(struct report *r, const struct report_input *input)
{
    const int labels = input->label_count;
    memset(r, 0, sizeof *r);
    r->input = input;
    sort_rows(r);
    collect_points(r);
    r->figures = xcalloc((unsigned long)r->point_count * (unsigned long)labels + 1, sizeof *r->figures);
    r->summaries = xcalloc((unsigned long)labels + 1, sizeof *r->summaries);
    for (int p = 0; p < r->point_count; p++) {
        for (int l = 0; l < labels; l++)
            make_figure(r, input->labels[l].files, input->labels[l].file_count, r->points[p].row,
                        &r->figures[(size_t)p * (size_t)labels + (size_t)l]);
        rank_point(r, p);
    }
    for (int l = 0; l < labels; l++)
        summarize(r, l, &r->summaries[l]);
    choose_unit(r);
}

void report_free(struct report *r)
{
    for (int f = 0; r->rows && f < r->input->file_count; f++) {
        free(r->rows[f]);
        free(r->impls[f]);
    }
    free(r->rows);
    free(r->impls);
    free(r->points);
    free(r->figures);
    free(r->summaries);
    memset(r, 0, sizeof *r);
}

/* Makes the groups by shared points, and finds the conditions in which labels differ. */

static bool share_a_point(const struct report *r, int a, int b)
{
    for (int p = 0; p < r->point_count; p++)
        if (report_figure_at(r, p, a)->is_there && report_figure_at(r, p, b)->is_there)
            return true;
    return false;
}

void report_make_groups(struct report *r)
{
    const int count = r->input->label_count;
    for (int i = 0; i < count; i++)
        r->summaries[i].group = -1;
    for (int i = 0; i < count; i++) {
        if (r->summaries[i].group >= 0)
            continue;
        r->summaries[i].group = r->group_count++;
        for (bool grew = true; grew;) {
            grew = false;
            for (int a = 0; a < count; a++)
                for (int b = 0; b < count; b++)
                    if (r->summaries[a].group == r->summaries[i].group && r->summaries[b].group < 0 &&
                        share_a_point(r, a, b)) {
                        r->summaries[b].group = r->summaries[i].group;
                        grew = true;
                    }
        }
    }
}

/* The conditions of a row that can differ between labels, so that they share no point. */
enum { CONDITIONS = 11, VALUES_BYTES = 160 };
static const char *const condition_names[CONDITIONS] = {
    "dtype", "tokens", "heads x head dim", "head dim", "length",       "mode",
    "mask",  "layout", "inputs",           "L2",       "timing method"};

static const char *condition_value(int which, const struct record_row *row, char *text, size_t size)
{
    const char *word = "";
    char data[PROBLEM_DATA_SIZE];
    double number = NAN;
    switch (which) {
    case 0: word = problem_dtype_name(row->key.dtype); break;
    case 1: number = (double)row->key.batch * (double)row->key.q_len; break;
    case 2: number = (double)row->key.q_heads * (double)row->key.head_dim; break;
    case 3: number = (double)row->key.head_dim; break;
    case 4: number = (double)row->key.q_len; break;
    case 5: word = problem_mode_name(row->key.mode); break;
    case 6: word = row->key.causal ? "causal" : "full"; break;
    case 7: word = problem_layout_name(row->key.layout); break;
    case 8: word = problem_key_data(&row->key, data, sizeof data); break;
    case 9: word = problem_l2_name(row->key.l2); break;
    default: word = row->method; break;
    }
    if (isnan(number))
        snprintf(text, size, "%s", word);
    else
        snprintf(text, size, "%.0f", number);
    return text;
}

/* The values of one condition over a label's figures as "fp16, bf16", and whether `other` has one of them. */
static bool condition_values(const struct report *r, int label, int other, int which, char text[VALUES_BYTES])
{
    bool is_common = false;
    text[0] = '\0';
    for (int p = 0; p < r->point_count; p++) {
        char value[64], known[64];
        bool is_new = report_figure_at(r, p, label)->is_there;
        if (!is_new)
            continue;
        condition_value(which, r->points[p].row, value, sizeof value);
        for (int q = 0; q < p && is_new; q++)
            is_new = !report_figure_at(r, q, label)->is_there ||
                     !is(condition_value(which, r->points[q].row, known, sizeof known), value);
        if (!is_new)
            continue;
        const size_t used = strlen(text);
        snprintf(text + used, VALUES_BYTES - used, "%s%s", used ? ", " : "", value);
        for (int q = 0; q < r->point_count; q++)
            is_common |= report_figure_at(r, q, other)->is_there &&
                         is(condition_value(which, r->points[q].row, known, sizeof known), value);
    }
    return is_common;
}

void report_difference(const struct report *r, int label, int other, char *text, size_t size)
{
    text[0] = '\0';
    for (int which = 0; which < CONDITIONS; which++) {
        char a[VALUES_BYTES], b[VALUES_BYTES];
        const bool is_common = condition_values(r, label, other, which, a);
        condition_values(r, other, label, which, b);
        const size_t used = strlen(text);
        if (!is_common && used < size)
            snprintf(text + used, size - used, "%s%s %s against %s", used ? "; " : "", condition_names[which], a, b);
    }
    if (!*text)
        snprintf(text, size, "they were given different problems");
}
