/* The closing table of a run over several kinds of inputs (--logit-std, --dist): by how much the speed and the error of
 * each implementation depend on the data. A row is compared with the row of the same problem on the first kind of
 * inputs that the run has for it; its ratios are averaged geometrically over the lengths, masks and dtypes of an
 * implementation, direction and head dim. */
#ifndef FABENCH_DATA_TABLE_H
#define FABENCH_DATA_TABLE_H

#include <stdio.h>

#include "cmd/record/record.h"

struct data_entry; /* what is kept of a row */

struct data_table {
    struct data_entry *entries; /* owned */
    int count;
};

/* Keeps what the table needs of a row that ran and did not fail its check. */
void data_table_add(struct data_table *, const struct record_row *);

/* Nothing where no problem was run with two kinds of inputs. */
void data_table_print(const struct data_table *, FILE *out, int width);

void data_table_free(struct data_table *);

#endif
