/* `fabench gate` compares stored records, one process each, with stored records or with new measurements
 * (section 9 of docs/design.md).
 *
 * First the conditions are compared (fingerprint.c). Then each configuration is compared by its raw time and by its
 * time relative to the GEMM ceiling, on the CPU relative to naive alone (gate_cases.h, decide_gate.h), and with the
 * minima of --floors. One line for each configuration is printed (gate_lines.h), the worst first. cudnn is shown, not
 * judged. */
#ifndef FABENCH_GATE_H
#define FABENCH_GATE_H

#include "cmd/options/options.h"

/* The command. Returns the exit code. */
int gate_run(const struct options *);

/* `fabench ab OLD NEW` compares two builds, programs or kernel libraries, on this device now
 * (section 9 of docs/design.md).
 *
 *   1. Each build runs once with the full check. This shows which configurations each build runs, and which it gets
 *      right.
 *   2. Pairs of fresh processes, in an order that is drawn at random for each block of two pairs, measure the
 *      configurations that both builds get right, until every configuration is decided (cmd/gate/decide.h) or the
 *      largest number of pairs is reached. A block under thermal slowdown is repeated.
 *   3. One line per configuration is printed, the worst first.
 *
 * Each process is an ordinary sweep with --jsonl -. This process itself never opens the device. */

/* The command. Returns the exit code. */
int ab_run(const struct options *);

#endif
