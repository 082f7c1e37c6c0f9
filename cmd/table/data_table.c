/* Keeps the speed and the errors of each row, and prints their ratios between kinds of inputs. */
#include "cmd/table/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/impl_name.h"
#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/record/record_row.h"

enum { KINDS_MAX = 16, KIND_SIZE = PROBLEM_DATA_SIZE, NAME_COLUMNS = 28, CELL_COLUMNS = 9 };

struct data_entry {
    char impl[IMPL_NAME_SIZE];
    struct problem_key key;
    double tflops, errors[RECORD_TENSORS_MAX]; /* relative RMS errors in the order of the outputs */
    int tensor_count;
};

/* One line: an implementation, direction and head dim. */
struct line {
    const struct data_entry *first;
};

/* The ratios of one line and kind of inputs. */
struct cell {
    double speed_log_sum, least_speed, error_log_sum;
    int speeds, errors;
};

/* The columns of the table: the kinds of inputs in the order in which they came. */
struct kinds {
    char names[KINDS_MAX][KIND_SIZE];
    int count;
};

void data_table_add(struct data_table *t, const struct record_row *row)
{
    if (row->status != STATUS_OK || row->check == CHECKED_FAIL || role_of_name(row->impl) == ATTN_ROLE_NOTHING ||
        !(row->tflops > 0))
        return;
    if ((t->count & (t->count - 1)) == 0) /* there is room for the next power of two */
        t->entries = xrealloc(t->entries, (t->count ? 2 * (unsigned long)t->count : 1) * sizeof *t->entries);
    struct data_entry *entry = &t->entries[t->count++];
    memset(entry, 0, sizeof *entry);
    snprintf(entry->impl, sizeof entry->impl, "%s", row->impl);
    entry->key = row->key;
    entry->tflops = row->tflops;
    entry->tensor_count = row->tensor_count;
    for (int i = 0; i < row->tensor_count; i++)
        entry->errors[i] = strcmp(row->tensors[i].name, "lse") == 0 ? NAN : row->tensors[i].rel_rms_err;
}

void data_table_free(struct data_table *t)
{
    free(t->entries);
    memset(t, 0, sizeof *t);
}

static bool has_problem_of(const struct data_entry *a, const struct data_entry *b)
{
    struct problem_key key = a->key;
    key.dist = b->key.dist;
    key.logit_std = b->key.logit_std;
    return strcmp(a->impl, b->impl) == 0 && problem_key_compare(&key, &b->key, false) == 0;
}

/* The first entry of the same implementation and problem, whatever its inputs; maybe the entry itself. */
static const struct data_entry *first_of(const struct data_table *t, const struct data_entry *entry)
{
    const struct data_entry *first = t->entries;
    while (!has_problem_of(first, entry))
        first++;
    return first;
}

static const char *kind_of(const struct data_entry *entry, char *text, size_t size)
{
    return problem_key_data(&entry->key, text, size);
}

/* The column of a kind; -1 where there is none, and no room to add it. */
static int column_of(struct kinds *kinds, const char *name, bool adds)
{
    for (int i = 0; i < kinds->count; i++)
        if (strcmp(kinds->names[i], name) == 0)
            return i;
    if (!adds || kinds->count == KINDS_MAX)
        return -1;
    snprintf(kinds->names[kinds->count], KIND_SIZE, "%s", name);
    return kinds->count++;
}

static bool is_on_line(const struct line *line, const struct data_entry *entry)
{
    return strcmp(line->first->impl, entry->impl) == 0 && line->first->key.mode == entry->key.mode &&
           line->first->key.head_dim == entry->key.head_dim;
}

/* The kinds of inputs that are compared, and the one that they are compared with. False where there are none. */
static bool find_kinds(const struct data_table *t, struct kinds *kinds, char base[KIND_SIZE])
{
    char name[KIND_SIZE];
    for (int i = 0; i < t->count; i++) {
        const struct data_entry *entry = &t->entries[i], *first = first_of(t, entry);
        if (first == entry)
            continue;
        kind_of(first, base, KIND_SIZE);
        column_of(kinds, kind_of(entry, name, sizeof name), true);
    }
    return kinds->count > 0;
}

static void add_ratios(struct cell *cell, const struct data_entry *entry, const struct data_entry *first)
{
    const double speed = entry->tflops / first->tflops;
    cell->speed_log_sum += log(speed);
    cell->least_speed = cell->speeds ? fmin(cell->least_speed, speed) : speed;
    cell->speeds++;
    for (int i = 0; i < entry->tensor_count && i < first->tensor_count; i++)
        if (entry->errors[i] > 0 && first->errors[i] > 0) {
            cell->error_log_sum += log(entry->errors[i] / first->errors[i]);
            cell->errors++;
        }
}

static void fill_cells(const struct data_table *t, const struct line *line, struct kinds *kinds, struct cell *cells)
{
    char name[KIND_SIZE];
    memset(cells, 0, KINDS_MAX * sizeof *cells);
    for (int i = 0; i < t->count; i++) {
        const struct data_entry *entry = &t->entries[i], *first = first_of(t, entry);
        const int column = column_of(kinds, kind_of(entry, name, sizeof name), false);
        if (is_on_line(line, entry) && first != entry && column >= 0)
            add_ratios(&cells[column], entry, first);
    }
}

/* "logit-std 4" of "N(0,1) with logit-std 4". */
static const char *short_name(const char *kind)
{
    const char *const prefix = "N(0,1) with ";
    return strncmp(kind, prefix, strlen(prefix)) == 0 ? kind + strlen(prefix) : kind;
}

static int column_width(const char *kind)
{
    const int length = (int)strlen(short_name(kind));
    return length + 2 > CELL_COLUMNS ? length + 2 : CELL_COLUMNS;
}

enum figure { FIGURE_SPEED, FIGURE_LEAST, FIGURE_ERROR };

static void print_cell(FILE *out, int width, const struct cell *cell, enum figure figure)
{
    const int count = figure == FIGURE_ERROR ? cell->errors : cell->speeds;
    const double value = figure == FIGURE_LEAST   ? cell->least_speed
                         : figure == FIGURE_SPEED ? exp(cell->speed_log_sum / count)
                                                  : exp(cell->error_log_sum / count);
    if (count == 0)
        fprintf(out, "%*s", width, "-");
    else
        fprintf(out, "%*.*f", width, value < 99.995 ? 2 : 0, value);
}

/* As many columns as fit into the width. */
static int columns_that_fit(const struct kinds *kinds, int width)
{
    int used = NAME_COLUMNS, fit = 0;
    while (fit < kinds->count && used + column_width(kinds->names[fit]) <= width)
        used += column_width(kinds->names[fit++]);
    return fit;
}

static void print_part(const struct data_table *t, const struct line *lines, int line_count, struct kinds *kinds,
                       enum figure figure, const char *title, FILE *out, int width)
{
    const int columns = columns_that_fit(kinds, width);
    fprintf(out, "%-*s", NAME_COLUMNS, title);
    for (int k = 0; k < columns; k++)
        fprintf(out, "%*s", column_width(kinds->names[k]), short_name(kinds->names[k]));
    fputc('\n', out);
    for (int i = 0; i < line_count; i++) {
        struct cell cells[KINDS_MAX];
        char name[80];
        const struct data_entry *first = lines[i].first;
        fill_cells(t, &lines[i], kinds, cells);
        snprintf(name, sizeof name, "  %.16s %s d%lld", first->impl, problem_mode_name(first->key.mode),
                 (long long)first->key.head_dim);
        fprintf(out, "%-*s", NAME_COLUMNS, name);
        for (int k = 0; k < columns; k++)
            print_cell(out, column_width(kinds->names[k]), &cells[k], figure);
        fputc('\n', out);
    }
}

void data_table_print(const struct data_table *t, FILE *out, int width)
{
    struct kinds kinds = {.count = 0};
    char base[KIND_SIZE] = "", text[200];
    if (!find_kinds(t, &kinds, base))
        return;
    struct line *lines = xcalloc((unsigned long)t->count, sizeof *lines);
    int line_count = 0;
    for (int i = 0; i < t->count; i++) {
        bool is_known = first_of(t, &t->entries[i]) == &t->entries[i]; /* a base alone makes no line */
        for (int l = 0; l < line_count && !is_known; l++)
            is_known = is_on_line(&lines[l], &t->entries[i]);
        if (!is_known)
            lines[line_count++].first = &t->entries[i];
    }
    snprintf(text, sizeof text,
             "on other data, relative to the same problem on %s: geometric means over lengths and masks",
             short_name(base));
    wrap_words(out, width, 0, 2, text);
    print_part(t, lines, line_count, &kinds, FIGURE_SPEED, "speed", out, width);
    print_part(t, lines, line_count, &kinds, FIGURE_LEAST, "least speed", out, width);
    print_part(t, lines, line_count, &kinds, FIGURE_ERROR, "relative RMS error", out, width);
    free(lines);
}

/* ---- from which length 8 bits pay ---- */

static bool has_8_bits(const struct data_entry *entry)
{
    return entry->key.dtype >= 0 && attn_dtype_is_8_bit((enum attn_dtype)entry->key.dtype);
}

/* The key without what the inputs' type brings; is_group: without the lengths, too, and what follows from them. */
static struct problem_key key_of_any_type(const struct problem_key *from, bool is_group)
{
    struct problem_key key = *from;
    key.dtype = key.out_dtype = 0;
    key.quant_scale = ATTN_SCALE_NONE;
    key.scale_block = key.hadamard = key.quant_in_time = 0;
    if (is_group)
        key.q_len = key.kv_len = key.batch = key.total_q = 0;
    return key;
}

static bool are_of_one(const struct data_entry *a, const struct data_entry *b, bool is_group)
{
    const struct problem_key x = key_of_any_type(&a->key, is_group), y = key_of_any_type(&b->key, is_group);
    return strcmp(a->impl, b->impl) == 0 && problem_key_compare(&x, &y, false) == 0;
}

/* Two 8-bit entries that differ in their length alone. */
static bool are_of_one_series(const struct data_entry *a, const struct data_entry *b)
{
    return has_8_bits(a) && has_8_bits(b) && are_of_one(a, b, true) && a->key.dtype == b->key.dtype &&
           a->key.out_dtype == b->key.out_dtype && a->key.quant_scale == b->key.quant_scale &&
           a->key.scale_block == b->key.scale_block && a->key.hadamard == b->key.hadamard &&
           a->key.quant_in_time == b->key.quant_in_time;
}

/* The fastest of the same implementation and problem in 16 or 32 bits; 0 where there is none. */
static double tflops_of_wider(const struct data_table *t, const struct data_entry *entry)
{
    double best = 0;
    for (int i = 0; i < t->count; i++) {
        const struct data_entry *other = &t->entries[i];
        if (!has_8_bits(other) && are_of_one(entry, other, false))
            best = fmax(best, other->tflops);
    }
    return best;
}

/* What a series of 8-bit entries says: lengths that have a wider entry, and from which one on all are faster. */
static void print_crossover(const struct data_table *t, int first, FILE *out, int width)
{
    const struct data_entry *own = &t->entries[first];
    int64_t slower = 0, from = 0;
    int lengths = 0, faster = 0;
    struct text line = {0};
    char words[PROBLEM_LABEL_SIZE], length[32];
    for (int pass = 0; pass < 2; pass++)
        for (int i = first; i < t->count; i++) {
            const struct data_entry *entry = &t->entries[i];
            const double other = are_of_one_series(own, entry) ? tflops_of_wider(t, entry) : 0;
            const int64_t len = problem_key_length(&entry->key);
            if (other > 0 && pass == 0) {
                lengths++;
                faster += entry->tflops > other;
                slower = entry->tflops > other || len < slower ? slower : len;
            } else if (other > 0 && len > slower && (from == 0 || len < from)) {
                from = len;
            }
        }
    if (lengths == 0)
        return;
    text_add(&line, "%s %s %s d%lld %s%s%s: ", own->impl, problem_mode_name(own->key.mode),
             own->key.causal ? "causal" : "full", (long long)own->key.head_dim, problem_dtype_name(own->key.dtype),
             problem_key_extras(&own->key, words, sizeof words),
             own->key.quant_in_time == 1 ? "" : ", without quantising");
    if (faster == lengths)
        text_add(&line, "faster than wider inputs at every length");
    else if (from > 0)
        text_add(&line, "faster than wider inputs from %s on", number_print_count(from, length, sizeof length));
    else
        text_add(&line, "slower than wider inputs at %s, the longest length",
                 number_print_count(slower, length, sizeof length));
    wrap_words(out, width, 0, 2, text_string(&line));
    text_free(&line);
}

void data_table_print_crossovers(const struct data_table *t, FILE *out, int width)
{
    for (int i = 0; i < t->count; i++) {
        bool is_first = has_8_bits(&t->entries[i]);
        for (int j = 0; j < i && is_first; j++)
            is_first = !are_of_one_series(&t->entries[j], &t->entries[i]);
        if (is_first)
            print_crossover(t, i, out, width);
    }
}
