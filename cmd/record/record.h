/* A row as a JSON object and back. Empty means not measured: NaN in the struct, an absent key in JSONL, an empty CSV cell. */
#ifndef FABENCH_RECORD_H
#define FABENCH_RECORD_H

#include <jansson.h>

#include "cmd/record/record_row.h"
#include "kernels/attention.h"

/* Frees, then everything "not measured" but schema, which becomes ours. The row must be zeroed before its first
 * time. */
void record_row_clear(struct record_row *);
void record_row_free(struct record_row *);

/* A row that ran and whose time may be compared: status ok, a time, not failed. */
bool record_row_is_timed(const struct record_row *);

/* A row whose case ended in an error or ran out of time. */
bool record_row_is_broken(const struct record_row *);

/* One row as one JSON object (the caller owns the reference); and back (unknown keys are ignored, missing ones are "not
 * measured"). record_row_parse returns false with a sentence when a key has the wrong type or the schema is another. */
json_t *record_row_json(const struct record_row *);
bool record_row_parse(const json_t *, struct record_row *, char *why, size_t why_size);

/* False with a sentence when this is not the schema that the program reads. */
bool record_schema_is_ours(int64_t schema, char *why, size_t why_size);

/* Ends the program (exit 7) when a JSON value could not be made. */
json_t *record_must(json_t *);

#endif
