/* What the records say about a label besides its figures: the device, how it was measured, and remarks. */
#ifndef FABENCH_REPORT_FACTS_H
#define FABENCH_REPORT_FACTS_H

#include "cmd/report/report_data.h"

/* One line of the conditions: its name, and whether labels that are compared should agree in it. */
struct report_fact {
    const char *name;
    bool should_agree;
};
extern const struct report_fact report_facts[];
extern const int report_fact_count;

/* Texts are the caller's to free. */

/* The fact as the label's records have it, the values of several files with "; " between them; "" = they do not say. */
char *report_fact_text(const struct report *, int label, int fact);

/* Remarks for the label's heading: "portable path: fused_sm80 on sm_90", "without the peer cudnn", "2 of 60 rows
 * FAILED their check"; "" = nothing. */
char *report_remarks(const struct report *, int label);

/* Do several files of a label come from one board (1), from as many boards as files (file_count), or do the records not
 * say (0)? By the boards' UUIDs. */
int report_boards(const struct report *, int label);

/* "fwd: fits at every measured length, up to 16k; bwd: not at 32k (8k is the longest that ran)"; "" = naive was not
 * measured. */
char *report_naive_text(const struct report *, int label);

#endif
