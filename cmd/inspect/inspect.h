/* What can be said without measuring: `info`, `list`, --dry-run; and --profile, which runs one launch. Each prints to
 * stdout and returns an exit code; run them through supervisor_call, but --profile, which profilers must see. */
#ifndef FABENCH_INSPECT_H
#define FABENCH_INSPECT_H

#include "cmd/options/options.h"

int inspect_info(const struct options *);
int inspect_list(const struct options *);
int inspect_dry_run(const struct options *);
int inspect_profile(const struct options *);

#endif
