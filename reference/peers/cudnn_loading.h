/* The loaded cuDNN library, for the files of the peer `cudnn` (cudnn_peer.h). */
#ifndef FABENCH_CUDNN_LOADING_H
#define FABENCH_CUDNN_LOADING_H

#include <cstddef>

#include "kernels/attention.h"

struct cudnn_loaded {
    bool usable;
    void *handle;            /* of dlopen, for the front end */
    size_t number;           /* 91900 for 9.19.0 */
    char version[32];        /* "9.19.0" */
    struct attn_message why; /* where it is not usable */
};

/* Opened at the first call; the same ever after. */
const struct cudnn_loaded *cudnn_loaded_library(void);

/* The path that has priority; NULL = none. Has an effect before the first call of cudnn_loaded_library. */
void cudnn_choose_library(const char *path);

/* Opens the parts of the library from its own folder, before it looks for them by name. Once. */
void cudnn_open_parts(void);

/* Fills the message like printf, on one line, and returns `status`. */
__attribute__((format(printf, 3, 4))) enum attn_status cudnn_fail(struct attn_message *why, enum attn_status status,
                                                                  const char *format, ...);

#endif
