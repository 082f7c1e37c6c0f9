/* Record files: JSONL and CSV written row by row, JSONL read back.
 *
 * A line is built in memory and written with one write call, so that a row is in the file completely or not at all.
 * When a write fails half-way, the file is truncated to the last complete line where possible, and the writer accepts
 * no more rows.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/base/csv.h"
#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/text.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"

/* The shortest of 15, 16 and 17 digits that reads back as the same double. */
static const char *print_real(double value, char *buffer, size_t size)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buffer, size, "%.*g", digits, value);
        if (strtod(buffer, NULL) == value)
            break;
    }
    return buffer;
}

static int add_json_bytes(const char *bytes, size_t count, void *text)
{
    text_add_bytes(text, bytes, count);
    return 0;
}

/* jansson prints doubles with a fixed number of digits; this prints the shortest that reads back the same. */
static void add_json(struct text *line, const json_t *value)
{
    char number[40];
    const char *separator = "";
    if (json_is_object(value)) {
        const char *key;
        json_t *member;
        text_add_char(line, '{');
        json_object_foreach((json_t *)(uintptr_t)value, key, member)
        {
            json_t *name = record_must(json_string(key));
            text_add(line, "%s", separator);
            add_json(line, name);
            json_decref(name);
            text_add_char(line, ':');
            add_json(line, member);
            separator = ",";
        }
        text_add_char(line, '}');
    } else if (json_is_array(value)) {
        text_add_char(line, '[');
        for (size_t i = 0; i < json_array_size(value); i++, separator = ",") {
            text_add(line, "%s", separator);
            add_json(line, json_array_get(value, i));
        }
        text_add_char(line, ']');
    } else if (json_is_real(value)) {
        print_real(json_real_value(value), number, sizeof number);
        text_add(line, "%s%s", number, strpbrk(number, ".e") ? "" : ".0");
    } else {
        const int error = json_dump_callback(value, add_json_bytes, line, JSON_ENCODE_ANY | JSON_COMPACT);
        FABENCH_ASSERT(error == 0, "JSON value of type %d", json_typeof(value));
    }
}

/* ---- writers ---- */

struct record_writer {
    int fd, error;
    bool is_csv, owns_fd, is_regular, lacks_newline;
    off_t whole_bytes; /* bytes of complete lines; the rest of a failed write is truncated */
    const struct column *selected[RECORD_COLUMNS_MAX];
    int selected_count;
};

static int write_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t written = write(fd, bytes, count);
        if (written >= 0) {
            bytes += written;
            count -= (size_t)written;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

static int write_line(struct record_writer *writer, const struct text *line)
{
    if (writer->error)
        return writer->error;
    writer->error = write_all(writer->fd, text_string(line), line->length);
    if (writer->error == 0)
        writer->whole_bytes += (off_t)line->length;
    else if (writer->owns_fd && writer->is_regular && ftruncate(writer->fd, writer->whole_bytes) != 0)
        log_warn("a record file ends in a cut line: %s", strerror(errno));
    return writer->error;
}

/* "<path>: <sentence>"; a long path is shortened in its middle, so that the sentence fits. */
static void refuse_path(const char *path, const char *sentence, struct attn_message *why)
{
    snprintf(why->text, sizeof why->text, "%s: %s", path_shown(path).text, sentence);
}

/* flags: of open(2); "-" = stdout. A regular file is locked; where the file system has no locks, it is not. */
static struct record_writer *open_writer(const char *path, int flags, struct attn_message *why)
{
    struct record_writer *writer = xcalloc(1, sizeof *writer);
    struct stat status;
    const char *problem = NULL;
    writer->owns_fd = strcmp(path, "-") != 0;
    if (writer->owns_fd)
        writer->fd = open(path, flags | O_CLOEXEC, 0666);
    else
        writer->fd = fflush(stdout) == 0 ? STDOUT_FILENO : -1;
    if (writer->fd < 0) {
        problem = strerror(errno);
    } else {
        writer->is_regular = fstat(writer->fd, &status) == 0 && S_ISREG(status.st_mode);
        if (writer->owns_fd && writer->is_regular && flock(writer->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
            problem = "another run is writing it";
    }
    if (!problem)
        return writer;
    refuse_path(writer->owns_fd ? path : "standard output", problem, why);
    if (writer->owns_fd && writer->fd >= 0)
        close(writer->fd);
    free(writer);
    return NULL;
}

/* Truncates a file; leaves stdout as it is. */
/* Says where a file goes whose name is a symbolic link: what the link names is overwritten. */
static void say_link(const char *path)
{
    char target[PATH_MAX];
    const ssize_t length = readlink(path, target, sizeof target - 1);
    if (length <= 0)
        return;
    target[length] = 0;
    log_warn("%s is a link: %s is overwritten", path_shown(path).text, path_shown(target).text);
}

static struct record_writer *open_new(const char *path, struct attn_message *why)
{
    struct record_writer *writer = open_writer(path, O_WRONLY | O_CREAT, why);
    if (writer)
        say_link(path);
    if (writer && writer->owns_fd && writer->is_regular && ftruncate(writer->fd, 0) != 0) {
        refuse_path(path, strerror(errno), why);
        record_close(writer);
        return NULL;
    }
    return writer;
}

/* Writes the first line, so that an output that cannot be written is refused before anything is measured. */
static struct record_writer *write_first_line(struct record_writer *writer, const char *path, const struct text *line,
                                              struct attn_message *why)
{
    const int error = write_line(writer, line);
    if (error == 0)
        return writer;
    refuse_path(writer->owns_fd ? path : "standard output", strerror(error), why);
    record_close(writer);
    return NULL;
}

static void add_json_line(struct text *line, const json_t *object)
{
    add_json(line, object);
    text_add_char(line, '\n');
}

struct record_writer *record_open_jsonl(const char *path, const json_t *header, struct attn_message *why)
{
    struct record_writer *writer = open_new(path, why);
    if (!writer)
        return NULL;
    json_t *object = record_must(json_pack("{s:s, s:i}", "type", "header", "schema", (int)RECORD_SCHEMA));
    struct text line = {0};
    FABENCH_ASSERT(!header || json_object_update_missing(object, (json_t *)(uintptr_t)header) == 0, "header of %s",
                   path);
    add_json_line(&line, object);
    json_decref(object);
    writer = write_first_line(writer, path, &line, why);
    text_free(&line);
    return writer;
}

/* True for an empty file, and for one whose only line is the cut beginning of a header. */
static bool is_headless(int fd)
{
    static const char begin[] = "{\"type\":\"header\"";
    char text[1 << 16];
    const ssize_t got = pread(fd, text, sizeof text, 0);
    if (got <= 0 || (size_t)got == sizeof text || memchr(text, '\n', (size_t)got))
        return got == 0;
    const size_t common = (size_t)got < sizeof begin - 1 ? (size_t)got : sizeof begin - 1;
    json_t *object = json_loadb(text, (size_t)got, 0, NULL);
    json_decref(object);
    return !object && memcmp(text, begin, common) == 0;
}

struct record_writer *record_reopen_jsonl(const char *path, struct record_file *file, struct attn_message *why)
{
    struct record_writer *writer = open_writer(path, O_RDWR, why);
    if (!writer)
        return NULL;
    if (!writer->is_regular)
        refuse_path(path, "is not a regular file", why);
    else if (is_headless(writer->fd)) {
        memset(file, 0, sizeof *file);
        file->path = xstrdup(path);
        return writer;
    } else if (record_read(path, file, why)) {
        writer->whole_bytes = file->whole_bytes;
        writer->lacks_newline = !file->is_ended;
        return writer;
    }
    record_close(writer);
    return NULL;
}

int record_continue(struct record_writer *writer, const struct record_old_rows *old, const json_t *note)
{
    struct text line = {0};
    for (int i = 0; i < old->count; i++)
        if (pwrite(writer->fd, "old", 3, old->types_at[i]) != 3)
            return writer->error = errno;
    if (ftruncate(writer->fd, writer->whole_bytes) != 0 || lseek(writer->fd, writer->whole_bytes, SEEK_SET) < 0)
        return writer->error = errno;
    if (writer->lacks_newline)
        text_add_char(&line, '\n');
    add_json_line(&line, note);
    const int error = write_line(writer, &line);
    text_free(&line);
    return error;
}

/* Returns the name at *rest and its *length; *rest moves after the following comma, or becomes NULL after the last
 * name. */
static const char *next_name(const char **rest, size_t *length)
{
    const char *name = *rest;
    *length = strcspn(name, ",");
    *rest = name[*length] ? name + *length + 1 : NULL;
    return name;
}

static void refuse_column(const char *list, const char *name, size_t length, struct attn_message *why)
{
    const char *names[RECORD_COLUMNS_MAX];
    char word[64];
    int name_count = 0;
    const struct column_list all = record_columns();
    for (int i = 0; i < all.count; i++)
        if (all.columns[i].views & RECORD_CSV)
            names[name_count++] = all.columns[i].name;
    snprintf(word, sizeof word, "%.*s", (int)(length < 60 ? length : 60), name);
    const char *nearest = nearest_name(word, names, name_count);
    if (length == 0)
        snprintf(why->text, sizeof why->text, "\"%.60s\": an empty column name", list);
    else if (nearest)
        snprintf(why->text, sizeof why->text, "%s: no such column, did you mean %s?", word, nearest);
    else
        snprintf(why->text, sizeof why->text, "%s: no such column", word);
}

static bool select_columns(const char *list, const struct column **selected, int *count, struct attn_message *why)
{
    *count = 0;
    for (const char *rest = list; rest;) {
        size_t length;
        const char *name = next_name(&rest, &length);
        const struct column *column = record_column_find(name, length);
        if (column && column->views & RECORD_CSV) {
            for (int i = 0; i < *count; i++)
                if (selected[i] == column) {
                    snprintf(why->text, sizeof why->text, "%s: named twice", column->name);
                    return false;
                }
            selected[(*count)++] = column;
            continue;
        }
        refuse_column(list, name, length, why);
        return false;
    }
    return true;
}

char *record_columns_all(void)
{
    const struct column_list all = record_columns();
    struct text names = {0};
    for (int i = 0; i < all.count; i++)
        if (all.columns[i].views & RECORD_CSV) {
            text_separate(&names, ", ");
            text_add(&names, "%s", all.columns[i].name);
        }
    return text_take(&names);
}

bool record_columns_valid(const char *list, struct attn_message *why)
{
    const struct column *selected[RECORD_COLUMNS_MAX];
    int count;
    return select_columns(list, selected, &count, why);
}

struct record_writer *record_open_csv(const char *path, const char *list, struct attn_message *why)
{
    const struct column *selected[RECORD_COLUMNS_MAX];
    int count = 0;
    if (list) {
        if (!select_columns(list, selected, &count, why))
            return NULL;
    } else {
        const struct column_list all = record_columns();
        for (int i = 0; i < all.count; i++)
            if (all.columns[i].views & RECORD_CSV)
                selected[count++] = &all.columns[i];
    }
    struct record_writer *writer = open_new(path, why);
    if (!writer)
        return NULL;
    struct csv_row names = {0};
    writer->is_csv = true;
    writer->selected_count = count;
    for (int i = 0; i < count; i++) {
        writer->selected[i] = selected[i];
        csv_add(&names, selected[i]->name);
    }
    csv_end(&names);
    writer = write_first_line(writer, path, &names.text, why);
    csv_free(&names);
    return writer;
}

static void add_cell(struct csv_row *line, const struct column *column, const struct record_row *row)
{
    const void *field = record_field(column, row);
    char number[40];
    double real;
    switch (column->kind) {
    case FIELD_COUNT: csv_add_count(line, *(const int64_t *)field); break;
    case FIELD_REAL:
        real = *(const double *)field;
        csv_add(line, isfinite(real) ? print_real(real, number, sizeof number) : "");
        break;
    case FIELD_NAME: csv_add(line, *(const int *)field < 0 ? "" : column->names[*(const int *)field]); break;
    case FIELD_STRING: csv_add(line, *(char *const *)field ? *(char *const *)field : ""); break;
    case FIELD_TEXT: csv_add(line, field); break;
    }
}

static int write_csv_row(struct record_writer *writer, const struct record_row *row)
{
    struct csv_row line = {0};
    for (int i = 0; i < writer->selected_count; i++)
        add_cell(&line, writer->selected[i], row);
    csv_end(&line);
    const int error = write_line(writer, &line.text);
    csv_free(&line);
    return error;
}

int record_write(struct record_writer *writer, const struct record_row *row)
{
    if (writer->is_csv)
        return write_csv_row(writer, row);
    json_t *object = record_row_json(row);
    const int error = record_write_json(writer, object);
    json_decref(object);
    return error;
}

int record_write_json(struct record_writer *writer, const json_t *object)
{
    struct text line = {0};
    FABENCH_ASSERT(!writer->is_csv, "%s", "an object for a CSV file");
    add_json_line(&line, object);
    const int error = write_line(writer, &line);
    text_free(&line);
    return error;
}

int record_close(struct record_writer *writer)
{
    int error = writer->error;
    if (writer->owns_fd) {
        if (writer->is_regular && fsync(writer->fd) != 0 && !error)
            error = errno;
        if (close(writer->fd) != 0 && !error)
            error = errno;
    }
    free(writer);
    return error;
}

/* ---- reader ---- */

/* A longer line is refused, so that a file without line ends (/dev/zero) does not fill the memory. */
enum { LINE_LIMIT_BYTES = 64 << 20 };

struct line_reader {
    FILE *in;
    char *text;
    size_t bytes, room;
    int64_t begin;  /* offset of the line's first byte */
    int64_t offset; /* offset of the byte after the line */
    int64_t number; /* number of the line in `text`, from 1 */
    bool is_ended;  /* ended by a newline, not by the end of the file */
};

enum line_result { LINE_READ, LINE_END, LINE_ERROR, LINE_TOO_LONG };

static enum line_result read_line(struct line_reader *reader)
{
    int c;
    reader->bytes = 0;
    reader->is_ended = false;
    reader->begin = reader->offset;
    while ((c = getc_unlocked(reader->in)) != EOF && c != '\n') {
        if (reader->bytes == LINE_LIMIT_BYTES)
            return LINE_TOO_LONG;
        if (reader->bytes == reader->room) {
            reader->room = reader->room ? 2 * reader->room : 4096;
            reader->text = xrealloc(reader->text, reader->room);
        }
        reader->text[reader->bytes++] = (char)c;
    }
    if (c == EOF && ferror(reader->in))
        return LINE_ERROR;
    if (c == EOF && reader->bytes == 0)
        return LINE_END;
    reader->is_ended = c == '\n';
    reader->offset += (int64_t)reader->bytes + reader->is_ended;
    reader->number++;
    return LINE_READ;
}

static bool is_blank(const struct line_reader *reader)
{
    for (size_t i = 0; i < reader->bytes; i++)
        if (!strchr(" \t\r", reader->text[i]) || !reader->text[i])
            return false;
    return true;
}

/* Cleans every text in a header, at any depth: a header is shown on the terminal and in charts as rows are. */
static void clean_texts(json_t *value)
{
    const char *key;
    size_t index;
    json_t *member;
    if (json_is_string(value)) {
        struct text clean = {0};
        text_add_clean(&clean, json_string_value(value));
        FABENCH_ASSERT(json_string_set(value, text_string(&clean)) == 0, "%s", "clean text");
        text_free(&clean);
    }
    json_object_foreach(value, key, member) clean_texts(member);
    json_array_foreach(value, index, member) clean_texts(member);
}

/* Checks a header; later headers, in files that were joined, must pass too. */
static bool take_header(struct record_file *file, json_t *object, char *why, size_t why_size)
{
    const json_t *schema = json_object_get(object, "schema");
    if (!json_is_integer(schema)) {
        snprintf(why, why_size, "the header has no schema number");
        return false;
    }
    if (!record_schema_is_ours(json_integer_value(schema), why, why_size))
        return false;
    clean_texts(object);
    if (!file->header) {
        file->header = json_incref(object);
        return true;
    }
    if (!file->later_headers)
        file->later_headers = record_must(json_array());
    FABENCH_ASSERT(json_array_append(file->later_headers, object) == 0, "%s", file->path);
    return true;
}

/* Offset of the word row in a line that begins with {"type":"row", or -1. */
static int64_t type_at(const struct line_reader *reader)
{
    static const char begin[] = "{\"type\":\"row\"";
    if (reader->bytes < sizeof begin - 1 || memcmp(reader->text, begin, sizeof begin - 1))
        return -1;
    return reader->begin + (int64_t)sizeof begin - 1 - 4;
}

static bool take_row(struct record_file *file, int *room, const json_t *object, int64_t type, char *why,
                     size_t why_size)
{
    if (file->count == *room) {
        FABENCH_ASSERT(*room < INT_MAX / 2, "%d rows", file->count);
        *room = *room ? 2 * *room : 8;
        file->rows = xrealloc(file->rows, (unsigned long)*room * sizeof *file->rows);
        file->types_at = xrealloc(file->types_at, (unsigned long)*room * sizeof *file->types_at);
    }
    struct record_row *row = &file->rows[file->count];
    memset(row, 0, sizeof *row);
    if (!record_row_parse(object, row, why, why_size)) {
        record_row_free(row);
        return false;
    }
    problem_key_complete(&row->key);
    file->types_at[file->count++] = type;
    return true;
}

/* Handles one parsed line. Objects of an unknown type are skipped. */
static bool take_object(struct record_file *file, int *room, json_t *object, int64_t at, char *why, size_t why_size)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    const bool is_header = type && strcmp(type, "header") == 0;
    if (!file->header && !is_header) {
        snprintf(why, why_size, "not a record file: it must begin with an object of \"type\" \"header\"");
        return false;
    }
    if (!type) {
        snprintf(why, why_size, "an object without a \"type\"");
        return false;
    }
    if (is_header)
        return take_header(file, object, why, why_size);
    return strcmp(type, "row") != 0 || take_row(file, room, object, at, why, why_size);
}

static bool read_lines(struct line_reader *reader, struct record_file *file, char *why, size_t why_size)
{
    int room = 0;
    for (;;) {
        const enum line_result result = read_line(reader);
        if (result == LINE_END)
            break;
        if (result == LINE_ERROR) {
            snprintf(why, why_size, "%s", strerror(errno));
            return false;
        }
        if (result == LINE_TOO_LONG) {
            snprintf(why, why_size, "not a record file: line %lld is longer than %d MiB", (long long)reader->number + 1,
                     LINE_LIMIT_BYTES >> 20);
            return false;
        }
        if (is_blank(reader)) {
            file->is_ended = reader->is_ended;
            file->whole_bytes = reader->offset;
            continue;
        }
        json_error_t error;
        json_t *object = json_loadb(reader->text, reader->bytes, JSON_REJECT_DUPLICATES, &error);
        char reason[300];
        if (!object && !reader->is_ended && file->header) {
            file->cut = true;
            break;
        }
        if (!object && !file->header) {
            snprintf(why, why_size, "not a record file: line %lld is not a JSON object%s", (long long)reader->number,
                     reader->is_ended ? "" : ", or was cut");
            return false;
        }
        const bool good = object && take_object(file, &room, object, type_at(reader), reason, sizeof reason);
        if (!good)
            snprintf(why, why_size, "line %lld: %s", (long long)reader->number, object ? reason : error.text);
        json_decref(object);
        if (!good)
            return false;
        file->whole_bytes = reader->offset;
        file->is_ended = reader->is_ended;
    }
    if (!file->header)
        snprintf(why, why_size, "not a record file: it is empty");
    return file->header != NULL;
}

bool record_read(const char *path, struct record_file *file, struct attn_message *why)
{
    struct line_reader reader = {0};
    char reason[300];
    memset(file, 0, sizeof *file);
    file->path = xstrdup(path);
    reader.in = fopen(path, "re");
    if (!reader.in) {
        refuse_path(path, strerror(errno), why);
        record_file_free(file);
        return false;
    }
    reader.offset = file_skip_mark(reader.in);
    const bool good = read_lines(&reader, file, reason, sizeof reason);
    fclose(reader.in);
    free(reader.text);
    if (!good) {
        refuse_path(path, reason, why);
        record_file_free(file);
    }
    return good;
}

void record_file_free(struct record_file *file)
{
    for (int i = 0; i < file->count; i++)
        record_row_free(&file->rows[i]);
    free(file->rows);
    free(file->types_at);
    free(file->path);
    json_decref(file->header);
    json_decref(file->later_headers);
    memset(file, 0, sizeof *file);
}
