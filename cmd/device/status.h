/* Passing on a failed status. */
#ifndef FABENCH_DEVICE_STATUS_H
#define FABENCH_DEVICE_STATUS_H

#include "kernels/attention.h"

/* Returns the status of a call that did not succeed to the caller, whose `why` the call has filled. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const enum attn_status try_status = (call);                                                                    \
        if (try_status != ATTN_OK)                                                                                     \
            return try_status;                                                                                         \
    } while (0)

#endif
