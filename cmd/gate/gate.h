/* `fabench gate`: a stored baseline against a stored record, or against what is measured now (DESIGN section 9).
 *
 * Fingerprints first (cmd/gate/fingerprint.h); then case by case the raw time and the share of the GEMM ceiling
 * (decide_gate), absolute floors where there is a file of them, and a line for each case, worst first. cudnn is the
 * control: it is shown, not judged. */
#ifndef FABENCH_GATE_H
#define FABENCH_GATE_H

#include "cmd/options/options.h"

int gate_run(const struct options *);

#endif
