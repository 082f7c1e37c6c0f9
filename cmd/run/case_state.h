/* What the steps of a problem share: the problem, its implementations, and how they tell of their progress. Used by
 * case_run.c, case_check.c and case_time.c alone. */
#ifndef FABENCH_CASE_STATE_H
#define FABENCH_CASE_STATE_H

#include "cmd/device/inputs.h"
#include "cmd/run/case_setting.h"
#include "cmd/run/work.h"
#include "cmd/measure/sustain.h"

/* One implementation on the current problem. */
struct contender {
    int slot;
    const struct attn_impl *impl;
    struct attn_request request;
    struct tensor_set outputs;
    struct buffer workspace;
    struct launcher launcher;
    int64_t fills;                     /* of its workspace */
    bool prepared, runs;               /* runs: launched once without failing, goes into the rounds */
    struct digest first[TENSOR_COUNT]; /* of the first launch, by enum problem_tensor */
    struct work_member work;
    struct record_tensor tensors[RECORD_TENSORS_MAX];
    int tensor_count;
    struct sustain_result sustained;
    struct record_row row;
};

/* The current problem: its inputs, its reference and the implementations that run it. */
struct problem_run {
    const struct case_setting *setting;
    const struct plan_item *item;
    unsigned rerun; /* slots that have their row already and are timed again only for comparison */
    struct tensor_set inputs;
    struct quantising quantising; /* for --quant-in-time */
    uint64_t inputs_hash;
    struct check_reference reference;
    struct contender contenders[IMPL_MAX_SLOTS];
    int count;
    const int *member_slots;
    struct contender *const *member_contenders; /* NULL: a member without outputs to compare */
    struct work work;
    int current_slot; /* of the sustained region, or of the launches on new values */
};

enum attn_role case_role_of(const struct problem_run *, const struct contender *);
/* Came from a library of --impl-lib. */
bool case_is_loaded(const struct problem_run *, const struct contender *);

/* Tells the supervisor of the step that begins; slot -1: of the harness. */
void case_report_stage(const struct problem_run *, enum case_stage, int slot);
/* After every function of an implementation, before anything of this program runs. */
void case_after_call(const struct problem_run *);
/* Hands over the row, unless the slot is run again only for comparison; it takes part in nothing after that. */
void case_send_row(const struct problem_run *, struct contender *);

/* Checks of one implementation's outputs and of what surrounds them (case_check.c): guards, inputs, repeated
 * launches. */

struct check_request case_check_request(const struct problem_run *, const struct contender *);
/* The tensors whose bits the implementation promises to repeat. */
unsigned case_promised_tensors(const struct problem_run *, const struct contender *);

/* Fills what a launch of it must not read before it writes: the outputs with NaN, the workspace with NaN before the
 * first launch and with random bits before later ones. */
enum attn_status case_poison(struct problem_run *, struct contender *, struct attn_message *why);
/* Judges the outputs and adds the verdict to those of earlier launches. */
enum attn_status case_judge_outputs(struct problem_run *, struct contender *, struct attn_message *why);
/* Watches the samples of a contender: its launcher gets the probe of its work. */
void case_watch(struct problem_run *, struct contender *);
/* Outputs of sample number n on known values: the tensors whose bits are promised have those of the first launch. */
enum attn_status case_compare_promised(struct problem_run *, struct contender *, int n, struct attn_message *why);
/* The first launch, into poisoned outputs, and its verdict. */
enum attn_status case_launch_first(struct problem_run *, struct contender *, struct attn_message *why);
/* The check columns of the row, with the relative tolerance that was applied. */
void case_check_row(const struct problem_run *, struct contender *);

/* The timed part (case_time.c): rounds, sustained regions, their checks, and the rows. */

/* Measures every implementation that runs and sends its row. On failure *failed is its slot, -1 = of none of them. */
enum attn_status case_time(struct problem_run *, int *failed, struct attn_message *why);

/* --counters (case_counters.c): counts launches of every implementation that runs into its row, and adds the finding of
 * the rule "executed" to its tensors. Without the option, or where nothing can be counted, nothing. */
enum attn_status case_count(struct problem_run *, int *failed, struct attn_message *why);

#endif
