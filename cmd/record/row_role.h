/* The role of a row's implementation. A record holds only names. The names of naive, the peers and `null` are reserved
 * (a loaded library that uses one is refused), so that the role follows from the name. */
#ifndef FABENCH_RECORD_ROW_ROLE_H
#define FABENCH_RECORD_ROW_ROLE_H

#include "reference/registry.h"

/* The role of an implementation by the name in a record; a variant (after a colon) is ignored. */
enum attn_role role_of_name(const char *impl);

/* The name of the only implementation in a role: "naive", "cudnn", "null". */
const char *role_name(enum attn_role);

/* True for a kernel of this program that `--impl fused` may choose: their names begin with "fused_". */
bool role_is_fused(const char *impl);

#endif
