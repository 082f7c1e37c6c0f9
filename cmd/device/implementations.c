/* Names -> implementations; loading libraries. */
#include "cmd/device/implementations.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/text.h"
#include "reference/registry.h"

static const struct attn_impl *find(const struct impls *impls, const char *name, int platform)
{
    for (int i = 0; i < impls->count; i++)
        if (!strcmp(impls->all[i]->name, name) && (platform < 0 || (int)impls->all[i]->platform == platform))
            return impls->all[i];
    return NULL;
}

static bool is_loaded(const struct impls *impls, const struct attn_impl *impl)
{
    for (int i = 0; i < impls->built_in; i++)
        if (impls->all[i] == impl)
            return false;
    return impl != NULL;
}

static void add(struct impls *impls, const struct attn_impl *impl)
{
    impls->all = xrealloc(impls->all, (unsigned long)(impls->count + 1) * sizeof *impls->all);
    impls->all[impls->count++] = impl;
}

enum attn_role impls_role(const struct impls *impls, const struct attn_impl *impl)
{
    return is_loaded(impls, impl) ? ATTN_ROLE_KERNEL : impl->role;
}

/* NAME:deterministic sets request.deterministic for that slot alone, so that both modes of a kernel can run in the same
 * rounds. NAME:smem_99kb shows that slot a device whose thread blocks have 99 KB of shared memory, as those of compute
 * capability 8.6, 8.9 and 12.0, so that what a kernel does there runs beside what it does here. */
static const char DETERMINISTIC[] = "deterministic", SMALL_MEMORY[] = "smem_99kb";
/* NAME:invariant and NAME:fast set the fields of the request of these names. All that a name can say, in order:
 * NAME:VARIANT:deterministic:invariant:fast. */
static const char INVARIANT[] = "invariant", FAST[] = "fast";
enum { SMALL_MEMORY_BYTES = 99 * 1024 };

/* Checks one row of a library's table. NULL when it is usable, else the reason. */
static const char *unusable(const struct impls *impls, const struct attn_impl *impl)
{
    static const char *const reserved[] = {"fused", "naive", "cudnn", "null", "gemm", "read", "reference"};
    if (impl->abi != ATTN_ABI)
        return "was built for another ABI number";
    if (impl->role != ATTN_ROLE_KERNEL && impl->role != ATTN_ROLE_PEER)
        return "has a role that this program keeps for its own: it must be ATTN_ROLE_KERNEL or ATTN_ROLE_PEER";
    if (!impl->accepts || !impl->workspace_bytes || !impl->launch || (impl->prepare && !impl->release))
        return "lacks a required function";
    if (strlen(impl->name) >= sizeof((struct impl_slot *)0)->name ||
        strspn(impl->name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(impl->name))
        return "has a name that is not [a-z0-9_]+";
    if (find(impls, impl->name, (int)impl->platform))
        return "has a name that is taken";
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        if (!strcmp(impl->name, reserved[i]))
            return "has a name that this program keeps for its own";
    for (const struct attn_variant *v = impl->variants; v && v->name; v++)
        if (!strcmp(v->name, DETERMINISTIC) || !strcmp(v->name, SMALL_MEMORY) || !strcmp(v->name, INVARIANT) ||
            !strcmp(v->name, FAST))
            return "has a variant of a name that this program keeps for its own";
    return NULL;
}

/* The highest ABI number below this program's that a library serves; 0 when there is none. */
static int abi_of(fabench_impls_function function)
{
    for (int abi = ATTN_ABI - 1; abi > 0; abi--)
        if (function(abi))
            return abi;
    return 0;
}

/* abi: of the library, 0 = not known. */
static int refuse_abi(const char *path, int abi)
{
    char found[32] = "for another ABI";
    if (abi > 0)
        snprintf(found, sizeof found, "for ABI %d", abi);
    log_error("--impl-lib %s: was built %s, this program has ABI %d: compile the library again with this program's "
              "header fabench/attention.h, and begin its accepts with attn_check_attributes",
              path, found, ATTN_ABI);
    return EXIT_USAGE;
}

static int load(struct impls *impls, const char *path)
{
    /* dlopen would search the system's folders for a name without a slash; --impl-lib always means this file. */
    char *file = strchr(path, '/') ? xstrdup(path) : xasprintf("./%s", path);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    free(file);
    if (!library) {
        log_error("--impl-lib %s: %s", path, dlerror());
        return EXIT_USAGE;
    }
    impls->libraries = xrealloc(impls->libraries, (unsigned long)(impls->library_count + 1) * sizeof(void *));
    impls->libraries[impls->library_count++] = library;
    fabench_impls_function function;
    *(void **)&function = dlsym(library, "fabench_impls");
    if (!function) {
        log_error("--impl-lib %s: does not export fabench_impls (see kernels/attention.h)", path);
        return EXIT_USAGE;
    }
    const struct attn_impl *rows = function(ATTN_ABI);
    if (!rows)
        return refuse_abi(path, abi_of(function));
    if (rows->abi != ATTN_ABI) /* checked before the name, because another ABI may have another layout */
        return refuse_abi(path, rows->abi);
    if (!rows->name) {
        log_error("--impl-lib %s: its table is empty", path);
        return EXIT_USAGE;
    }
    for (; rows->name; rows++) {
        const char *reason = unusable(impls, rows);
        if (reason) {
            log_error("--impl-lib %s: implementation '%.40s' %s", path, rows->name, reason);
            return EXIT_USAGE;
        }
        add(impls, rows);
    }
    return EXIT_OK;
}

int impls_load(const struct name_list *libraries, struct impls *impls)
{
    memset(impls, 0, sizeof *impls);
    const struct attn_impl *const *const references = reference_registry();
    for (const struct attn_impl *const *impl = references; *impl; impl++)
        if ((*impl)->role == ATTN_ROLE_NAIVE)
            add(impls, *impl);
    for (const struct attn_impl *const *impl = attn_registry(); *impl; impl++)
        add(impls, *impl);
    for (const struct attn_impl *const *impl = references; *impl; impl++)
        if ((*impl)->role != ATTN_ROLE_NAIVE)
            add(impls, *impl);
    impls->built_in = impls->count;
    int status = EXIT_OK;
    for (int i = 0; i < libraries->count && status == EXIT_OK; i++)
        status = load(impls, libraries->names[i]);
    if (status != EXIT_OK)
        impls_free(impls);
    return status;
}

void impls_free(struct impls *impls)
{
    /* Libraries are never closed, because their threads and exit handlers may still run. */
    free(impls->libraries);
    free(impls->all);
    memset(impls, 0, sizeof *impls);
}

static void unknown(const struct impls *impls, const char *name, enum attn_platform platform)
{
    const char **names = xmalloc((unsigned long)(impls->count + 1) * sizeof *names);
    int count = 0;
    names[count++] = "fused";
    for (int i = 0; i < impls->count; i++)
        if (impls->all[i]->platform == platform)
            names[count++] = impls->all[i]->name;
    const char *near = nearest_name(name, names, count);
    const char *where = platform == ATTN_CUDA ? "CUDA" : "the CPU";
#ifdef FABENCH_WITH_CUDA
    const bool has_cuda = true;
#else
    const bool has_cuda = false;
#endif
    if (find(impls, name, -1))
        log_error("--impl %s: does not run on %s; 'fabench list' shows what does", name, where);
    else if (near)
        log_error("--impl %s: unknown implementation, did you mean %s? ('fabench list' shows all)", name, near);
    else
        log_error("--impl %s: unknown implementation%s; 'fabench list' shows all", name,
                  platform == ATTN_CPU && !has_cuda ? " (this build has no CUDA)" : "");
    free(names);
}

/* Takes the suffix off the end of what follows the name's colon. */
static bool take_suffix(char *behind, const char *suffix)
{
    const size_t all = strlen(behind), length = strlen(suffix);
    if (all < length || strcmp(behind + all - length, suffix) != 0)
        return false;
    if (all == length)
        behind[0] = '\0';
    else if (behind[all - length - 1] == ':')
        behind[all - length - 1] = '\0';
    else
        return false;
    return true;
}

/* What follows the first colon of a slot's name. */
static void read_suffixes(struct impl_slot *slot)
{
    const char *colon = strchr(slot->name, ':');
    snprintf(slot->variant, sizeof slot->variant, "%s", colon ? colon + 1 : "");
    slot->is_fast = take_suffix(slot->variant, FAST);
    slot->is_invariant = take_suffix(slot->variant, INVARIANT);
    slot->is_deterministic = take_suffix(slot->variant, DETERMINISTIC);
    slot->has_small_memory = take_suffix(slot->variant, SMALL_MEMORY);
}

/* False, with a sentence, for a variant beside ":invariant", which leaves the choice to the implementation. */
static bool check_suffixes(const struct impl_slot *slot)
{
    if (!slot->is_invariant || !slot->variant[0])
        return true;
    log_error("--impl %s: invariant goes with no variant (%s)", slot->name, slot->variant);
    return false;
}

/* False, with a sentence, when the implementation has no variant of the name that the slot asks for. */
static bool check_variant(const struct impl_slot *slot)
{
    const struct attn_impl *impl = slot->impl;
    const char *variant = slot->variant;
    if (impl && slot->has_small_memory && impl->platform != ATTN_CUDA) {
        log_error("--impl %s: the CPU has no shared memory of thread blocks that could be less", slot->name);
        return false;
    }
    if (!variant[0] || !impl)
        return true;
    const char *names[64] = {NULL}; /* those that a misspelt one is compared with */
    int count = 0;
    for (const struct attn_variant *v = impl->variants; v && v->name; v++) {
        if (!strcmp(v->name, variant))
            return true;
        if (count < 64)
            names[count++] = v->name;
    }
    const char *near = nearest_name(variant, names, count);
    if (count == 0)
        log_error("--impl %s: %s has no variants", slot->name, impl->name);
    else if (near)
        log_error("--impl %s: unknown variant, did you mean %s:%s? ('fabench list' shows all)", slot->name, impl->name,
                  near);
    else
        log_error("--impl %s: unknown variant; 'fabench list' shows all", slot->name);
    return false;
}

int impls_select(const struct impls *impls, const struct name_list *names, const struct attn_device *device,
                 struct impl_slot *slots, int *count)
{
    const enum attn_platform platform = device->platform;
    static const char *const defaults[] = {"naive", "fused", "cudnn"};
    const int wanted = names->count ? names->count : (int)(sizeof defaults / sizeof defaults[0]);
    *count = 0;
    if (wanted > IMPL_MAX_SLOTS) {
        log_error("--impl: %d implementations, at most %d", wanted, IMPL_MAX_SLOTS);
        return EXIT_USAGE;
    }
    for (int i = 0; i < wanted; i++) {
        const char *name = names->count ? names->names[i] : defaults[i];
        struct impl_slot *slot = &slots[*count];
        char base[sizeof slot->name];
        *slot = (struct impl_slot){.is_named = names->count > 0};
        if (strlen(name) >= sizeof slot->name) {
            log_error("--impl %s: longer than %zu characters", name, sizeof slot->name - 1);
            return EXIT_USAGE;
        }
        snprintf(slot->name, sizeof slot->name, "%s", name);
        read_suffixes(slot);
        snprintf(base, sizeof base, "%.*s", (int)strcspn(name, ":"), name);
        slot->impl = find(impls, base, (int)platform);
        slot->role = slot->impl ? impls_role(impls, slot->impl) : ATTN_ROLE_KERNEL;
        slot->is_loaded = is_loaded(impls, slot->impl);
        if (!check_suffixes(slot) || !check_variant(slot))
            return EXIT_USAGE;
        slot->device = *device;
        if (slot->has_small_memory && slot->device.smem_per_block_bytes > SMALL_MEMORY_BYTES)
            slot->device.smem_per_block_bytes = SMALL_MEMORY_BYTES;
        const bool is_alias = !strcmp(name, "fused");
        if (!slot->impl && !is_alias) {
            if (!slot->is_named)
                continue; /* a default implementation that this build or platform lacks is skipped */
            if (!strcmp(base, "fused"))
                log_error("--impl %s: what follows the colon belongs to a kernel; name it ('fabench list' shows them)",
                          name);
            else
                unknown(impls, base, platform);
            return EXIT_USAGE;
        }
        for (int j = 0; j < *count; j++)
            if (!strcmp(slots[j].name, name)) {
                log_error("--impl: %s twice", name);
                return EXIT_USAGE;
            }
        (*count)++;
    }
    return EXIT_OK;
}

/* Whether the slot may become NAME:invariant: it says no variant, and its implementation promises such a mode. */
static bool may_be_invariant(const struct impl_slot *slot)
{
    return slot->impl && slot->impl->invariant[ATTN_FWD] && !slot->is_invariant && !slot->variant[0];
}

/* Has a slot, or the list, this name? */
static bool is_taken(const struct impl_slot *slots, int count, const struct name_list *names, const char *name)
{
    bool is_there = name_list_has(names, name);
    for (int i = 0; i < count; i++)
        is_there |= strcmp(slots[i].name, name) == 0;
    return is_there;
}

/* Adds "name:deterministic:invariant:fast" for the slot "name:deterministic:fast", or the slot's name where another
 * slot has that one. */
static void add_invariant(const struct impl_slot *slots, int count, const struct impl_slot *slot,
                          struct name_list *names)
{
    const size_t length = strlen(slot->name) - (slot->is_fast ? strlen(FAST) + 1 : 0);
    char *name = xasprintf("%.*s:%s%s", (int)length, slot->name, INVARIANT, slot->name + length);
    name_list_add(names, is_taken(slots, count, names, name) ? slot->name : name);
    free(name);
}

/* For "fused": the fused kernels of this platform that promise an invariant mode and have no slot for it, "fused"
 * itself where none promises it. */
static void add_fused(const struct impl_slot *slots, int count, const struct attn_device *device,
                      struct name_list *names)
{
    bool has_one = false;
    for (const struct attn_impl *const *impl = attn_registry(); *impl; impl++) {
        char name[IMPL_NAME_SIZE];
        if ((*impl)->platform != device->platform || !(*impl)->invariant[ATTN_FWD])
            continue;
        has_one = true;
        snprintf(name, sizeof name, "%s:%s", (*impl)->name, INVARIANT);
        if (!is_taken(slots, count, names, name))
            name_list_add(names, name);
    }
    if (!has_one)
        name_list_add(names, "fused");
}

int impls_make_invariant(const struct impls *impls, const struct attn_device *device, struct impl_slot *slots,
                         int *count)
{
    struct name_list names = {0};
    bool is_named[IMPL_MAX_SLOTS] = {false};
    for (int i = 0; i < *count; i++) {
        const int first = names.count;
        const bool is_alias = strcmp(slots[i].name, "fused") == 0;
        if (is_alias)
            add_fused(slots, *count, device, &names);
        else if (may_be_invariant(&slots[i]))
            add_invariant(slots, *count, &slots[i], &names);
        else
            name_list_add(&names, slots[i].name);
        /* Of several kernels in the place of "fused" one may run nowhere. */
        for (int n = first; n < names.count && n < IMPL_MAX_SLOTS; n++)
            is_named[n] = slots[i].is_named && !(is_alias && names.count - first > 1);
    }
    const int status = impls_select(impls, &names, device, slots, count);
    for (int i = 0; i < *count && status == EXIT_OK; i++)
        slots[i].is_named = is_named[i];
    name_list_free(&names);
    return status;
}

const char *impl_recorded_name(const struct impl_slot *slot, const struct attn_impl *impl)
{
    return strchr(slot->name, ':') || !impl ? slot->name : impl->name;
}

/* "--peer x: no implementation on the CPU; must be one of fused, naive, fused_cpu, ...". */
static int unknown_peer(const struct impls *impls, const char *peer, enum attn_platform platform)
{
    struct text names = {0};
    text_add(&names, "fused");
    for (int i = 0; i < impls->count; i++)
        if (impls->all[i]->platform == platform)
            text_add(&names, ", %s", impls->all[i]->name);
    log_error("--peer %.80s: no implementation on %s has this name; must be one of %s", peer,
              platform == ATTN_CUDA ? "CUDA" : "the CPU", text_string(&names));
    text_free(&names);
    return EXIT_USAGE;
}

int impls_add_peer(const struct impls *impls, const char *peer, const struct attn_device *device,
                   struct impl_slot *slots, int *count)
{
    char base[sizeof slots->name];
    struct name_list one = {0};
    int added = 0;
    snprintf(base, sizeof base, "%.*s", (int)strcspn(peer, ":"), peer);
    if (strlen(peer) >= sizeof slots->name || (strcmp(peer, "fused") != 0 && !find(impls, base, (int)device->platform)))
        return unknown_peer(impls, peer, device->platform);
    for (int i = 0; i < *count; i++)
        if (strcmp(slots[i].name, peer) == 0)
            return EXIT_OK;
    if (*count == IMPL_MAX_SLOTS) {
        log_error("--peer %s: it would be implementation %d, at most %d run together", peer, *count + 1,
                  IMPL_MAX_SLOTS);
        return EXIT_USAGE;
    }
    name_list_add(&one, peer);
    const int status = impls_select(impls, &one, device, &slots[*count], &added);
    name_list_free(&one);
    *count += status == EXIT_OK ? added : 0;
    return status;
}

const char *impls_peer(const struct impl_slot *slots, int count, const char *asked)
{
    const char *ours = NULL;
    bool has_loaded = false;
    if (asked)
        return asked;
    for (int i = 0; i < count; i++) {
        if (slots[i].role == ATTN_ROLE_PEER)
            return NULL;
        if (slots[i].is_loaded)
            has_loaded = true;
        else if (slots[i].role != ATTN_ROLE_NAIVE && slots[i].role != ATTN_ROLE_NOTHING && !slots[i].is_stored && !ours)
            ours = slots[i].name;
    }
    return has_loaded ? ours : NULL;
}

const struct attn_impl *impl_resolve(const struct impl_slot *slot, struct attn_request *request,
                                     struct attn_message *why)
{
    request->deterministic |= slot->is_deterministic;
    request->invariant |= slot->is_invariant;
    request->fast |= slot->is_fast;
    if (slot->has_small_memory)
        request->device = &slot->device;
    if (slot->variant[0])
        request->variant = slot->variant;
    if (request->invariant && (request->variant || request->splits)) {
        snprintf(why->text, sizeof why->text, "invariant goes with no %s", request->splits ? "--splits" : "variant");
        return NULL;
    }
    if (slot->impl)
        return slot->impl->accepts(request, why) == ATTN_OK ? slot->impl : NULL;
    snprintf(why->text, sizeof why->text, "no fused kernel for this platform in this build");
    for (const struct attn_impl *const *impl = attn_registry(); *impl; impl++)
        if ((*impl)->platform == request->device->platform && (*impl)->accepts(request, why) == ATTN_OK)
            return *impl;
    return NULL;
}
