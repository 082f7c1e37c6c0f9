/* `fabench gate` compares a stored baseline with a stored record, or with a new measurement
 * (section 9 of docs/design.md).
 *
 * First the conditions of both are compared (cmd/gate/fingerprint.h). Then each configuration is compared by its raw
 * time and by its time relative to the GEMM ceiling (decide_gate), and with the minima of --floors. One line for each
 * configuration is printed, the worst first. cudnn is the control: it is shown, not judged. */
#ifndef FABENCH_GATE_H
#define FABENCH_GATE_H

#include "cmd/options/options.h"

/* The command. Returns the exit code. */
int gate_run(const struct options *);

#endif
