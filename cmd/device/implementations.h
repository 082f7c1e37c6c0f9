/* The implementations of this process: those of the registries and of loaded libraries. */
#ifndef FABENCH_IMPLS_H
#define FABENCH_IMPLS_H

#include "cmd/base/impl_name.h"
#include "cmd/options/options.h"
#include "reference/registry.h"

struct impls {
    const struct attn_impl **all; /* owned array; the implementations live in the program or a library */
    int count, built_in;          /* the first built_in ones are the program's own */
    void **libraries;             /* dlopen handles, kept open for the life of the process */
    int library_count;
};

/* The registry, then every --impl-lib. EXIT_OK, or EXIT_USAGE with a sentence (no such file, not a library, no
 * fabench_impls, another ABI, a duplicate name). */
int impls_load(const struct name_list *libraries, struct impls *);
void impls_free(struct impls *);

/* The role of an implementation of this process; those of loaded libraries are kernels. */
enum attn_role impls_role(const struct impls *, const struct attn_impl *);

/* What a sweep runs: one slot per --impl name, or the defaults. */
struct impl_slot {
    char name[IMPL_NAME_SIZE];    /* as given: "fused" (resolved for each problem), a name, or it with ":SUFFIX"es */
    bool is_named;                /* named by the user: it is an error when it runs on no problem */
    const struct attn_impl *impl; /* NULL for "fused" */
    enum attn_role role;
    bool is_loaded;               /* of a library of --impl-lib */
    bool is_stored;               /* results of --outputs (cmd/device/stored_outputs.h) */
    struct attn_device device;    /* as "name:smem_99kb" sees it; of impls_select */
    char variant[IMPL_NAME_SIZE]; /* what the name's suffixes say; "" = none */
    bool is_deterministic, is_invariant, is_fast, has_small_memory;
};
enum { IMPL_MAX_SLOTS = 32 };

/* The implementations of a device. EXIT_OK, or EXIT_USAGE with a sentence naming the unknown implementation and the
 * nearest name. *count >= 1. */
int impls_select(const struct impls *, const struct name_list *names, const struct attn_device *,
                 struct impl_slot *slots, int *count);

/* Appends a slot for --peer where no slot has this name. EXIT_OK, or EXIT_USAGE with a sentence that lists the names of
 * this platform. */
int impls_add_peer(const struct impls *, const char *peer, const struct attn_device *, struct impl_slot *slots,
                   int *count);

/* Whom the ratios over the peer mean, by its slot's name: the one asked for (--peer), else one of this program's own
 * that runs beside a loaded one, where no peer such as cuDNN runs. NULL = the first peer, if there is one. */
const char *impls_peer(const struct impl_slot *slots, int count, const char *asked);

/* --invariance: of the slots that say nothing of a mode or a tile, those whose implementation promises an invariant
 * forward become NAME:invariant, unless another slot is; "fused" becomes all fused kernels of this platform that
 * promise it, if any does. EXIT_OK, or EXIT_USAGE with a sentence where a name grows too long, or they are too many. */
int impls_make_invariant(const struct impls *, const struct attn_device *, struct impl_slot *slots, int *count);

/* The implementation of a slot for this request; for "fused" the first of our fused kernels that accepts it. Sets the
 * request's variant, flags (deterministic, invariant, fast) or device where the slot gives one; the device and the
 * variant are parts of the slot. NULL with the reason when it (or every fused kernel) refuses. */
const struct attn_impl *impl_resolve(const struct impl_slot *, struct attn_request *, struct attn_message *why);

/* The name in the records: the implementation's own, or "name:variant" as given, so that variants of one implementation
 * have different names. `impl` is NULL when the slot refused. */
const char *impl_recorded_name(const struct impl_slot *, const struct attn_impl *impl);

#endif
