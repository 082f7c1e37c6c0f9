/* Reading published points. */
#include "cmd/chart/overlay.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/text.h"

enum { CELLS_MAX = 64, POINTS_MAX = 100000 };
enum cell_kind { CELL_TEXT, CELL_COUNT, CELL_REAL };

#define FIELD(kind, field, is_required)                                                                                \
    {#field, kind, offsetof(struct overlay_point, field), sizeof(((struct overlay_point *)0)->field), is_required}

static const struct field {
    const char *name;
    enum cell_kind kind;
    size_t offset, size;
    bool is_required;
} fields[] = {
    FIELD(CELL_TEXT, impl, true),     FIELD(CELL_TEXT, mode, true),     FIELD(CELL_TEXT, dtype, true),
    FIELD(CELL_COUNT, causal, true),  FIELD(CELL_COUNT, q_len, true),   FIELD(CELL_COUNT, head_dim, true),
    FIELD(CELL_REAL, tflops, true),   FIELD(CELL_COUNT, batch, false),  FIELD(CELL_COUNT, q_heads, false),
    FIELD(CELL_COUNT, kv_len, false), FIELD(CELL_TEXT, layout, false),  FIELD(CELL_TEXT, dist, false),
    FIELD(CELL_TEXT, l2, false),
};
enum { FIELD_COUNT = sizeof fields / sizeof fields[0] };

struct reader {
    const char *path;
    int line;
    int column_of[FIELD_COUNT]; /* -1 = the file has none */
    int columns;                /* of the line of names; 0 = not seen yet */
    struct attn_message *why;
};

__attribute__((format(printf, 2, 3))) static bool refuse(const struct reader *r, const char *format, ...)
{
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(r->why->text, sizeof r->why->text, "%.120s: line %d: %s", r->path, r->line, text);
    return false;
}

/* Splits a CSV line in place, RFC 4180's quotes included; -1 when there are too many cells or a quote stays open. */
static int split(char *line, char **cells)
{
    int count = 0;
    for (char *from = line;; from++) {
        char *to = from;
        if (count == CELLS_MAX)
            return -1;
        cells[count++] = to;
        if (*from == '"') {
            for (from++; *from && (*from != '"' || from[1] == '"'); from++) {
                from += *from == '"';
                *to++ = *from;
            }
            if (*from++ != '"')
                return -1;
        }
        while (*from && *from != ',')
            *to++ = *from++;
        const bool is_last = *from == '\0';
        *to = '\0';
        if (is_last)
            return count;
    }
}

static bool take_names(struct reader *r, char **cells, int count)
{
    r->columns = count;
    for (int f = 0; f < FIELD_COUNT; f++) {
        r->column_of[f] = -1;
        for (int i = 0; i < count; i++) {
            if (strcmp(cells[i], fields[f].name) != 0)
                continue;
            if (r->column_of[f] >= 0)
                return refuse(r, "the column %s is there twice", fields[f].name);
            r->column_of[f] = i;
        }
        if (fields[f].is_required && r->column_of[f] < 0)
            return refuse(r, "no file of published points: its line of names has no column %s", fields[f].name);
    }
    return true;
}

static bool take_cell(const struct reader *r, const struct field *field, const char *cell, void *base)
{
    void *to = (char *)base + field->offset;
    double real;
    switch (field->kind) {
    case CELL_TEXT:
        if (strlen(cell) >= field->size || strspn(cell, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(cell))
            return refuse(r, "%s \"%.40s\": must be a short name of a-z, 0-9 and _", field->name, cell);
        memcpy(to, cell, strlen(cell) + 1);
        return true;
    case CELL_COUNT:
        return number_parse_count(cell, to) || refuse(r, "%s \"%.40s\": must be a whole number", field->name, cell);
    case CELL_REAL:
        if (!number_parse_real(cell, &real) || real <= 0)
            return refuse(r, "%s \"%.40s\": must be a number above 0", field->name, cell);
        *(double *)to = real;
        return true;
    }
    return false;
}

static bool take_point(const struct reader *r, char **cells, int count, struct overlay_point *point)
{
    memset(point, 0, sizeof *point);
    if (count != r->columns)
        return refuse(r, "has %d cells, the line of names has %d", count, r->columns);
    for (int f = 0; f < FIELD_COUNT; f++) {
        const char *cell = r->column_of[f] < 0 ? "" : cells[r->column_of[f]];
        if (!*cell && fields[f].is_required)
            return refuse(r, "its %s is empty", fields[f].name);
        if (*cell && !take_cell(r, &fields[f], cell, point))
            return false;
    }
    if (strcmp(point->mode, "fwd") != 0 && strcmp(point->mode, "bwd") != 0)
        return refuse(r, "mode \"%s\": must be fwd or bwd", point->mode);
    if (point->causal > 1)
        return refuse(r, "causal %lld: must be 0 or 1", (long long)point->causal);
    if (point->q_len < 1 || point->head_dim < 1)
        return refuse(r, "q_len and head_dim must be above 0");
    return true;
}

static bool is_same_point(const struct overlay_point *a, const struct overlay_point *b)
{
    struct overlay_point c = *b;
    c.tflops = a->tflops;
    return memcmp(a, &c, sizeof c) == 0;
}

static bool take_line(struct reader *r, char *line, struct overlay *overlay)
{
    char *cells[CELLS_MAX];
    line[strcspn(line, "\r\n")] = '\0';
    if (line[0] == '#') {
        if (!overlay->source[0])
            text_clean(line + 1 + strspn(line + 1, " \t"), overlay->source, sizeof overlay->source);
        return true;
    }
    if (line[strspn(line, " \t")] == '\0')
        return true;
    const int count = split(line, cells);
    if (count < 0)
        return refuse(r, "no line of CSV: a quote stays open, or there are more than %d cells", CELLS_MAX);
    if (!r->columns)
        return take_names(r, cells, count);
    if (overlay->count == POINTS_MAX)
        return refuse(r, "more than %d points", POINTS_MAX);
    overlay->points = xrealloc(overlay->points, (unsigned long)(overlay->count + 1) * sizeof *overlay->points);
    struct overlay_point *point = &overlay->points[overlay->count];
    if (!take_point(r, cells, count, point))
        return false;
    for (int i = 0; i < overlay->count; i++)
        if (is_same_point(&overlay->points[i], point))
            return refuse(r, "this point is there already");
    overlay->count++;
    return true;
}

bool overlay_read(const char *path, struct overlay *overlay, struct attn_message *why)
{
    struct reader reader = {.path = path, .why = why};
    char line[4096];
    bool good = true;
    memset(overlay, 0, sizeof *overlay);
    FILE *in = fopen(path, "re");
    if (!in) {
        snprintf(why->text, sizeof why->text, "%.200s: %s", path, strerror(errno));
        return false;
    }
    while (good && fgets(line, sizeof line, in)) {
        reader.line++;
        if (strlen(line) + 1 == sizeof line)
            good = refuse(&reader, "no file of published points: a line is longer than %zu bytes", sizeof line - 2);
        else
            good = take_line(&reader, line, overlay);
    }
    if (good && ferror(in)) {
        snprintf(why->text, sizeof why->text, "%.200s: %s", path, strerror(errno));
        good = false;
    }
    fclose(in);
    if (good && overlay->count == 0)
        good = refuse(&reader, "no file of published points: it holds %s",
                      reader.columns ? "names and no point" : "no line of names");
    if (!good)
        overlay_free(overlay);
    return good;
}

void overlay_free(struct overlay *overlay)
{
    free(overlay->points);
    memset(overlay, 0, sizeof *overlay);
}

static bool agrees(const char *said, const char *is) { return !said[0] || strcmp(said, is) == 0; }

bool overlay_fits(const struct overlay_point *p, const struct record_row *row)
{
    return strcmp(p->mode, row->mode) == 0 && strcmp(p->dtype, row->dtype) == 0 && p->causal == row->causal &&
           p->q_len == row->q_len && p->head_dim == row->head_dim && (!p->batch || p->batch == row->batch) &&
           (!p->q_heads || p->q_heads == row->q_heads) && (!p->kv_len || p->kv_len == row->kv_len) &&
           agrees(p->layout, row->layout) && agrees(p->dist, row->dist) && agrees(p->l2, row->l2);
}
