/* Reads CLOCK_MONOTONIC in milliseconds. */
#include "cmd/base/clock.h"

#include <time.h>

double clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

double awake_clock_at(struct awake_clock *clock, double now_ms)
{
    if (clock->last_ms > 0 && now_ms - clock->last_ms > AWAKE_GAP_MS)
        clock->paused_ms += now_ms - clock->last_ms;
    clock->last_ms = now_ms;
    return now_ms - clock->paused_ms;
}
