/* Folders of records, to a fixed depth. */
#include "cmd/record/record_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/base/log.h"
#include "cmd/base/paths.h"

/* Folders in folders are read to this depth. */
enum { DEPTH_MAX = 4 };

static bool is_record_name(const char *name)
{
    const size_t length = strlen(name);
    return length > 6 && strcmp(name + length - 6, ".jsonl") == 0;
}

static int by_name(const void *left, const void *right) { return strcmp(*(char *const *)left, *(char *const *)right); }

struct reader {
    bool (*take)(void *context, const char *file);
    void *context;
    struct name_list *unread;
};

static bool read_folder(const struct reader *r, const char *path, int depth)
{
    struct name_list names = {0};
    DIR *folder = opendir(path);
    bool is_good = folder != NULL;
    if (!folder) {
        log_error("%s: %s", path_shown(path).text, strerror(errno));
        name_list_add(r->unread, path);
        return false;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.')
            name_list_print(&names, "%s/%s", path, entry->d_name);
    closedir(folder);
    if (names.count > 1)
        qsort(names.names, (size_t)names.count, sizeof *names.names, by_name);
    for (int i = 0; i < names.count; i++) {
        struct stat status;
        const bool is_there = stat(names.names[i], &status) == 0;
        if (is_there && S_ISDIR(status.st_mode) && depth < DEPTH_MAX)
            is_good = read_folder(r, names.names[i], depth + 1) && is_good;
        else if ((!is_there || S_ISREG(status.st_mode)) && is_record_name(names.names[i]))
            is_good = r->take(r->context, names.names[i]) && is_good;
    }
    name_list_free(&names);
    return is_good;
}

bool record_folder_each(const char *path, bool (*take)(void *context, const char *file), void *context,
                        struct name_list *unread)
{
    const struct reader r = {take, context, unread};
    struct stat status;
    const bool is_folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    return is_folder ? read_folder(&r, path, 0) : take(context, path);
}
