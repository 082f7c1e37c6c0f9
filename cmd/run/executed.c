/* FLOPs of the tensor cores against those of the visible pairs. */
#include "cmd/run/executed.h"

#include <math.h>
#include <stdio.h>

#include "cmd/problem/problem.h"
#include "cmd/run/floors.h"

/* Which types are as wide as a row of this type says. TF32 has as many bits as fp16 and more than bf16. */
static bool counts_for(enum attn_dtype dtype, enum counted_type type)
{
    switch (type) {
    case COUNTED_TF32: return true;
    case COUNTED_FP16: return true;
    case COUNTED_BF16: return dtype != ATTN_FP16;
    case COUNTED_FP8: return attn_dtype_is_8_bit(dtype);
    default: return false; /* sums in 16 bits are narrower than any row says */
    }
}

void executed_types(const struct counters *counters, char *text, size_t size)
{
    size_t used = 0;
    snprintf(text, size, "none");
    for (int i = 0; i < COUNTED_TYPES; i++) {
        const double flop = counters->values[COUNTER_FLOP + i];
        char word[48];
        if (!(flop > 0))
            continue;
        const int length = snprintf(word, sizeof word, "%s%s=%.6g", used ? " " : "", counted_type_names[i], flop);
        if (used + (size_t)length >= size)
            return;
        snprintf(text + used, size - used, "%s", word);
        used += (size_t)length;
    }
}

bool executed_allows(const struct plan_item *item, bool keeps_p, const struct counters *counters, char *sentence,
                     size_t size)
{
    const struct attn_problem *const p = &item->problem;
    double needed = plan_item_flops(item), done = 0;
    char types[128];
    if (p->dtype == ATTN_FP32 || problem_mode_of(p, item->mode) == MODE_DECODE || floors_may_leave_pairs(item))
        return true;
    if (keeps_p && item->mode == ATTN_BWD)
        needed -= 2 * (double)p->head_dim * problem_pairs(p, item->arrays);
    for (int i = 0; i < COUNTED_TYPES; i++)
        if (counts_for(p->dtype, (enum counted_type)i))
            done += counters->values[COUNTER_FLOP + i];
    if (!(done < needed * (1 - EXECUTED_SHARE))) /* NaN: not counted */
        return true;
    executed_types(counters, types, sizeof types);
    snprintf(sentence, size,
             "the tensor cores did %.4g FLOPs in products as wide as %s; the visible pairs need %.4g; by type: %s",
             done, problem_dtype_name(p->dtype), needed, types);
    return false;
}
