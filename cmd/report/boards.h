/* `fabench report --boards FILE|FOLDER...`: the boards of a fleet, from the records of its hosts. */
#ifndef FABENCH_REPORT_BOARDS_H
#define FABENCH_REPORT_BOARDS_H

#include "cmd/options/options.h"
#include "cmd/record/board_figures.h"

/* A board of a host. */
struct fleet_board {
    char host[128], pci[24]; /* pci: "cpu" on the CPU */
    char board[16], model[64];
    char *options; /* what its first record asked for, owned */
    struct board_case *cases;
    int count, room, records;
    struct board_health health; /* as its last header says */
    struct board_figures figures;
    double deviation; /* robust standard deviations from the median of its model; NaN = not known */
    bool is_slow;     /* below the limit, or some_slow */
    bool some_slow;   /* a quarter of its cases is, though all together are not */
    double cases_limit_pct;
    int cases_asked; /* most cases of a board of its model and options: fewer are incomplete */
};

struct fleet {
    struct fleet_board *boards; /* by host and address once they are read */
    int count, room, hosts;     /* hosts: that have a board */
    int records;
    struct name_list absent; /* hosts of --nodes without a record */
    struct name_list unread; /* records and folders that cannot be read */
    int last;                /* the board found last */
};

/* EXIT_OK, EXIT_NOT_COMPARABLE where a record could not be read (the page is written nevertheless), EXIT_IO. */
int boards_run(const struct options *);

/* ---- reading (boards_input.c) ---- */

/* Reads files, and those named *.jsonl in folders. EXIT_OK, or EXIT_NOT_COMPARABLE after sentences. */
int fleet_read(const struct options *, struct fleet *);
void fleet_free(struct fleet *);

/* ---- writing (boards_map.c) ---- */

/* The heat map: a line for each host, a cell for each of its boards. And a line for each board. False with errno. */
bool fleet_write_svg(const struct fleet *, const char *path);
bool fleet_write_csv(const struct fleet *, const char *path);

#endif
