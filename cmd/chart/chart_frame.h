/* The frame around the panels of a page: margins, title, conditions, key. */
#ifndef FABENCH_CHART_FRAME_H
#define FABENCH_CHART_FRAME_H

#include "cmd/chart/chart_script.h"

/* A page in pixels. */
struct frame_layout {
    int width, height, top, bottom, rows, panel_width, panel_height;
};

struct frame_layout frame_lay_out(const struct chart_set *, const struct chart_page *);

/* The margins of the panel in this row and column. */
void frame_put_margins(struct script *, const struct frame_layout *, int row, int column);

/* The empty plot over the whole page: title and conditions above; then its elements, which are the key below. */
void frame_put(struct script *, const struct chart_set *, const struct chart_page *, const struct frame_layout *);
void frame_put_key(struct script *, const struct chart_set *);

#endif
