/* Whether the results of a sequence depend on that sequence alone (attn_request.invariant): a forward's sequences are
 * computed again in other batches, and every row must have the bits that it has in the problem itself.
 *   alone       each in a batch of its own, of more than INVARIANCE_ALONE as many of them
 *   reversed    all in the opposite order
 *   shuffled    all in an order drawn from the seed
 *   twice       all, then all again; one sequence: three times
 *   half        half of them, in an order drawn from the seed
 *   contiguous, pages N   all against the other kind of cache, and in pages of another size
 * Dropout counts the number of a sequence, so that its results depend on the batch by definition: such problems have no
 * arrangements. */
#ifndef FABENCH_INVARIANCE_H
#define FABENCH_INVARIANCE_H

#include "cmd/run/arrangement.h"

enum { INVARIANCE_ALONE = 64 };

/* One implementation on a problem. */
struct invariance_request {
    const struct plan_item *item;
    const struct tensor_set *inputs, *outputs; /* outputs: of the problem, computed from these inputs */
    const struct attn_impl *impl;
    const struct attn_request *request;
    /* Around every call of the implementation, with `context`. */
    void (*before_call)(void *context), (*after_call)(void *context);
    void *context;
};

struct invariance {
    int compared;     /* arrangements that ran */
    unsigned differs; /* attn_output bits with a row whose bits differ */
    /* For each of the two outputs the first such row, as "o[1,0,5] alone": sequence, query head, row of the sequence,
     * and the batch in which it differs. */
    char first_o[48], first_lse[48];
};

/* Runs the arrangements. One that the implementation refuses, or that finds no memory, is left out. */
enum attn_status invariance_measure(struct backend *, const struct invariance_request *, struct invariance *,
                                    struct attn_message *why);

/* The text of the column batch_invariant: "yes", "no o[1,0,5] alone", "" where nothing was compared. */
char *invariance_text(const struct invariance *, char *buffer, size_t size);

#endif
