/* How boards compare with each other on the cases that they share: made from rows alone. */
#ifndef FABENCH_BOARD_FIGURES_H
#define FABENCH_BOARD_FIGURES_H

#include "cmd/record/record_row.h"

/* What was measured on one board. Only boards of one model are compared: a MIG slice is a model of its own. */
struct board_rows {
    const char *model;
    const struct record_row *rows;
    int count;
};

/* NaN: not measured, or nothing to compare with. A case is compared where its row is timed and did not fail, and
 * where another board of the model has it too. */
struct board_figures {
    int rows, failed;    /* failed: a check, an error, or a time limit */
    int timed, shared;   /* rows with a time; those of a case that another board has */
    double distance_pct; /* of its speed from the median of the other boards, the median over the cases: -4 = slower */
    double tflops;       /* median over the rows */
    double noise_pct;    /* likewise, of the column noise_pct */
    double sm_clock_mhz; /* median over the rows */
    double temp_c;       /* the highest */
    double power_w;      /* median over the rows with a sustained region */
    double power_capped_pct, throttled_pct; /* medians */
};

/* figures: `count` of them. The work grows with the number of rows n as n log n. */
void board_figures_of(const struct board_rows *boards, int count, struct board_figures *figures);

/* The median of values[0, count), which are sorted on the way; NaN where there are none. */
double board_median(double *values, int count);

#endif
