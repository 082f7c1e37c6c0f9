/* --resume: goes on with a record file. Its whole rows are kept and not run again, a last line that was cut is dropped,
 * and what is missing of the plan is run and appended under the same run_id. Refused (exit 5) when the file is none, when
 * device, build, policy or options are others than the header's, and when its rows are not this run's, each once. The
 * file is locked from the moment it is read, so that two runs cannot both append. The CSV is made anew from the rows. */
#ifndef FABENCH_RESUME_H
#define FABENCH_RESUME_H

#include "cmd/options/options.h"
#include "cmd/plan/plan.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"

struct resume {
    struct record_file file;      /* header and whole rows */
    struct record_writer *writer; /* locked; nothing is changed before record_continue */
};

/* EXIT_OK, or a code after a sentence on stderr. The file is --jsonl's, else run.jsonl in the --out folder. */
int resume_open(struct resume *, const struct options *);
void resume_close(struct resume *);

/* Does the new run's header say the same as the file's in everything that rows depend on? */
bool resume_fits(const struct resume *, const json_t *header, struct attn_message *why);

/* The slots that have their row, for each item of the plan, and the slots of half-done items that ran well: those take
 * part in the rounds again, without a row, so that the missing ones have their rivals. False with a sentence when a row
 * is not part of the plan, or there twice. done, companions: plan->count masks, or NULL. */
bool resume_match(const struct resume *, const struct plan *, const char *const *slots, int slot_count, unsigned *done,
                  unsigned *companions, struct attn_message *why);

#endif
