/* The input of `report`: record files under labels, and prices. */
#ifndef FABENCH_REPORT_INPUT_H
#define FABENCH_REPORT_INPUT_H

#include "cmd/options/options.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"

enum { REPORT_LABEL_MAX = 40 };

/* One label: a device, or a commit measured on it. */
struct report_label {
    char name[REPORT_LABEL_MAX + 24];
    int *files; /* indices into report_input.files */
    int file_count;
    double price; /* of one device, in report_input.currency; NaN = not given */
};

struct report_input {
    struct record_file *files;
    int file_count;
    struct report_label *labels; /* in the order of the command line */
    int label_count;
    char currency[4]; /* of all prices; "" = no price */
};

/* Reads the files of the command line and sorts them by label. Returns EXIT_OK, or after a message on stderr
 *   EXIT_USAGE           for a wrong label or price, and a file that is given twice;
 *   EXIT_NOT_COMPARABLE  for a file that cannot be read, has nothing to report, holds several devices or methods, or
 *                        holds a run that another file holds, and for files of different devices under one label.
 * A cut last line is a warning. The caller calls report_input_free in every case. */
int report_input_read(const struct options *, struct report_input *);
void report_input_free(struct report_input *);

/* Can the row be used in a report? It must have run, passed its check, and have TFLOPS; null is not used. */
bool report_row_is_valid(const struct record_row *);

#endif
