/* `fabench ab OLD NEW` compares two builds, programs or kernel libraries, on this device now
 * (section 9 of docs/design.md).
 *
 *   1. Each build runs once with the full check. This shows which configurations each build runs, and which it gets
 *      right.
 *   2. Pairs of fresh processes, in the order OLD NEW, NEW OLD, ..., measure the configurations that both builds get
 *      right, until every configuration is decided (cmd/gate/decide.h) or the largest number of pairs is reached. A
 *      pair under thermal slowdown is repeated.
 *   3. One line per configuration is printed, the worst first.
 *
 * Each process is an ordinary sweep with --jsonl -. This process itself never opens the device. */
#ifndef FABENCH_AB_H
#define FABENCH_AB_H

#include "cmd/options/options.h"

/* The command. Returns the exit code. */
int ab_run(const struct options *);

#endif
