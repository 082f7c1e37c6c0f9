/* What the steps of a problem share, and their names. */
#include "cmd/run/case_state.h"

enum attn_role case_role_of(const struct problem_run *run, const struct contender *c)
{
    return run->setting->slots[c->slot].role;
}

void case_report_stage(const struct problem_run *run, enum case_stage s, int slot)
{
    const char *impl = "";
    for (int i = 0; i < run->count; i++)
        if (run->contenders[i].slot == slot && run->contenders[i].impl)
            impl = impl_recorded_name(&run->setting->slots[slot], run->contenders[i].impl);
    run->setting->hooks.stage(run->setting->hooks.context, s, slot, impl);
}

void case_send_row(const struct problem_run *run, struct contender *c)
{
    if (!(run->rerun & 1u << c->slot))
        run->setting->hooks.row(run->setting->hooks.context, c->slot, &c->row);
    c->runs = false;
}

bool case_is_loaded(const struct problem_run *run, const struct contender *c)
{
    return run->setting->slots[c->slot].is_loaded;
}

void case_after_call(const struct problem_run *run)
{
    if (run->setting->hooks.returned)
        run->setting->hooks.returned(run->setting->hooks.context);
}

const char *case_stage_doing(int s)
{
    static const char *const names[] = {"", "preparing", "checking", "timing", "sustained load"};
    return s >= 0 && s < (int)(sizeof names / sizeof names[0]) ? names[s] : "";
}

const char *case_stage_when(int s)
{
    static const char *const names[] = {"", "while being prepared", "in its checked launch", "while being timed",
                                        "under sustained load"};
    return s >= 0 && s < (int)(sizeof names / sizeof names[0]) ? names[s] : "";
}
