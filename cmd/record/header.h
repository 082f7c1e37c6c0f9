/* What the header object of a record file says. */
#ifndef FABENCH_RECORD_HEADER_H
#define FABENCH_RECORD_HEADER_H

#include <jansson.h>
#include <stddef.h>

/* The value at a path like "device.name", NULL = absent; and as text: JSON, "absent" where it is missing. */
json_t *header_value(const json_t *header, const char *path);
char *header_value_text(const json_t *value, char *buffer, size_t size);

/* The first path at which the two headers differ, with both values as text; NULL when they are equal at all paths.
 * Absent in both counts as equal. */
const char *header_difference(const json_t *a, const json_t *b, const char *const *paths, int count, char *a_text,
                              char *b_text, size_t size);

/* The line above the table: "NVIDIA H200 141 GB, 700 W, ECC on, driver 580.65 | fabench 0.1.0 (4e1c09a)". */
char *header_line(const json_t *header);

/* "h200-20261121T0802Z", for the folder of a run. */
char *header_folder_name(const json_t *header);

#endif
