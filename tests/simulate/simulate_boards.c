/* `report --boards` against made-up fleets, through the code that decides (cmd/record/board_figures.h):
 *
 *     simulate_boards FLEETS [NOISE]
 *
 * Each board of a fleet has a speed of its own, normal with the given spread, and each of its eight cases a
 * repeatability of NOISE per cent [0.3]. For each size and spread: in how many of FLEETS healthy fleets a board is
 * named, and the smallest loss of one board that is found in more than 95 % (from 1,000 fleets on). Exit code 1 where
 * healthy fleets have a board named more often than 1 of 1,000, and chance. Prints CSV. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/record/board_figures.h"
#include "tests/simulate/random.h"

enum { BOARDS_MOST = 100, CASES = 8, LOSSES_TRIED = 400 };

/* Board 0 is slower by loss_pct. True where a board is named: `wanted` alone, or -1 = any. */
static bool is_named(int boards, double spread_pct, double noise_pct, double loss_pct, int wanted)
{
    static struct board_case cases[BOARDS_MOST][CASES];
    struct board_cases all[BOARDS_MOST] = {{0}};
    struct board_figures figures[BOARDS_MOST];
    double distances[BOARDS_MOST], deviations[BOARDS_MOST];
    memset(cases, 0, sizeof cases);
    for (int b = 0; b < boards; b++) {
        const double board = 1 + (spread_pct * normal() + (b == 0 ? loss_pct : 0)) / 100;
        for (int n = 0; n < CASES; n++) {
            cases[b][n].key.q_len = n;
            cases[b][n].time_ms = board * (1 + noise_pct * normal() / 100);
        }
        all[b] = (struct board_cases){"GPU", cases[b], CASES};
    }
    board_figures_of(all, boards, figures);
    for (int b = 0; b < boards; b++)
        distances[b] = figures[b].distance_pct;
    const int known = board_deviations(distances, boards, deviations);
    for (int b = 0; b < boards; b++)
        if ((wanted < 0 || b == wanted) && board_is_slow(distances[b], deviations[b], known))
            return true;
    return false;
}

/* In steps of 0.25 %. */
static double smallest_loss(int boards, double spread_pct, double noise_pct)
{
    for (double loss_pct = 0.25; loss_pct < 60; loss_pct += 0.25) {
        int found = 0;
        for (int i = 0; i < LOSSES_TRIED; i++)
            found += is_named(boards, spread_pct, noise_pct, loss_pct, 0);
        if (found > 0.95 * LOSSES_TRIED)
            return loss_pct;
    }
    return NAN;
}

int main(int argc, char **argv)
{
    static const double spreads_pct[] = {0.25, 0.5, 1, 2};
    static const int sizes[] = {8, 16, 100};
    const int fleets = argc > 1 ? atoi(argv[1]) : 0;
    const double noise_pct = argc > 2 ? atof(argv[2]) : 0.3;
    bool is_good = fleets > 0;
    printf("boards,spread_pct,noise_pct,healthy_fleets,with_a_board_named,smallest_loss_found_pct\n");
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (size_t s = 0; s < sizeof spreads_pct / sizeof spreads_pct[0]; s++) {
            int named = 0;
            for (int i = 0; i < fleets; i++)
                named += is_named(sizes[k], spreads_pct[s], noise_pct, 0, -1);
            const double most = 0.001 * fleets;
            is_good &= named <= most + 3 * sqrt(most) + 1;
            printf("%d,%g,%g,%d,%d,%g\n", sizes[k], spreads_pct[s], noise_pct, fleets, named,
                   fleets < 1000 ? NAN : smallest_loss(sizes[k], spreads_pct[s], noise_pct));
        }
    return is_good ? 0 : 1;
}
