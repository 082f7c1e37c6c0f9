/* What `report` is given: record files under labels, and prices. */
#ifndef FABENCH_REPORT_INPUT_H
#define FABENCH_REPORT_INPUT_H

#include "cmd/options/options.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"

enum { REPORT_LABEL_MAX = 40 };

/* One device, or one commit on it: what stands beside the others. */
struct report_label {
    char name[REPORT_LABEL_MAX + 24];
    int *files; /* indices into report_input.files */
    int file_count;
    double price; /* NaN = not given */
};

struct report_input {
    struct record_file *files;
    int file_count;
    struct report_label *labels; /* in the order of the command line */
    int label_count;
    char currency[4];            /* of all prices; "" = no price */
};

/* Reads and sorts what the command line names. EXIT_OK; EXIT_USAGE for labels, prices and files that are none or given
 * twice; EXIT_NOT_COMPARABLE for files that cannot be read, hold nothing to report, hold several devices or methods,
 * hold a run that another file holds, or stand under one label without being of one device. Each after a sentence. A
 * cut last line is a warning. report_input_free frees it in every case. */
int report_input_read(const struct options *, struct report_input *);
void report_input_free(struct report_input *);

/* A row that can stand in a report: attention that ran, passed its check and has its TFLOPS. */
bool report_row_counts(const struct record_row *);

#endif
