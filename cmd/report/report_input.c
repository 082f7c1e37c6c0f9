/* Reads the arguments into files under labels. A label is given, or made from what distinguishes the files without one.
 * */
#include "cmd/report/report_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/base/text.h"
#include "cmd/record/record_figures.h"
#include "cmd/record/record_row.h"

static const char label_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ._+()@:-";

bool report_row_is_valid(const struct record_row *row)
{
    return record_row_is_checked(row) && role_of_name(row->impl) != ATTN_ROLE_NOTHING && row->impl[0] &&
           isfinite(row->tflops) && row->tflops > 0 && isfinite(row->time_ms) && row->time_ms > 0;
}

/* ---- arguments ---- */

/* The text before the first '=' is a label, unless it is part of a path. */
static bool parse_argument(const char *word, struct report_argument *argument)
{
    const size_t length = strcspn(word, "=");
    argument->path = word;
    argument->label[0] = '\0';
    if (!word[length] || memchr(word, '/', length) || access(word, F_OK) == 0)
        return true;
    if (length == 0) {
        log_error("%s: there is no label before the =; must be LABEL=FILE or FILE", word);
        return false;
    }
    if (!word[length + 1]) {
        log_error("%s: needs a record file behind the =, as in %sa.jsonl", word, word);
        return false;
    }
    if (length > REPORT_LABEL_MAX || strspn(word, label_letters) < length || word[0] == ' ') {
        log_error("%s: a label has at most %d letters, digits, spaces and ._+()@:-", word, REPORT_LABEL_MAX);
        return false;
    }
    snprintf(argument->label, sizeof argument->label, "%.*s", (int)length, word);
    argument->path = word + length + 1;
    return true;
}

bool report_arguments_parse(const struct name_list *words, struct report_argument *arguments)
{
    for (int i = 0; i < words->count; i++) {
        if (!parse_argument(words->names[i], &arguments[i]))
            return false;
        for (int k = 0; k < i; k++)
            if (path_is_same(arguments[i].path, arguments[k].path)) {
                log_error("%s: this file is given twice", arguments[i].path);
                return false;
            }
    }
    return true;
}

/* ---- files ---- */

/* A file must hold one device and one timing method, and at least one valid row. */
static bool check_rows(const struct record_file *file)
{
    const struct record_row *first = file->count ? &file->rows[0] : NULL;
    int counted = 0, failed = 0, off = 0;
    for (int i = 0; i < file->count; i++) {
        const struct record_row *row = &file->rows[i];
        if (strcmp(row->device, first->device) != 0 || strcmp(row->arch, first->arch) != 0) {
            log_error("%s: holds rows of %s (%s) and of %s (%s); a record file must be of one device", file->path,
                      first->device, first->arch, row->device, row->arch);
            return false;
        }
        if (strcmp(row->method, first->method) != 0) {
            log_error("%s: holds rows of timing method %s and of %s, which cannot be compared", file->path,
                      first->method, row->method);
            return false;
        }
        counted += report_row_is_valid(row);
        failed += row->check == CHECKED_FAIL;
        off += row->check == CHECKED_OFF;
    }
    if (counted == 0)
        log_error("%s: holds no row that was timed and passed its check (%d rows, %d failed, %d not checked)",
                  file->path, file->count, failed, off);
    else if (!first->device[0])
        log_error("%s: its rows name no device", file->path);
    else
        return true;
    return false;
}

/* The id of a run that both files hold, or NULL. */
static const char *common_run(const struct record_file *a, const struct record_file *b)
{
    for (int i = 0; i < a->count; i++) {
        const char *run = a->rows[i].run_id;
        if (!*run || (i && strcmp(run, a->rows[i - 1].run_id) == 0))
            continue;
        for (int k = 0; k < b->count; k++)
            if (strcmp(run, b->rows[k].run_id) == 0)
                return run;
    }
    return NULL;
}

static bool read_files(const struct report_argument *arguments, struct report_input *input)
{
    for (int i = 0; i < input->file_count; i++) {
        struct attn_message why = {""};
        struct record_file *file = &input->files[i];
        if (!record_read(arguments[i].path, file, &why)) {
            log_error("%s", why.text);
            return false;
        }
        if (!record_file_agrees(file, &why)) {
            log_error("%s", why.text);
            return false;
        }
        if (!check_rows(file))
            return false;
        if (file->cut)
            log_warn("%s: its last line is cut; read up to there", file->path);
        for (int k = 0; k < i; k++) {
            const char *run = common_run(&input->files[k], file);
            if (run) {
                log_error("%s: holds run %s, which is in %s too; a copy is not a second measurement", file->path, run,
                          input->files[k].path);
                return false;
            }
        }
    }
    return true;
}

/* ---- labels ---- */

static const char *short_device(const struct record_file *file)
{
    const char *device = file->rows[0].device;
    return strncmp(device, "NVIDIA ", 7) == 0 && device[7] ? device + 7 : device;
}

/* Makes a label. way 0: the device; 1: device and commit; 2: the name of the file; 3: the name and `index` + 1. */
static void make_label(const struct record_file *file, int way, int index, char *label, size_t size)
{
    char text[256];
    const char *slash = strrchr(file->path, '/');
    const char *name = slash && slash[1] ? slash + 1 : file->path;
    const size_t length = strlen(name), end = length > 6 && strcmp(name + length - 6, ".jsonl") == 0 ? 6 : 0;
    if (way < 2)
        snprintf(text, sizeof text, "%.*s%s%.12s", way ? 27 : REPORT_LABEL_MAX, short_device(file), way ? " " : "",
                 way ? file->rows[0].commit : "");
    else
        snprintf(text, sizeof text, "%.*s", (int)(length - end > 200 ? 200 : length - end), name);
    text_clean(text, label, REPORT_LABEL_MAX + 1);
    if (way == 3)
        snprintf(label + strlen(label), size - strlen(label), " (%d)", index + 1);
}

/* Makes labels in the first way that distinguishes every file without a given label from all others. */
static void make_labels(const struct report_argument *arguments, const struct report_input *input,
                        char (*labels)[REPORT_LABEL_MAX + 24])
{
    for (int way = 0; way <= 3; way++) {
        bool is_good = true;
        for (int i = 0; i < input->file_count; i++) {
            if (arguments[i].label[0])
                snprintf(labels[i], sizeof labels[i], "%s", arguments[i].label);
            else
                make_label(&input->files[i], way, i, labels[i], sizeof labels[i]);
        }
        for (int i = 0; i < input->file_count; i++)
            for (int k = 0; k < i; k++)
                is_good &= strcmp(labels[i], labels[k]) != 0 || (arguments[i].label[0] && arguments[k].label[0]);
        if (is_good)
            return;
    }
}

static bool add_file(struct report_input *input, int index, const char *name)
{
    const struct record_row *row = &input->files[index].rows[0];
    struct report_label *label = NULL;
    for (int i = 0; i < input->label_count && !label; i++)
        if (strcmp(input->labels[i].name, name) == 0)
            label = &input->labels[i];
    if (!label) {
        label = &input->labels[input->label_count++];
        snprintf(label->name, sizeof label->name, "%s", name);
        label->price = NAN;
    } else {
        const struct record_file *other = &input->files[label->files[0]];
        const bool is_device =
            strcmp(row->device, other->rows[0].device) == 0 && strcmp(row->arch, other->rows[0].arch) == 0;
        if (!is_device || strcmp(row->method, other->rows[0].method) != 0) {
            log_error("%s: %s is of %s%s%s, %s of %s%s%s; a label must be of one kind of device and one method", name,
                      other->path, other->rows[0].device, is_device ? ", method " : "",
                      is_device ? other->rows[0].method : "", input->files[index].path, row->device,
                      is_device ? ", method " : "", is_device ? row->method : "");
            return false;
        }
    }
    label->files = xrealloc(label->files, (unsigned long)(label->file_count + 1) * sizeof *label->files);
    label->files[label->file_count++] = index;
    return true;
}

/* ---- prices ---- */

static bool refuse_price(const char *word, const char *sentence)
{
    log_error("--price %s: %s", word, sentence);
    return false;
}

/* "31000EUR": the last three letters are the currency, the rest is a number above 0. */
static bool parse_amount(const char *text, double *amount, char currency[4])
{
    char number[32];
    const size_t length = strlen(text);
    if (length < 4 || length - 3 >= sizeof number || strspn(text + length - 3, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != 3)
        return false;
    snprintf(number, sizeof number, "%.*s", (int)(length - 3), text);
    snprintf(currency, 4, "%s", text + length - 3);
    return strspn(number, "0123456789.") == length - 3 && number_parse_real(number, amount) && *amount > 0;
}

static bool refuse_label(const struct report_input *input, const char *word)
{
    struct text names = {0};
    for (int i = 0; i < input->label_count; i++)
        text_add(&names, "%s%s", i ? ", " : "", input->labels[i].name);
    log_error("--price %s: there is no such label; there %s %s", word, input->label_count > 1 ? "are" : "is",
              text_string(&names));
    text_free(&names);
    return false;
}

static bool take_price(struct report_input *input, const char *word)
{
    const char *equals = strrchr(word, '=');
    char currency[4];
    double amount;
    struct report_label *label = NULL;
    if (!equals || equals == word)
        return refuse_price(word, "must be LABEL=AMOUNT with a currency, as H200=31000EUR");
    if (!parse_amount(equals + 1, &amount, currency))
        return refuse_price(word, "must end in an amount above 0 and a currency of three capitals, as 31000EUR or "
                                  "27999.50USD");
    for (int i = 0; i < input->label_count; i++)
        if (strlen(input->labels[i].name) == (size_t)(equals - word) &&
            strncmp(input->labels[i].name, word, (size_t)(equals - word)) == 0)
            label = &input->labels[i];
    if (!label)
        return refuse_label(input, word);
    if (isfinite(label->price))
        return refuse_price(word, "this label already has a price; only one is allowed");
    if (input->currency[0] && strcmp(input->currency, currency) != 0) {
        log_error("--price %s: another price is in %s; all must be in one currency", word, input->currency);
        return false;
    }
    memcpy(input->currency, currency, sizeof currency);
    label->price = amount;
    return true;
}

/* ---- the input ---- */

int report_input_read(const struct options *o, struct report_input *input)
{
    const int count = o->files.count;
    struct report_argument *arguments = xcalloc((unsigned long)count, sizeof *arguments);
    char(*names)[REPORT_LABEL_MAX + 24] = xcalloc((unsigned long)count, sizeof *names);
    int status = EXIT_OK;
    memset(input, 0, sizeof *input);
    input->files = xcalloc((unsigned long)count, sizeof *input->files);
    input->labels = xcalloc((unsigned long)count, sizeof *input->labels);
    input->file_count = count;
    if (!report_arguments_parse(&o->files, arguments))
        status = EXIT_USAGE;
    else if (!read_files(arguments, input))
        status = EXIT_NOT_COMPARABLE;
    else
        make_labels(arguments, input, names);
    for (int i = 0; i < count && status == EXIT_OK; i++)
        if (!add_file(input, i, names[i]))
            status = EXIT_NOT_COMPARABLE;
    for (int i = 0; i < o->prices.count && status == EXIT_OK; i++)
        if (!take_price(input, o->prices.names[i]))
            status = EXIT_USAGE;
    free(arguments);
    free(names);
    return status;
}

void report_input_free(struct report_input *input)
{
    for (int i = 0; i < input->file_count; i++)
        record_file_free(&input->files[i]);
    for (int i = 0; i < input->label_count; i++)
        free(input->labels[i].files);
    free(input->files);
    free(input->labels);
    memset(input, 0, sizeof *input);
}
