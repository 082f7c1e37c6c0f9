/* The reason of a failure: one sentence for the user, without a newline. A function that returns a failure fills it. */
#ifndef FABENCH_BASE_REASON_H
#define FABENCH_BASE_REASON_H

struct reason {
    char text[512];
};

#endif
