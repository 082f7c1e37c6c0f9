/* Checks of paths by stat and faccessat with the effective user, the one that open uses. */
#include "cmd/base/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/base/text.h"

struct shown_path path_shown(const char *path)
{
    struct shown_path shown;
    text_cut_middle(path, shown.text, sizeof shown.text);
    return shown;
}

__attribute__((format(printf, 2, 3))) static bool refuse(struct reason *why, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return false;
}

static bool may(const char *path, int rights) { return faccessat(AT_FDCWD, path, rights, AT_EACCESS) == 0; }

/* "a/b/" -> "a", "b" -> ".", "/b" -> "/". path is shorter than PATH_MAX: stat has seen it. */
static void parent_of(const char *path, char parent[PATH_MAX])
{
    size_t length = strnlen(path, PATH_MAX - 1);
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    while (length > 1 && path[length - 1] == '/')
        length--;
    memcpy(parent, length ? path : ".", length ? length : 1);
    parent[length ? length : 1] = 0;
}

/* True for an existing directory in which files can be created. */
static bool dir_is_writable(const char *path, const struct stat *status, struct reason *why)
{
    if (!S_ISDIR(status->st_mode))
        return refuse(why, "%s is not a directory", path_shown(path).text);
    if (!may(path, W_OK | X_OK))
        return refuse(why, "the directory %s is not writable (%s)", path_shown(path).text, strerror(errno));
    return true;
}

bool path_takes_file(const char *path, const char *dir_to_be, struct reason *why)
{
    struct stat status;
    char parent[PATH_MAX];
    if (!*path)
        return refuse(why, "must name a file");
    if (stat(path, &status) == 0) {
        if (S_ISDIR(status.st_mode))
            return refuse(why, "is a directory; must be a file, or - for stdout");
        return may(path, W_OK) || refuse(why, "is not writable (%s)", strerror(errno));
    }
    if (errno != ENOENT)
        return refuse(why, "cannot be written (%s)", strerror(errno));
    if (path[strlen(path) - 1] == '/')
        return refuse(why, "names a directory; must be a file, or - for stdout");
    parent_of(path, parent);
    if (stat(parent, &status) == 0)
        return dir_is_writable(parent, &status, why);
    if (dir_to_be) {
        const size_t length = strlen(parent);
        if (strncmp(parent, dir_to_be, length) == 0 && strspn(dir_to_be + length, "/") == strlen(dir_to_be + length))
            return true;
    }
    return refuse(why, "the directory %s does not exist", path_shown(parent).text);
}

bool path_takes_dir(const char *path, struct reason *why)
{
    struct stat status;
    char existing[PATH_MAX], parent[PATH_MAX];
    if (!*path || strcmp(path, "-") == 0)
        return refuse(why, "must name a directory");
    if (strlen(path) >= PATH_MAX)
        return refuse(why, "cannot be made (%s)", strerror(ENAMETOOLONG));
    strcpy(existing, path);
    while (stat(existing, &status) != 0) {
        /* mkdir does not replace a dangling link. */
        if (errno != ENOENT || lstat(existing, &status) == 0)
            return refuse(why, "cannot be made (%s)", strerror(errno));
        parent_of(existing, parent);
        if (strcmp(parent, existing) == 0)
            return refuse(why, "cannot be made (the working directory is gone)");
        strcpy(existing, parent);
    }
    return dir_is_writable(existing, &status, why);
}

bool path_has_dir(const char *path, struct reason *why)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return refuse(why, "must be a directory that exists (%s)", strerror(errno));
    if (!S_ISDIR(status.st_mode))
        return refuse(why, "is not a directory");
    return may(path, R_OK | X_OK) || refuse(why, "is not readable (%s)", strerror(errno));
}

bool path_has_file(const char *path, struct reason *why)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return refuse(why, "must be a file that exists (%s)", strerror(errno));
    if (S_ISDIR(status.st_mode))
        return refuse(why, "is a directory; must be a file");
    return may(path, R_OK) || refuse(why, "is not readable (%s)", strerror(errno));
}

bool path_is_same(const char *a, const char *b)
{
    struct stat one, two;
    const bool has_one = stat(a, &one) == 0, has_two = stat(b, &two) == 0;
    char parent[PATH_MAX];
    if (has_one != has_two)
        return false;
    if (has_one)
        return one.st_dev == two.st_dev && one.st_ino == two.st_ino && !S_ISCHR(one.st_mode) && !S_ISBLK(one.st_mode);
    if (strcmp(a, b) == 0)
        return true;
    const char *const name_a = strrchr(a, '/'), *const name_b = strrchr(b, '/');
    if (strcmp(name_a ? name_a + 1 : a, name_b ? name_b + 1 : b) != 0)
        return false;
    parent_of(a, parent);
    if (stat(parent, &one) != 0)
        return false;
    parent_of(b, parent);
    return stat(parent, &two) == 0 && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

bool path_discard(const char *path)
{
    struct stat own, status;
    if (lstat(path, &own) != 0 || stat(path, &status) != 0 || !S_ISREG(status.st_mode))
        return true;
    /* A link belongs to the user (/dev/stderr is one): the earlier run wrote only its target. */
    if ((S_ISREG(own.st_mode) ? unlink(path) : truncate(path, 0)) == 0 || errno == ENOENT)
        return true;
    log_error("%s: what an earlier run left cannot be removed: %s", path, strerror(errno));
    return false;
}

bool path_make_dirs(const char *path)
{
    char *copy = xstrdup(path);
    bool made = true;
    for (char *at = copy + 1; *copy && made && (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        made = mkdir(copy, 0777) == 0 || errno == EEXIST;
        *at = '/';
    }
    made = made && (mkdir(copy, 0777) == 0 || errno == EEXIST);
    if (!made)
        log_error("%s: cannot be made: %s", path, strerror(errno));
    free(copy);
    return made;
}

int file_skip_mark(FILE *file)
{
    const unsigned char mark[] = {0xEF, 0xBB, 0xBF};
    unsigned char bytes[sizeof mark];
    const int first = getc(file);
    if (first != EOF)
        ungetc(first, file);
    if (first != mark[0]) /* also a pipe, which cannot be rewound */
        return 0;
    if (fread(bytes, 1, sizeof bytes, file) == sizeof bytes && memcmp(bytes, mark, sizeof mark) == 0)
        return sizeof mark;
    rewind(file);
    return 0;
}
