/* Dropout, as kernels see it: the mask is section 3 of docs/design.md, in registers dropout.cuh. C and CUDA C++. */
#ifndef FABENCH_FAMILY_DROPOUT_H
#define FABENCH_FAMILY_DROPOUT_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

struct family_dropout {
    struct attn_philox_keys keys; /* of the seed, see attn_dropout_bits */
    uint32_t threshold;           /* an element is dropped where its bits are below; 0: none is */
    uint32_t last_dropped;        /* the largest 32 bits whose upper half is dropped */
    float keep_factor;            /* 1 / (1 - dropout); a kernel may have divided it by a power of two */
    float keep_share;             /* 1 - dropout */
};

struct family_dropout family_dropout_of(const struct attn_problem *);

#ifdef __cplusplus
}
#endif
#endif
