/* Names and roles. */
#include "cmd/record/row_role.h"

#include <string.h>

static const char *const names[] = {
    [ATTN_ROLE_NAIVE] = "naive", [ATTN_ROLE_PEER] = "cudnn", [ATTN_ROLE_NOTHING] = "null"};

enum attn_role role_of_name(const char *impl)
{
    const size_t length = strcspn(impl, ":");
    for (int role = ATTN_ROLE_NAIVE; role <= ATTN_ROLE_NOTHING; role++)
        if (strlen(names[role]) == length && strncmp(impl, names[role], length) == 0)
            return (enum attn_role)role;
    return ATTN_ROLE_KERNEL;
}

const char *role_name(enum attn_role role) { return names[role]; }

bool role_is_fused(const char *impl) { return strncmp(impl, "fused_", 6) == 0; }
