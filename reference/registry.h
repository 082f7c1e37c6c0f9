/* The implementations that the kernels are measured against, and the role of each. */
#ifndef FABENCH_REFERENCE_REGISTRY_H
#define FABENCH_REFERENCE_REGISTRY_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum impl_role {
    ROLE_KERNEL, /* what is measured: our fused kernels and those of loaded libraries */
    ROLE_NAIVE,  /* three passes; judged with doubled bounds, and rule 5 compares with its error */
    ROLE_PEER,   /* an implementation of another project */
    ROLE_NULL    /* computes nothing: has a time, but no result and no speed */
};

struct reference_row {
    const struct attn_impl *impl; /* NULL ends the table */
    enum impl_role role;          /* never ROLE_KERNEL */
};

const struct reference_row *reference_registry(void);

#ifdef __cplusplus
}
#endif
#endif
