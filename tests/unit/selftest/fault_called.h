/* A fault by its name, for the tests of selftest. After unit_help.h or cmocka's headers. */
#ifndef FABENCH_FAULT_CALLED_H
#define FABENCH_FAULT_CALLED_H

#include <string.h>

#include "cmd/selftest/faults.h"

static inline const struct fault *fault_called(const char *name)
{
    int count;
    const struct fault *faults = fault_table(&count);
    for (int i = 0; i < count; i++)
        if (!strcmp(faults[i].name, name))
            return &faults[i];
    fail_msg("no fault %s", name);
    return NULL;
}

#endif
