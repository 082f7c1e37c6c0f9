/* What `selftest` found: a line for each problem, the matrix of faults and rules, the table of lies
 * about work, and the rows of --jsonl. */
#ifndef FABENCH_SELFTEST_REPORT_H
#define FABENCH_SELFTEST_REPORT_H

#include "cmd/base/junit.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"
#include "cmd/run/row.h"
#include "cmd/selftest/faults.h"

/* One result that was judged. */
struct selftest_verdict {
    const struct fault *fault; /* NULL = the right result */
    int tensor;                /* enum problem_tensor that the fault is in, -1 = no single one */
    double used[RULE_COUNT];   /* largest share of each rule's bound, in the fault's tensor; NaN = does not apply */
    double strength;           /* fault: the largest share among its named rules; right result: among all rules */
    enum judge_rule strongest; /* the rule with that share */
    bool is_good;              /* fault: caught by a named rule; right result: passes */
    struct record_tensor tensors[RECORD_TENSORS_MAX];
    int tensor_count;
};

/* Fills the verdict from tensors[i] and by_rule[i], the results of check_outputs and check_untouched. Pure. */
void selftest_decide(const struct fault *, int tensor, enum attn_mode, const struct record_tensor *tensors, int count,
                     double (*by_rule)[JUDGE_RULES], struct selftest_verdict *);

/* One problem of the self-test: the implementation, and the dtype of the computation where it is not the problem's. */
struct selftest_problem {
    const struct plan_item *item;
    const char *impl;
    enum attn_dtype computed;
    const char *repro;
};

struct selftest_report;

/* out: where the text goes, NULL = nowhere. verbose: a line for each fault, too. max_failures: results with the wrong
 * verdict that are printed; the rest are counted. writer: for rows, NULL = none; junit: for test cases, NULL = none;
 * the caller owns both. */
struct selftest_report *selftest_report_open(FILE *out, bool color, bool verbose, int64_t max_failures,
                                             struct record_writer *writer, struct junit *junit);
void selftest_report_heading(struct selftest_report *, const char *device_line, int problems);
/* Add the verdicts of one problem between begin and end. add: EXIT_OK, or EXIT_IO after a sentence. */
void selftest_report_begin(struct selftest_report *, const struct selftest_problem *);
int selftest_report_add(struct selftest_report *, const struct selftest_verdict *, const struct record_row *);
void selftest_report_end(struct selftest_report *);
/* Adds what was found about a lie, or about honest launches; at any time. EXIT_OK, or EXIT_IO after a sentence. */
int selftest_report_add_lie(struct selftest_report *, const struct lie_verdict *, const struct record_row *);
/* A problem that could not be run: a line with the reason. */
void selftest_report_absent(struct selftest_report *, const struct plan_item *, const char *impl, const char *reason);
/* The same for what the implementation lacks and nobody asked for, `what`: a direction, an attribute. The last lines
 * say so, and it is no failure. */
void selftest_report_left_out(struct selftest_report *, const struct plan_item *, const char *impl, const char *what,
                              const char *reason);
/* True when there were faults, every fault and every lie was caught, and every right result passed. */
bool selftest_report_is_good(const struct selftest_report *);
/* The matrix, the table of lies and the last line; frees. */
void selftest_report_close(struct selftest_report *, double elapsed_s, const char *jsonl_path, int exit_code);

#endif
