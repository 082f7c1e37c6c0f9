/* Running the reference for a problem and judging outputs against it. */
#ifndef FABENCH_CHECK_H
#define FABENCH_CHECK_H

#include "cmd/judge/judge.h"
#include "cmd/run/check_views.h"

struct check_reference {
    struct check_view views[CHECK_MAX_VIEWS];
    int count;            /* 0 with --check off */
    void *memory;         /* one allocation behind all outputs of all views, */
    size_t bytes;         /* a multiple of 256; */
    uint64_t seed, hash;  /* its digest, as it was computed */
    double quant_rms_err; /* what quantising costs, see the column of this name; NaN where nothing was quantised */
    double max_abs_err[TENSOR_COUNT]; /* naive's errors, for rule 5; NaN until it ran and passed */
};

/* Computes the reference of every view; for backward first the whole forward, whose O (rounded to the dtype) and LSE
 * become the inputs' o and lse. */
enum attn_status check_reference_make(struct backend *, const struct plan_item *, enum check_scope,
                                      struct tensor_set *inputs, struct check_reference *, struct attn_message *why);
/* The first step of it alone, for inputs that were filled again; nothing for forward. */
enum attn_status check_forward_inputs(struct backend *, const struct plan_item *, struct tensor_set *inputs,
                                      struct attn_message *why);
/* Computes it again where it was changed, from the same inputs; what was measured of it stays. */
enum attn_status check_reference_renew(struct backend *, const struct plan_item *, const struct tensor_set *inputs,
                                       struct check_reference *, struct attn_message *why);
void check_reference_free(struct backend *, struct check_reference *);
/* Keeps its digest, and says whether its memory still has it: an implementation may have written there
 * (check_untouched.c). */
enum attn_status check_reference_keep(struct backend *, struct check_reference *, struct attn_message *why);
enum attn_status check_reference_holds(struct backend *, const struct check_reference *, bool *holds,
                                       struct attn_message *why);

struct check_request {
    const struct plan_item *item;
    const struct check_reference *reference;
    const struct tensor_set *outputs;
    bool is_naive;                  /* bounds doubled */
    bool is_repeat;                 /* of a launch after the first: rules 1 to 3 alone */
    double atol, rtol;              /* tolerances of the user, NaN = not given */
    double (*by_rule)[JUDGE_RULES]; /* of each tensor: shares of the bounds as in judge_input; may be NULL */
};

/* Judges every output tensor; fills tensors[] (up to RECORD_TENSORS_MAX) and *count. tensors[].used holds the
 * verdict. */
enum attn_status check_outputs(struct backend *, const struct check_request *, struct record_tensor *tensors,
                               int *count, struct attn_message *why);

/* A block of COMPARE_BLOCK_ROWS rows of one head; batch and head within the view. */
struct check_rows {
    int64_t batch, head, block;
};

/* Judges one block of rows of an output by rules 1, 2 and 3. */
enum attn_status check_block_of_rows(struct backend *, const struct check_request *, const struct check_view *,
                                     enum problem_tensor, const struct check_rows *, struct record_tensor *verdict,
                                     struct attn_message *why);

/* The bounds for results on values that only this launch sees are wider: on few random inputs a right implementation
 * exceeds the ordinary ones, while a result that was not computed is wrong by far more. */
#define NEW_VALUES_FACTOR 8

/* Where a result on new values is judged: the rows from `row` on of one query head of a forward; of a backward, whose
 * dK and dV are sums over all rows, a whole kv head. */
struct check_place {
    int64_t batch, head, row;
};

/* Computes the reference at this place from the inputs as they are now, whose signs the outputs have, and judges the
 * outputs there by rules 1, 2 and 3. *count is 0 where nothing is to be judged. */
enum attn_status check_new_values(struct backend *, const struct check_request *, const struct tensor_set *inputs,
                                  const struct check_place *, struct record_tensor *tensors, int *count,
                                  struct attn_message *why);

/* The smallest rms of a judged reference (LSE apart): an absolute tolerance near it makes the check meaningless. */
double check_smallest_rms(const struct check_reference *, enum attn_mode);

/* True when every tensor is within its bounds. */
bool check_passed(const struct record_tensor *, int count);

/* What a launch must not change: the guards of every buffer, and the inputs (check_untouched.c). */
struct check_surroundings {
    const struct tensor_set *inputs, *outputs;
    const struct buffer *workspace;
    uint64_t inputs_hash; /* before the launch */
};

/* Adds a finding ("guard" or "input") for each that changed. */
enum attn_status check_untouched(struct backend *, const struct plan_item *, const struct check_surroundings *,
                                 struct record_tensor *tensors, int *count, struct attn_message *why);

/* A tensor entry for a failure other than a comparison: a broken guard, a changed input, bits that differ between
 * runs. */
void check_add_finding(struct record_tensor *tensors, int *count, const char *tensor, const char *rule,
                       const char *sentence);

#endif
