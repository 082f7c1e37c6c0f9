/* `fabench selftest`: hands the judge results that are wrong in ten known ways; every one must be caught by the rule
 * that is there for it, and the right result must pass. */
#ifndef FABENCH_SELFTEST_H
#define FABENCH_SELFTEST_H

#include "cmd/options/options.h"

struct plan_item;

/* Runs all problems of the options on their device, prints to stdout, writes --jsonl. EXIT_OK; 7 when a fault got
 * through or the right result failed; 6 when something could not be run. Call it through supervisor_call. */
int selftest_run(const struct options *);

/* The command that tries one problem of the self-test again. The caller frees it. */
char *selftest_repro(const struct options *, const struct plan_item *, const char *impl);

#endif
