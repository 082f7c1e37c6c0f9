/* A row as a JSON object and back. Empty means not measured: NaN in the struct, an absent key in JSONL, an empty CSV
 * cell. */
#ifndef FABENCH_RECORD_H
#define FABENCH_RECORD_H

#include <jansson.h>

#include "cmd/record/record_row.h"
#include "kernels/attention.h"

/* Frees the row's memory and sets every field to "not measured", except schema, which gets this program's version. A
 * new row must be zeroed before the first call. */
void record_row_clear(struct record_row *);
void record_row_free(struct record_row *);

/* True for a row whose time may be compared: status ok, a time, check not failed. */
bool record_row_is_timed(const struct record_row *);

/* True for a row whose case ended in an error or a timeout. */
bool record_row_is_broken(const struct record_row *);
/* True for these and for a row that failed its check. */
bool record_row_failed(const struct record_row *);

/* Converts a row to a JSON object (the caller owns the reference) and back (unknown keys are ignored, missing ones are
 * "not measured"; control characters of texts become spaces in both directions). record_row_parse returns false with a
 * sentence when a key has the wrong type or the schema version differs. */
json_t *record_row_json(const struct record_row *);
bool record_row_parse(const json_t *, struct record_row *, char *why, size_t why_size);

/* False with a sentence when the schema is not the one that this program reads. */
bool record_schema_is_ours(int64_t schema, char *why, size_t why_size);

/* Ends the program (exit 7) when a JSON value could not be made. */
json_t *record_must(json_t *);

#endif
