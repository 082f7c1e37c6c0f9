/* Can two record files be compared? Device, policy and timing method must be the same, in the headers and in every row.
 * A file can hold several runs; they must be of one kind too. */
#ifndef FABENCH_FINGERPRINT_H
#define FABENCH_FINGERPRINT_H

#include "cmd/record/record_file.h"

/* Does one file have one device, driver, method and policy, and each configuration once? Else false, and *why begins
 * with the path. */
bool fingerprint_is_uniform(const struct record_file *, struct attn_message *why);

/* Were both measured on the same kind of device under the same policy? Else false, and *why has the first difference
 * and both values. */
bool fingerprint_matches(const struct record_file *baseline, const struct record_file *current,
                         struct attn_message *why);

#endif
