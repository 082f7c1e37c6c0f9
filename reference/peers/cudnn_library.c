/* The places, one after the other. */
#include "reference/peers/cudnn_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Always NULL, after the sentence. */
__attribute__((format(printf, 2, 3))) static void *refuse(struct attn_message *why, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return NULL;
}

/* The library's file for a path that names it or a folder around it. */
static bool resolve_path(const char *path, const char *file_name, char file[PATH_MAX])
{
    static const char *const inside[] = {"", "lib/", "nvidia/cudnn/lib/"};
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode))
        return snprintf(file, PATH_MAX, "%s", path) < PATH_MAX;
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        if (snprintf(file, PATH_MAX, "%s/%s%s", path, inside[i], file_name) < PATH_MAX && stat(file, &status) == 0)
            return true;
    return false;
}

static void *open_named(const char *origin, const char *path, const char *file_name, struct attn_message *why)
{
    char file[PATH_MAX];
    if (!resolve_path(path, file_name, file))
        return refuse(why, "%s%.200s: no %s in this folder, its lib or its nvidia/cudnn/lib", origin, path, file_name);
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    return handle ? handle : refuse(why, "%s%.100s cannot be loaded: %.250s", origin, path, dlerror());
}

static bool is_given(const char *path) { return path && *path; }

/* Where the library was when the program was built: it may be gone since, or moved with its checkout. */
static void *open_recorded(const char *path, const char *file_name, struct attn_message *why)
{
    char file[PATH_MAX];
    struct stat status;
    if (!is_given(path))
        return refuse(why, "%s not found (looked in the loader's path; set FABENCH_CUDNN to its path)", file_name);
    if (resolve_path(path, file_name, file) && stat(file, &status) == 0)
        return open_named("", path, file_name, why);
    return refuse(why,
                  "%s not found (looked in the loader's path and in %.200s, where it was when this program was built; "
                  "set FABENCH_CUDNN to its path)",
                  file_name, path);
}

void *cudnn_library_open(const struct cudnn_places *places, struct attn_message *why)
{
    const char *const file_name = places->file_name;
    char absent[128];
    if (is_given(places->chosen))
        return open_named("", places->chosen, file_name, why);
    if (is_given(places->environment))
        return open_named("FABENCH_CUDNN=", places->environment, file_name, why);
    void *handle = dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
    if (handle)
        return handle;
    /* A library that is there and cannot be loaded: the loader names what is missing. */
    const char *const reason = dlerror();
    snprintf(absent, sizeof absent, "%s: cannot open shared object file", file_name);
    if (reason && !strstr(reason, absent))
        return refuse(why, "%s cannot be loaded: %.300s", file_name, reason);
    return open_recorded(places->recorded, file_name, why);
}
