/* Shared by the files that write gnuplot scripts, and private to them: the kinds of charts, a script under
 * construction, styles, and the frame around the panels. */
#ifndef FABENCH_CHART_SCRIPT_H
#define FABENCH_CHART_SCRIPT_H

#include <stdio.h>

#include "cmd/chart/chart_data.h"
#include "cmd/options/options.h"

/* What differs between the kinds of charts. */
struct chart_kind_def {
    const char *title, *y_label, *caption; /* y_label of a speed: what follows the unit */
    bool has_log_y;
    bool is_speed; /* in chart_unit */
};
extern const struct chart_kind_def chart_kinds[CHART_KIND_COUNT];
/* Those of a page: decode has others. */
const struct chart_kind_def *script_words_of(const struct chart_page *);

/* A script under construction: data blocks and the plot commands that refer to them by number. */
struct script {
    FILE *data, *body;
    char *data_text, *body_text;
    size_t data_bytes, body_bytes;
    const char *source; /* 'name.dat' in quotes, or $data */
    const char *unit;   /* of speeds, over the batch of times */
    bool is_over_batch;
    bool is_text; /* drawn with characters */
    int blocks, elements;
    double zero_y;        /* where a zero is drawn on a logarithmic axis; NaN = nowhere */
    double low_y, high_y; /* of the axis; high_y 0: gnuplot chooses */
    int64_t least_n, most_n;
    bool *is_used;        /* series that drew something, for the key */
    bool *has_ceiling_of; /* files whose GEMM or reading is drawn */
    bool *has_overlay_of; /* published implementations that are drawn */
    bool has_ceiling, has_bound, has_naive_bound, has_failed;
    bool has_model, has_roof; /* the model of bytes; the ceilings of a roofline */
};

/* A script without anything; its texts are read after script_finish and freed by script_close. */
void script_open(struct script *, const struct chart_set *);
void script_finish(struct script *);
void script_close(struct script *);

/* Terminal, output and what all charts share. The SVG has these pixels, the PNG twice as many. */
void script_put_head(struct script *, const char *name, int width, int height, enum plot_format);

/* The next block of data, with a comment. */
__attribute__((format(printf, 2, 3))) void script_begin_block(struct script *, const char *format, ...);

/* Writes <dir>/<name>.dat and .gp; false after a sentence. */
bool script_write(const struct script *, const char *dir, const char *name);
const char *script_ending(enum plot_format); /* of an image: "svg" */

/* 'text' as gnuplot reads it back: a quote is doubled, nothing else is special. */
void script_put_quoted(FILE *, const char *text);

/* Line and point styles as gnuplot takes them; the first two fill and return `text`. */
const char *script_ceiling_style(const struct chart_set *, int file, char *text, size_t size);
const char *script_overlay_style(int name, char *text, size_t size);
void script_series_style(const struct script *, const struct chart_series *, FILE *);
extern const char script_unity_style[], script_bound_style[], script_naive_bound_style[], script_model_style[],
    script_roof_style[];

/* "plot ", or what separates the next element from the one before. */
void script_begin_element(struct script *);

/* The frame around the panels of a page: margins, title, conditions, key. */

/* A page in pixels. */
struct frame_layout {
    int width, height, top, bottom, rows, panel_width, panel_height;
};

struct frame_layout frame_lay_out(const struct chart_set *, const struct chart_page *);

/* The margins of the panel in this row and column. */
void frame_put_margins(struct script *, const struct frame_layout *, int row, int column);

/* The empty plot over the whole page: title and conditions above; then its elements, which are the key below. */
void frame_put(struct script *, const struct chart_set *, const struct chart_page *, const struct frame_layout *);
void frame_put_key(struct script *, const struct chart_set *, const struct chart_page *);

#endif
