/* Reads, compares and writes the list of accepted rows. */
#include "cmd/run/accepted.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/text.h"
#include "cmd/problem/problem.h"
#include "cmd/record/record.h"

/* A row that did not run, as it is written; the caller frees it. */
static char *line_of(const struct record_row *row)
{
    return xasprintf("%s %s", row->asked, row->only ? row->only : "");
}

static bool is_accepted(const struct record_row *row) { return row->status == STATUS_OK; }

static int compare(const void *left, const void *right) { return strcmp(*(char *const *)left, *(char *const *)right); }

static void sort(struct name_list *list)
{
    if (list->count > 1)
        qsort(list->names, (size_t)list->count, sizeof *list->names, compare);
}

/* Implementation and key: "fused bwd-causal-...", "fused r12-fwd-full-...". */
static bool is_line(const char *line)
{
    const size_t impl = strcspn(line, " \t");
    const char *key = line + impl + (line[impl] == ' ');
    if (impl == 0 || strpbrk(key, " \t"))
        return false;
    if (*key == 'r') { /* of --random: its number */
        const size_t digits = strspn(key + 1, "0123456789");
        key += digits && key[1 + digits] == '-' ? digits + 2 : 0;
    }
    for (int mode = 0; problem_mode_names[mode]; mode++) {
        const size_t length = strlen(problem_mode_names[mode]);
        if (strncmp(key, problem_mode_names[mode], length) == 0 && key[length] == '-')
            return true;
    }
    return false;
}

/* Reads the lines without comments and blanks at their ends. EXIT_USAGE, EXIT_IO after a message. */
static int read_list(const char *path, struct name_list *list)
{
    char line[4096];
    int number = 0, code = EXIT_OK;
    FILE *file = fopen(path, "re");
    if (file)
        file_skip_mark(file);
    while (file && code == EXIT_OK && fgets(line, sizeof line, file)) {
        size_t length = strlen(line);
        number++;
        while (length && strchr(" \t\r\n", line[length - 1]))
            line[--length] = 0;
        if (!length || line[0] == '#')
            continue;
        if (!is_line(line)) {
            log_error("--accepted %s, line %d: %.80s: must be an implementation and a key of verify",
                      path_shown(path).text, number, line);
            code = EXIT_USAGE;
        }
        name_list_add(list, line);
    }
    if (!file || ferror(file)) {
        log_error("--accepted %s: cannot be read: %s", path_shown(path).text, strerror(errno));
        code = EXIT_IO;
    }
    if (file)
        fclose(file);
    if (code == EXIT_OK && !list->count) {
        log_error("--accepted %s: names no row; remove the file to have it written", path_shown(path).text);
        code = EXIT_USAGE;
    }
    sort(list);
    return code;
}

int accepted_begin(const struct options *o)
{
    struct name_list list = {0};
    if (!o->accepted_path || access(o->accepted_path, F_OK) != 0)
        return EXIT_OK;
    const int code = read_list(o->accepted_path, &list);
    name_list_free(&list);
    return code;
}

static int write_list(const char *path, const struct record_file *rows)
{
    struct name_list list = {0};
    for (int i = 0; i < rows->count; i++)
        if (is_accepted(&rows->rows[i])) {
            char *line = line_of(&rows->rows[i]);
            name_list_add(&list, line);
            free(line);
        }
    sort(&list);
    FILE *file = fopen(path, "we");
    if (file)
        fputs(
            "# Rows that fabench verify must run (--accepted): implementation, key of the problem. Remove the file to\n"
            "# have it written anew.\n",
            file);
    for (int i = 0; i < list.count && file; i++)
        fprintf(file, "%s\n", list.names[i]);
    const bool is_written = file && !ferror(file), is_closed = file && fclose(file) == 0;
    if (!is_written || !is_closed)
        log_error("--accepted %s: cannot be written: %s", path_shown(path).text, strerror(errno));
    else
        log_note("--accepted %s: written, %d rows; keep it, and the next run misses those that are refused",
                 path_shown(path).text, list.count);
    name_list_free(&list);
    return is_written && is_closed ? EXIT_OK : EXIT_IO;
}

static bool has_line(const struct name_list *list, const char *line)
{
    return list->count && bsearch(&line, list->names, (size_t)list->count, sizeof *list->names, compare);
}

int accepted_check(const struct options *o, const struct record_file *rows, bool is_whole, bool *is_missed,
                   int *missed_count)
{
    struct name_list list = {0}, seen = {0};
    int missed = 0, more = 0;
    *missed_count = 0;
    if (access(o->accepted_path, F_OK) != 0)
        return is_whole ? write_list(o->accepted_path, rows) : EXIT_OK;
    const int code = read_list(o->accepted_path, &list);
    if (code != EXIT_OK) {
        name_list_free(&list);
        return code;
    }
    for (int i = 0; i < rows->count; i++) {
        const struct record_row *const row = &rows->rows[i];
        char *line = line_of(row);
        const bool must_run = has_line(&list, line);
        if (must_run)
            name_list_add(&seen, line);
        more += !must_run && is_accepted(row);
        if (must_run && !is_accepted(row) && !record_row_is_broken(row)) {
            if (is_missed)
                is_missed[i] = true;
            if (missed++ < o->max_failures)
                log_error("%s: accepted before, now %s: %s", line, record_status_names[row->status], row->reason);
        }
        free(line);
    }
    sort(&seen);
    for (int i = 0; i < list.count && is_whole; i++)
        if (!has_line(&seen, list.names[i]) && missed++ < o->max_failures)
            log_error("%s: accepted before, not in this run", list.names[i]);
    if (missed)
        log_error("%d row%s of --accepted %s did not run", missed, missed == 1 ? "" : "s",
                  path_shown(o->accepted_path).text);
    if (more && !o->quiet)
        log_note("%d row%s ran that --accepted %s does not name; remove the file to have it written anew", more,
                 more == 1 ? "" : "s", path_shown(o->accepted_path).text);
    *missed_count = missed;
    name_list_free(&list);
    name_list_free(&seen);
    return missed ? EXIT_CHECK_FAILED : EXIT_OK;
}
