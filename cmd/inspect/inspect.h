/* Commands that do not measure: `info`, `list`, --dry-run; and --profile, which runs one launch. Each prints to stdout
 * and returns an exit code. Run them by supervisor_call, except --profile: a profiler must see the launch in its own
 * process. */
#ifndef FABENCH_INSPECT_H
#define FABENCH_INSPECT_H

#include "cmd/options/options.h"
#include "cmd/plan/plan.h"

int inspect_info(const struct options *);
int inspect_list(const struct options *);
int inspect_dry_run(const struct options *);
int inspect_profile(const struct options *);

/* Seconds that a problem will take: warm-up, rounds up to their limit, and as much again for memory and checks; then
 * the sustained regions. */
double inspect_estimate_s(const struct plan *, const struct options *, int slot_count);

/* `fabench help reference`: docs/reference.md, made from the program's tables. */

/* Prints the page as Markdown to stdout. It depends on nothing but tables: every build prints the same. */
void reference_page_print(void);

#endif
