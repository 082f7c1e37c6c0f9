/* The terminal table: group headings and rows. What stands below a row is in details.c.
 *
 * Rows arrive one by one, so column widths are fixed when a heading is printed. A cell that is wider than its column
 * uses the padding of the following cells, so that one long number does not move the right edge of the table.
 */
#include "cmd/table/table.h"

#include <math.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/program.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/problem/problem.h"
#include "cmd/record/record.h"
#include "cmd/record/record_figures.h"
#include "cmd/table/summary.h"

enum { WIDTH_MAX = 110, WIDTH_MIN = 40, COLUMNS_MAX = 16, REASON_MIN = 20 };

/* One column of the terminal; `shows` is the record column it is made from. On a narrow terminal the columns of the
 * highest rank are left out first; rank 0 always stays. */
struct spec {
    const char *heading, *shows;
    int width;
    bool is_left;
    int rank;
    void (*print)(struct table *, const struct record_row *, char *cell);
};

struct table {
    FILE *out;
    int width, gap;
    bool color, is_verify, is_verbose, is_quiet, has_failures_alone, has_boards, has_invariance, groups_refusals;
    char *peer, *convention, *next;
    const struct spec *columns[COLUMNS_MAX];
    int widths[COLUMNS_MAX], column_count;
    char group[400];       /* the heading printed last */
    char problem[160];     /* the problem of the last row */
    bool is_new_problem;   /* this row is the first of its problem: n and b are printed */
    bool clock_is_printed; /* of this problem; its rows share it */
    bool lacks_naive;      /* naive does not run */
    bool is_decode;        /* the rows of this group have GB/s in place of TFLOPS */
    struct summary summary;
};

__attribute__((format(printf, 2, 3))) static void put(char *cell, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cell, CELL_SIZE, format, arguments);
    va_end(arguments);
}

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

static const char *lengths(const struct record_row *row, char *text, size_t size)
{
    return problem_key_lengths(&row->key, text, size);
}

static void format_ratio(char *cell, double value)
{
    if (!isfinite(value))
        put(cell, "-");
    else
        put(cell, "%.*f", value < 99.995 ? 2 : value < 999.95 ? 1 : 0, value);
}

static void print_n(struct table *t, const struct record_row *row, char *cell)
{
    if (t->is_new_problem)
        lengths(row, cell, CELL_SIZE);
}

static void print_b(struct table *t, const struct record_row *row, char *cell)
{
    if (t->is_new_problem)
        put(cell, "%lld", (long long)row->key.batch);
}

/* The column is at most IMPL_COLUMNS wide; NAME:VARIANT may take what is free beside it, up to VARIANT_COLUMNS. */
enum { IMPL_COLUMNS = 14, VARIANT_COLUMNS = 24 };

/* Shortens a name to `limit` columns. NAME:VARIANT loses the middle, because variants of one implementation differ at
 * their ends, but nothing of NAME. Returns false where there is nothing to leave out. */
static bool shorten_impl(char *cell, int limit)
{
    const char *const colon = strchr(cell, ':');
    const int length = (int)strlen(cell), head = colon ? (int)(colon - cell) + 1 : 0;
    if (!colon) {
        wrap_shorten(cell, limit);
        return (int)strlen(cell) < length;
    }
    const int to = limit > head ? limit : head, tail = to - head - 2;
    if (length <= to)
        return false;
    if (tail > 0) {
        memmove(cell + head + 2, cell + length - tail, (size_t)tail + 1);
        memcpy(cell + head, "..", 2);
    } else {
        cell[head] = '\0';
    }
    return true;
}

static void print_impl(struct table *t, const struct record_row *row, char *cell)
{
    (void)t;
    text_clean(row->impl, cell, CELL_SIZE);
    if (strchr(cell, ':'))
        shorten_impl(cell, VARIANT_COLUMNS);
}

static void print_ms(struct table *t, const struct record_row *row, char *cell)
{
    (void)t;
    if (isfinite(row->time_ms))
        number_print_short(row->time_ms, cell, CELL_SIZE);
    else
        put(cell, "-");
}

/* GB/s of a forward against a cache, whose time is that of reading the cache. */
static void print_speed(struct table *t, const struct record_row *row, char *cell)
{
    (void)t;
    cell_figure(cell, row->key.mode == MODE_DECODE ? row->gb_per_s : row->tflops);
}

static void print_interval(struct table *t, const struct record_row *row, char *cell)
{
    const double half = record_row_half_width_pct(row);
    const char *mark = summary_is_noisy(row, t->summary.asked_pct) ? "!" : "";
    if (!isfinite(half))
        put(cell, "%s-", mark);
    else if (half > 999)
        put(cell, "%s>999%%", mark);
    else
        put(cell, "%s%.*f%%", mark, half < 9.95 ? 1 : 0, half);
}

/* The share of the ceiling: of the GEMM, or of a kernel that only reads. */
static void print_ceiling(struct table *t, const struct record_row *row, char *cell)
{
    const double share = row->key.mode == MODE_DECODE ? row->pct_of_read : row->pct_of_gemm;
    (void)t;
    if (isfinite(share))
        put(cell, "%.*f", share < 9.95 ? 1 : 0, share);
    else
        put(cell, "-");
}

static void print_naive(struct table *t, const struct record_row *row, char *cell)
{
    (void)t;
    format_ratio(cell, row->speedup_vs_naive);
}

static void print_peer(struct table *t, const struct record_row *row, char *cell)
{
    (void)t;
    format_ratio(cell, row->speedup_vs_peer);
}

static void print_check(struct table *t, const struct record_row *row, char *cell)
{
    (void)t;
    if (row->check == CHECKED_FAIL)
        put(cell, "FAIL");
    else
        put(cell, "%s", row->check >= 0 ? record_check_names[row->check] : "-");
}

static void print_error(struct table *t, const struct record_row *row, char *cell)
{
    (void)t;
    if (isnan(row->err_used))
        put(cell, "-");
    else if (!(row->err_used < 999))
        put(cell, ">999 %s", problem_tensor_title(row->err_tensor));
    else if (row->err_used > 0 && row->err_used < 0.0005)
        put(cell, "%.0e %s", row->err_used, problem_tensor_title(row->err_tensor));
    else
        put(cell, "%.*f %s",
            row->err_used < 0.0995  ? 3
            : row->err_used < 9.995 ? 2
                                    : 0,
            row->err_used, problem_tensor_title(row->err_tensor));
}

static void print_clock(struct table *t, const struct record_row *row, char *cell)
{
    if (!t->clock_is_printed && isfinite(row->sm_clock_mhz))
        put(cell, "%.0f", row->sm_clock_mhz);
}

static void print_capped(struct table *t, const struct record_row *row, char *cell)
{
    if (!t->clock_is_printed && isfinite(row->power_capped_pct))
        put(cell, "%.0f%%", row->power_capped_pct);
    t->clock_is_printed |= isfinite(row->power_capped_pct) || isfinite(row->sm_clock_mhz);
}

static void print_shape(struct table *t, const struct record_row *row, char *cell)
{
    (void)t;
    problem_key_shape(&row->key, cell, CELL_SIZE);
}

static void print_mask(struct table *t, const struct record_row *row, char *cell)
{
    (void)t;
    problem_key_mask(&row->key, cell, CELL_SIZE);
}

static void print_dtype(struct table *t, const struct record_row *row, char *cell)
{
    (void)t;
    put(cell, "%s", problem_dtype_name(row->key.dtype));
}

static void print_dist(struct table *t, const struct record_row *row, char *cell)
{
    (void)t;
    problem_key_dist(&row->key, cell, CELL_SIZE);
}

static void print_mode(struct table *t, const struct record_row *row, char *cell)
{
    (void)t;
    put(cell, "%s", problem_mode_name(row->key.mode));
}

static void print_invariant(struct table *t, const struct record_row *row, char *cell)
{
    (void)t;
    put(cell, "%s", !row->batch_invariant[0] ? "-" : record_row_is_invariant(row) ? "yes" : "no");
}

/* The last part of 0000:4e:00.0. */
static void print_board(struct table *t, const struct record_row *row, char *cell)
{
    const char *const colon = strchr(row->pci, ':');
    (void)t;
    put(cell, "%s", colon ? colon + 1 : "-");
}

static const struct spec sweep_specs[] = {
    {"board", "pci", 7, true, 0, print_board},
    {"n", "q_len", 4, false, 0, print_n},
    {"b", "batch", 2, false, 1, print_b},
    {"impl", "impl", 10, true, 0, print_impl},
    {"ms", "time_ms", 6, false, 0, print_ms},
    {"TFLOPS", "tflops", 6, false, 0, print_speed},
    {"+-95%", "time_ms_ci_hi", 5, false, 1, print_interval},
    {"%GEMM", "pct_of_gemm", 5, false, 5, print_ceiling},
    {"x naive", "speedup_vs_naive", 7, false, 4, print_naive},
    {"x peer", "speedup_vs_peer", 7, false, 3, print_peer},
    {"check", "check", 5, false, 0, print_check},
    {"err/bound", "err_used", 9, false, 2, print_error},
    {"MHz", "sm_clock_mhz", 4, false, 7, print_clock},
    {"capped", "power_capped_pct", 6, false, 8, print_capped},
};

static const struct spec verify_specs[] = {
    {"board", "pci", 7, true, 0, print_board},
    {"shape (b hq/hkv q kv d)", "q_len", 22, true, 0, print_shape},
    {"mask", "causal", 7, true, 0, print_mask},
    {"dtype", "dtype", 5, true, 0, print_dtype},
    {"dist", "dist", 8, true, 1, print_dist},
    {"mode", "mode", 4, true, 0, print_mode},
    {"impl", "impl", 10, true, 0, print_impl},
    {"check", "check", 5, false, 0, print_check},
    {"invariant", "batch_invariant", 9, false, 0, print_invariant},
    {"err/bound", "err_used", 9, false, 2, print_error},
};

struct table *table_open(FILE *out, int width, bool color, const char *peer, bool verify)
{
    struct table *t = xcalloc(1, sizeof *t);
    t->out = out;
    t->width = width > WIDTH_MAX ? WIDTH_MAX : width < WIDTH_MIN ? WIDTH_MIN : width;
    t->color = color;
    t->is_verify = verify;
    t->peer = peer ? xstrdup(peer) : NULL;
    summary_begin(&t->summary, peer);
    return t;
}

void table_convention(struct table *t, const char *words)
{
    free(t->convention);
    t->convention = words ? xstrdup(words) : NULL;
}

void table_clocks(struct table *t, const char *pci_bus_id)
{
    snprintf(t->summary.free_clocks_of, sizeof t->summary.free_clocks_of, "%s", pci_bus_id ? pci_bus_id : "");
}

void table_max_failures(struct table *t, int64_t most)
{
    t->summary.max_failures = most < INT_MAX ? (int)most : INT_MAX;
}

void table_noise(struct table *t, double asked_pct) { t->summary.asked_pct = asked_pct; }
void table_has_naive(struct table *t, bool has_naive) { t->lacks_naive = !has_naive; }
void table_verbose(struct table *t) { t->is_verbose = true; }
void table_quiet(struct table *t) { t->is_quiet = true; }

void table_boards(struct table *t)
{
    t->has_boards = true;
    t->summary.has_boards = true;
}

void table_invariance(struct table *t) { t->has_invariance = true; }

void table_group_refusals(struct table *t)
{
    t->groups_refusals = true;
    t->summary.lists_refusals = true;
}

void table_failures_alone(struct table *t)
{
    t->has_failures_alone = true;
    t->summary.lists_refusals = true;
}

void table_next(struct table *t, const char *command)
{
    free(t->next);
    t->next = xstrdup(command);
    t->summary.next = t->next;
}

void table_header_line(struct table *t, const char *line)
{
    if (t->is_quiet)
        return;
    wrap_words(t->out, t->width, 0, 2, line);
    fflush(t->out);
}

/* ---- which columns, how wide ---- */

static int total_width(const struct table *t)
{
    int total = 0;
    for (int i = 0; i < t->column_count; i++)
        total += t->widths[i] + (i ? t->gap : 0);
    return total;
}

static void drop_column(struct table *t, int at)
{
    for (int i = at; i + 1 < t->column_count; i++) {
        t->columns[i] = t->columns[i + 1];
        t->widths[i] = t->widths[i + 1];
    }
    t->column_count--;
}

/* True for a column that this device never fills, which is not shown: GEMM (but not reading), clock and cap on a
 * CPU, clock without NVML. */
static bool is_empty_here(const struct table *t, const struct spec *spec, const struct record_row *row)
{
    const bool has_run = row->status == STATUS_OK;
    const bool is_cpu = is(row->arch, "cpu");
    if (spec->print == print_board)
        return !t->has_boards;
    if (spec->print == print_invariant)
        return !t->has_invariance;
    if (spec->print == print_peer)
        return !t->peer;
    if (spec->print == print_naive)
        return t->lacks_naive;
    if (spec->print == print_ceiling)
        return is_cpu && !t->is_decode && isnan(row->pct_of_gemm);
    if (spec->print == print_clock)
        return isnan(row->sm_clock_mhz) && (is_cpu || has_run);
    if (spec->print == print_capped)
        return isnan(row->power_capped_pct) && (is_cpu || has_run);
    return false;
}

static const char *heading_of(const struct table *t, const struct spec *spec, char *text, size_t size)
{
    if (spec->print == print_peer && strlen(t->peer) <= 8)
        snprintf(text, size, "x %s", t->peer);
    else if (spec->print == print_speed && t->is_decode)
        snprintf(text, size, "GB/s");
    else if (spec->print == print_ceiling && t->is_decode)
        snprintf(text, size, "%%read");
    else
        snprintf(text, size, "%s", spec->heading);
    return text;
}

static void choose_columns(struct table *t, const struct record_row *row)
{
    const struct spec *specs = t->is_verify ? verify_specs : sweep_specs;
    const int count = (int)(t->is_verify ? sizeof verify_specs / sizeof *specs : sizeof sweep_specs / sizeof *specs);
    char heading[40];
    t->is_decode = row->key.mode == MODE_DECODE;
    t->gap = 2;
    t->column_count = 0;
    for (int i = 0; i < count; i++) {
        FABENCH_ASSERT(record_column_views(specs[i].shows) & (t->is_verify ? RECORD_VERIFY : RECORD_TABLE),
                       "column %s is in no terminal view", specs[i].shows);
        if (is_empty_here(t, &specs[i], row))
            continue;
        const int heading_width = (int)strlen(heading_of(t, &specs[i], heading, sizeof heading));
        t->columns[t->column_count] = &specs[i];
        t->widths[t->column_count] = specs[i].width > heading_width ? specs[i].width : heading_width;
        if (specs[i].print == print_n && row->key.q_len != row->key.kv_len)
            t->widths[t->column_count] = 7;
        if (specs[i].print == print_mode && t->is_decode)
            t->widths[t->column_count] = 6;
        t->column_count++;
    }
    if (total_width(t) > t->width && t->is_verify)
        t->gap = 1;
    while (total_width(t) > t->width) {
        int leaves = -1;
        for (int i = 0; i < t->column_count; i++)
            if (t->columns[i]->rank > 0 && (leaves < 0 || t->columns[i]->rank > t->columns[leaves]->rank))
                leaves = i;
        if (leaves < 0)
            break;
        drop_column(t, leaves);
    }
    for (int i = 0; i < t->column_count; i++)
        if (t->columns[i]->print == print_impl)
            for (int spare = t->width - total_width(t); spare > 0 && t->widths[i] < IMPL_COLUMNS; spare--)
                t->widths[i]++;
}

/* ---- lines ---- */

static const char *cell_color(const struct table *t, const struct spec *spec, const char *cell)
{
    if (!t->color)
        return "";
    return spec->print == print_check && is(cell, "FAIL")    ? "\033[1;31m"
           : spec->print == print_interval && cell[0] == '!' ? "\033[33m"
                                                             : "";
}

/* Sets where each of the first `count` cells begins (-1: it is empty); returns the column after the last text. A wide
 * cell moves the following ones only as far as needed: one space stays between two cells. */
static int place_cells(const struct table *t, char cells[][CELL_SIZE], int count, int *starts)
{
    int end = 0, slot = 0;
    for (int i = 0; i < count; i++) {
        const int length = wrap_columns(cells[i]);
        slot += i ? t->gap : 0;
        const int wanted = t->columns[i]->is_left ? slot : slot + t->widths[i] - length;
        const int least = end ? end + 1 : 0;
        starts[i] = length ? (wanted > least ? wanted : least) : -1;
        end = length ? starts[i] + length : end;
        slot += t->widths[i];
    }
    return end;
}

/* Returns the column after the last cell, at most `limit`: where even minimal spaces are not enough, the longest cell
 * is cut. */
static int print_cells(struct table *t, char cells[][CELL_SIZE], int count, int limit)
{
    int starts[COLUMNS_MAX], column = 0, end;
    bool is_least[COLUMNS_MAX] = {false}; /* cells that cannot be cut any more */
    while ((end = place_cells(t, cells, count, starts)) > limit) {
        int longest = -1;
        for (int i = 0; i < count; i++)
            if (t->columns[i]->is_left && !is_least[i] &&
                (longest < 0 || wrap_columns(cells[i]) > wrap_columns(cells[longest])))
                longest = i;
        if (longest < 0 || wrap_columns(cells[longest]) <= 8)
            break;
        const int cut = wrap_columns(cells[longest]) - (end - limit);
        if (t->columns[longest]->print == print_impl)
            is_least[longest] = !shorten_impl(cells[longest], cut < 8 ? 8 : cut);
        else
            wrap_shorten(cells[longest], cut < 8 ? 8 : cut);
    }
    for (int i = 0; i < count; i++) {
        const char *paint = cell_color(t, t->columns[i], cells[i]);
        if (starts[i] < 0)
            continue;
        fprintf(t->out, "%*s%s%s%s", starts[i] - column, "", paint, cells[i], *paint ? "\033[0m" : "");
        column = starts[i] + wrap_columns(cells[i]);
    }
    return end;
}

static void print_headings(struct table *t)
{
    char cells[COLUMNS_MAX][CELL_SIZE];
    for (int i = 0; i < t->column_count; i++)
        heading_of(t, t->columns[i], cells[i], CELL_SIZE);
    print_cells(t, cells, t->column_count, t->width);
    fputc('\n', t->out);
}

/* What all rows of a group share. A change of any of it begins a new group. */
static void describe_group(const struct table *t, const struct record_row *row, char *text, size_t size)
{
    char mask[CELL_SIZE], heads[80], extras[PROBLEM_LABEL_SIZE], data[PROBLEM_DATA_SIZE], tokens[32];
    const char *convention = t->convention ? t->convention : "";
    struct problem_key others = row->key;
    if (row->key.mode == MODE_DECODE && row->key.lengths[0] && !is(row->key.lengths, "fixed"))
        convention = ""; /* the number of sequences is not made from tokens */
    if (row->key.total_q > 0) {
        snprintf(tokens, sizeof tokens, "%lld %stokens", (long long)row->key.total_q,
                 row->key.mode == MODE_DECODE ? "new " : "");
        convention = tokens;
    }
    others.window_left = others.window_right = -1; /* the mask has them */
    problem_key_mask(&row->key, mask, sizeof mask);
    problem_key_extras(&others, extras, sizeof extras);
    problem_key_data(&row->key, data, sizeof data);
    if (row->key.q_heads == row->key.kv_heads)
        snprintf(heads, sizeof heads, "%lld head%s", (long long)row->key.q_heads, row->key.q_heads == 1 ? "" : "s");
    else
        snprintf(heads, sizeof heads, "%lld/%lld heads", (long long)row->key.q_heads, (long long)row->key.kv_heads);
    snprintf(text, size, "%s %s d=%lld %s%s%s, %s%s%s%s%s%s%s%s, burst", problem_mode_name(row->key.mode), mask,
             (long long)row->key.head_dim, problem_dtype_name(row->key.dtype), *convention ? ", " : "", convention,
             heads, row->key.l2 >= 0 ? ", L2 " : "", problem_l2_name(row->key.l2),
             row->key.layout == ATTN_BHSD ? ", bhsd" : "", data[0] ? ", " : "", data, *extras ? "," : "", extras);
}

static void begin_group(struct table *t, const struct record_row *row)
{
    char group[sizeof t->group], text[sizeof t->group + 64], gemm[64] = "";
    describe_group(t, row, group, sizeof group);
    if (is(group, t->group))
        return;
    if (t->group[0])
        fputc('\n', t->out);
    memcpy(t->group, group, sizeof t->group);
    t->problem[0] = '\0';
    if (isfinite(row->gemm_tflops))
        snprintf(gemm, sizeof gemm, " | GEMM %s %.0f TFLOPS", problem_dtype_name(row->key.dtype), row->gemm_tflops);
    snprintf(text, sizeof text, "%s%s", group, gemm);
    wrap_words(t->out, t->width, 0, 2, text);
    choose_columns(t, row);
    print_headings(t);
}

/* A row that did not run has the reason in place of its numbers. */
static void print_reason(struct table *t, const struct record_row *row, char cells[][CELL_SIZE])
{
    char text[sizeof row->reason + 32], reason[sizeof row->reason];
    int count = 0, slot = 0;
    while (count < t->column_count && t->columns[count]->print != print_impl)
        slot += t->widths[count++] + t->gap;
    slot += t->widths[count++] + t->gap;
    const int column = print_cells(t, cells, count, t->width - REASON_MIN);
    const int padding = slot > column ? slot - column : 1;
    text_clean(row->reason, reason, sizeof reason);
    snprintf(text, sizeof text, "%s%s%s", row->status < 0 ? "" : record_status_names[row->status],
             reason[0] ? ": " : "", reason);
    wrap_shorten(text, t->width - column - padding);
    fprintf(t->out, "%*s%s%s%s\n", padding, "", t->color ? "\033[33m" : "", text, t->color ? "\033[0m" : "");
}

static void print_row(struct table *t, const struct record_row *row)
{
    char cells[COLUMNS_MAX][CELL_SIZE], problem[sizeof t->problem];
    if (!t->is_verify)
        begin_group(t, row);
    else if (t->column_count == 0) {
        choose_columns(t, row);
        print_headings(t);
    }
    snprintf(problem, sizeof problem, "%lld %lld %lld %s", (long long)row->key.batch, (long long)row->key.q_len,
             (long long)row->key.kv_len, t->has_boards ? row->pci : "");
    t->is_new_problem = !is(problem, t->problem);
    if (t->is_new_problem)
        t->clock_is_printed = false;
    snprintf(t->problem, sizeof t->problem, "%s", problem);
    const bool has_run = row->status == STATUS_OK;
    for (int i = 0; i < t->column_count; i++) {
        cells[i][0] = '\0';
        if (has_run || t->columns[i]->is_left || t->columns[i]->print == print_n || t->columns[i]->print == print_b)
            t->columns[i]->print(t, row, cells[i]);
        if (t->columns[i]->print == print_impl && !strchr(cells[i], ':'))
            wrap_shorten(cells[i], t->widths[i]);
    }
    if (has_run) {
        print_cells(t, cells, t->column_count, t->width);
        fputc('\n', t->out);
    } else {
        print_reason(t, row, cells);
    }
    if (t->is_verbose && has_run && row->samples > 0)
        details_samples(t->out, t->width, row);
    if (row->pass_count)
        details_passes(t->out, t->width, row);
    if (isfinite(row->sustain_s))
        details_sustained(t->out, t->width, row);
    if (isfinite(row->l2_gb) || isfinite(row->dram_read_gb))
        details_counters(t->out, t->width, row);
}

/* --quiet: a row that did not finish is an error, which its reason explains. */
static void say_broken(const struct record_row *row, bool is_shown)
{
    char label[PROBLEM_LABEL_SIZE];
    if (is_shown && record_row_is_broken(row))
        log_error("%s %s: %s: %s", row->impl, problem_key_label(&row->key, label, sizeof label),
                  record_status_names[row->status], row->reason);
}

void table_row(struct table *t, const struct record_row *row)
{
    const bool is_shown = !record_row_failed(row) || t->summary.failures < t->summary.max_failures;
    const bool is_counted = t->has_failures_alone || (t->groups_refusals && row->status == STATUS_UNSUPPORTED);
    if (t->is_quiet)
        say_broken(row, is_shown);
    else if ((is_shown || !t->is_verify) && (record_row_failed(row) || !is_counted || t->is_verbose))
        print_row(t, row);
    if (is_shown && row->check == CHECKED_FAIL)
        details_failure(t->out, t->width, row);
    fflush(t->out);
    summary_add(&t->summary, row);
}

/* --quiet: the last line alone, where it is no PASS or some row is noisy. */
static void say_end(const struct summary *s, int exit_code)
{
    struct text verdict = {0}, noise = {0};
    const bool is_pass = summary_verdict(s, exit_code, WIDTH_MAX, &verdict);
    summary_noise(s, &noise);
    if (!is_pass && exit_code != EXIT_OK)
        log_error("%s; exit %d", text_string(&verdict), exit_code);
    else if (!is_pass)
        log_warn("%s", text_string(&verdict));
    if (noise.length)
        log_warn("%s", text_string(&noise));
    text_free(&verdict);
    text_free(&noise);
}

void table_close(struct table *t, const struct summary_files *files, double elapsed_s, int exit_code)
{
    if (t->is_quiet)
        say_end(&t->summary, exit_code);
    else
        summary_print(&t->summary, t->out, t->width, t->color, files, elapsed_s, exit_code);
    summary_end(&t->summary);
    free(t->peer);
    free(t->convention);
    free(t->next);
    free(t);
}
