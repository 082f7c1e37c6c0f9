/* --resume: continues a record file. Its complete rows are kept and not run again, a cut last line is removed, and the
 * missing cases of the plan are run and appended with the same run_id. A row whose process was killed from outside
 * (status error, worker_signal KILL, TERM or HUP) says nothing about its case, which is run again. Rows of every other
 * status are kept: a crash, a hang or lack of memory would only happen again. A file that is empty, or holds nothing
 * but the cut line of a header, is begun anew. Refused (exit 5) when the file is no record,
 * when device, build, policy or options differ from the header's, and when a row is not of this run or occurs twice.
 * The file is locked from the moment it is read, so that two runs cannot both append. The CSV is written again from the
 * rows. */
#ifndef FABENCH_RESUME_H
#define FABENCH_RESUME_H

#include "cmd/options/options.h"
#include "cmd/plan/plan.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"

struct resume {
    struct record_file file;       /* header and whole rows */
    struct record_writer *writer;  /* locked; nothing is changed before record_continue */
    struct record_old_rows killed; /* rows that are run again; they are not in `file` */
};

/* EXIT_OK, or a code after a sentence on stderr. The file is --jsonl's, else run.jsonl in the --out folder.
 * file.header is NULL where there is nothing to continue. */
int resume_open(struct resume *, const struct options *);
void resume_close(struct resume *);

/* The header of the board with this address in a record of several; NULL where there is none. */
json_t *resume_header_of(const struct resume *, const char *pci);

/* What the record says of this board alone: its header and rows, without a writer, for the process of the board. False
 * where it says nothing. Takes the rows from `all`, which is that process' own. */
bool resume_take_board(struct resume *all, const char *pci, struct resume *one);

/* True when the new run's header equals the file's in everything that rows depend on; else false with a sentence. */
bool resume_fits(const struct resume *, const json_t *header, struct attn_message *why);

/* done: for each item of the plan the slots that have their row. rerun: in items that are not complete, the slots whose
 * row is ok; they are timed again, without a new row, so that the missing ones can be compared with them. Each has
 * plan->count masks, or is NULL. False with a sentence when a row is not part of the plan, or occurs twice. */
bool resume_match(const struct resume *, const struct plan *, const char *const *slots, int slot_count, unsigned *done,
                  unsigned *rerun, struct attn_message *why);

#endif
