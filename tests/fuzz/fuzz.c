/* Files in memory, parts of an input, and the sink for what the program prints. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cmd/base/log.h"

static FILE *real_stderr;
static int files[FUZZ_FILES];
static char paths[FUZZ_FILES][40];
static char folder[] = "/tmp/fabench-fuzz-XXXXXX";
static const char *const *links; /* in the folder */

_Noreturn void fuzz_fail(const char *file, int line, const char *condition)
{
    fprintf(real_stderr, "%s:%d: not true: %s\n", file, line, condition);
    fflush(real_stderr);
    abort();
}

static ssize_t take_output(void *cookie, const char *bytes, size_t size)
{
    (void)cookie;
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        FUZZ_CHECK((c >= 0x20 && c != 0x7F) || c == '\n');
    }
    return (ssize_t)size;
}

static FILE *open_sink(void)
{
    FILE *sink = fopencookie(NULL, "w", (cookie_io_functions_t){.write = take_output});
    FUZZ_CHECK(sink && setvbuf(sink, NULL, _IOLBF, BUFSIZ) == 0);
    return sink;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    real_stderr = stderr;
    for (int i = 0; i < FUZZ_FILES; i++) {
        files[i] = memfd_create("fuzz", MFD_CLOEXEC);
        FUZZ_CHECK(files[i] >= 0);
        snprintf(paths[i], sizeof paths[i], "/proc/self/fd/%d", files[i]);
    }
    stderr = open_sink();
    stdout = open_sink();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return FUZZ_TARGET(data, size); }

const char *fuzz_path(int file) { return paths[file]; }

const char *fuzz_put(int file, const void *bytes, size_t size)
{
    FUZZ_CHECK(ftruncate(files[file], 0) == 0 && pwrite(files[file], bytes, size, 0) == (ssize_t)size);
    return paths[file];
}

static char *path_of(const char *name) { return xasprintf("%s/%s", folder, name); }

static void remove_folder(void)
{
    for (int i = 0; links[i]; i++) {
        char *path = path_of(links[i]);
        unlink(path);
        free(path);
    }
    rmdir(folder);
}

const char *fuzz_folder(const char *const *names)
{
    FUZZ_CHECK(!links && mkdtemp(folder));
    links = names;
    FUZZ_CHECK(atexit(remove_folder) == 0);
    for (int i = 0; links[i]; i++) {
        char *path = path_of(links[i]);
        FUZZ_CHECK(symlink("/dev/null", path) == 0);
        free(path);
    }
    return folder;
}

char *fuzz_string(const uint8_t *data, size_t size)
{
    const size_t length = size ? strnlen((const char *)data, size) : 0;
    char *string = xmalloc(length + 1);
    if (length)
        memcpy(string, data, length);
    string[length] = '\0';
    return string;
}

struct fuzz_input fuzz_part(struct fuzz_input *rest)
{
    static const char line[] = "---\n";
    const struct fuzz_input whole = *rest;
    *rest = (struct fuzz_input){whole.data + whole.size, 0};
    for (size_t i = 0; i + sizeof line - 1 <= whole.size; i++) {
        if ((i > 0 && whole.data[i - 1] != '\n') || memcmp(whole.data + i, line, sizeof line - 1) != 0)
            continue;
        const size_t next = i + sizeof line - 1;
        *rest = (struct fuzz_input){whole.data + next, whole.size - next};
        return (struct fuzz_input){whole.data, i};
    }
    return whole;
}

unsigned fuzz_byte(struct fuzz_input *rest)
{
    if (!rest->size)
        return 0;
    rest->size--;
    return *rest->data++;
}
