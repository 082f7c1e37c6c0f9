/* What makes two rows of different runs the same case: problem, mode and implementation, never the variant. */
#ifndef FABENCH_CASE_KEY_H
#define FABENCH_CASE_KEY_H

#include "cmd/record/record.h"

/* Problem, mode, inputs and cache policy as one string, equal exactly when two rows can be compared. */
char *case_problem_key(const struct record_row *, char *buffer, size_t size);
enum { CASE_KEY_SIZE = 256 };

/* "bwd causal d128 16k bf16" as people read it, in columns. */
char *case_label(const struct record_row *, char *buffer, size_t size);
enum { CASE_LABEL_SIZE = 64 };

/* A row that ran and whose time may be compared: status ok, a time, not failed. */
bool case_is_timed(const struct record_row *);

#endif
