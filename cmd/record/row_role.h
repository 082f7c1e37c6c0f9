/* What the implementation of a row is there for. A record has names alone; those of naive, peers and `null` are kept for
 * this program's own (a loaded library that uses one is refused), so that the name says the role. */
#ifndef FABENCH_RECORD_ROW_ROLE_H
#define FABENCH_RECORD_ROW_ROLE_H

#include "reference/registry.h"

/* The role of an implementation by the name in a record; what follows a colon (a variant) does not count. */
enum impl_role role_of_name(const char *impl);

/* The name of the only implementation in a role: "naive", "cudnn", "null". */
const char *role_name(enum impl_role);

/* Is it one of ours that `--impl fused` may choose? */
bool role_is_fused(const char *impl);

#endif
