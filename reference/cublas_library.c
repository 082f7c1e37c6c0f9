/* Opening cuBLAS; see cublas_library.h. */
#include "reference/cublas_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "reference/status.h"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define MAJOR TEXT(CUBLAS_VER_MAJOR)
#define FILE_NAME "libcublas.so." MAJOR

/* The library's file for a path that names it or a folder around it; false where the folder holds none. */
static bool resolve_path(const char *path, char file[PATH_MAX])
{
    static const char *const inside[] = {FILE_NAME, "lib/" FILE_NAME, "nvidia/cublas/lib/" FILE_NAME,
                                         "nvidia/cu" MAJOR "/lib/" FILE_NAME};
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode))
        return snprintf(file, PATH_MAX, "%s", path) < PATH_MAX;
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        if (snprintf(file, PATH_MAX, "%s/%s", path, inside[i]) < PATH_MAX && stat(file, &status) == 0)
            return true;
    return false;
}

static void *open_named(const char *path, struct attn_message *why)
{
    char file[PATH_MAX];
    if (!resolve_path(path, file)) {
        status_fail(why, ATTN_UNSUPPORTED,
                    "FABENCH_CUBLAS=%.200s: no " FILE_NAME " in this folder, its lib, its nvidia/cublas/lib or its "
                    "nvidia/cu" MAJOR "/lib",
                    path);
        return NULL;
    }
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        status_fail(why, ATTN_UNSUPPORTED, "FABENCH_CUBLAS=%.100s cannot be loaded: %.250s", path, dlerror());
    return handle;
}

/* The sentence says where no library was found. For a library that was found and not loaded, it has the loader's
 * words. */
static void *open_found(struct attn_message *why)
{
    static const char *const places[] = {FILE_NAME, FABENCH_TOOLKIT_LIBRARIES "/" FILE_NAME};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        void *handle = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
        if (handle)
            return handle;
        const char *reason = dlerror();
        if (reason && !strstr(reason, FILE_NAME ": cannot open shared object file")) {
            status_fail(why, ATTN_UNSUPPORTED, FILE_NAME " cannot be loaded: %.300s", reason);
            return NULL;
        }
    }
    status_fail(why, ATTN_UNSUPPORTED,
                FILE_NAME " not found (looked in the loader's path and in " FABENCH_TOOLKIT_LIBRARIES
                          "; set FABENCH_CUBLAS to its path)");
    return NULL;
}

static bool resolve_functions(void *handle, struct cublas_functions *functions, struct attn_message *why)
{
#define ROW(field, function) {offsetof(struct cublas_functions, field), #function},
    static const struct {
        size_t offset;
        const char *name;
    } rows[] = {CUBLAS_FUNCTIONS(ROW)};
#undef ROW
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *function = dlsym(handle, rows[i].name);
        if (!function) {
            status_fail(why, ATTN_UNSUPPORTED, "the library that was found as " FILE_NAME " has no %s", rows[i].name);
            return false;
        }
        /* POSIX lets void * hold a function, ISO C has no cast for it. */
        memcpy((char *)functions + rows[i].offset, &function, sizeof function);
    }
    return true;
}

static bool has_right_version(const struct cublas_functions *functions, struct attn_message *why)
{
    int major = 0;
    if (functions->get_property(MAJOR_VERSION, &major) == CUBLAS_STATUS_SUCCESS && major == CUBLAS_VER_MAJOR)
        return true;
    status_fail(why, ATTN_UNSUPPORTED,
                "the library that was found as " FILE_NAME " is of cuBLAS %d; this program needs " MAJOR, major);
    return false;
}

bool cublas_library_open(const char *named, struct cublas_functions *functions, struct attn_message *why)
{
    memset(functions, 0, sizeof *functions);
    void *handle = named && *named ? open_named(named, why) : open_found(why);
    if (!handle)
        return false;
    if (resolve_functions(handle, functions, why) && has_right_version(functions, why))
        return true;
    dlclose(handle);
    return false;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cublas_functions the_functions;
static struct attn_message problem; /* why there is none; empty where there is one */

static void open_once(void)
{
    if (cublas_library_open(getenv("FABENCH_CUBLAS"), &the_functions, &problem))
        problem.text[0] = '\0';
}

const struct cublas_functions *cublas_library(struct attn_message *why)
{
    pthread_once(&once, open_once);
    if (!problem.text[0])
        return &the_functions;
    if (why)
        *why = problem;
    return NULL;
}
