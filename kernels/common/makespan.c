#include "kernels/common/makespan.h"

#include <string.h>

struct attn_makespan attn_makespan_begin(int64_t multiprocessors)
{
    const int64_t most = ATTN_MAX_MULTIPROCESSORS;
    struct attn_makespan span = {.count = 1};

    span.free[0].multiprocessors = multiprocessors < 1 ? 1 : multiprocessors > most ? most : multiprocessors;
    return span;
}

/* Takes up to `wanted` multiprocessors that are free first away and says how many and when. */
static int64_t take_first(struct attn_makespan *span, int64_t wanted, double *time)
{
    const int64_t there = span->free[0].multiprocessors, taken = wanted < there ? wanted : there;

    *time = span->free[0].time;
    if (taken < there)
        span->free[0].multiprocessors -= taken;
    else
        memmove(&span->free[0], &span->free[1], (size_t)--span->count * sizeof span->free[0]);
    return taken;
}

/* Puts multiprocessors back that are free at `time`. There is room: each entry has at least one multiprocessor. */
static void put_back(struct attn_makespan *span, int64_t multiprocessors, double time)
{
    int at = span->count;

    while (at > 0 && span->free[at - 1].time > time)
        --at;
    if (at > 0 && span->free[at - 1].time >= time) {
        span->free[at - 1].multiprocessors += multiprocessors;
        return;
    }
    memmove(&span->free[at + 1], &span->free[at], (size_t)(span->count++ - at) * sizeof span->free[0]);
    span->free[at].time = time;
    span->free[at].multiprocessors = multiprocessors;
}

void attn_makespan_add(struct attn_makespan *span, int64_t blocks, double time)
{
    while (blocks > 0) {
        double from;
        const int64_t taken = take_first(span, blocks, &from);
        put_back(span, taken, from + time);
        blocks -= taken;
    }
}

double attn_makespan_end(const struct attn_makespan *span) { return span->free[span->count - 1].time; }
