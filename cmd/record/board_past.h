/* How a board compares with its own earlier records, or with those of the fleet: made from records alone. */
#ifndef FABENCH_BOARD_PAST_H
#define FABENCH_BOARD_PAST_H

#include "cmd/record/board_figures.h"

/* Earlier records. */
struct board_records;

/* From files, and from folders as record_folder_each reads them. What cannot be read is said and left out; NULL where
 * nothing is left. */
struct board_records *board_records_read(const struct name_list *paths);
/* None; and one run more, whose header says of which board it is. */
struct board_records *board_records_new(void);
void board_records_add(struct board_records *, json_t *header, const struct board_case *, int count);
void board_records_free(struct board_records *);

/* Boards of a fleet that one without records of its own is compared with, at least: beside 8 of them 9 of 24,000
 * healthy boards were named by simulation, beside 16 none. */
enum { PAST_FEWEST = 16 };

/* A comparison with the board's own earlier runs (same host, address and UUID); where there is none, with the boards of
 * its model. Runs count that this program made with the same driver, libraries and policy. */
struct board_past {
    enum { PAST_NONE, PAST_BOARD, PAST_FLEET } of;
    int runs;                 /* PAST_BOARD: earlier runs; PAST_FLEET: boards */
    double distance_pct;      /* speed now over speed then, the median over the shared cases: -4 = slower */
    double repeatability_pct; /* standard deviation of this distance from run to run of one board */
    double margin;            /* 1 or more, by which the limit is higher because runs are few */
    double spread_pct;        /* PAST_FLEET: robust standard deviation between its boards; else 0 */
    double limit_pct;         /* named where it is slower by more, twice */
    double least_loss_pct;    /* a loss of so much is found in more than 95 % */
    double quarter_pct;       /* a quarter of its cases, two at least, are so slow or slower: board_figures.h */
    double cases_pct;         /* robust standard deviation of single cases from run to run of one board */
    double cases_limit_pct;   /* named as well where its quarter_pct is below minus this, twice */
    char slow_cases[400];     /* those slower by more, in words; "" where they are too few */
    char why[200];            /* PAST_NONE: why; else what differs from then: no proof of a cause */
};

/* header: of the present run of the board. least_pct: the limit is not lower. */
void board_past_of(const struct board_records *, const json_t *header, const struct board_cases *now, double least_pct,
                   struct board_past *);

/* Before any board has two runs, a run of a board is taken to repeat its speed with this standard deviation; it
 * counts as BOARD_ASSUMED_RUNS runs beside those that there are. It is what fresh processes on an H200 repeated in
 * single cases, 0.3 to 1.1 % (tests/unit/data/spread.csv), if all cases of a process move together. */
extern const double board_assumed_pct;
enum { BOARD_ASSUMED_RUNS = 2 };

/* The limits and the least loss, from repeatability, spread, cases_pct and the runs of PAST_BOARD or the boards of
 * PAST_FLEET; cases_limit_pct of PAST_BOARD alone.
 * runs_per_board: of PAST_FLEET. */
void board_past_limit(struct board_past *, double runs_per_board, double least_pct);

/* The repeatability from runs of `boards` boards: distances of a run from the median of the other runs of its board,
 * whose numbers are counts[]. margin: how much higher a limit of three such deviations must be, because it is estimated
 * from few runs. */
double board_repeatability(const double *distances_pct, const int *counts, int boards, double *margin);

#endif
