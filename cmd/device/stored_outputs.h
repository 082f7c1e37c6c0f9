/* verify --outputs: results that another program has written take the place of implementations. */
#ifndef FABENCH_STORED_OUTPUTS_H
#define FABENCH_STORED_OUTPUTS_H

#include "cmd/device/implementations.h"
#include "cmd/device/buffers.h"

/* One slot for each folder of results beside the inputs of any problem of the plan, in the order of their names; with
 * `names` for these alone. EXIT_OK, EXIT_USAGE with a sentence for a name that no problem has a folder of, or for more
 * than IMPL_MAX_SLOTS folders, EXIT_IO where there is none. May be called once in a process. */
int stored_outputs_select(const struct plan *, const struct name_list *names, struct impl_slot *slots, int *count);

/* Reads the results of a slot into the outputs of the problem. ATTN_UNSUPPORTED where the problem has no folder of
 * them. *bad: the name of a tensor whose file cannot be used; then `why` says why, and the results count as wrong; else
 * NULL. `found`: see outputs_read (cmd/device/inputs.h). */
enum attn_status stored_outputs_read(struct backend *, const struct plan_item *, const struct impl_slot *,
                                     struct tensor_set *outputs, unsigned *found, const char **bad,
                                     struct attn_message *why);

#endif
