/* The names of the stages of a problem. */
#include "cmd/run/case_setting.h"

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
