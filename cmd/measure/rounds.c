/* Interleaved sampling: the order of the members, the rounds, and the rule that ends them. */
#include "cmd/measure/rounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/base/stats.h"
#include "cmd/device/backend.h"

void rounds_order(int count, int64_t round, int *order)
{
    const int row = (int)(round / 2 % count);
    for (int i = 0; i < count; i++) {
        const int zigzag = i % 2 ? (i + 1) / 2 : count - i / 2; /* 0 1 -1 2 -2 ..., modulo count */
        order[round % 2 ? count - 1 - i : i] = (zigzag + row) % count;
    }
}

static void launched(const struct rounds_plan *plan, int member)
{
    if (plan->after_launch)
        plan->after_launch(plan->context, member);
}

static enum attn_status one_sample(struct backend *be, struct launcher *launcher, int member,
                                   const struct rounds_plan *plan, double *time_ms, bool *interrupted,
                                   struct attn_message *why)
{
    *interrupted = !plan->enter(plan->context, member);
    if (!plan->cold && !*interrupted) {
        TRY(plan->before_sample(plan->context, member, false, why));
        const enum attn_status warmed = be->ops->repeat(be, launcher, 1, why);
        launched(plan, member);
        TRY(warmed);
        *interrupted = !plan->enter(plan->context, member);
    }
    if (*interrupted)
        return ATTN_OK;
    TRY(plan->before_sample(plan->context, member, true, why));
    const enum attn_status sampled = be->ops->sample(be, launcher, plan->cold, time_ms, why);
    launched(plan, member);
    TRY(sampled);
    return plan->after_sample ? plan->after_sample(plan->context, member, *time_ms, why) : ATTN_OK;
}

/* Takes one sample of every member into samples_ms[index]; index < 0: warm-up, not stored. order: room for `count`. */
static enum attn_status one_round(struct backend *be, struct rounds_member *members, int count, int64_t round,
                                  int *order, const struct rounds_plan *plan, int64_t index,
                                  struct rounds_result *result, struct attn_message *why)
{
    rounds_order(count, round, order);
    for (int i = 0; i < count; i++) {
        const int m = order[i];
        double time_ms = 0;
        result->failed_member = m;
        TRY(one_sample(be, &members[m].launcher, m, plan, &time_ms, &result->interrupted, why));
        if (result->interrupted)
            return ATTN_OK;
        if (index >= 0)
            members[m].samples_ms[index] = time_ms;
    }
    return ATTN_OK;
}

/* Are the 95 % intervals of every member's median, and of its ratio to the last member (the ceiling, if any),
 * narrow enough? The median alone is not sufficient: at its power limit a GPU runs slower for about a quarter of every
 * second. This does not change a median, but it changes every ratio, depending on how many slow periods were sampled.
 * */
static bool is_noise_low(const struct rounds_member *members, int count, int64_t rounds, double max_noise_pct)
{
    for (int m = 0; m < count; m++) {
        const struct stats s = stats_of(members[m].samples_ms, rounds);
        if (!(stats_noise_half_width_pct(&s) <= max_noise_pct))
            return false;
    }
    for (int m = 0; m < count - 1; m++)
        if (!(stats_paired_half_width_pct(members[m].samples_ms, members[count - 1].samples_ms, rounds) <=
              max_noise_pct))
            return false;
    return true;
}

/* Rounds after which a clock that shows the time of their start stands still. */
enum { STANDING_ROUNDS = 1000 };

/* True when the clock has moved since start_ms, or there were too few rounds to say. */
static bool does_clock_move(double start_ms, int64_t rounds, struct attn_message *why)
{
    if (rounds < STANDING_ROUNDS || clock_ms() > start_ms)
        return true;
    snprintf(why->text, sizeof why->text, "the clock stands still: it has shown the same time for %lld rounds",
             (long long)rounds);
    return false;
}

/* Samples of 0 ms were not measured: the clock stands still, or its steps are longer than a launch, and then all other
 * samples are whole steps. One in ten may be 0, so that a clock that rarely stumbles costs no row. */
static bool are_samples_timed(const struct rounds_member *members, int count, struct rounds_result *result,
                              struct attn_message *why)
{
    for (int m = 0; m < count; m++) {
        int64_t empty = 0;
        for (int64_t r = 0; r < result->rounds; r++)
            empty += !(members[m].samples_ms[r] > 0);
        if (empty <= result->rounds / 10)
            continue;
        snprintf(why->text, sizeof why->text,
                 "%lld of %lld samples took 0 ms: the clock stands still, or its steps are longer than the launch",
                 (long long)empty, (long long)result->rounds);
        result->failed_member = m;
        return false;
    }
    return true;
}

enum attn_status rounds_run(struct backend *be, struct rounds_member *members, int count,
                            const struct rounds_plan *plan, struct rounds_result *result, struct attn_message *why)
{
    int64_t capacity = 0, next_check = plan->samples;
    enum attn_status status = ATTN_OK;
    int *order = xmalloc((unsigned long)count * sizeof *order);
    memset(result, 0, sizeof *result);
    const double begin = clock_ms();
    for (int64_t r = 0; status == ATTN_OK && clock_ms() - begin < plan->warmup_ms && !result->interrupted; r++) {
        status = one_round(be, members, count, r, order, plan, -1, result, why);
        if (status == ATTN_OK && !does_clock_move(begin, r + 1, why))
            status = ATTN_ERROR;
    }
    const double start = clock_ms();
    while (status == ATTN_OK && !result->interrupted && !result->stop) {
        if (result->rounds == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            for (int m = 0; m < count; m++)
                members[m].samples_ms =
                    xrealloc(members[m].samples_ms, (unsigned long)capacity * sizeof *members[m].samples_ms);
        }
        status = one_round(be, members, count, result->rounds, order, plan, result->rounds, result, why);
        if (status == ATTN_OK && !does_clock_move(start, result->rounds + 1, why))
            status = ATTN_ERROR;
        if (status != ATTN_OK || result->interrupted)
            break;
        result->rounds++;
        const double elapsed_ms = clock_ms() - start;
        if (elapsed_ms >= plan->limit_ms || (result->rounds >= plan->samples && elapsed_ms >= 8 * plan->min_time_ms))
            result->stop = "limit";
        /* Sorting in every round would cost more than the rounds: check again after 10 % more rounds. */
        if (result->rounds >= next_check && elapsed_ms >= plan->min_time_ms) {
            next_check = result->rounds + result->rounds / 10 + 1;
            if (is_noise_low(members, count, result->rounds, plan->max_noise_pct))
                result->stop = "noise";
        }
    }
    free(order);
    if (status == ATTN_OK && !result->interrupted && !are_samples_timed(members, count, result, why))
        return ATTN_ERROR;
    return status;
}
