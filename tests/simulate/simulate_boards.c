/* Who names a slow board, against made-up fleets, through the code that decides (cmd/record/board_figures.h, and
 * board_past.h):
 *
 *     simulate_boards FLEETS [SPREAD.csv [RULE]]
 *
 * Speeds of healthy boards differ as a normal distribution with the given spread. A run of a board has the cases of
 * SPREAD.csv (tests/unit/data/spread.csv: fresh processes on an H200), each with the standard deviation of its time
 * from run to run recorded there: each case by itself, or all cases of a run together (by the same normal deviate), of
 * which what boards do is between. The rules:
 *
 *     fleet   report --boards: one run of each of `boards` boards. `asked`: FLEETS fleets
 *     record  --board-baseline, the board's own `runs` earlier runs, and those of the 7 other boards of its host.
 *             `asked`: boards; a fleet of 100 healthy boards has one named in fewer than 1 of 1,000 where fewer than 1
 *             of 100,000 boards are
 *     model   --board-baseline, a board without records beside one run each of `boards` others
 *
 * For each: how many of those asked had a healthy board named, and the smallest loss of one board that is found in
 * more than 95 % (from 500 fleets on), of all its cases and of a quarter of them alone, beside the loss that the
 * program says it finds. Exit code 1 where healthy boards are named more often, and chance. Prints CSV. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/record/board_past.h"
#include "cmd/record/record.h"
#include "tests/simulate/random.h"

enum { BOARDS_MOST = 100, CASES_MOST = 32, HOST = 8, LOSSES_TRIED = 400 };

static double noise_pct[CASES_MOST];
static int case_count;

/* The third column, but of comments and the line of names. */
static bool read_noise(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[300];
    while (file && fgets(line, sizeof line, file) && case_count < CASES_MOST) {
        char *after = strchr(line, ','), *end;
        after = *line == '#' || !after ? NULL : strchr(after + 1, ',');
        const double value = after ? strtod(after + 1, &end) : 0;
        if (value > 0)
            noise_pct[case_count++] = value;
    }
    if (file)
        fclose(file);
    return case_count > 0;
}

/* A run of a board whose times are `board` times those of the others; of a quarter of its cases `quarter` times. */
static void run(struct board_case *cases, double board, double quarter, bool together)
{
    const double common = normal();
    memset(cases, 0, CASES_MOST * sizeof *cases);
    for (int n = 0; n < case_count; n++) {
        cases[n].key.q_len = n;
        cases[n].time_ms =
            board * (n % 4 == 0 ? quarter : 1) * (1 + noise_pct[n] * (together ? common : normal()) / 100);
    }
}

struct model {
    int boards, runs;
    double spread_pct;
    bool together;
};

/* Of all cases of a board, and of a quarter of them. */
struct loss {
    double all_pct, quarter_pct;
};

/* ---- report --boards ---- */

/* Board 0 is slower. True where a board is named: `wanted` alone, or -1 = any. */
static bool fleet_names(const struct model *m, struct loss loss, int wanted)
{
    static struct board_case cases[BOARDS_MOST][CASES_MOST];
    struct board_cases all[BOARDS_MOST] = {{0}};
    struct board_figures figures[BOARDS_MOST];
    double distances[BOARDS_MOST], deviations[BOARDS_MOST], cases_pct[BOARDS_MOST];
    for (int b = 0; b < m->boards; b++) {
        run(cases[b], 1 + (m->spread_pct * normal() + (b == 0 ? loss.all_pct : 0)) / 100,
            1 + (b == 0 ? loss.quarter_pct : 0) / 100, m->together);
        all[b] = (struct board_cases){"GPU", cases[b], case_count};
    }
    board_figures_of(all, m->boards, figures);
    for (int b = 0; b < m->boards; b++) {
        distances[b] = figures[b].distance_pct;
        cases_pct[b] = figures[b].cases_pct;
    }
    const double cases_limit_pct = board_cases_limit(cases_pct, m->boards);
    const int known = board_deviations(distances, m->boards, deviations);
    for (int b = 0; b < m->boards; b++)
        if ((wanted < 0 || b == wanted) &&
            (board_is_slow(distances[b], deviations[b], known) || figures[b].quarter_pct < -cases_limit_pct))
            return true;
    return false;
}

/* ---- --board-baseline ---- */

static json_t *header_of(const char *run_id)
{
    return record_must(json_pack("{s:s, s:s, s:{s:s}}", "type", "header", "run_id", run_id, "device", "name", "GPU"));
}

/* Whether a board is named: slow in two runs, in the same way. */
static bool is_named(const struct board_records *records, json_t *header, double board, double quarter, bool together,
                     double *said_pct)
{
    struct board_past past = {0};
    bool all = true, cases_alone = true;
    for (int round = 0; round < 2; round++) {
        struct board_case cases[CASES_MOST];
        run(cases, board, quarter, together);
        board_past_of(records, header, &(struct board_cases){"", cases, case_count}, board_least_loss_pct, &past);
        *said_pct = past.least_loss_pct;
        all &= past.of != PAST_NONE && past.distance_pct < -past.limit_pct;
        cases_alone &= past.of != PAST_NONE && past.quarter_pct < -past.cases_limit_pct;
        if (!all && !cases_alone)
            return false;
    }
    return true;
}

/* Records, and then a host of HOST boards: those that were recorded, or new ones. Returns how many of them are named;
 * said_pct: the median of the loss that they say they find. */
static int host_names(const struct model *m, bool is_new, struct loss loss, double *said_pct)
{
    struct board_records *records = board_records_new();
    double boards[BOARDS_MOST], said[HOST];
    char pci[24];
    int named = 0;
    for (int b = 0; b < m->boards; b++) {
        boards[b] = 1 + m->spread_pct * normal() / 100;
        snprintf(pci, sizeof pci, "%d", b);
        for (int r = 0; r < m->runs; r++) {
            struct board_case cases[CASES_MOST];
            json_t *header = header_of("then");
            json_object_set_new(json_object_get(header, "device"), "pci_bus_id", json_string(pci));
            run(cases, boards[b], 1, m->together);
            board_records_add(records, header, cases, case_count);
            json_decref(header);
        }
    }
    for (int b = 0; b < HOST; b++) {
        json_t *header = header_of("now");
        snprintf(pci, sizeof pci, is_new ? "new %d" : "%d", b);
        json_object_set_new(json_object_get(header, "device"), "pci_bus_id", json_string(pci));
        const double board = is_new ? 1 + m->spread_pct * normal() / 100 : boards[b];
        named += is_named(records, header, board * (1 + loss.all_pct / 100), 1 + loss.quarter_pct / 100, m->together,
                          &said[b]);
        json_decref(header);
    }
    board_records_free(records);
    *said_pct = said[0];
    return named;
}

/* ---- the table ---- */

enum rule { FLEET, RECORD, MODEL };
static const char *const rule_names[] = {"fleet", "record", "model"};

/* Named of 400 slow boards. */
static int found(enum rule rule, const struct model *m, struct loss loss)
{
    double said_pct;
    int count = 0;
    if (rule == FLEET)
        for (int i = 0; i < LOSSES_TRIED; i++)
            count += fleet_names(m, loss, 0);
    else
        for (int i = 0; i < LOSSES_TRIED / HOST; i++)
            count += host_names(m, rule == MODEL, loss, &said_pct);
    return count;
}

static struct loss loss_of(double loss_pct, bool of_quarter)
{
    return (struct loss){of_quarter ? 0 : loss_pct, of_quarter ? loss_pct : 0};
}

/* To 0.25 %, by halving; NaN beyond 64 %. */
static double smallest_loss(enum rule rule, const struct model *m, bool of_quarter)
{
    double low = 0, high = 64;
    if (found(rule, m, loss_of(high, of_quarter)) <= 0.95 * LOSSES_TRIED)
        return NAN;
    while (high - low > 0.25) {
        const double middle = (low + high) / 2;
        if (found(rule, m, loss_of(middle, of_quarter)) > 0.95 * LOSSES_TRIED)
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* One line. False where healthy boards are named too often. */
static bool try_rule(enum rule rule, const struct model *m, int fleets)
{
    /* Fleets, or boards: as many of them as fleets of 100 have, where that is not too much work. */
    const int hosts = rule == RECORD ? fleets * BOARDS_MOST / HOST : fleets / 4;
    const int asked = rule == FLEET ? fleets : hosts * HOST;
    const double most = (rule == FLEET ? 1e-3 : 1e-5) * asked;
    double said_pct = NAN;
    int named = 0;
    for (int i = 0; i < (rule == FLEET ? fleets : hosts); i++)
        named += rule == FLEET ? fleet_names(m, (struct loss){0}, -1)
                               : host_names(m, rule == MODEL, (struct loss){0}, &said_pct);
    printf("%s,%d,%d,%g,%s,%d,%d,%g,%g,%.2f\n", rule_names[rule], m->boards, m->runs, m->spread_pct,
           m->together ? "together" : "each", asked, named, fleets < 500 ? NAN : smallest_loss(rule, m, false),
           fleets < 500 ? NAN : smallest_loss(rule, m, true), said_pct);
    fflush(stdout);
    return named <= most + 3 * sqrt(most) + 1;
}

int main(int argc, char **argv)
{
    static const double spreads_pct[] = {0.25, 0.5, 1, 2};
    static const int sizes[] = {8, 16, 100}, runs[] = {1, 2, 3, 5};
    const int fleets = argc > 1 ? atoi(argv[1]) : 0;
    bool is_good = fleets > 0 && read_noise(argc > 2 ? argv[2] : "tests/unit/data/spread.csv");
    printf("rule,boards,runs,spread_pct,cases,asked,named_healthy,smallest_loss_found_pct,smallest_loss_of_quarter_pct,"
           "said_pct\n");
    for (int i = 0; i < 6 && is_good; i++) {
        const enum rule rule = (enum rule)(i / 2);
        const bool together = i % 2 == 1;
        if (argc > 3 && strcmp(argv[3], rule_names[rule]) != 0)
            continue;
        for (int k = 0; k < 4 && rule == RECORD; k++)
            is_good &= try_rule(rule, &(struct model){HOST, runs[k], 1, together}, fleets);
        for (int k = 0; k < 12 && rule != RECORD; k++)
            if (rule == FLEET || sizes[k / 4] >= PAST_FEWEST)
                is_good &= try_rule(rule, &(struct model){sizes[k / 4], 1, spreads_pct[k % 4], together}, fleets);
    }
    return is_good ? 0 : 1;
}
