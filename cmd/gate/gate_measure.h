/* Measures the current record for `gate`: runs one fresh process of this program under the lock of the device. It gets
 * the options of the baseline's run; options of the command line replace them. */
#ifndef FABENCH_GATE_MEASURE_H
#define FABENCH_GATE_MEASURE_H

#include "cmd/options/options.h"
#include "cmd/record/record_file.h"

/* baseline: NULL with floors alone. folder: where the record is kept, as current.jsonl, current-2.jsonl, ... by its
 * number, from 1; NULL = it is not kept. Returns EXIT_OK, with
 * *current filled (the caller frees it), or an exit code after a message on stderr. *ended is set, after a message, to
 * the exit code of the process where that is EXIT_CHECK_FAILED or EXIT_DEVICE and no row of its record explains it. */
int gate_measure(const struct options *, const struct record_file *baseline, const char *folder, int number,
                 struct record_file *current, int *ended);

#endif
