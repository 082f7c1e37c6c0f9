/* Facts about a label besides its figures: the device, the conditions of the measurement, and notes on its rows. */
#ifndef FABENCH_REPORT_FACTS_H
#define FABENCH_REPORT_FACTS_H

#include "cmd/report/report_data.h"

/* One row of the table of conditions. should_agree: labels that are compared should have the same value. */
struct report_fact {
    const char *name;
    bool should_agree;
};
extern const struct report_fact report_facts[];
extern const int report_fact_count;

/* Of the functions below: `label` is an index into report.input->labels, and the caller frees the text. */

/* The value of report_facts[fact] in the records of the label; different values of several files are joined by "; ".
 * "" = not recorded. */
char *report_fact_text(const struct report *, int label, int fact);

/* Single ones of these: the version and commit of fabench, the power limit, the size of the memory. */
char *report_commit_text(const struct report *, int label);
char *report_power_limit_text(const struct report *, int label);
char *report_memory_text(const struct report *, int label);

/* Is it the fact of report_commit_text, which the page says under its heading? */
bool report_fact_is_commit(int fact);

/* Notes for the heading of the label: "portable path: fused_sm80 on sm_90", "without the peer cudnn", "2 of 60 rows
 * FAILED their check"; "" = none. */
char *report_notes(const struct report *, int label);

/* How many boards the files of a label come from, by the UUIDs of the boards: 1, or file_count (each from another); 0 =
 * the records do not have the UUIDs, or neither holds. */
int report_boards(const struct report *, int label);

/* The number of boards that all files of the report come from; 0 = some do not say. */
int report_all_boards(const struct report *);

/* The lengths at which naive fits into memory: "fwd: fits at every measured length, up to 16k; bwd: no longer fits at
 * 32k, longest that ran: 8k"; "" = naive was not measured. */
char *report_naive_text(const struct report *, int label);

#endif
