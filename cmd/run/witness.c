/* Two clocks on the same batches. */
#include "cmd/run/witness.h"

#include <math.h>
#include <stdio.h>

int64_t witness_launches(double launch_ms, int try, double limit_ms)
{
    enum { MOST = 1000000 };
    const double wanted_ms = fmin(1.1 * WITNESS_MS * pow(WITNESS_GROWTH, try), limit_ms);
    return launch_ms > wanted_ms / MOST ? (int64_t)ceil(wanted_ms / launch_ms) : MOST;
}

void witness_add(struct witness *w, double worker_ms, double own_ms, int64_t launches)
{
    w->tries++;
    w->agrees |= fabs(worker_ms - own_ms) <= WITNESS_SHARE * own_ms + WITNESS_EXTRA_MS;
    w->worker_ms = worker_ms;
    w->own_ms = own_ms;
    w->launches = launches;
}

bool witness_confirms(const struct witness *w, bool is_comparable, double claimed_ms)
{
    const double each_ms = w->launches > 0 ? w->own_ms / (double)w->launches : 0;
    return w->tries > 0 && w->agrees &&
           !(is_comparable && claimed_ms * WITNESS_HOT_FACTOR + WITNESS_EXTRA_MS < each_ms);
}

void witness_describe(const struct witness *w, double claimed_ms, char *text, unsigned long size)
{
    if (w->tries == 0)
        snprintf(text, size, "no batch of its launches was timed from outside");
    else
        snprintf(
            text, size,
            "a batch of %lld launches took %.4g ms by the clock of their process and %.4g ms by that of the program "
            "(%d %s); a launch is said to take %.4g ms",
            (long long)w->launches, w->worker_ms, w->own_ms, w->tries, w->tries == 1 ? "try" : "tries", claimed_ms);
}
