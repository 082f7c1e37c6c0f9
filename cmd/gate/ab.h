/* `fabench ab OLD NEW`: two programs or two kernel libraries on this device now (DESIGN section 9).
 *
 *   1. each side once, checked in full: who runs what, and whether it is right
 *   2. pairs of fresh processes, OLD NEW, NEW OLD, ..., of what both run and get right, until every configuration is
 *      decided (cmd/gate/decide.h) or there are enough; a pair under thermal slowdown is repeated
 *   3. one line per configuration, worst first
 *
 * A process of either side is an ordinary sweep with --jsonl -: this program never touches the device itself. */
#ifndef FABENCH_AB_H
#define FABENCH_AB_H

#include "cmd/options/options.h"

int ab_run(const struct options *);

#endif
