/* Why something cannot be: one sentence for the user, without a newline. Whoever returns a failure fills it. */
#ifndef FABENCH_BASE_REASON_H
#define FABENCH_BASE_REASON_H

struct reason {
    char text[512];
};

#endif
