/* The current record of a gate that measures now: one fresh process of this program, with the options of the baseline's
 * own run, but for those of the command line, behind the device's lock. */
#ifndef FABENCH_GATE_MEASURE_H
#define FABENCH_GATE_MEASURE_H

#include "cmd/options/options.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"

/* baseline: NULL with floors alone. The record also goes to <folder>/current.jsonl where folder is not NULL. EXIT_OK,
 * or a code after a sentence. *ended is set, after a sentence, where the process ended with EXIT_CHECK_FAILED or
 * EXIT_DEVICE and no row of its record says why. */
int gate_measure(const struct options *, const struct record_file *baseline, const char *folder,
                 struct record_file *current, int *ended);

#endif
