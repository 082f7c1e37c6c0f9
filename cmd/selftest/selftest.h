/* `fabench selftest`: gives the judge results that are wrong in known ways. Each must be caught by a rule
 * meant for it, and the right result must pass. Then it times launches that do not compute (lies.h), which must be
 * found. */
#ifndef FABENCH_SELFTEST_H
#define FABENCH_SELFTEST_H

#include "cmd/options/options.h"

struct plan_item;

/* Runs all problems of the options on their device, prints to stdout, writes --jsonl. EXIT_OK; 7 when a fault or a
 * lie was not caught or the right result failed; 6 when something could not be run. Call it by supervisor_call. */
int selftest_run(const struct options *);

/* The command that tests one problem of the self-test again. The caller frees it. */
char *selftest_repro(const struct options *, const struct plan_item *, const char *impl);

#endif
