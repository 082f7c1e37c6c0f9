/* The implementations this process knows: the registry's and those of loaded libraries. */
#ifndef FABENCH_IMPLS_H
#define FABENCH_IMPLS_H

#include "cmd/options/options.h"
#include "reference/registry.h"

struct impls {
    const struct attn_impl **all; /* owned array; the implementations live in the program or a library */
    enum impl_role *roles;        /* of each, owned */
    int count;
    void **libraries;             /* dlopen handles, kept open for the life of the process */
    int library_count;
};

/* The registry, then every --impl-lib. EXIT_OK, or EXIT_USAGE with a sentence (no such file, no library, no
 * fabench_impls, another ABI, a name twice). */
int impls_load(const struct name_list *libraries, struct impls *);
void impls_free(struct impls *);

/* What an implementation of this process is there for. */
enum impl_role impls_role(const struct impls *, const struct attn_impl *);

/* What a sweep runs: one slot per --impl name, or the defaults. */
struct impl_slot {
    char name[40];                /* as asked: may be "fused", which each problem resolves, "name:variant" or
                                     "name:deterministic" */
    bool is_named;                /* the user named it: running nowhere is then an error */
    const struct attn_impl *impl; /* NULL for "fused" */
    enum impl_role role;
};
enum { IMPL_MAX_SLOTS = 32 };

/* EXIT_OK, or EXIT_USAGE with a sentence naming the unknown implementation and the nearest name. *count >= 1. */
int impls_select(const struct impls *, const struct name_list *names, enum attn_platform, struct impl_slot *slots,
                 int *count);

/* The implementation that a slot means for this request: itself, or for "fused" the first of our fused kernels that
 * accepts. Sets the request's variant, or that it is deterministic, where the slot says so. NULL with the reason when it
 * (or every fused kernel) refuses. */
const struct attn_impl *impl_resolve(const struct impl_slot *, struct attn_request *, struct attn_message *why);

/* The name in the records: the implementation's own, or "name:variant" as asked, so that variants of one implementation
 * are told apart. `impl` is NULL when the slot refused. */
const char *impl_recorded_name(const struct impl_slot *, const struct attn_impl *impl);

#endif
