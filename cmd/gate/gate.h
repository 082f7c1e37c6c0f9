/* `fabench gate` compares a stored baseline with a stored record, or with a new measurement
 * (section 9 of docs/design.md).
 *
 * First the conditions of both are compared (fingerprint.c). Then each configuration is compared by its raw
 * time and by its time relative to the GEMM ceiling (decide_gate), and with the minima of --floors. One line for each
 * configuration is printed, the worst first. cudnn is the control: it is shown, not judged. */
#ifndef FABENCH_GATE_H
#define FABENCH_GATE_H

#include "cmd/options/options.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"

/* The command. Returns the exit code. */
int gate_run(const struct options *);

/* Measures the current record for `gate`: runs one fresh process of this program under the lock of the device. It gets
 * the options of the baseline's run; options of the command line replace them. */

/* baseline: NULL with floors alone. folder: where current.jsonl is kept; NULL = it is not kept. Returns EXIT_OK, with
 * *current filled (the caller frees it), or an exit code after a message on stderr. *ended is set, after a message, to
 * the exit code of the process where that is EXIT_CHECK_FAILED or EXIT_DEVICE and no row of its record explains it. */
int gate_measure(const struct options *, const struct record_file *baseline, const char *folder,
                 struct record_file *current, int *ended);

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

/* The command. Returns the exit code. */
int ab_run(const struct options *);

/* Whether two record files can be compared (fingerprint.c): device, policy and timing method must be the same, in the
 * headers and in every row. A file can hold several runs; they must be of one kind too. */

/* Does one file have one device, driver, method and policy, and each configuration once? Else false, and *why begins
 * with the path. */
bool fingerprint_is_uniform(const struct record_file *, struct attn_message *why);

/* Were both measured on the same kind of device under the same policy? Else false, and *why has the first difference
 * and both values. */
bool fingerprint_matches(const struct record_file *baseline, const struct record_file *current,
                         struct attn_message *why);

/* Absolute minima from a CSV file, for `gate --floors` (floors.c).
 *
 *     # comment
 *     mode,causal,head_dim,q_len,impl,min_tflops,min_pct_of_gemm
 *     fwd,0,128,16384,fused,300,40
 *     bwd,,128,,fused,,35
 *
 * The first line names columns of the records. Columns named with the prefix min_ hold minima; the others select rows.
 * An empty cell selects all rows, or sets no minimum. fused in the column impl selects all fused implementations. A
 * line that selects no row is an error: the configuration that it should guard was not measured. */

struct floors;

/* The caller frees it with floors_free. NULL on error, and *why begins with the path. */
struct floors *floors_read(const char *path, struct attn_message *why);
void floors_free(struct floors *);

/* Compares a row with the minima of all lines that select it. FLOORS_NO_MATCH: no line selects it. FLOORS_MISSED:
 * `missed` describes the first minimum that it does not reach. Marks the lines that select the row. */
enum floors_result { FLOORS_NO_MATCH, FLOORS_MET, FLOORS_MISSED };
enum floors_result floors_check(struct floors *, const struct record_row *, char *missed, size_t size);

/* False, with *why, when a line selected no row so far. */
bool floors_are_matched(const struct floors *, struct attn_message *why);

#endif
