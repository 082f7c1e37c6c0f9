/* The faults of `fabench selftest` (section 6 of docs/design.md; docs/judging.md lists them). */
#include "cmd/selftest/faults.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/selftest/faults_arrays.h"

/* Rows [first, first + count) of every head; in reverse order where `reversed`. */
struct rows {
    int64_t first, count;
    bool reversed;
};

static int64_t row_at(const struct rows *rows, int64_t i)
{
    return rows->first + (rows->reversed ? rows->count - 1 - i : i);
}

/* Copies the rows of whole [heads, len, dim] to part [heads, rows->count, dim]. */
static void take(float *part, const float *whole, int64_t heads, int64_t len, int64_t dim, const struct rows *rows)
{
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < rows->count; i++)
            memcpy(part + (h * rows->count + i) * dim, whole + (h * len + row_at(rows, i)) * dim,
                   (size_t)dim * sizeof *part);
}

/* The opposite direction: adds part to the rows of whole. */
static void give(const float *part, float *whole, int64_t heads, int64_t len, int64_t dim, const struct rows *rows)
{
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < rows->count; i++)
            for (int64_t c = 0; c < dim; c++)
                whole[(h * len + row_at(rows, i)) * dim + c] += part[(h * rows->count + i) * dim + c];
}

static void clear_outputs(const struct fault_job *job, struct host_tensors *wrong)
{
    int count;
    const enum problem_tensor *outputs = problem_outputs(job->problem, job->mode, &count);
    for (int i = 0; i < count; i++)
        memset(wrong->at[outputs[i]], 0, (size_t)host_tensors_elements(job->problem, outputs[i]) * sizeof(float));
}

/* Attention of some query rows over some keys, added to the outputs. Backward gets the correct O and LSE, as a kernel
 * with a fault in its backward pass would. */
static enum attn_status add_part(const struct fault_job *job, struct attn_problem part, struct rows q, struct rows kv,
                                 struct host_tensors *wrong, struct attn_message *why)
{
    static const enum problem_tensor of_q[] = {TENSOR_Q, TENSOR_O, TENSOR_DO}, of_kv[] = {TENSOR_K, TENSOR_V};
    const struct attn_problem *p = job->problem;
    const int64_t q_heads = p->batch * p->q_heads, kv_heads = p->batch * p->kv_heads, dim = p->head_dim,
                  v_dim = attn_v_head_dim(p);
    part.q_len = q.count;
    part.kv_len = kv.count;
    struct host_tensors t = host_tensors_make(&part, job->mode);
    for (int i = 0; i < (job->mode == ATTN_FWD ? 1 : 3); i++)
        take(t.at[of_q[i]], job->correct->at[of_q[i]], q_heads, p->q_len, i == 0 ? dim : v_dim, &q);
    for (int i = 0; i < 2; i++)
        take(t.at[of_kv[i]], job->correct->at[of_kv[i]], kv_heads, p->kv_len, i == 0 ? dim : v_dim, &kv);
    if (job->mode == ATTN_BWD)
        take(t.at[TENSOR_LSE], job->correct->at[TENSOR_LSE], q_heads, p->q_len, 1, &q);
    const enum attn_status status = job->attend(job->context, &part, job->mode, &t, why);
    if (status == ATTN_OK && job->mode == ATTN_FWD) {
        give(t.at[TENSOR_O], wrong->at[TENSOR_O], q_heads, p->q_len, v_dim, &q);
        give(t.at[TENSOR_LSE], wrong->at[TENSOR_LSE], q_heads, p->q_len, 1, &q);
    } else if (status == ATTN_OK) {
        give(t.at[TENSOR_DQ], wrong->at[TENSOR_DQ], q_heads, p->q_len, dim, &q);
        give(t.at[TENSOR_DK], wrong->at[TENSOR_DK], kv_heads, p->kv_len, dim, &kv);
        give(t.at[TENSOR_DV], wrong->at[TENSOR_DV], kv_heads, p->kv_len, v_dim, &kv);
    }
    host_tensors_free(&t);
    return status;
}

static struct rows first_rows(int64_t count) { return (struct rows){.count = count}; }

/* Row i sees only the keys after i. In reverse order (i', j') this is a causal problem: without key 0, which no row
 * sees, row i' sees j' < i'. */
static enum attn_status inverted_mask(const struct fault_job *job, enum problem_tensor tensor,
                                      struct host_tensors *wrong, struct attn_message *why)
{
    (void)tensor;
    const int64_t n = job->problem->q_len;
    clear_outputs(job, wrong);
    return add_part(job, *job->problem, (struct rows){0, n, true}, (struct rows){1, n - 1, true}, wrong, why);
}

/* Row i sees j < i instead of j <= i: without the last key the bottom-right diagonal moves down by one. */
static enum attn_status diagonal(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                 struct attn_message *why)
{
    (void)tensor;
    const int64_t n = job->problem->q_len;
    clear_outputs(job, wrong);
    return add_part(job, *job->problem, first_rows(n), first_rows(n - 1), wrong, why);
}

/* The whole problem, changed. */
static enum attn_status all_of(const struct fault_job *job, const struct attn_problem *changed,
                               struct host_tensors *wrong, struct attn_message *why)
{
    clear_outputs(job, wrong);
    return add_part(job, *changed, first_rows(changed->q_len), first_rows(changed->kv_len), wrong, why);
}

static enum attn_status with_scale(const struct fault_job *job, float scale, struct host_tensors *wrong,
                                   struct attn_message *why)
{
    struct attn_problem p = *job->problem;
    p.scale = scale;
    return all_of(job, &p, wrong, why);
}

static enum attn_status missing_scale(const struct fault_job *job, enum problem_tensor tensor,
                                      struct host_tensors *wrong, struct attn_message *why)
{
    (void)tensor;
    return with_scale(job, 1, wrong, why);
}

static enum attn_status scale_off(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                  struct attn_message *why)
{
    (void)tensor;
    return with_scale(job, job->problem->scale * 1.01f, wrong, why);
}

/* The last FAULT_TILE keys are never read. Under a causal mask only the last rows lose keys: they see all remaining
 * keys, and the other rows are a smaller causal problem. */
static enum attn_status last_tile(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                  struct attn_message *why)
{
    (void)tensor;
    struct attn_problem p = *job->problem;
    const int64_t n = p.q_len, left = n - FAULT_TILE;
    clear_outputs(job, wrong);
    if (!p.causal)
        return add_part(job, p, first_rows(n), first_rows(left), wrong, why);
    const enum attn_status status = add_part(job, p, first_rows(left), first_rows(left), wrong, why);
    if (status != ATTN_OK)
        return status;
    p.causal = false;
    return add_part(job, p, (struct rows){left, FAULT_TILE, false}, first_rows(left), wrong, why);
}

static enum attn_status nan_row(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                struct attn_message *why)
{
    (void)why;
    const struct attn_problem *p = job->problem;
    const int64_t dim = tensor_shape_of(p, tensor).head_dim;
    float *row = wrong->at[tensor] + p->q_len / 2 * dim;
    for (int64_t c = 0; c < dim; c++)
        row[c] = NAN;
    return ATTN_OK;
}

static enum attn_status swapped_heads(const struct fault_job *job, enum problem_tensor tensor,
                                      struct host_tensors *wrong, struct attn_message *why)
{
    (void)tensor;
    (void)why;
    const struct attn_problem *p = job->problem;
    int count;
    const enum problem_tensor *outputs = problem_outputs(job->problem, job->mode, &count);
    for (int i = 0; i < count; i++) {
        const struct tensor_shape shape = tensor_shape_of(p, outputs[i]);
        const int64_t head = shape.len * shape.head_dim;
        float *a = wrong->at[outputs[i]], *b = a + (shape.heads - 1) * head;
        for (int64_t n = 0; n < head; n++) {
            const float held = a[n];
            a[n] = b[n];
            b[n] = held;
        }
    }
    return ATTN_OK;
}

static enum attn_status dk_off(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                               struct attn_message *why)
{
    (void)why;
    float *dk = wrong->at[tensor];
    for (int64_t i = 0; i < host_tensors_elements(job->problem, tensor); i++)
        dk[i] *= 1.01f;
    return ATTN_OK;
}

/* A row does not see the first key of its window, as where the bound is taken for an exclusive one. */
static enum attn_status window_left(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                    struct attn_message *why)
{
    (void)tensor;
    struct attn_problem p = *job->problem;
    p.window_left--;
    return all_of(job, &p, wrong, why);
}

/* A row sees a key after its window. */
static enum attn_status window_right(const struct fault_job *job, enum problem_tensor tensor,
                                     struct host_tensors *wrong, struct attn_message *why)
{
    (void)tensor;
    struct attn_problem p = *job->problem;
    p.window_right++;
    return all_of(job, &p, wrong, why);
}

/* O and LSE come from a forward with the right mask. */
static enum attn_status other_dropout(const struct fault_job *job, enum problem_tensor tensor,
                                      struct host_tensors *wrong, struct attn_message *why)
{
    (void)tensor;
    struct attn_problem p = *job->problem;
    p.dropout_seed++;
    return all_of(job, &p, wrong, why);
}

static void multiply(float *x, int64_t count, float factor)
{
    for (int64_t i = 0; i < count; i++)
        x[i] *= factor;
}

/* What is kept of P is not divided by 1 - dropout. Forward: O is smaller by that. Backward: with a smaller dO the right
 * kernel has the dV and the dP of this fault, and with an O that is larger by as much the right D. */
static enum attn_status no_rescale(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                   struct attn_message *why)
{
    (void)tensor;
    const struct attn_problem *p = job->problem;
    const float kept = 1 - p->dropout;
    if (job->mode == ATTN_FWD) {
        multiply(wrong->at[TENSOR_O], host_tensors_elements(p, TENSOR_O), kept);
        return ATTN_OK;
    }
    struct host_tensors scaled = host_tensors_copy(job->correct, p, job->mode);
    multiply(scaled.at[TENSOR_DO], host_tensors_elements(p, TENSOR_DO), kept);
    multiply(scaled.at[TENSOR_O], host_tensors_elements(p, TENSOR_O), 1 / kept);
    struct fault_job changed = *job;
    changed.correct = &scaled;
    const enum attn_status status = all_of(&changed, p, wrong, why);
    host_tensors_free(&scaled);
    return status;
}

/* A kernel that takes V's head dim for that of Q and K sums over so many columns. */
static enum attn_status v_dim_for_k(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                    struct attn_message *why)
{
    (void)tensor;
    const struct attn_problem *p = job->problem;
    struct host_tensors cut = host_tensors_copy(job->correct, p, job->mode);
    for (int64_t i = 0; i < host_tensors_elements(p, TENSOR_Q); i++)
        if (i % p->head_dim >= attn_v_head_dim(p))
            cut.at[TENSOR_Q][i] = 0;
    struct fault_job changed = *job;
    changed.correct = &cut;
    const enum attn_status status = all_of(&changed, p, wrong, why);
    host_tensors_free(&cut);
    return status;
}

/* Row and key of the bias have changed places, as far as it has such rows and keys. */
static enum attn_status transposed_bias(const struct fault_job *job, enum problem_tensor tensor,
                                        struct host_tensors *wrong, struct attn_message *why)
{
    (void)tensor;
    const struct attn_problem *p = job->problem;
    const int64_t plane = p->q_len * p->kv_len, planes = p->bias_batch * p->bias_heads;
    const float *const right = job->correct->at[TENSOR_BIAS];
    for (int64_t n = 0; n < planes * plane; n++) {
        const int64_t row = n % plane / p->kv_len, key = n % p->kv_len;
        wrong->at[TENSOR_BIAS][n] = right[n / plane * plane + key % p->q_len * p->kv_len + row % p->kv_len];
    }
    return job->attend(job->context, p, job->mode, wrong, why);
}

static bool is_causal(const struct attn_problem *p) { return p->causal; }
static bool has_narrow_v(const struct attn_problem *p) { return attn_v_head_dim(p) < p->head_dim; }
static bool has_two_tiles(const struct attn_problem *p) { return p->kv_len >= 2 * FAULT_TILE; }
static bool has_left_edge(const struct attn_problem *p) { return p->window_left > 0; }
static bool has_right_edge(const struct attn_problem *p) { return p->window_right >= 0 && !p->causal; }
static bool has_two_sequences(const struct attn_problem *p) { return p->batch >= 2; }
static bool has_one_row(const struct attn_problem *p) { return p->q_len == 1; }
static bool has_two_scales(const struct attn_problem *p)
{
    return p->quant_scale == ATTN_SCALE_BLOCK && p->q_len > p->scale_block;
}
static bool has_two_scales_and_is_causal(const struct attn_problem *p) { return has_two_scales(p) && p->causal; }

enum { WITH_DROPOUT = ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT, WITH_PAGES = ATTN_WITH_CACHE | ATTN_WITH_PAGES };

#define RULE(name) (1u << RULE_##name)
#define BOTH(bits) \
    { \
        [ATTN_FWD] = (bits), [ATTN_BWD] = (bits) \
    }

static const struct fault faults[] = {
    {.name = "inverted mask", .rules = BOTH(RULE(RMS)), .needs = is_causal, .make = inverted_mask},
    {.name = "diagonal off by one", .rules = BOTH(RULE(ELEMENT)), .needs = is_causal, .make = diagonal},
    /* P of the wrong logits may leave fp16's range in the backward pass. */
    {.name = "missing scale", .rules = {RULE(RMS), RULE(RMS) | RULE(NONFINITE)}, .make = missing_scale},
    {.name = "scale off by 1 %", .rules = {RULE(LSE), RULE(RMS)}, .make = scale_off},
    {.name = "last tile skipped", .rules = BOTH(RULE(BLOCK_RMS)), .needs = has_two_tiles, .make = last_tile},
    {.name = "stale output", .rules = BOTH(RULE(NONFINITE)), .each_output = true, .way = FAULT_STALE},
    {.name = "NaN row", .rules = BOTH(RULE(NONFINITE)), .each_output = true, .make = nan_row},
    {.name = "swapped heads", .rules = BOTH(RULE(RMS)), .make = swapped_heads},
    {.name = "one element past the end", .rules = BOTH(RULE(GUARD)), .each_output = true, .way = FAULT_PAST_END},
    {.name = "dK off by 1 %", .rules = {0, RULE(GAIN)}, .in_one = true, .tensor = TENSOR_DK, .make = dk_off},
    {.name = "window left edge",
     .rules = BOTH(RULE(RMS)),
     .attributes = ATTN_WITH_WINDOW,
     .needs = has_left_edge,
     .make = window_left},
    {.name = "window right edge",
     .rules = BOTH(RULE(RMS)),
     .attributes = ATTN_WITH_WINDOW,
     .needs = has_right_edge,
     .make = window_right},
    {.name = "bwd dropout mask", .rules = {0, RULE(RMS)}, .attributes = WITH_DROPOUT, .make = other_dropout},
    {.name = "1/(1-P) missing", .rules = BOTH(RULE(GAIN)), .attributes = WITH_DROPOUT, .make = no_rescale},
    {.name = "neighbour's first key",
     .rules = BOTH(RULE(RMS)),
     .attributes = ATTN_WITH_PACKED_LENGTHS,
     .needs = has_two_sequences,
     .make = faults_first_key},
    {.name = "two pages swapped",
     .rules = {RULE(BLOCK_RMS)},
     .attributes = WITH_PAGES,
     .needs = has_two_sequences,
     .make = faults_swapped_pages},
    {.name = "unused slots read", .rules = {RULE(NONFINITE)}, .attributes = WITH_PAGES, .make = faults_unused_slots},
    {.name = "a split forgotten",
     .rules = {RULE(BLOCK_RMS)},
     .attributes = WITH_PAGES,
     .needs = has_one_row,
     .make = faults_lost_split},
    {.name = "splits unweighted",
     .rules = {RULE(BLOCK_RMS)},
     .attributes = WITH_PAGES,
     .needs = has_one_row,
     .make = faults_plain_merge},
    {.name = "next chunk is seen",
     .rules = {RULE(RMS)},
     .attributes = WITH_PAGES | ATTN_WITH_PACKED_ROWS,
     .needs = is_causal,
     .make = faults_next_chunk},
    {.name = "Q scale of next block",
     .rules = {RULE(LSE)},
     .attributes = ATTN_WITH_8_BIT,
     .needs = has_two_scales,
     .make = faults_scale_of_q},
    {.name = "K scale of next block",
     .rules = {RULE(LSE)},
     .attributes = ATTN_WITH_8_BIT,
     .needs = has_two_scales_and_is_causal,
     .make = faults_scale_of_k},
    {.name = "K scale forgotten",
     .rules = {RULE(LSE)},
     .attributes = ATTN_WITH_8_BIT,
     .needs = has_two_scales,
     .make = faults_no_scale_of_k},
    {.name = "V scale forgotten",
     .rules = {RULE(RMS)},
     .attributes = ATTN_WITH_8_BIT,
     .needs = has_two_scales,
     .make = faults_no_scale_of_v},
    {.name = "a block skipped",
     .rules = BOTH(RULE(BLOCK_RMS)),
     .attributes = ATTN_WITH_BLOCK_MASK,
     .make = faults_skipped_block},
    {.name = "V's head dim for K's",
     .rules = {RULE(RMS), RULE(RMS) | RULE(NONFINITE)},
     .attributes = ATTN_WITH_V_HEAD_DIM,
     .needs = has_narrow_v,
     .make = v_dim_for_k},
    {.name = "sink counted twice",
     .rules = {RULE(RMS) | RULE(LSE), RULE(RMS)},
     .attributes = ATTN_WITH_SINK,
     .make = faults_sink_twice},
    {.name = "sink missing in LSE", .rules = {RULE(LSE)}, .attributes = ATTN_WITH_SINK, .make = faults_no_sink_in_lse},
    {.name = "slope of the next head",
     .rules = {RULE(RMS), RULE(RMS) | RULE(NONFINITE)},
     .attributes = ATTN_WITH_ALIBI,
     .make = faults_next_slope},
    {.name = "bias transposed",
     .rules = {RULE(RMS), RULE(RMS) | RULE(NONFINITE)},
     .attributes = ATTN_WITH_BIAS,
     .make = transposed_bias},
};

const struct fault *fault_table(int *count)
{
    *count = (int)(sizeof faults / sizeof faults[0]);
    return faults;
}

bool fault_applies(const struct fault *fault, const struct attn_problem *p, enum attn_mode mode)
{
    const struct attn_request request = {.problem = p, .mode = mode};
    return fault->rules[mode] && attn_attributes(&request) == fault->attributes && (!fault->needs || fault->needs(p));
}
