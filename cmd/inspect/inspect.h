/* Commands that do not measure: `info`, `list`, --dry-run; and --profile, which runs one launch. Each prints to stdout
 * and returns an exit code. Run them by supervisor_call, except --profile: a profiler must see the launch in its own
 * process. */
#ifndef FABENCH_INSPECT_H
#define FABENCH_INSPECT_H

#include "cmd/options/options.h"

int inspect_info(const struct options *);
int inspect_list(const struct options *);
int inspect_dry_run(const struct options *);
int inspect_profile(const struct options *);

#endif
