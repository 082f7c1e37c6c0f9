/* Folders of results -> slots, and their files -> outputs. */
#include "cmd/device/stored_outputs.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/base/text.h"
#include "reference/registry.h"
#include "cmd/device/inputs.h"

/* Never called: stored_outputs_read takes its place. */
static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    (void)request;
    (void)tensors;
    (void)run;
    snprintf(why->text, sizeof why->text, "stored results cannot be launched");
    return ATTN_ERROR;
}

/* What the slots point to, for the life of the process. */
static struct stored {
    struct attn_impl impl;
    char name[sizeof((struct impl_slot *)0)->name];
} stored[IMPL_MAX_SLOTS];

static bool has_file(const char *folder, const char *name)
{
    char *path = xasprintf("%s/%s", folder, name);
    const bool is_there = access(path, F_OK) == 0;
    free(path);
    return is_there;
}

/* A folder of results has at least one file of the outputs. */
static bool has_results(const char *folder)
{
    return has_file(folder, "o.npy") || has_file(folder, "dq.npy") || has_file(folder, "dk.npy") ||
           has_file(folder, "dv.npy") || has_file(folder, "lse.npy");
}

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

/* Adds the names of the folders of results beside one problem's inputs that are not in the list yet. */
static void add_names(const char *folder, struct name_list *names)
{
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, is_visible, alphasort);
    for (int i = 0; i < count; i++) {
        char *path = xasprintf("%s/%s", folder, entries[i]->d_name);
        if (has_results(path) && !name_list_has(names, entries[i]->d_name))
            name_list_add(names, entries[i]->d_name);
        free(path);
        free(entries[i]);
    }
    free(entries);
}

static int refuse_name(const char *name, const struct name_list *there)
{
    char *all = name_list_join(there), shown[200];
    log_error("--impl %s: no problem of --outputs has results in a folder of this name, only in %s", name,
              text_cut_middle(all, shown, sizeof shown));
    free(all);
    return EXIT_USAGE;
}

static int make_slots(const struct name_list *names, const struct name_list *there, bool is_named,
                      struct impl_slot *slots, int *count)
{
    for (int i = 0; i < names->count; i++) {
        const char *name = names->names[i];
        struct stored *s = &stored[i];
        if (!name_list_has(there, name))
            return refuse_name(name, there);
        if (i == IMPL_MAX_SLOTS || strlen(name) >= sizeof s->name) {
            log_error(i == IMPL_MAX_SLOTS ? "--outputs: %s is one folder of results too many; --impl names some"
                                          : "--outputs: %s: a folder of results has a name of less than 40 characters",
                      name);
            return EXIT_USAGE;
        }
        snprintf(s->name, sizeof s->name, "%s", name);
        s->impl = attn_null_cpu; /* which accepts every problem, too */
        s->impl.name = s->name;
        s->impl.summary = "stored results";
        s->impl.role = ATTN_ROLE_KERNEL;
        s->impl.launch = launch;
        /* The program alone has an implementation of this name. */
        const enum attn_role role = strcmp(name, "naive") == 0 ? ATTN_ROLE_NAIVE : ATTN_ROLE_KERNEL;
        slots[i] = (struct impl_slot){.is_named = is_named, .impl = &s->impl, .role = role, .is_stored = true};
        snprintf(slots[i].name, sizeof slots[i].name, "%s", name);
        *count = i + 1;
    }
    return EXIT_OK;
}

int stored_outputs_select(const struct plan *plan, const struct name_list *names, struct impl_slot *slots, int *count)
{
    struct name_list there = {0};
    int status = EXIT_IO;
    *count = 0;
    for (int i = 0; i < plan->count; i++)
        add_names(plan->items[i].folder, &there);
    if (there.count == 0)
        log_error("--outputs: no folder with results (o.npy, or dq.npy, dk.npy and dv.npy) beside the inputs in %s",
                  plan->items[0].folder);
    else
        status = make_slots(names->count ? names : &there, &there, names->count > 0, slots, count);
    name_list_free(&there);
    return status;
}

enum attn_status stored_outputs_read(struct backend *be, const struct plan_item *item, const struct impl_slot *slot,
                                     struct tensor_set *outputs, unsigned *found, const char **bad,
                                     struct attn_message *why)
{
    char *folder = xasprintf("%s/%s", item->folder, slot->name);
    enum attn_status status = ATTN_UNSUPPORTED;
    enum problem_tensor at = TENSOR_COUNT;
    *bad = NULL;
    if (has_results(folder)) {
        status = outputs_read(be, item, folder, outputs, found, &at, why);
        *bad = status == ATTN_UNSUPPORTED ? problem_tensor_name(at) : NULL;
    } else {
        snprintf(why->text, sizeof why->text, "no results in its folder %s/", slot->name);
    }
    free(folder);
    return *bad ? ATTN_OK : status;
}
