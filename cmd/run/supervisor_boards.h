/* Several devices in one run, for the supervisor_boards*.c files alone.
 *
 *     supervisor_run_boards        owns record, table and exit code; waits for all
 *       | fork, pipe (JSON lines of cmd/run/outputs.h)
 *     supervisor_run_board         one process for each device: holds its lock, starts its workers
 *       | fork
 *     worker_run                   opens the device */
#ifndef FABENCH_SUPERVISOR_BOARDS_H
#define FABENCH_SUPERVISOR_BOARDS_H

#include "cmd/base/process.h"
#include "cmd/device/backend.h"
#include "cmd/record/board_past.h"
#include "cmd/run/outputs.h"
#include "cmd/run/resume.h"

/* A board is measured again where it looks slow. */
enum { BOARD_ROUNDS = 2 };

struct board_run {
    char name[16]; /* "cuda:1" */
    struct device_info device;
    struct options options; /* for this device alone */
    struct process process;
    bool is_running;
    char *text; /* the start of a line from its process that is not complete yet */
    size_t used, capacity;
    json_t *header; /* of its first round; NULL where there is none */
    struct record_row *rows[BOARD_ROUNDS];
    int counts[BOARD_ROUNDS];
    int exit_code;                        /* the worse of its processes' */
    struct board_past past[BOARD_ROUNDS]; /* with --board-baseline */
    unsigned slow, named; /* slower than these in the first round; and when measured again: bits of enum slower_than */
};
/* CASES_: a quarter of its cases alone. */
enum slower_than { SLOWER_THAN_OTHERS = 1, SLOWER_THAN_BEFORE = 2, CASES_THAN_OTHERS = 4, CASES_THAN_BEFORE = 8 };

struct boards {
    const struct options *options;
    char run_id[40];
    struct board_run *boards;
    int count, round;              /* round: 0, or 1 = measured again */
    struct run_outputs *outputs;   /* NULL until the first header */
    struct board_records *records; /* of --board-baseline; NULL = not given */
    struct resume resume;          /* the record that is continued; its header is NULL where there is none */
    int exit_code;
    double started_ms;
};

/* The figures of a round; `count` of them, the caller frees them. */
struct board_figures *boards_figures(const struct boards *, int round);

/* Marks boards that are slower in the round than the others by more than --max-board-spread, or than before, or have
 * several cases that are. True where there is one. */
bool boards_find_slow(struct boards *, int round);

/* True where a board with rows has nothing in --board-baseline to be compared with. */
bool boards_lack_records(const struct boards *);

/* The summary by board to the terminal, and its object {"type":"boards"} into the record. EXIT_OK, or EXIT_IO. */
int boards_report(const struct boards *);

#endif
