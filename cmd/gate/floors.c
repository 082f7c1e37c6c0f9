/* A small CSV whose cells are plain: no quotes. */
#include "cmd/gate/floors.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/record/record_column.h"

enum { CELLS_MAX = 32, LINE_MAX_BYTES = 2048 };

struct floor_line {
    int number;              /* in the file, from 1 */
    bool is_answered;
    char *cells[CELLS_MAX];  /* "" = any */
    char *text;              /* what the cells point into; owned */
};

struct floors {
    char *path;
    char *head;              /* what the names point into */
    int count;
    const struct column *columns[CELLS_MAX];
    bool is_minimum[CELLS_MAX];
    struct floor_line *lines;
    int line_count;
};

static char *trim(char *text)
{
    text += strspn(text, " \t");
    for (size_t n = strlen(text); n && strchr(" \t\r\n", text[n - 1]); n--)
        text[n - 1] = 0;
    return text;
}

/* -1 when there are too many. */
static int split(char *line, char **cells)
{
    int count = 0;
    for (char *cell; (cell = strsep(&line, ",")) != NULL;) {
        if (count == CELLS_MAX)
            return -1;
        cells[count++] = trim(cell);
    }
    return count;
}

static bool read_head(struct floors *f, char *line, int number, struct attn_message *why)
{
    char *names[CELLS_MAX];
    bool has_minimum = false;
    f->head = xstrdup(line);
    f->count = split(f->head, names);
    for (int i = 0; i < f->count; i++) {
        const bool is_minimum = strncmp(names[i], "min_", 4) == 0 && !record_column_find(names[i], strlen(names[i]));
        const char *name = is_minimum ? names[i] + 4 : names[i];
        f->is_minimum[i] = is_minimum;
        f->columns[i] = record_column_find(name, strlen(name));
        has_minimum |= is_minimum;
        if (!f->columns[i] || (is_minimum && f->columns[i]->kind != FIELD_REAL)) {
            snprintf(why->text, sizeof why->text, "%.200s, line %d: '%.60s' is no %s of the records", f->path, number,
                     names[i], is_minimum ? "min_ and a measured column" : "column");
            return false;
        }
    }
    if (f->count < 0 || !has_minimum) {
        snprintf(why->text, sizeof why->text,
                 "%.200s, line %d: must name columns, one of them a minimum as min_tflops", f->path, number);
        return false;
    }
    return true;
}

static bool column_is_text(const struct column *column)
{
    return column->kind == FIELD_TEXT || column->kind == FIELD_STRING || column->kind == FIELD_NAME;
}

static bool read_floor(struct floors *f, const char *line, int number, struct attn_message *why)
{
    f->lines = xrealloc(f->lines, (unsigned long)(f->line_count + 1) * sizeof *f->lines);
    struct floor_line *floor = &f->lines[f->line_count++];
    *floor = (struct floor_line){.number = number, .text = xstrdup(line)};
    const int count = split(floor->text, floor->cells);
    if (count != f->count) {
        snprintf(why->text, sizeof why->text, "%.200s, line %d: has %d cells, its first line %d", f->path, number, count,
                 f->count);
        return false;
    }
    bool asks = false;
    for (int i = 0; i < count; i++) {
        double value;
        int64_t whole;
        const bool is_empty = !*floor->cells[i];
        asks |= f->is_minimum[i] && !is_empty;
        const bool is_legal = is_empty || column_is_text(f->columns[i]) ||
                              (f->columns[i]->kind == FIELD_COUNT && number_parse_count(floor->cells[i], &whole)) ||
                              (f->columns[i]->kind == FIELD_REAL && number_parse_real(floor->cells[i], &value));
        if (!is_legal) {
            snprintf(why->text, sizeof why->text, "%.200s, line %d: '%.60s' is no number", f->path, number,
                     floor->cells[i]);
            return false;
        }
    }
    if (!asks)
        snprintf(why->text, sizeof why->text, "%.200s, line %d: has no minimum", f->path, number);
    return asks;
}

struct floors *floors_read(const char *path, struct attn_message *why)
{
    char line[LINE_MAX_BYTES];
    struct floors *f = xcalloc(1, sizeof *f);
    f->path = xstrdup(path);
    FILE *in = fopen(path, "re");
    bool good = in != NULL;
    if (!in)
        snprintf(why->text, sizeof why->text, "%.200s: %s", path, strerror(errno));
    for (int number = 1; good && fgets(line, sizeof line, in); number++) {
        const char *at = trim(line);
        if (!*at || *at == '#')
            continue;
        if (strchr(at, '"')) {
            snprintf(why->text, sizeof why->text, "%.200s, line %d: quotes are not taken", path, number);
            good = false;
        } else {
            good = f->head ? read_floor(f, at, number, why) : read_head(f, line, number, why);
        }
    }
    if (good && !f->line_count) {
        snprintf(why->text, sizeof why->text, "%.200s: has no floors", path);
        good = false;
    }
    if (in)
        fclose(in);
    if (good)
        return f;
    floors_free(f);
    return NULL;
}

void floors_free(struct floors *f)
{
    for (int i = 0; i < f->line_count; i++)
        free(f->lines[i].text);
    free(f->lines);
    free(f->head);
    free(f->path);
    free(f);
}

static bool chooses(const struct column *column, const char *cell, const struct record_row *row)
{
    const void *field = record_field(column, row);
    double real;
    int64_t whole;
    if (!*cell)
        return true;
    switch (column->kind) {
    case FIELD_TEXT:
        return strcmp(cell, field) == 0 ||
               (strcmp(column->name, "impl") == 0 && strcmp(cell, "fused") == 0 && strncmp(field, "fused_", 6) == 0);
    case FIELD_STRING:
        return *(char *const *)field && strcmp(cell, *(char *const *)field) == 0;
    case FIELD_NAME:
        return *(const int *)field >= 0 && strcmp(cell, column->names[*(const int *)field]) == 0;
    case FIELD_COUNT:
        return number_parse_count(cell, &whole) && whole == *(const int64_t *)field;
    case FIELD_REAL:
        return number_parse_real(cell, &real) && real == *(const double *)field;
    }
    return false;
}

enum floors_answer floors_ask(struct floors *f, const struct record_row *row, char *missed, size_t size)
{
    bool holds = true, is_asked = false;
    for (int l = 0; l < f->line_count; l++) {
        struct floor_line *line = &f->lines[l];
        bool is_chosen = true;
        for (int i = 0; i < f->count && is_chosen; i++)
            is_chosen = f->is_minimum[i] || chooses(f->columns[i], line->cells[i], row);
        if (!is_chosen)
            continue;
        line->is_answered = is_asked = true;
        for (int i = 0; i < f->count && holds; i++) {
            double least;
            if (!f->is_minimum[i] || !*line->cells[i] || !number_parse_real(line->cells[i], &least))
                continue;
            const double value = *(const double *)record_field(f->columns[i], row);
            holds = value >= least; /* what was not measured holds nothing */
            if (!holds && isnan(value))
                snprintf(missed, size, "%s was not measured, least %.6g (line %d)", f->columns[i]->name, least,
                         line->number);
            else if (!holds)
                snprintf(missed, size, "%s %.6g is below %.6g (line %d)", f->columns[i]->name, value, least,
                         line->number);
        }
    }
    return !is_asked ? FLOORS_NOT_ASKED : holds ? FLOORS_HELD : FLOORS_MISSED;
}

bool floors_are_answered(const struct floors *f, struct attn_message *why)
{
    for (int i = 0; i < f->line_count; i++)
        if (!f->lines[i].is_answered) {
            snprintf(why->text, sizeof why->text, "%.200s, line %d: no row of the current record answers to it", f->path,
                     f->lines[i].number);
            return false;
        }
    return true;
}
