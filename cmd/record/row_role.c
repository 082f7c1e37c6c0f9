/* Names and roles. */
#include "cmd/record/row_role.h"

#include <string.h>

static const char *const names[] = {[ROLE_NAIVE] = "naive", [ROLE_PEER] = "cudnn", [ROLE_NULL] = "null"};

enum impl_role role_of_name(const char *impl)
{
    const size_t length = strcspn(impl, ":");
    for (int role = ROLE_NAIVE; role <= ROLE_NULL; role++)
        if (strlen(names[role]) == length && strncmp(impl, names[role], length) == 0)
            return (enum impl_role)role;
    return ROLE_KERNEL;
}

const char *role_name(enum impl_role role) { return names[role]; }

bool role_is_fused(const char *impl) { return strncmp(impl, "fused_", 6) == 0; }
