/* Reads the file of minima and compares rows with them. */
#include "cmd/gate/floors.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/csv.h"
#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/record/record.h"
#include "cmd/record/record_row.h"

struct floor_column {
    const struct column *column; /* of the records */
    bool is_minimum;             /* its cells are minima; else they select rows */
};

struct floor_line {
    int number; /* in the file, from 1 */
    bool is_matched;
    struct name_list cells; /* one for each column; "" = any */
};

struct floors {
    char *path;
    struct floor_column *columns;
    int count; /* of columns; 0 = the line of names was not read yet */
    struct floor_line *lines;
    int line_count;
};

static bool read_names(struct floors *f, const struct csv_reader *r, struct reason *why)
{
    bool has_minimum = false;
    f->count = r->count;
    f->columns = xcalloc((unsigned long)r->count, sizeof *f->columns);
    for (int i = 0; i < r->count; i++) {
        struct floor_column *c = &f->columns[i];
        const char *name = r->cells[i];
        c->is_minimum = strncmp(name, "min_", 4) == 0 && !record_column_find(name, strlen(name));
        if (c->is_minimum)
            name += 4;
        c->column = record_column_find(name, strlen(name));
        has_minimum |= c->is_minimum;
        if (!c->column || (c->is_minimum && c->column->kind != FIELD_REAL))
            return csv_refuse(r, why, "'%.60s' is no %s of the records", r->cells[i],
                              c->is_minimum ? "min_ and a measured column" : "column");
    }
    return has_minimum || csv_refuse(r, why, "must name columns, one of them a minimum as min_tflops");
}

static bool is_word(const struct column *column, const char *cell)
{
    for (int i = 0; column->names[i]; i++)
        if (strcmp(column->names[i], cell) == 0)
            return true;
    return !*cell;
}

static bool is_legal(const struct column *column, const char *cell)
{
    double real;
    int64_t whole;
    switch (column->kind) {
    case FIELD_TEXT:
    case FIELD_STRING: return true;
    case FIELD_NAME: return is_word(column, cell);
    case FIELD_COUNT: return !*cell || number_parse_count(cell, &whole);
    case FIELD_REAL: return !*cell || number_parse_real(cell, &real);
    }
    return false;
}

static bool read_floor(struct floors *f, const struct csv_reader *r, struct reason *why)
{
    bool has_minimum = false;
    if (r->count != f->count)
        return csv_refuse(r, why, "has %d cells, its first line %d", r->count, f->count);
    f->lines = xrealloc(f->lines, (unsigned long)(f->line_count + 1) * sizeof *f->lines);
    struct floor_line *line = &f->lines[f->line_count++];
    *line = (struct floor_line){.number = r->line};
    for (int i = 0; i < r->count; i++) {
        name_list_add(&line->cells, r->cells[i]);
        has_minimum |= f->columns[i].is_minimum && *r->cells[i];
        if (!is_legal(f->columns[i].column, r->cells[i]))
            return csv_refuse(r, why, "'%.60s' is no %s", r->cells[i],
                              f->columns[i].column->kind == FIELD_NAME ? f->columns[i].column->name : "number");
    }
    return has_minimum || csv_refuse(r, why, "has no minimum");
}

static bool read_lines(struct floors *f, struct csv_reader *r, struct reason *why)
{
    enum csv_result result;
    while ((result = csv_next(r, why)) == CSV_ROW || result == CSV_COMMENT)
        if (result == CSV_ROW && !(f->count ? read_floor(f, r, why) : read_names(f, r, why)))
            return false;
    if (result == CSV_ERROR || f->line_count > 0)
        return result == CSV_END;
    snprintf(why->text, sizeof why->text, "%s: has no floors", path_shown(f->path).text);
    return false;
}

struct floors *floors_read(const char *path, struct attn_message *why)
{
    static const struct csv_format format = {.comment = '#', .trims = true, .bytes_max = 4096};
    struct csv_reader reader;
    struct reason reason = {""};
    struct floors *f = xcalloc(1, sizeof *f);
    f->path = xstrdup(path);
    const bool is_good = csv_open(&reader, path, format, &reason) && read_lines(f, &reader, &reason);
    csv_close(&reader);
    if (is_good)
        return f;
    snprintf(why->text, sizeof why->text, "%s", reason.text);
    floors_free(f);
    return NULL;
}

void floors_free(struct floors *f)
{
    for (int i = 0; i < f->line_count; i++)
        name_list_free(&f->lines[i].cells);
    free(f->lines);
    free(f->columns);
    free(f->path);
    free(f);
}

static bool selects(const struct column *column, const char *cell, const struct record_row *row)
{
    const void *field = record_field(column, row);
    double real;
    int64_t whole;
    if (!*cell)
        return true;
    switch (column->kind) {
    case FIELD_TEXT:
        return strcmp(cell, field) == 0 ||
               (strcmp(column->name, "impl") == 0 && strcmp(cell, "fused") == 0 && role_is_fused(field));
    case FIELD_STRING: return *(char *const *)field && strcmp(cell, *(char *const *)field) == 0;
    case FIELD_NAME: return *(const int *)field >= 0 && strcmp(cell, column->names[*(const int *)field]) == 0;
    case FIELD_COUNT: return number_parse_count(cell, &whole) && whole == *(const int64_t *)field;
    case FIELD_REAL: return number_parse_real(cell, &real) && real == *(const double *)field;
    }
    return false;
}

enum floors_result floors_check(struct floors *f, const struct record_row *row, char *missed, size_t size)
{
    bool holds = true, has_match = false;
    for (int l = 0; l < f->line_count; l++) {
        struct floor_line *line = &f->lines[l];
        bool is_selected = true;
        for (int i = 0; i < f->count && is_selected; i++)
            is_selected = f->columns[i].is_minimum || selects(f->columns[i].column, line->cells.names[i], row);
        if (!is_selected)
            continue;
        line->is_matched = has_match = true;
        for (int i = 0; i < f->count && holds; i++) {
            const struct column *column = f->columns[i].column;
            double least;
            if (!f->columns[i].is_minimum || !number_parse_real(line->cells.names[i], &least))
                continue;
            const double value = *(const double *)record_field(column, row);
            holds = value >= least; /* false for NaN: a value that was not measured is below every minimum */
            if (!holds && isnan(value))
                snprintf(missed, size, "%s was not measured, minimum %.6g (line %d)", column->name, least,
                         line->number);
            else if (!holds)
                snprintf(missed, size, "%s %.6g is below %.6g (line %d)", column->name, value, least, line->number);
        }
    }
    return !has_match ? FLOORS_NO_MATCH : holds ? FLOORS_MET : FLOORS_MISSED;
}

bool floors_are_matched(const struct floors *f, struct attn_message *why)
{
    for (int i = 0; i < f->line_count; i++)
        if (!f->lines[i].is_matched) {
            snprintf(why->text, sizeof why->text, "%s, line %d: no row of the current record matches it",
                     path_shown(f->path).text, f->lines[i].number);
            return false;
        }
    return true;
}
