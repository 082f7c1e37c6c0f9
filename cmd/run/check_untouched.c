/* What a launch must not change - guards, inputs, the reference - and the findings about it. */
#include "cmd/run/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/numbers.h"
#include "cmd/device/backend.h"
#include "cmd/device/inputs.h"

/* ---- the reference ---- */

/* A digest of its memory. The signs of its elements are changed by a secret seed first, so that no other values can be
 * chosen that have the same digest. */
static enum attn_status digest_reference(struct backend *be, const struct check_reference *reference, uint64_t *hash,
                                         struct attn_message *why)
{
    enum { ROW = 64 }; /* outputs begin on multiples of 256 bytes */
    const int64_t rows = (int64_t)(reference->bytes / (ROW * sizeof(float)));
    const struct digest_job job = {.tensor = {reference->memory, rows * ROW, rows * ROW, ROW},
                                   .element_bytes = sizeof(float),
                                   .batch = 1,
                                   .heads = 1,
                                   .len = rows,
                                   .head_dim = ROW,
                                   .signs = {.seeds = {reference->seed}}};
    struct digest digest;
    TRY(be->ops->digest(be, &job, 1, &digest, why));
    *hash = digest.hash;
    return ATTN_OK;
}

enum attn_status check_reference_keep(struct backend *be, struct check_reference *reference, struct attn_message *why)
{
    reference->seed = number_secret() | 1;
    return digest_reference(be, reference, &reference->hash, why);
}

enum attn_status check_reference_holds(struct backend *be, const struct check_reference *reference, bool *holds,
                                       struct attn_message *why)
{
    uint64_t hash = 0;
    *holds = true;
    if (reference->bytes == 0)
        return ATTN_OK;
    TRY(digest_reference(be, reference, &hash, why));
    *holds = hash == reference->hash;
    return ATTN_OK;
}

/* ---- guards and inputs ---- */

enum attn_status check_untouched(struct backend *be, const struct plan_item *item,
                                 const struct check_surroundings *around, struct record_tensor *tensors, int *count,
                                 struct attn_message *why)
{
    char sentence[256];
    uint64_t words = 0, hash = 0;
    for (int i = 0; i <= TENSOR_COUNT; i++) {
        const bool is_workspace = i == TENSOR_COUNT;
        const struct buffer *buffer = is_workspace ? around->workspace : &around->outputs->buffers[i];
        if (!is_workspace && !buffer->base)
            buffer = &around->inputs->buffers[i];
        const char *name = is_workspace ? "wksp" : problem_tensor_name((enum problem_tensor)i);
        if (!buffer->base)
            continue;
        TRY(buffer_guards_broken(be, buffer, &words, why));
        if (words == 0)
            continue;
        snprintf(sentence, sizeof sentence, "%s: wrote outside the buffer: %llu words of its guards changed", name,
                 (unsigned long long)words);
        check_add_finding(tensors, count, name, judge_rule_name(RULE_GUARD), sentence);
    }
    for (int i = 0; i < TENSOR_COUNT; i++) {
        if (!around->outputs->buffers[i].base)
            continue;
        const char *name = problem_tensor_name((enum problem_tensor)i);
        TRY(output_gaps_broken(be, item, around->outputs, (enum problem_tensor)i, &words, why));
        if (words == 0)
            continue;
        snprintf(sentence, sizeof sentence, "%s: wrote between the rows: %llu words there changed", name,
                 (unsigned long long)words);
        check_add_finding(tensors, count, name, judge_rule_name(RULE_GUARD), sentence);
    }
    for (int i = 0; i < ARRAY_COUNT; i++) {
        if (!around->inputs->arrays[i].base)
            continue;
        TRY(buffer_guards_broken(be, &around->inputs->arrays[i], &words, why));
        if (words)
            check_add_finding(tensors, count, "input", judge_rule_name(RULE_GUARD),
                              "input: wrote outside an array of lengths, pages or the block mask");
    }
    for (int i = 0; i < QUANTISED_COUNT; i++) {
        if (!around->inputs->scales[i].base)
            continue;
        TRY(buffer_guards_broken(be, &around->inputs->scales[i], &words, why));
        if (words)
            check_add_finding(tensors, count, "input", judge_rule_name(RULE_GUARD),
                              "input: wrote outside the scales of an 8-bit input");
    }
    bool arrays_hold = true;
    TRY(inputs_arrays_hold(be, item, around->inputs, &arrays_hold, why));
    TRY(inputs_hash(be, item, around->inputs, &hash, why));
    if (hash != around->inputs_hash || !arrays_hold)
        check_add_finding(tensors, count, "input", "input", "input: the launch changed one of its inputs");
    return ATTN_OK;
}

/* ---- findings ---- */

bool check_passed(const struct record_tensor *tensors, int count)
{
    for (int i = 0; i < count; i++)
        if (!(tensors[i].used <= 1))
            return false;
    return true;
}

void check_add_finding(struct record_tensor *tensors, int *count, const char *tensor, const char *rule,
                       const char *sentence)
{
    int at = 0;
    while (at < *count && strcmp(tensors[at].name, tensor))
        at++;
    if (at == *count) {
        if (*count == RECORD_TENSORS_MAX)
            at = RECORD_TENSORS_MAX - 1;
        else
            (*count)++;
        memset(&tensors[at], 0, sizeof tensors[at]);
        snprintf(tensors[at].name, sizeof tensors[at].name, "%s", tensor);
        tensors[at].max_abs_err = tensors[at].rel_rms_err = tensors[at].rel_rms_bound = NAN;
        tensors[at].block_rms_err = tensors[at].gain_err = tensors[at].err_ratio = NAN;
    }
    tensors[at].used = 999;
    snprintf(tensors[at].rule, sizeof tensors[at].rule, "%s", rule);
    snprintf(tensors[at].failure, sizeof tensors[at].failure, "%s", sentence);
}
