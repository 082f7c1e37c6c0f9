/* May two record files be compared at all? Device, policy and method must be the same, in their headers and in every
 * row: a file that was put together from several runs must be of one kind. */
#ifndef FABENCH_FINGERPRINT_H
#define FABENCH_FINGERPRINT_H

#include "cmd/record/record.h"
#include "cmd/record/record_file.h"

/* Is one file of one kind, with each case in it once? Else false with a sentence that begins with its path. */
bool fingerprint_is_whole(const struct record_file *, struct attn_message *why);

/* Were both measured on the same kind of device under the same policy? Else false with a sentence that names the first
 * difference and both values. */
bool fingerprint_matches(const struct record_file *baseline, const struct record_file *current,
                         struct attn_message *why);

#endif
