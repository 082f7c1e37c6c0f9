/* Reading published points. */
#include "cmd/chart/overlay.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/csv.h"
#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/text.h"

enum { POINTS_MAX = 100000 };
enum cell_kind { CELL_TEXT, CELL_COUNT, CELL_REAL };

#define FIELD(kind, field, is_required) \
    { \
#field, kind, offsetof(struct overlay_point, field), sizeof(((struct overlay_point *)0)->field), is_required \
    }

static const struct field {
    const char *name;
    enum cell_kind kind;
    size_t offset, size;
    bool is_required;
} fields[] = {
    FIELD(CELL_TEXT, impl, true),     FIELD(CELL_TEXT, mode, true),    FIELD(CELL_TEXT, dtype, true),
    FIELD(CELL_COUNT, causal, true),  FIELD(CELL_COUNT, q_len, true),  FIELD(CELL_COUNT, head_dim, true),
    FIELD(CELL_REAL, tflops, true),   FIELD(CELL_COUNT, batch, false), FIELD(CELL_COUNT, q_heads, false),
    FIELD(CELL_COUNT, kv_len, false), FIELD(CELL_TEXT, layout, false), FIELD(CELL_TEXT, dist, false),
    FIELD(CELL_TEXT, l2, false),
};
enum { OVERLAY_FIELDS = sizeof fields / sizeof fields[0] };

struct reader {
    struct csv_reader csv;
    int column_of[OVERLAY_FIELDS]; /* -1 = the file has none */
    int columns;                   /* cells of the line of column names; 0 = not read yet */
    struct reason *why;
};

#define REFUSE(r, ...) csv_refuse(&(r)->csv, (r)->why, __VA_ARGS__)

static bool take_names(struct reader *r)
{
    r->columns = r->csv.count;
    for (int f = 0; f < OVERLAY_FIELDS; f++) {
        r->column_of[f] = -1;
        for (int i = 0; i < r->csv.count; i++) {
            if (strcmp(r->csv.cells[i], fields[f].name) != 0)
                continue;
            if (r->column_of[f] >= 0)
                return REFUSE(r, "the column %s occurs twice", fields[f].name);
            r->column_of[f] = i;
        }
        if (fields[f].is_required && r->column_of[f] < 0)
            return REFUSE(r, "not a file of published points: its line of names has no column %s", fields[f].name);
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
            return REFUSE(r, "%s \"%.40s\": must be a short name of a-z, 0-9 and _", field->name, cell);
        memcpy(to, cell, strlen(cell) + 1);
        return true;
    case CELL_COUNT:
        return number_parse_count(cell, to) || REFUSE(r, "%s \"%.40s\": must be a whole number", field->name, cell);
    case CELL_REAL:
        if (!number_parse_real(cell, &real) || real <= 0)
            return REFUSE(r, "%s \"%.40s\": must be a number above 0", field->name, cell);
        *(double *)to = real;
        return true;
    }
    return false;
}

static bool take_point(const struct reader *r, struct overlay_point *point)
{
    memset(point, 0, sizeof *point);
    if (r->csv.count != r->columns)
        return REFUSE(r, "has %d cells, the line of names has %d", r->csv.count, r->columns);
    for (int f = 0; f < OVERLAY_FIELDS; f++) {
        const char *cell = r->column_of[f] < 0 ? "" : r->csv.cells[r->column_of[f]];
        if (!*cell && fields[f].is_required)
            return REFUSE(r, "its %s is empty", fields[f].name);
        if (*cell && !take_cell(r, &fields[f], cell, point))
            return false;
    }
    if (strcmp(point->mode, "fwd") != 0 && strcmp(point->mode, "bwd") != 0)
        return REFUSE(r, "mode \"%s\": must be fwd or bwd", point->mode);
    if (point->causal > 1)
        return REFUSE(r, "causal %lld: must be 0 or 1", (long long)point->causal);
    if (point->q_len < 1 || point->head_dim < 1)
        return REFUSE(r, "q_len and head_dim must be above 0");
    return true;
}

static bool is_same_point(const struct overlay_point *a, const struct overlay_point *b)
{
    struct overlay_point c = *b;
    c.tflops = a->tflops;
    return memcmp(a, &c, sizeof c) == 0;
}

static bool take_row(struct reader *r, struct overlay *overlay)
{
    if (!r->columns)
        return take_names(r);
    if (overlay->count == POINTS_MAX)
        return REFUSE(r, "more than %d points", POINTS_MAX);
    overlay->points = xrealloc(overlay->points, (unsigned long)(overlay->count + 1) * sizeof *overlay->points);
    struct overlay_point *point = &overlay->points[overlay->count];
    if (!take_point(r, point))
        return false;
    for (int i = 0; i < overlay->count; i++)
        if (is_same_point(&overlay->points[i], point))
            return REFUSE(r, "this point occurs twice");
    overlay->count++;
    return true;
}

static void take_comment(const struct reader *r, struct overlay *overlay)
{
    const char *text = r->csv.cells[0];
    if (!overlay->source[0])
        text_clean(text + strspn(text, " \t"), overlay->source, sizeof overlay->source);
}

static bool read_points(struct reader *r, struct overlay *overlay)
{
    for (;;)
        switch (csv_next(&r->csv, r->why)) {
        case CSV_COMMENT: take_comment(r, overlay); break;
        case CSV_ROW:
            if (!take_row(r, overlay))
                return false;
            break;
        case CSV_ERROR: return false;
        case CSV_END:
            return overlay->count > 0 || REFUSE(r, "not a file of published points: it holds %s",
                                                r->columns ? "names and no point" : "no line of names");
        }
}

bool overlay_read(const char *path, struct overlay *overlay, struct attn_message *why)
{
    static const struct csv_format format = {.comment = '#', .bytes_max = 4096};
    struct reason reason = {""};
    struct reader reader = {.why = &reason};
    memset(overlay, 0, sizeof *overlay);
    const bool is_good = csv_open(&reader.csv, path, format, &reason) && read_points(&reader, overlay);
    csv_close(&reader.csv);
    if (!is_good) {
        overlay_free(overlay);
        snprintf(why->text, sizeof why->text, "%s", reason.text);
    }
    return is_good;
}

void overlay_free(struct overlay *overlay)
{
    free(overlay->points);
    memset(overlay, 0, sizeof *overlay);
}

static bool agrees(const char *said, const char *is) { return !said[0] || strcmp(said, is) == 0; }

bool overlay_fits(const struct overlay_point *p, const struct record_row *row)
{
    const struct problem_key *k = &row->key;
    return strcmp(p->mode, problem_mode_name(k->mode)) == 0 && strcmp(p->dtype, problem_dtype_name(k->dtype)) == 0 &&
           p->causal == k->causal && p->q_len == k->q_len && p->head_dim == k->head_dim &&
           (!p->batch || p->batch == k->batch) && (!p->q_heads || p->q_heads == k->q_heads) &&
           (!p->kv_len || p->kv_len == k->kv_len) && agrees(p->layout, problem_layout_name(k->layout)) &&
           agrees(p->dist, problem_dist_name(k->dist)) && agrees(p->l2, problem_l2_name(k->l2));
}
