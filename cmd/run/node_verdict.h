/* What a run says about its node, for those who operate it: a line for each board that should be drained, and one JSON
 * object in the file of --verdict. It is gathered while a run goes on, of which a process has one. */
#ifndef FABENCH_NODE_VERDICT_H
#define FABENCH_NODE_VERDICT_H

#include <jansson.h>

#include "cmd/options/options.h"
#include "cmd/record/record_row.h"

/* Why a board should be drained. Texts of at most 159 bytes. */
struct node_finding {
    const char *pci; /* "" on the CPU */
    const char *measured, *expected, *limit, *cause;
};
void node_verdict_add(const struct node_finding *);

/* The first row of each board that failed its check, as findings. */
void node_verdict_add_rows(const struct record_row *rows, int count);

/* The boards of the run; takes the reference. */
void node_verdict_boards(json_t *list);

/* With --exit-style nagios or slurm, where the code is critical, a line for each finding:
 *
 *     fabench-drain: host=.. pci=.. measured=".." expected=".." limit=".." cause=".."
 *
 * and with nagios its line "FABENCH <state>: ..". Both go to stdout, or to stderr where stdout has a record. Writes
 * --verdict. Returns the worse of the code and EXIT_IO, and forgets all. */
int node_verdict_end(const struct options *, int exit_code);

#endif
