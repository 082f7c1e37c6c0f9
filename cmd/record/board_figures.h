/* How boards compare with each other on the cases that they share: made from rows alone. */
#ifndef FABENCH_BOARD_FIGURES_H
#define FABENCH_BOARD_FIGURES_H

#include <jansson.h>

#include "cmd/base/impl_name.h"
#include "cmd/base/text.h"
#include "cmd/record/record_row.h"

/* What is compared of a row: much less than the row, because a fleet has many. NaN = not measured. */
struct board_case {
    struct problem_key key;
    char impl[IMPL_NAME_SIZE];
    double time_ms; /* NaN where the row is not timed, failed its check, or is of null, which computes nothing */
    double tflops, noise_pct;
    double slope_pct; /* change of the time from the first sample to the last, by a straight line: + = slower later */
    double sm_clock_mhz, temp_c, power_w, power_capped_pct, throttled_pct;
    bool has_failed; /* its check, with an error, or at a time limit */
};
void board_case_of(const struct record_row *, struct board_case *);

/* What was measured on one board. Only boards of one model are compared: a MIG slice is a model of its own. A case may
 * be there several times, as in several records: then its median time counts. */
struct board_cases {
    const char *model;
    const struct board_case *cases;
    int count;
};

/* NaN: not measured, or nothing to compare with. A case is compared where another board of the model has it too. */
struct board_figures {
    int rows, failed;
    int distinct;        /* cases, each once */
    int timed, shared;   /* rows with a time; cases that another board has too */
    double distance_pct; /* of its speed from the median of the other boards, the median over the cases: -4 = slower */
    /* Of the same distances of its single cases: 1.4826 x the median of their absolute values; and a quarter of them,
     * two at least, are so slow or slower: -48 = by 48 %. Something beside it, or a part that is broken, may slow some
     * cases alone, which the median does not show. */
    double cases_pct, quarter_pct;
    double within_pct;   /* of a case that is there several times: (longest - shortest) / median; median over these */
    double tflops;       /* median over the rows */
    double noise_pct;    /* likewise, of the column noise_pct */
    double slope_pct;    /* likewise */
    double sm_clock_mhz; /* likewise */
    double temp_c;       /* the highest */
    double power_w;      /* median over the rows with a sustained region */
    double power_capped_pct, throttled_pct; /* medians */
};

/* figures: `count` of them. The work grows with the number of cases n as n log n. */
void board_figures_of(const struct board_cases *boards, int count, struct board_figures *figures);

/* "3 of 8 cases 48.0 to 58.2 % slower than <others>: bwd causal d64 n=16k bf16, ...": those of boards[at] that are
 * slower than the median of the other boards by more than limit_pct. */
void board_say_slow_cases(const struct board_cases *boards, int count, int at, double limit_pct, const char *others,
                          struct text *);

/* How far each of the boards of one model is from their median, in robust standard deviations (1.4826 x the median of
 * the absolute deviations); NaN for a distance that is NaN, and for all where fewer than BOARDS_FEWEST have one or they
 * do not differ. Returns how many have one. */
enum { BOARDS_FEWEST = 8 };
int board_deviations(const double *distances_pct, int count, double *deviations);
/* That standard deviation; NaN where fewer than BOARDS_FEWEST have a distance. */
double board_spread_pct(const double *distances_pct, int count);

/* A board of n with a distance is named where its deviation is below -board_deviation_limit(n) and it is slower by more
 * than board_least_loss_pct: in fewer than 1 of 1,000 healthy fleets, whose boards differ as a normal distribution
 * (tests/simulate/simulate_boards.c). The second, because in a fleet whose boards hardly differ a robust standard
 * deviation is a small number. */
extern const double board_least_loss_pct;
double board_deviation_limit(int count);
bool board_is_slow(double distance_pct, double deviation, int count); /* false where one is NaN */

/* A board is also named where its quarter_pct is below minus this: 1.5 x board_deviation_limit(n) standard deviations
 * of single cases, the median of cases_pct over the n boards that have it, and 5 % at least. NaN where n is below
 * BOARDS_FEWEST. Wider than the limit of the median, because a quarter of healthy cases is slower than that. */
double board_cases_limit(const double *cases_pct, int count);

/* What a header says of the state of its board; -1 = not known. */
struct board_health {
    int64_t pcie_width, pcie_width_max, ecc_uncorrected;
};
struct board_health board_health_of(const json_t *header);

/* In what the telemetry of the board figures[at] differs from that of the others of its model, with commas: it is no
 * proof of a cause. figures: of `count` boards of one model. others: what they are called. */
void board_explain(const struct board_figures *const *figures, int count, int at, const struct board_health *,
                   const char *others, struct text *);

#endif
