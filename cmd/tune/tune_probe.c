/* Asks an implementation which variants take which problems. It opens the device, so a child process does it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/process.h"
#include "cmd/base/text.h"
#include "cmd/run/session.h"
#include "cmd/run/supervisor.h"
#include "cmd/tune/tune.h"

static struct tune_probe *shared; /* with the child */

/* What one problem gets. An exit code. */
static int ask(const struct session *s, const struct attn_impl *impl, const char *words,
               struct tune_candidates *candidates)
{
    struct options one;
    struct plan plan;
    struct attn_message why;
    char *line = xasprintf("fabench%s", words);
    int status = options_parse_line(line, &one);
    free(line);
    if (status != EXIT_OK)
        return status;
    status = plan_make(&one, s->backend.device.platform, &plan);
    if (status == EXIT_OK && plan.count > 0) {
        const struct plan_item *item = &plan.items[0];
        struct attn_request request = {.problem = &item->problem,
                                       .device = &s->backend.device,
                                       .mode = item->mode,
                                       .outputs = problem_wanted_outputs(&item->problem, item->mode)};
        const char *own = impl->accepts(&request, &why) == ATTN_OK ? impl->variant(&request) : NULL;
        *candidates = (struct tune_candidates){0, -1};
        for (int v = 0; v < shared->variant_count && own; v++) {
            request.variant = shared->variants[v];
            if (impl->accepts(&request, &why) == ATTN_OK)
                candidates->takers |= UINT64_C(1) << v;
            if (strcmp(shared->variants[v], own) == 0)
                candidates->built_in = v;
        }
        plan_free(&plan);
    }
    options_free(&one);
    return status;
}

/* The implementation to be tuned, with its variants in *shared; NULL after a sentence. */
static const struct attn_impl *find(const struct options *o, const struct session *s)
{
    const struct attn_impl *impl = s->slots[0].impl;
    const char *name = o->impls.names[0];
    if (!impl || strchr(name, ':')) {
        log_error("tune: --impl %s: must be the name of one implementation alone ('fabench list' shows them)", name);
        return NULL;
    }
    for (const struct attn_variant *v = impl->variants; impl->variant && v && v->name; v++)
        if (shared->variant_count < TUNE_VARIANTS_MAX)
            snprintf(shared->variants[shared->variant_count++], IMPL_NAME_SIZE, "%s", v->name);
    if (shared->variant_count > 0)
        return impl;
    log_error("tune: --impl %s: has no variants to choose from", name);
    return NULL;
}

static int probe(const struct options *o)
{
    struct session s;
    struct tune_list list = {0};
    int status = session_open(o, "tune", true, &s);
    if (status != EXIT_OK)
        return status;
    const struct attn_impl *impl = find(o, &s);
    shared->device = s.backend.info;
    shared->platform = s.backend.device.platform;
    snprintf(shared->lock_name, sizeof shared->lock_name, "%s",
             shared->platform == ATTN_CPU ? "cpu" : s.backend.info.pci_bus_id);
    status = impl ? tune_list_make(o, shared->platform, &list) : EXIT_USAGE;
    for (int i = 0; i < list.count && status == EXIT_OK; i++)
        status = ask(&s, impl, list.items[i].options, &shared->candidates[i]);
    shared->problem_count = list.count;
    tune_list_free(&list);
    session_close(&s);
    return status;
}

int tune_probe_make(const struct options *o, struct tune_probe **result)
{
    shared = process_share(sizeof *shared);
    *result = shared;
    if (!shared) {
        log_error("tune: no memory to share with a child process: %s", strerror(errno));
        return EXIT_IO;
    }
    return supervisor_call(o, "tune", probe, 120);
}

void tune_probe_free(struct tune_probe *made)
{
    if (made)
        process_unshare(made, sizeof *made);
}
