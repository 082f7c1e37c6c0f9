/* Table, files, charts. */
#include "cmd/run/outputs.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/base/annotation.h"
#include "cmd/base/clock.h"
#include "cmd/base/junit.h"
#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/program.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/chart/chart.h"
#include "cmd/device/backend.h"
#include "cmd/record/record.h"
#include "cmd/record/record_row.h"
#include "cmd/run/accepted.h"
#include "cmd/run/node_verdict.h"
#include "cmd/run/resume.h"
#include "cmd/table/summary.h"
#include "cmd/table/table.h"

struct run_outputs {
    const struct options *options;
    struct table *table; /* NULL when stdout carries a record stream */
    struct record_writer *csv, *jsonl;
    char *dir;                   /* NULL with --out none */
    char *csv_path, *jsonl_path; /* of the files; NULL = none */
    int charts;                  /* drawn */
    struct record_file rows;     /* all rows so far, kept for the charts */
    double *seconds;             /* from the row before to each of them */
    double last_ms;              /* when the last one came */
    char convention[32];         /* "16384 tokens" for the table's headings */
    FILE *sink;                  /* run_outputs_forward: nothing else is there */
};

/* The folder of this run (owned), or NULL with --out none. */
static char *run_dir(const struct options *o, const json_t *header)
{
    if (o->out_dir)
        return strcmp(o->out_dir, "none") ? xstrdup(o->out_dir) : NULL;
    const char *root = getenv("FABENCH_OUT_ROOT");
    char *name = header_folder_name(header);
    char *dir = xasprintf("%s/%s", root && *root ? root : "fabench-out", name);
    free(name);
    return dir;
}

/* A folder given by the user may exist. A default folder, named after device and second, must be new, because runs on
 * several devices may start in the same second. */
static bool make_run_dir(struct run_outputs *s)
{
    if (s->options->out_dir)
        return path_make_dirs(s->dir);
    char *parent = xstrdup(s->dir);
    *strrchr(parent, '/') = 0;
    bool made = path_make_dirs(parent);
    free(parent);
    for (int n = 2; made && mkdir(s->dir, 0777) != 0; n++) {
        if (errno != EEXIST) {
            log_error("%s: cannot be made: %s", s->dir, strerror(errno));
            made = false;
            break;
        }
        const size_t stem = strlen(s->dir) - (n == 2 ? 0 : strlen(strrchr(s->dir, '-')));
        char *next = xasprintf("%.*s-%d", (int)stem, s->dir, n);
        free(s->dir);
        s->dir = next;
    }
    return made;
}

/* Continues the record after its last complete line, with a line that says when, and what else ran on the device. */
static bool continue_record(struct run_outputs *s, struct resume *resume, const json_t *header,
                            struct attn_message *why)
{
    json_t *others = header_value(header, "device.other_processes");
    json_t *note = json_pack("{s:s, s:i, s:O}", "type", "resumed", "kept_rows", resume->file.count, "started_utc",
                             json_object_get(header, "started_utc"));
    FABENCH_ASSERT(note, "%s", resume->file.path);
    if (others)
        json_object_set(note, "other_processes", others);
    s->jsonl = resume->writer;
    resume->writer = NULL;
    const int error = record_continue(s->jsonl, &resume->killed, note);
    json_decref(note);
    if (error)
        snprintf(why->text, sizeof why->text, "%s: %s", path_shown(resume->file.path).text, strerror(error));
    return error == 0;
}

static bool open_files(struct run_outputs *s, const json_t *header, struct resume *resume)
{
    const struct options *o = s->options;
    struct attn_message why = {""};
    s->csv_path = o->csv_path ? xstrdup(o->csv_path) : s->dir ? xasprintf("%s/run.csv", s->dir) : NULL;
    s->jsonl_path = o->jsonl_path ? xstrdup(o->jsonl_path) : s->dir ? xasprintf("%s/run.jsonl", s->dir) : NULL;
    bool opened = true;
    if (s->csv_path)
        opened = (s->csv = record_open_csv(s->csv_path, o->columns, &why)) != NULL;
    if (opened && resume)
        opened = continue_record(s, resume, header, &why);
    else if (opened && s->jsonl_path)
        opened = (s->jsonl = record_open_jsonl(s->jsonl_path, header, &why)) != NULL;
    if (!opened)
        log_error("%s", why.text);
    return opened;
}

/* The peer whose ratios the table shows, where one runs. */
static const char *peer_of(const json_t *header)
{
    const json_t *members = header_value(header, "policy.round_members");
    const char *chosen = json_string_value(header_value(header, "policy.peer"));
    if (chosen)
        return chosen;
    for (size_t i = 0; i < json_array_size(members); i++)
        if (role_of_name(json_string_value(json_array_get(members, i))) == ATTN_ROLE_PEER)
            return json_string_value(json_array_get(members, i));
    return NULL;
}

static bool has_naive(const json_t *header)
{
    const json_t *members = header_value(header, "policy.round_members");
    for (size_t i = 0; i < json_array_size(members); i++)
        if (role_of_name(json_string_value(json_array_get(members, i))) == ATTN_ROLE_NAIVE)
            return true;
    return false;
}

/* The device's name for nvidia-smi when its clocks are not locked, else NULL. */
static const char *free_clocks_of(const json_t *header)
{
    const char *clocks = json_string_value(header_value(header, "policy.clocks"));
    return clocks && !strcmp(clocks, "unlocked") ? json_string_value(header_value(header, "device.pci_bus_id")) : NULL;
}

/* A regular file, which can be read again: not stdout, a device or a pipe. */
static bool is_file(const char *path)
{
    struct stat info;
    return path && strcmp(path, "-") != 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static bool is_stdout(const char *path) { return path && !strcmp(path, "-"); }

static void free_outputs(struct run_outputs *s)
{
    free(s->csv_path);
    free(s->jsonl_path);
    free(s->seconds);
    free(s->dir);
    record_file_free(&s->rows);
    free(s);
}

/* The table's first line; of one of several boards with its address. The caller frees it. */
static char *first_line(const struct options *o, const json_t *header)
{
    char *line = header_line(header);
    const char *pci = json_string_value(header_value(header, "device.pci_bus_id"));
    if (!options_has_boards(o) || !pci)
        return line;
    char *named = xasprintf("%s: %s", pci, line);
    free(line);
    return named;
}

struct run_outputs *run_outputs_open(const struct options *o, const json_t *header, struct resume *resume)
{
    struct run_outputs *s = xcalloc(1, sizeof *s);
    s->options = o;
    s->last_ms = clock_ms();
    s->dir = run_dir(o, header);
    s->rows.header = json_incref(resume ? resume->file.header : (json_t *)(uintptr_t)header);
    s->rows.path = xstrdup(s->dir ? s->dir : "run");
    if ((s->dir && !make_run_dir(s)) || !open_files(s, header, resume)) {
        if (s->csv)
            record_close(s->csv);
        if (s->jsonl)
            record_close(s->jsonl);
        free_outputs(s);
        return NULL;
    }
    if (!is_stdout(o->csv_path) && !is_stdout(o->jsonl_path)) {
        char *line = first_line(o, header);
        const json_t *asked = header_value(header, "policy.max_noise_pct");
        s->table = table_open(o->quiet ? stderr : stdout, terminal_width(), !o->quiet && terminal_color(o->color),
                              peer_of(header), o->command == COMMAND_VERIFY);
        if (o->quiet)
            table_quiet(s->table);
        if (o->verbose)
            table_verbose(s->table);
        if (o->command == COMMAND_VERIFY)
            table_group_refusals(s->table);
        if (o->random_count)
            table_failures_alone(s->table);
        if (o->invariance)
            table_invariance(s->table);
        table_noise(s->table, json_is_number(asked) ? json_number_value(asked) : NAN);
        table_has_naive(s->table, has_naive(header));
        table_header_line(s->table, line);
        const json_t *tokens = header_value(header, "policy.total_tokens");
        if (tokens) {
            snprintf(s->convention, sizeof s->convention, "%lld tokens", (long long)json_integer_value(tokens));
            table_convention(s->table, s->convention);
        }
        table_clocks(s->table, free_clocks_of(header));
        table_max_failures(s->table, o->max_failures);
        if (options_has_boards(o))
            table_boards(s->table);
        free(line);
    }
    return s;
}

/* One line for the process that writes; `what` is the name of the message and of its member. */
static int forward(struct run_outputs *s, const char *what, json_t *object)
{
    json_t *message = record_must(json_pack("{s:s, s:o}", "msg", what, what, object));
    const bool sent =
        json_dumpf(message, s->sink, JSON_COMPACT) == 0 && fputc('\n', s->sink) != EOF && fflush(s->sink) == 0;
    json_decref(message);
    return sent ? EXIT_OK : EXIT_IO;
}

struct run_outputs *run_outputs_forward(FILE *sink, const json_t *header)
{
    struct run_outputs *s = xcalloc(1, sizeof *s);
    s->sink = sink;
    if (forward(s, "header", json_incref((json_t *)(uintptr_t)header)) == EXIT_OK)
        return s;
    free(s);
    return NULL;
}

static int could_not_write(int error)
{
    if (error == 0)
        return EXIT_OK;
    log_error("a record could not be written: %s", strerror(error));
    return EXIT_IO;
}

int run_outputs_note(struct run_outputs *s, const json_t *object)
{
    return could_not_write(s->jsonl ? record_write_json(s->jsonl, object) : 0);
}

int run_outputs_add_header(struct run_outputs *s, const json_t *header, bool is_new)
{
    const int status = is_new ? run_outputs_note(s, header) : EXIT_OK;
    char *line = first_line(s->options, header);
    log_progress_clear();
    if (s->table)
        table_header_line(s->table, line);
    free(line);
    return status;
}

FILE *run_outputs_page(const struct run_outputs *s, int *width)
{
    *width = terminal_width();
    return s->table && !s->options->quiet ? stdout : NULL;
}

/* Appends a deep copy to the list of all rows, by converting the row to JSON and back. */
static void keep_row(struct run_outputs *s, const struct record_row *row)
{
    char why[128];
    json_t *object = record_row_json(row);
    struct record_row copy;
    memset(&copy, 0, sizeof copy);
    FABENCH_ASSERT(record_row_parse(object, &copy, why, sizeof why), "%s", why);
    json_decref(object);
    s->rows.rows = xrealloc(s->rows.rows, (unsigned long)(s->rows.count + 1) * sizeof copy);
    s->seconds = xrealloc(s->seconds, (unsigned long)(s->rows.count + 1) * sizeof *s->seconds);
    s->seconds[s->rows.count] = 1e-3 * (clock_ms() - s->last_ms);
    s->last_ms = clock_ms();
    s->rows.rows[s->rows.count++] = copy;
}

static int show_row(struct run_outputs *s, const struct record_row *row, int error)
{
    if (s->csv && error == 0)
        error = record_write(s->csv, row);
    keep_row(s, row);
    if (s->table)
        table_row(s->table, row);
    return could_not_write(error);
}

int run_outputs_add(struct run_outputs *s, const struct record_row *row)
{
    if (s->sink)
        return forward(s, "row", record_row_json(row));
    log_progress_clear();
    return show_row(s, row, s->jsonl ? record_write(s->jsonl, row) : 0);
}

int run_outputs_show(struct run_outputs *s, const struct record_row *row)
{
    return s->sink ? EXIT_OK : show_row(s, row, 0);
}

/* The rows of each board as a file of its own: a line of the charts. The rows are those of the file that is split. */
struct by_board {
    struct record_file *files; /* named after the boards */
    int count;
};

static void split_by_board(const struct record_file *all, struct by_board *parts)
{
    parts->files = xcalloc(DEVICES_MAX, sizeof *parts->files);
    for (int i = 0; i < all->count; i++) {
        int at = 0;
        while (at < parts->count && strcmp(parts->files[at].path, all->rows[i].pci) != 0)
            at++;
        if (at == DEVICES_MAX)
            continue;
        struct record_file *const file = &parts->files[at];
        if (at == parts->count) {
            *file = (struct record_file){.path = all->rows[i].pci, .header = all->header};
            file->rows = xcalloc((unsigned long)all->count, sizeof *file->rows);
            parts->count++;
        }
        file->rows[file->count++] = all->rows[i];
    }
}

static void free_by_board(struct by_board *parts)
{
    for (int i = 0; i < parts->count; i++)
        free(parts->files[i].rows);
    free(parts->files);
}

static int draw(struct run_outputs *s)
{
    const struct options *o = s->options;
    if (o->command != COMMAND_SWEEP || o->plot == PLOT_NONE || s->rows.count == 0)
        return EXIT_OK;
    if (o->plot != PLOT_TERM && !s->dir) {
        if (o->plot_given)
            log_warn("--out none: no charts are drawn (only --plot term needs no folder)");
        return EXIT_OK;
    }
    struct overlay overlay = {.count = 0};
    struct attn_message why = {""};
    int status = EXIT_OK;
    if (o->overlay_path && !overlay_read(o->overlay_path, &overlay, &why)) { /* it was usable when the run began */
        log_error("--overlay %s", why.text);
        status = EXIT_IO;
    }
    struct by_board parts = {.count = 0};
    if (options_has_boards(o))
        split_by_board(&s->rows, &parts);
    const struct chart_input input = {.files = parts.count ? parts.files : &s->rows,
                                      .file_count = parts.count ? parts.count : 1,
                                      .overlay = overlay.count ? &overlay : NULL};
    status = exit_worst(status,
                        charts_write(&input, s->dir, o->plot, terminal_width(), terminal_color(o->color), &s->charts));
    free_by_board(&parts);
    overlay_free(&overlay);
    return status;
}

/* The command that runs the rest of an interrupted sweep: this one again, with the folder that it chose itself and
 * --resume. The caller frees it. NULL where nothing can be resumed: no record in a file, or no sweep. */
static char *resume_command(const struct run_outputs *s)
{
    const struct options *o = s->options;
    struct name_list words = {0};
    struct text command = {0};
    const bool has_record = o->jsonl_path ? !is_stdout(o->jsonl_path) : s->dir != NULL;
    if (o->command != COMMAND_SWEEP || !has_record || !text_split_shell(o->command_line, &words))
        return NULL;
    text_add(&command, "%s", program_name());
    for (int i = 1; i < words.count; i++)
        if (strcmp(words.names[i], "--overwrite") != 0) /* the record is continued now */
            text_add_shell_word(&command, words.names[i]);
    if (!o->out_dir && s->dir) {
        text_add_shell_word(&command, "--out");
        text_add_shell_word(&command, s->dir);
    }
    if (!o->resume)
        text_add_shell_word(&command, "--resume");
    name_list_free(&words);
    return text_take(&command);
}

static void tell_resume(struct run_outputs *s)
{
    char *command = resume_command(s);
    if (command && s->table)
        table_next(s->table, command);
    else if (command)
        log_note("next: %s", command);
    free(command);
}

/* What failed in a row, or why it did not run; the caller frees it. */
static char *say_failure(const struct record_row *row, bool is_missed)
{
    struct text message = {0};
    if (row->status != STATUS_OK)
        text_add(&message, "%s%s: ", is_missed ? "accepted before, now " : "", record_status_names[row->status]);
    text_add(&message, "%s", row->reason);
    for (int i = 0; i < row->tensor_count && (row->check == CHECKED_FAIL || is_missed); i++)
        if (!(row->tensors[i].used <= 1)) {
            text_separate(&message, "; ");
            text_add(&message, "%s", row->tensors[i].failure[0] ? row->tensors[i].failure : row->tensors[i].name);
        }
    return text_take(&message);
}

/* An annotation for each row that failed, up to --max-failures. */
static void annotate(const struct run_outputs *s, const bool *is_missed)
{
    int64_t left = s->options->max_failures;
    for (int i = 0; i < s->rows.count && left > 0; i++) {
        const struct record_row *const row = &s->rows.rows[i];
        char label[PROBLEM_LABEL_SIZE];
        if (!record_row_failed(row) && !is_missed[i])
            continue;
        problem_key_label(&row->key, label, sizeof label);
        char *title = xasprintf("fabench %s: %s %s", command_table[s->options->command].name, row->impl,
                                row->only ? row->only : label);
        char *failure = say_failure(row, is_missed[i]);
        char *text = xasprintf("%s%s%s", failure, row->repro ? "\nagain: " : "", row->repro ? row->repro : "");
        annotation_put(stdout, "error", title, text);
        free(text);
        free(failure);
        free(title);
        left--;
    }
}

/* Adds one row as a test case: what failed, why it did not run, and in its body the command that makes it again. */
static void add_junit_case(struct junit *junit, const struct record_row *row, double time_s, bool is_missed,
                           bool has_boards)
{
    const bool is_broken = record_row_is_broken(row);
    char *class_name = xasprintf("fabench.%s", row->impl), *body = NULL;
    const enum junit_result result = is_broken                                 ? JUNIT_ERROR
                                     : row->check == CHECKED_FAIL || is_missed ? JUNIT_FAILED
                                     : row->status != STATUS_OK                ? JUNIT_SKIPPED
                                                                               : JUNIT_PASSED;
    char *message = say_failure(row, is_missed);
    if (row->repro && (result == JUNIT_FAILED || is_broken))
        body = xasprintf("%s%sagain: %s", message, *message ? "\n" : "", row->repro);
    if (result == JUNIT_PASSED && isfinite(row->err_used)) {
        free(message);
        message = xasprintf("%s at %.2g of its bound", row->err_tensor, row->err_used);
    }
    char *problem = problem_key_options(&row->key); /* in words, no two problems have the same */
    char *name = xasprintf("%s%s%s", row->only ? row->only : problem + strspn(problem, " "), has_boards ? " on " : "",
                           has_boards ? row->pci : "");
    junit_add(junit, class_name, name, result, message);
    free(name);
    junit_detail(junit, time_s, body);
    free(problem);
    free(class_name);
    free(body);
    free(message);
}

static bool write_junit(const struct run_outputs *s, const bool *is_missed, int exit_code)
{
    struct junit junit = {0};
    int failed = 0;
    for (int i = 0; i < s->rows.count; i++) {
        add_junit_case(&junit, &s->rows.rows[i], s->seconds[i], is_missed[i], options_has_boards(s->options));
        failed += record_row_failed(&s->rows.rows[i]) || is_missed[i];
    }
    char *summary = xasprintf("%d of %d rows failed, exit %d", failed, s->rows.count, exit_code);
    if (exit_code != EXIT_OK && failed == 0) /* the run failed, and no row says so */
        junit_add(&junit, "fabench", command_table[s->options->command].name, JUNIT_ERROR, summary);
    char *suite = xasprintf("fabench %s", command_table[s->options->command].name);
    const bool is_written = junit_write(&junit, suite, summary, s->options->junit_path);
    free(suite);
    free(summary);
    junit_free(&junit);
    return is_written;
}

/* The list of boards of a run on one device. */
static json_t *one_board(const struct run_outputs *s)
{
    const struct record_row *first = s->rows.count ? &s->rows.rows[0] : NULL;
    int failed = 0;
    for (int i = 0; i < s->rows.count; i++)
        failed += record_row_failed(&s->rows.rows[i]);
    return record_must(json_pack("[{s:s, s:s, s:s, s:i, s:i}]", "pci", first ? first->pci : "", "board",
                                 first ? first->board : "", "device", first ? first->device : "", "rows", s->rows.count,
                                 "failed", failed));
}

int run_outputs_close(struct run_outputs *s, double elapsed_s, int exit_code)
{
    int status = exit_code;
    if (s->sink) {
        free(s);
        return status;
    }
    struct record_writer *const writers[] = {s->jsonl, s->csv};
    for (int i = 0; i < 2; i++) {
        const int error = writers[i] ? record_close(writers[i]) : 0;
        if (error) {
            log_error("a record file could not be completed: %s", strerror(error));
            status = exit_worst(status, EXIT_IO);
        }
    }
    log_progress_clear();
    node_verdict_add_rows(s->rows.rows, s->rows.count);
    if (!options_has_boards(s->options))
        node_verdict_boards(one_board(s));
    if (exit_code != EXIT_INTERRUPTED)
        status = exit_worst(status, draw(s));
    else
        tell_resume(s);
    int missed = 0;
    bool *is_missed = xcalloc((unsigned long)s->rows.count + 1, sizeof *is_missed);
    if (s->options->accepted_path)
        status = exit_worst(status, accepted_check(s->options, &s->rows, exit_code == EXIT_OK, is_missed, &missed));
    if (s->options->junit_path && !write_junit(s, is_missed, status))
        status = exit_worst(status, EXIT_IO);
    if (s->table && !s->options->quiet && annotation_is_wanted())
        annotate(s, is_missed);
    free(is_missed);
    if (s->table) {
        const struct options *o = s->options;
        const struct summary_files files = {.dir = s->dir,
                                            .csv = is_file(s->csv_path) ? s->csv_path : NULL,
                                            .jsonl = is_file(s->jsonl_path) ? s->jsonl_path : NULL,
                                            .charts = s->charts,
                                            .may_draw = o->command == COMMAND_SWEEP && o->plot != PLOT_TERM};
        table_close(s->table, &files, elapsed_s, status);
        if (missed && !o->quiet)
            printf("REFUSED: %d accepted row%s did not run (%s)\n", missed, missed == 1 ? "" : "s",
                   path_shown(o->accepted_path).text);
    }
    free_outputs(s);
    return status;
}
