/* The program with one of its defences lost, for the test that `selftest` finds each loss: the linker replaces the
 * function that the defence hangs on (-Wl,--wrap). LOST_DEFENCE names it.
 *
 *   pattern     nothing is written into outputs before a launch
 *   new_values  elements of the inputs keep their signs between samples
 *   signs       columns do
 *   witness     no clock is compared with another
 *   reference   nobody looks whether the reference was changed */
#include <stdlib.h>
#include <string.h>

#include "cmd/device/inputs.h"
#include "cmd/run/check.h"
#include "cmd/run/witness.h"

enum attn_status __real_outputs_poison(struct backend *, struct tensor_set *, struct attn_message *why);
enum attn_status __wrap_outputs_poison(struct backend *, struct tensor_set *, struct attn_message *why);
enum attn_status __real_inputs_change_signs(struct backend *, const struct plan_item *, struct tensor_set *,
                                            const struct input_signs *, struct attn_message *why);
enum attn_status __wrap_inputs_change_signs(struct backend *, const struct plan_item *, struct tensor_set *,
                                            const struct input_signs *, struct attn_message *why);
bool __real_witness_confirms(const struct witness *, bool is_comparable, double claimed_ms);
bool __wrap_witness_confirms(const struct witness *, bool is_comparable, double claimed_ms);
enum attn_status __real_check_reference_holds(struct backend *, const struct check_reference *, bool *holds,
                                              struct attn_message *why);
enum attn_status __wrap_check_reference_holds(struct backend *, const struct check_reference *, bool *holds,
                                              struct attn_message *why);

static bool is_lost(const char *defence)
{
    const char *lost = getenv("LOST_DEFENCE");
    return lost && strcmp(lost, defence) == 0;
}

enum attn_status __wrap_outputs_poison(struct backend *be, struct tensor_set *set, struct attn_message *why)
{
    return is_lost("pattern") ? ATTN_OK : __real_outputs_poison(be, set, why);
}

enum attn_status __wrap_inputs_change_signs(struct backend *be, const struct plan_item *item, struct tensor_set *set,
                                            const struct input_signs *asked, struct attn_message *why)
{
    static const struct input_signs none;
    struct input_signs *own = (struct input_signs *)asked; /* of the caller, which takes them for the outputs', too */
    const bool is_any = memcmp(asked, &none, sizeof none) != 0;
    if (is_any && is_lost("new_values"))
        memset(own->elements, 0, sizeof own->elements);
    if (is_any && is_lost("signs")) {
        memset(&own->qk, 0, sizeof own->qk);
        memset(&own->v, 0, sizeof own->v);
    }
    return __real_inputs_change_signs(be, item, set, asked, why);
}

bool __wrap_witness_confirms(const struct witness *w, bool is_comparable, double claimed_ms)
{
    return is_lost("witness") || __real_witness_confirms(w, is_comparable, claimed_ms);
}

enum attn_status __wrap_check_reference_holds(struct backend *be, const struct check_reference *reference, bool *holds,
                                              struct attn_message *why)
{
    *holds = true;
    return is_lost("reference") ? ATTN_OK : __real_check_reference_holds(be, reference, holds, why);
}
