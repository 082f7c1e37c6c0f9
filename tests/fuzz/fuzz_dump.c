/* The tensors.json of a dump: what is read is a problem whose sizes can be computed with. */
#include <stdlib.h>
#include <string.h>

#include "cmd/device/buffers.h"
#include "cmd/options/options_parse.h"
#include "cmd/plan/plan.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plan_item item;
    struct attn_message why = {""};
    struct options o;
    bool has_problem = false;
    if (!plan_item_read(fuzz_put(0, data, size), &item, &has_problem, &why)) {
        FUZZ_CHECK(why.text[0] && !has_problem);
        return 0;
    }
    if (!has_problem)
        return 0;
    const struct attn_problem *p = &item.problem;
    FUZZ_CHECK(plan_shape_fits(p) && p->q_heads % p->kv_heads == 0 && p->scale > 0 && !item.folder && !item.name[0]);
    FUZZ_CHECK(tensor_set_bytes(&item) > 0);
    FUZZ_CHECK(options_parse_line("fabench", &o) == 0);
    char *repro = plan_repro(&o, &item, "naive");
    FUZZ_CHECK(item.batch_gap || strstr(repro, " --mode "));
    free(repro);
    options_free(&o);
    return 0;
}
