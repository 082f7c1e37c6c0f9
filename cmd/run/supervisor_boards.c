/* A process for each device, one record of all. */
#include "cmd/run/supervisor_boards.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/device/device_lock.h"
#include "cmd/record/record.h"
#include "cmd/run/supervisor.h"

/* How long the list of devices may take. */
static const double LIST_LIMIT_S = 60;
/* Interval in ms at which progress is shown. */
enum { TICK_MS = 200 };

/* The worse of two exit codes; a usage error, which every device has alike, stays one. */
static int worse_code(int a, int b) { return a == EXIT_USAGE || b == EXIT_USAGE ? EXIT_USAGE : exit_worst(a, b); }

/* ---- which devices ---- */

struct device_list {
    struct device_info devices[DEVICES_MAX];
    int count;
    struct attn_message why;
};

/* In a child: the parent never uses the device. */
static int list_devices(void *context, int pipe)
{
    struct device_list *list = context;
    (void)pipe;
    return backend_list(list->devices, &list->count, &list->why) == ATTN_OK ? EXIT_OK : EXIT_DEVICE;
}

/* In memory that is shared with the child; NULL after a sentence. */
static struct device_list *find_devices(int *code)
{
    struct device_list *list = process_share(sizeof *list);
    const struct process_request request = {.function = list_devices, .context = list};
    struct process child;
    struct process_result result;
    char how[100];
    *code = EXIT_IO;
    const int error = list ? process_start(&request, &child) : errno;
    if (error) {
        log_error("the list of devices: a process cannot be started: %s", strerror(error));
    } else {
        process_watch(&child, &(struct process_watch){.limit_s = LIST_LIMIT_S}, &result);
        *code = EXIT_DEVICE;
        if (result.end == PROCESS_EXITED && result.code == EXIT_OK)
            return list;
        if (result.end == PROCESS_INTERRUPTED)
            *code = EXIT_INTERRUPTED;
        log_error("--device: %s", result.end == PROCESS_EXITED && list->why.text[0]
                                      ? list->why.text
                                      : process_describe(&result, how, sizeof how));
    }
    if (list)
        process_unshare(list, sizeof *list);
    return NULL;
}

static void add_board(struct boards *b, int ordinal, const struct device_info *device)
{
    struct board_run *board = &b->boards[b->count++];
    snprintf(board->name, sizeof board->name, "cuda:%d", ordinal);
    board->device = *device;
    options_for_device(b->options, ordinal, &board->options);
}

static bool is_slice(const struct device_info *device) { return strstr(device->name, " MIG ") != NULL; }

/* What a user may not expect of these devices, each once. False where they cannot be measured in one run. */
static bool are_distinct(const struct boards *b)
{
    int slices = 0;
    for (int i = 0; i < b->count; i++) {
        const struct device_info *one = &b->boards[i].device;
        slices += is_slice(one);
        for (int k = 0; k < i; k++) {
            const struct device_info *other = &b->boards[k].device;
            if (!strcmp(one->pci_bus_id, other->pci_bus_id)) {
                log_error("--device: %s and %s are parts of one GPU (%s), whose load they share; must be one of them",
                          b->boards[k].name, b->boards[i].name, one->pci_bus_id);
                return false;
            }
            if (one->uuid[0] && !strcmp(one->uuid, other->uuid))
                log_warn("%s and %s report one UUID: they are told apart by their PCI addresses", b->boards[k].name,
                         b->boards[i].name);
        }
    }
    if (slices > 0 && slices < b->count)
        log_warn("%d of the %d devices %s MIG slice%s: not compared with whole GPUs", slices, b->count,
                 slices == 1 ? "is a" : "are", slices == 1 ? "" : "s");
    return true;
}

/* EXIT_OK with the boards, or a code after a sentence. */
static int choose_boards(const struct options *o, struct boards *b)
{
    int code;
    struct device_list *list = find_devices(&code);
    if (!list)
        return code;
    code = EXIT_OK;
    b->boards = xcalloc(DEVICES_MAX, sizeof *b->boards);
    for (int i = 0; i < list->count && o->all_devices; i++)
        add_board(b, i, &list->devices[i]);
    for (int i = 0; i < o->device_ordinals.count && code == EXIT_OK; i++) {
        const int ordinal = (int)o->device_ordinals.values[i];
        if (ordinal < list->count) {
            add_board(b, ordinal, &list->devices[ordinal]);
            continue;
        }
        log_error("--device cuda:%d: there %s %d CUDA device%s, numbered from 0", ordinal,
                  list->count == 1 ? "is" : "are", list->count, list->count == 1 ? "" : "s");
        code = EXIT_DEVICE;
    }
    process_unshare(list, sizeof *list);
    return code == EXIT_OK && !are_distinct(b) ? EXIT_DEVICE : code;
}

static void free_boards(struct boards *b)
{
    for (int i = 0; i < b->count; i++) {
        struct board_run *board = &b->boards[i];
        for (int round = 0; round < BOARD_ROUNDS; round++) {
            for (int k = 0; k < board->counts[round]; k++)
                record_row_free(&board->rows[round][k]);
            free(board->rows[round]);
        }
        json_decref(board->header);
        free(board->text);
        options_free_one(&board->options);
    }
    free(b->boards);
    board_records_free(b->records);
    resume_close(&b->resume);
}

/* ---- the process of one device ---- */

struct board_task {
    struct boards *all;
    const struct board_run *board;
};

/* The name of a device's lock: its address; of a slice also its own name, because others may use the rest. */
static void lock_name(const struct device_info *device, char *name, size_t size)
{
    snprintf(name, size, "%s%s%s", device->pci_bus_id, is_slice(device) ? "-" : "",
             is_slice(device) ? device->uuid : "");
}

/* In the child. */
static int run_board(void *context, int pipe)
{
    const struct board_task *task = context;
    struct device_hold hold;
    char name[sizeof task->board->device.pci_bus_id + sizeof task->board->device.uuid];
    for (int i = 0; i < task->all->count; i++) /* what the others say is not for this one */
        if (task->all->boards[i].is_running)
            close(task->all->boards[i].process.pipe);
    FILE *sink = fdopen(pipe, "w");
    log_set_subject(task->board->name);
    lock_name(&task->board->device, name, sizeof name);
    if (!sink) {
        log_error("its record pipe cannot be opened: %s", strerror(errno));
        return EXIT_IO;
    }
    int code = device_lock(name, process_is_interrupted, &hold);
    if (code == EXIT_OK) {
        struct resume resume;
        const bool resumes =
            task->all->round == 0 && resume_take_board(&task->all->resume, task->board->device.pci_bus_id, &resume);
        code = supervisor_run_board(&task->board->options, task->all->run_id, resumes ? &resume : NULL, sink);
        device_unlock(&hold);
    }
    fclose(sink);
    return code;
}

/* ---- what it says ---- */

static void stop_all(struct boards *b)
{
    for (int i = 0; i < b->count; i++)
        if (b->boards[i].is_running)
            kill(b->boards[i].process.pid, SIGTERM);
}

/* Rows cannot be written any more, so that further measurements would be lost. */
static void check_written(struct boards *b, int status)
{
    if (status == EXIT_OK)
        return;
    b->exit_code = worse_code(b->exit_code, status);
    stop_all(b);
}

static void warn_of_others(const struct board_run *board)
{
    const json_int_t others = json_integer_value(header_value(board->header, "device.other_processes"));
    if (others > 0)
        log_warn("%s %s: %lld other process%s %s it; measured beside %s", board->name, board->device.pci_bus_id,
                 (long long)others, others == 1 ? "" : "es", others == 1 ? "uses" : "use", others == 1 ? "it" : "them");
}

static void keep_row(struct boards *b, struct board_run *board, const struct record_row *row)
{
    struct record_row **rows = &board->rows[b->round];
    int *count = &board->counts[b->round];
    *rows = xrealloc(*rows, (unsigned long)(*count + 1) * sizeof **rows);
    (*rows)[(*count)++] = *row;
}

/* The rows that the record has already, to every output but the record. */
static void show_kept_rows(struct boards *b)
{
    char why[128];
    const struct record_file *file = &b->resume.file;
    for (int i = 0; i < file->count; i++) {
        json_t *object = record_row_json(&file->rows[i]);
        struct record_row copy;
        memset(&copy, 0, sizeof copy);
        FABENCH_ASSERT(record_row_parse(object, &copy, why, sizeof why), "%s", why);
        json_decref(object);
        check_written(b, run_outputs_show(b->outputs, &file->rows[i]));
        struct board_run *board = b->boards;
        while (board < b->boards + b->count && strcmp(board->device.pci_bus_id, copy.pci) != 0)
            board++;
        if (board < b->boards + b->count)
            keep_row(b, board, &copy);
        else
            record_row_free(&copy);
    }
    if (b->resume.killed.count)
        log_note("%s: %d row%s whose process was killed %s run again", path_shown(file->path).text,
                 b->resume.killed.count, b->resume.killed.count == 1 ? "" : "s",
                 b->resume.killed.count == 1 ? "is" : "are");
}

/* The header of a board, with the addresses of all boards of the run: one without rows is missing. */
static void take_header(struct boards *b, struct board_run *board, json_t *header)
{
    if (b->round > 0)
        return;
    json_t *asked = json_array();
    for (int i = 0; i < b->count; i++)
        json_array_append_new(asked, json_string(b->boards[i].device.pci_bus_id));
    json_object_set_new(header, "boards", asked);
    board->header = json_incref(header);
    warn_of_others(board);
    const bool resumes = b->resume.file.header != NULL;
    const bool is_new = !resumes || !resume_header_of(&b->resume, board->device.pci_bus_id);
    if (b->outputs) {
        check_written(b, run_outputs_add_header(b->outputs, header, is_new));
    } else if (b->exit_code != EXIT_IO) {
        b->outputs = run_outputs_open(b->options, header, resumes ? &b->resume : NULL);
        check_written(b, b->outputs ? EXIT_OK : EXIT_IO);
        if (b->outputs && resumes && is_new)
            check_written(b, run_outputs_note(b->outputs, header));
        if (b->outputs && resumes)
            show_kept_rows(b);
    }
}

/* A row of a board that is measured again is no second row of its case: readers skip its type. */
static void take_row(struct boards *b, struct board_run *board, json_t *object)
{
    char why[128];
    struct record_row row;
    memset(&row, 0, sizeof row);
    if (!b->outputs)
        return;
    if (!record_row_parse(object, &row, why, sizeof why)) {
        log_error("%s: a row cannot be read: %s", board->name, why);
        b->exit_code = worse_code(b->exit_code, EXIT_IO);
        record_row_free(&row);
        return;
    }
    keep_row(b, board, &row);
    if (b->round == 0) {
        check_written(b, run_outputs_add(b->outputs, &row));
        return;
    }
    json_object_set_new(object, "type", json_string("again"));
    check_written(b, run_outputs_note(b->outputs, object));
}

static void handle_line(struct boards *b, struct board_run *board, const char *line)
{
    json_t *message = json_loads(line, 0, NULL);
    json_t *header = json_object_get(message, "header"), *row = json_object_get(message, "row");
    if (header) {
        take_header(b, board, header);
    } else if (row) {
        take_row(b, board, row);
    } else {
        log_error("%s: a line of its process cannot be read", board->name);
        b->exit_code = worse_code(b->exit_code, EXIT_IO);
    }
    json_decref(message);
}

/* Reads what there is. False at the end of the pipe. */
static bool receive(struct boards *b, struct board_run *board)
{
    if (board->capacity - board->used < 65536) {
        board->capacity = board->capacity ? 2 * board->capacity : 1 << 18;
        board->text = xrealloc(board->text, board->capacity);
    }
    const ssize_t got = read(board->process.pipe, board->text + board->used, board->capacity - board->used);
    if (got < 0)
        return errno == EINTR || errno == EAGAIN;
    if (got == 0)
        return false;
    board->used += (size_t)got;
    char *from = board->text, *end;
    while ((end = memchr(from, '\n', board->used - (size_t)(from - board->text))) != NULL) {
        *end = 0;
        handle_line(b, board, from);
        from = end + 1;
    }
    board->used -= (size_t)(from - board->text);
    memmove(board->text, from, board->used);
    return true;
}

/* ---- a round ---- */

/* False after a sentence. */
static bool start_board(struct boards *b, struct board_run *board)
{
    struct board_task task = {b, board};
    const struct process_request request = {.function = run_board, .context = &task, .has_pipe = true};
    const double left_s = b->options->max_time_s - 1e-3 * (clock_ms() - b->started_ms);
    if (left_s <= 0) { /* false for NaN, no limit */
        b->exit_code = worse_code(b->exit_code, EXIT_INTERRUPTED);
        return false;
    }
    board->options.max_time_s = left_s;
    board->used = 0;
    const int error = process_start(&request, &board->process);
    board->is_running = error == 0;
    if (error) {
        log_error("%s: a process cannot be started: %s", board->name, strerror(error));
        b->exit_code = worse_code(b->exit_code, EXIT_IO);
    }
    return error == 0;
}

/* Its pipe is at its end. */
static void end_board(struct boards *b, struct board_run *board)
{
    struct process_result result;
    char how[100];
    process_watch(&board->process, &(struct process_watch){0}, &result);
    board->is_running = false;
    int code = result.code;
    if (result.end != PROCESS_EXITED) {
        code = process_is_interrupted() ? EXIT_INTERRUPTED : EXIT_DEVICE;
        log_error("%s %s: its supervisor process %s", board->name, board->device.pci_bus_id,
                  process_describe(&result, how, sizeof how));
    }
    board->exit_code = worse_code(board->exit_code, code);
    b->exit_code = worse_code(b->exit_code, code);
}

static void show_progress(const struct boards *b)
{
    int rows = 0, running = 0;
    for (int i = 0; i < b->count; i++) {
        rows += b->boards[i].counts[b->round];
        running += b->boards[i].is_running;
    }
    log_progress("%d rows of %d devices%s, %d running", rows, b->count, b->round ? ", again" : "", running);
}

/* Until none of the boards runs. */
static void watch_boards(struct boards *b)
{
    for (;;) {
        struct pollfd files[DEVICES_MAX];
        struct board_run *of[DEVICES_MAX];
        nfds_t count = 0;
        for (int i = 0; i < b->count; i++)
            if (b->boards[i].is_running) {
                files[count] = (struct pollfd){.fd = b->boards[i].process.pipe, .events = POLLIN};
                of[count++] = &b->boards[i];
            }
        if (count == 0)
            return;
        const int ready = poll(files, count, TICK_MS);
        show_progress(b);
        for (nfds_t i = 0; i < count && ready > 0; i++)
            if (files[i].revents && !receive(b, of[i]))
                end_board(b, of[i]);
    }
}

static void run_round(struct boards *b, int round)
{
    b->round = round;
    for (int i = 0; i < b->count; i++) {
        if (process_is_interrupted() || b->exit_code == EXIT_IO)
            break;
        if (start_board(b, &b->boards[i]) && b->options->one_by_one)
            watch_boards(b);
    }
    watch_boards(b);
    log_progress_clear();
}

/* Boards that look slow are measured again, with all others as before, and named where they are slow again. */
static void check_spread(struct boards *b)
{
    bool is_named = false;
    if (isnan(b->options->max_board_spread_pct) && !b->records)
        return;
    if (boards_find_slow(b, 0)) {
        run_round(b, 1);
        is_named = b->exit_code != EXIT_INTERRUPTED && b->exit_code != EXIT_IO && boards_find_slow(b, 1);
    }
    const bool lacks_records = boards_lack_records(b);
    if (is_named)
        b->exit_code = worse_code(b->exit_code, EXIT_REGRESSION);
    else if (lacks_records)
        b->exit_code = worse_code(b->exit_code, EXIT_NOT_COMPARABLE);
}

/* The record that --resume continues, of the same boards. EXIT_OK, or a code after a sentence. */
static int open_record(struct boards *b)
{
    struct attn_message why = {""};
    const int code = resume_open(&b->resume, b->options);
    if (code != EXIT_OK)
        return code;
    const json_t *header = b->resume.file.header, *asked = json_object_get(header, "boards");
    const char *run_id = json_string_value(json_object_get(header, "run_id"));
    if (!header) {
        log_note("%s: no header yet; the run begins anew", path_shown(b->resume.file.path).text);
        resume_close(&b->resume);
        return EXIT_OK;
    }
    snprintf(b->run_id, sizeof b->run_id, "%s", run_id ? run_id : "");
    if (!asked)
        snprintf(why.text, sizeof why.text, "is of one device; continue it with its --device");
    else if (json_array_size(asked) != (size_t)b->count)
        snprintf(why.text, sizeof why.text, "is of %d devices, here there are %d", (int)json_array_size(asked),
                 b->count);
    for (int i = 0; i < b->count && !why.text[0]; i++) {
        const char *pci = json_string_value(json_array_get(asked, (size_t)i));
        if (!pci || strcmp(pci, b->boards[i].device.pci_bus_id) != 0)
            snprintf(why.text, sizeof why.text, "is of other devices: device %d was %s, here it is %s", i,
                     pci ? pci : "none", b->boards[i].device.pci_bus_id);
    }
    if (why.text[0])
        log_error("--resume: %s %s", path_shown(b->resume.file.path).text, why.text);
    return why.text[0] ? EXIT_NOT_COMPARABLE : EXIT_OK;
}

int supervisor_run_boards(const struct options *options)
{
    struct boards b = {.options = options, .started_ms = clock_ms()};
    process_catch_interrupts();
    if (!process_share_interrupts()) {
        log_error("no memory to share with the processes of the devices: %s", strerror(errno));
        return EXIT_IO;
    }
    supervisor_run_id(b.run_id, sizeof b.run_id);
    if (options->board_baselines.count && (b.records = board_records_read(&options->board_baselines)) == NULL)
        return EXIT_NOT_COMPARABLE;
    int code = choose_boards(options, &b);
    if (code == EXIT_OK && options->resume)
        code = open_record(&b);
    if (code == EXIT_OK) {
        run_round(&b, 0);
        if (b.outputs && !process_is_interrupted() && b.exit_code != EXIT_IO && b.exit_code != EXIT_INTERRUPTED)
            check_spread(&b);
        if (process_is_interrupted())
            b.exit_code = worse_code(b.exit_code, EXIT_INTERRUPTED);
        if (b.outputs && b.exit_code != EXIT_IO)
            b.exit_code = worse_code(b.exit_code, boards_report(&b));
        code = b.exit_code;
        if (b.outputs)
            code = run_outputs_close(b.outputs, 1e-3 * (clock_ms() - b.started_ms), b.exit_code);
    }
    free_boards(&b);
    return code;
}

int supervisor_call_boards(const struct options *options, const char *what, int (*function)(const struct options *),
                           double limit_s)
{
    struct boards b = {.options = options};
    process_catch_interrupts();
    int code = choose_boards(options, &b);
    const int count = code == EXIT_OK ? b.count : 0;
    for (int i = 0; i < count && code != EXIT_INTERRUPTED && code != EXIT_USAGE; i++) {
        printf("%s%s %s\n", i ? "\n" : "", b.boards[i].name, b.boards[i].device.pci_bus_id);
        code = worse_code(code, supervisor_call(&b.boards[i].options, what, function, limit_s));
    }
    free_boards(&b);
    return code;
}
