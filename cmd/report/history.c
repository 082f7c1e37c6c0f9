/* Rows of many records into a line for each case. */
#include "cmd/report/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/base/stats.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/record/record_figures.h"
#include "cmd/report/page.h"
#include "cmd/report/report_data.h"

enum { NAME_BYTES = REPORT_LABEL_MAX + 1, COMMIT_DIGITS = 10 };

/* A column: a commit, or what the user calls it. */
struct revision {
    char name[NAME_BYTES];
    const char *since; /* time_utc of its first row */
};

/* A row of a record and its column. */
struct entry {
    const struct record_row *row;
    int revision;
};

struct history {
    struct record_file *files;
    int file_count;
    struct revision *revisions;
    int revision_count;
    struct entry *entries; /* sorted by case, then column */
    int entry_count;
};

/* What the files of one column say of a case. */
struct figure {
    int failed;    /* rows */
    double value;  /* TFLOPS: the median over the files; NaN where none is there or one failed its check */
    double lo, hi; /* the lowest and highest end of the 95 % intervals */
    bool has_interval;
};

static bool is(const char *a, const char *b) { return strcmp(a, b) == 0; }

/* ---- reading ---- */

static int revision_of(struct history *h, const struct record_row *row, const char *label)
{
    char name[NAME_BYTES];
    if (label[0])
        snprintf(name, sizeof name, "%s", label);
    else
        snprintf(name, sizeof name, "%.*s", COMMIT_DIGITS, row->commit[0] ? row->commit : "unknown");
    for (int i = 0; i < h->revision_count; i++)
        if (is(h->revisions[i].name, name)) {
            if (strcmp(row->time_utc, h->revisions[i].since) < 0)
                h->revisions[i].since = row->time_utc;
            return i;
        }
    h->revisions = xrealloc(h->revisions, (unsigned long)(h->revision_count + 1) * sizeof *h->revisions);
    struct revision *added = &h->revisions[h->revision_count];
    snprintf(added->name, sizeof added->name, "%s", name);
    added->since = row->time_utc;
    return h->revision_count++;
}

static bool is_of_history(const struct record_row *row)
{
    return report_row_is_valid(row) ||
           (row->check == CHECKED_FAIL && row->impl[0] && role_of_name(row->impl) != ATTN_ROLE_NOTHING);
}

static bool add_file(struct history *h, struct record_file *file, const struct report_argument *argument)
{
    struct attn_message why = {""};
    if (!record_read(argument->path, file, &why) || !record_file_agrees(file, &why)) {
        log_error("%s", why.text);
        return false;
    }
    if (file->cut)
        log_warn("%s: its last line is cut; read up to there", file->path);
    int counted = 0;
    h->entries = xrealloc(h->entries, (unsigned long)(h->entry_count + file->count + 1) * sizeof *h->entries);
    for (int i = 0; i < file->count; i++) {
        if (!is_of_history(&file->rows[i]))
            continue;
        h->entries[h->entry_count++] = (struct entry){&file->rows[i], revision_of(h, &file->rows[i], argument->label)};
        counted++;
    }
    if (!counted)
        log_error("%s: holds no row that was timed and checked (%d rows)", file->path, file->count);
    return counted > 0;
}

/* ---- order ---- */

/* Device, dtype, then the problem; implementation and timing method. */
static int compare_cases(const struct record_row *a, const struct record_row *b)
{
    int order = strcmp(a->device, b->device);
    if (!order)
        order = strcmp(problem_dtype_name(a->key.dtype), problem_dtype_name(b->key.dtype));
    if (!order)
        order = a->key.mode - b->key.mode;
    if (!order)
        order = (a->key.head_dim > b->key.head_dim) - (a->key.head_dim < b->key.head_dim);
    if (!order)
        order = (a->key.q_len > b->key.q_len) - (a->key.q_len < b->key.q_len);
    if (!order)
        order = problem_key_compare(&a->key, &b->key, true);
    if (!order)
        order = strcmp(a->impl, b->impl);
    return order ? order : strcmp(a->method, b->method);
}

static int compare_entries(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    int order = compare_cases(a->row, b->row);
    if (!order)
        order = a->revision - b->revision;
    return order ? order : (a->row > b->row) - (a->row < b->row);
}

/* Columns in the order in which they were measured. */
static void sort_revisions(struct history *h)
{
    int *place = xcalloc((unsigned long)h->revision_count + 1, sizeof *place);
    struct revision *sorted = xcalloc((unsigned long)h->revision_count + 1, sizeof *sorted);
    for (int i = 0; i < h->revision_count; i++) {
        for (int k = 0; k < h->revision_count; k++) {
            const int order = strcmp(h->revisions[k].since, h->revisions[i].since);
            place[i] += order < 0 || (order == 0 && k < i);
        }
        sorted[place[i]] = h->revisions[i];
    }
    for (int i = 0; i < h->entry_count; i++)
        h->entries[i].revision = place[h->entries[i].revision];
    free(h->revisions);
    free(place);
    h->revisions = sorted;
    qsort(h->entries, (size_t)h->entry_count, sizeof *h->entries, compare_entries);
}

/* ---- figures ---- */

static double at_time(const struct record_row *row, double time_ms)
{
    return isfinite(time_ms) && time_ms > 0 ? row->tflops * row->time_ms / time_ms : row->tflops;
}

static struct figure figure_of(const struct entry *entries, int count)
{
    struct figure f = {.value = NAN, .lo = INFINITY, .has_interval = true};
    double *values = xcalloc((unsigned long)count + 1, sizeof *values);
    int there = 0;
    for (int i = 0; i < count; i++) {
        const struct record_row *row = entries[i].row;
        if (!report_row_is_valid(row)) {
            f.failed++;
            continue;
        }
        values[there++] = row->tflops;
        f.lo = fmin(f.lo, fmin(row->tflops, at_time(row, row->time_ms_ci_hi)));
        f.hi = fmax(f.hi, fmax(row->tflops, at_time(row, row->time_ms_ci_lo)));
        f.has_interval &= record_row_has_interval(row);
    }
    if (there && !f.failed)
        f.value = stats_of(values, there).median;
    free(values);
    return f;
}

/* -1: the band of b lies below that of a, 1: above, 0: they overlap, or one is not there. */
static int step(const struct figure *a, const struct figure *b)
{
    if (!isfinite(a->value) || !isfinite(b->value) || !a->has_interval || !b->has_interval)
        return 0;
    return b->hi < a->lo ? -1 : b->lo > a->hi ? 1 : 0;
}

/* ---- the page ---- */

static void cell_figure(struct page *page, const struct figure *f, const struct figure *before, double scale)
{
    char text[40];
    if (f->failed)
        page_cell(page, CELL_BAD, "FAILED");
    else if (!isfinite(f->value))
        page_cell(page, CELL_PLAIN, "%s", "");
    else if (!f->has_interval)
        page_cell(page, CELL_PLAIN, "%s ± ?", number_print_short(f->value * scale, text, sizeof text));
    else
        page_cell(page, before && step(before, f) ? CELL_STRONG : CELL_PLAIN, "%s ± %.1f %%",
                  number_print_short(f->value * scale, text, sizeof text), 50 * (f->hi - f->lo) / f->value);
}

/* "-3.2 % at 9fb46a1b48": the largest loss from one column that has a figure to the next, beyond both bands. */
static void cell_largest_loss(struct page *page, const struct history *h, const struct figure *figures)
{
    const struct figure *before = NULL;
    double worst = 0;
    int at = -1;
    for (int i = 0; i < h->revision_count; i++) {
        if (!isfinite(figures[i].value))
            continue;
        if (before && step(before, &figures[i]) < 0 && figures[i].value / before->value - 1 < worst) {
            worst = figures[i].value / before->value - 1;
            at = i;
        }
        before = &figures[i];
    }
    if (at < 0)
        page_cell(page, CELL_PLAIN, "%s", "");
    else
        page_cell(page, CELL_BAD, "%+.1f %% at %s", 100 * worst, h->revisions[at].name);
}

static void cell_whole_change(struct page *page, const struct history *h, const struct figure *figures)
{
    const struct figure *first = NULL, *last = NULL;
    for (int i = 0; i < h->revision_count; i++)
        if (isfinite(figures[i].value)) {
            first = first ? first : &figures[i];
            last = &figures[i];
        }
    if (!first || first == last)
        page_cell(page, CELL_PLAIN, "%s", "");
    else if (!first->has_interval || !last->has_interval)
        page_cell(page, CELL_PLAIN, "%+.1f %%, too few samples", 100 * (last->value / first->value - 1));
    else
        page_cell(page, step(first, last) ? CELL_STRONG : CELL_PLAIN, "%+.1f %%%s",
                  100 * (last->value / first->value - 1), step(first, last) ? "" : ", within");
}

/* Decode is a speed of reading. */
static double unit_scale(const struct record_row *row, bool is_small)
{
    return row->key.mode == MODE_DECODE ? row->min_gb / row->flops * 1e12 : is_small ? 1000 : 1;
}

static void put_case(struct page *page, const struct history *h, const struct entry *entries, int count, bool is_small)
{
    struct figure *figures = xcalloc((unsigned long)h->revision_count + 1, sizeof *figures), *before = NULL;
    const struct record_row *row = entries[0].row;
    char label[PROBLEM_LABEL_SIZE];
    for (int i = 0; i < h->revision_count; i++)
        figures[i].value = NAN;
    for (int i = 0, end; i < count; i = end) {
        for (end = i; end < count && entries[end].revision == entries[i].revision;)
            end++;
        figures[entries[i].revision] = figure_of(&entries[i], end - i);
    }
    page_cell(page, CELL_PLAIN, "%s", problem_key_label(&row->key, label, sizeof label));
    page_cell(page, CELL_PLAIN, "%s", row->impl);
    for (int i = 0; i < h->revision_count; i++) {
        cell_figure(page, &figures[i], before, unit_scale(row, is_small));
        if (isfinite(figures[i].value))
            before = &figures[i];
    }
    cell_whole_change(page, h, figures);
    cell_largest_loss(page, h, figures);
    free(figures);
}

/* Cases of one device and dtype, decode apart, that begin at `first`: their end. */
static int end_of_table(const struct history *h, int first, bool *is_small)
{
    const struct record_row *row = h->entries[first].row;
    int end = first;
    *is_small = true;
    for (; end < h->entry_count; end++) {
        const struct record_row *next = h->entries[end].row;
        if (!is(next->device, row->device) || next->key.dtype != row->key.dtype ||
            (next->key.mode == MODE_DECODE) != (row->key.mode == MODE_DECODE))
            break;
        *is_small &= !(next->tflops >= 1);
    }
    return end;
}

static void put_table(struct page *page, const struct history *h, int first, int end, bool is_small)
{
    const struct record_row *row = h->entries[first].row;
    char *alignment = xcalloc((unsigned long)h->revision_count + 8, 1);
    strcpy(alignment, "ll");
    for (int i = 0; i < h->revision_count + 2; i++)
        strcat(alignment, "r");
    page_heading(page, 2, "%s, %s, %s", row->device, problem_dtype_name(row->key.dtype),
                 row->key.mode == MODE_DECODE ? "GB/s"
                 : is_small                   ? "GFLOPS"
                                              : "TFLOPS");
    page_table(page, alignment);
    page_cell(page, CELL_PLAIN, "case");
    page_cell(page, CELL_PLAIN, "by");
    for (int i = 0; i < h->revision_count; i++)
        page_cell(page, CELL_PLAIN, "%s %.10s", h->revisions[i].name, h->revisions[i].since);
    page_cell(page, CELL_PLAIN, "first to last");
    page_cell(page, CELL_PLAIN, "largest loss");
    for (int i = first, next; i < end; i = next) {
        for (next = i; next < end && compare_cases(h->entries[next].row, h->entries[i].row) == 0;)
            next++;
        put_case(page, h, &h->entries[i], next - i, is_small);
    }
    free(alignment);
}

static struct page *page_of(const struct history *h)
{
    struct page *page = page_open("Attention: history");
    page_text(
        page,
        "%d record%s of %d commit%s or label%s, in the order in which they were measured. ± is half of the "
        "band: from the lowest to the highest end of the 95 %% intervals of the medians in all records of a column. "
        "Bold: outside the band of the column before. Devices and clocks change between days: a loss that is "
        "seen here is confirmed with fabench ab.",
        h->file_count, h->file_count == 1 ? "" : "s", h->revision_count, h->revision_count == 1 ? "" : "s",
        h->revision_count == 1 ? "" : "s");
    bool is_small;
    for (int first = 0, end; first < h->entry_count; first = end) {
        end = end_of_table(h, first, &is_small);
        put_table(page, h, first, end, is_small);
    }
    return page;
}

static int write_page(const struct page *page, const struct options *o)
{
    if (o->out_dir && is(o->out_dir, "none")) {
        page_write_markdown(page, stdout, false);
        return EXIT_OK;
    }
    if (!o->out_dir) {
        page_write_text(page, stdout, terminal_width());
        return EXIT_OK;
    }
    if (!path_make_dirs(o->out_dir))
        return EXIT_IO;
    char *path = xasprintf("%s/history.md", o->out_dir);
    const bool is_good = page_store_markdown(page, path, false);
    if (is_good && !o->quiet)
        printf("history: %s\n", path);
    free(path);
    return is_good ? EXIT_OK : EXIT_IO;
}

int history_run(const struct options *o)
{
    struct history h = {.file_count = o->files.count};
    struct report_argument *arguments = xcalloc((unsigned long)h.file_count, sizeof *arguments);
    int status = report_arguments_parse(&o->files, arguments) ? EXIT_OK : EXIT_USAGE;
    h.files = xcalloc((unsigned long)h.file_count, sizeof *h.files);
    for (int i = 0; i < h.file_count && status == EXIT_OK; i++)
        if (!add_file(&h, &h.files[i], &arguments[i]))
            status = EXIT_NOT_COMPARABLE;
    if (status == EXIT_OK) {
        sort_revisions(&h);
        struct page *page = page_of(&h);
        status = write_page(page, o);
        page_close(page);
    }
    for (int i = 0; i < h.file_count; i++)
        record_file_free(&h.files[i]);
    free(h.files);
    free(h.revisions);
    free(h.entries);
    free(arguments);
    return status;
}
