/* Reading and writing .npy. The header is a Python dict literal; the reader takes exactly the three keys NumPy writes,
 * in any order. Memory is allocated only after the header was checked against the length of the file. The writer goes
 * through a temporary file in the target's folder, so that a target is complete or absent.
 */
#include "cmd/base/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/base/log.h"

enum { HEADER_LIMIT = 65536, HEADER_ALIGN = 64 };

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};
static const char *const descrs[] = {
    [NPY_FLOAT32] = "<f4", [NPY_FLOAT16] = "<f2", [NPY_UINT16] = "<u2", [NPY_UINT8] = "|u1", [NPY_INT32] = "<i4"};

static size_t type_bytes(enum npy_type type)
{
    return type == NPY_FLOAT32 || type == NPY_INT32 ? 4 : type == NPY_UINT8 ? 1 : 2;
}

/* Sets *why to "path: sentence"; a long path is shortened. Always returns false. */
__attribute__((format(printf, 3, 4))) static bool refuse(struct reason *why, const char *path, const char *format, ...)
{
    char reason[256];
    const size_t length = strlen(path);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    snprintf(why->text, sizeof why->text, "%s%s: %s", length > 240 ? "..." : "",
             length > 240 ? path + length - 240 : path, reason);
    return false;
}

static const char *skip_blank(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n')
        at++;
    return at;
}

/* Consumes `c` after blanks. */
static bool take(const char **at, char c)
{
    *at = skip_blank(*at);
    if (**at != c)
        return false;
    (*at)++;
    return true;
}

/* A quoted string without escapes into buffer. */
static bool take_string(const char **at, char *buffer, size_t size)
{
    *at = skip_blank(*at);
    const char quote = **at;
    if (quote != '\'' && quote != '"')
        return false;
    const char *end = strchr(*at + 1, quote);
    if (!end || (size_t)(end - *at - 1) >= size)
        return false;
    memcpy(buffer, *at + 1, (size_t)(end - *at - 1));
    buffer[end - *at - 1] = 0;
    *at = end + 1;
    return true;
}

/* "(2, 3)", "(5,)" or "()". dims counts every dimension; only the first four are stored. */
static bool take_shape(const char **at, struct npy *npy)
{
    npy->dims = 0;
    if (!take(at, '('))
        return false;
    while (!take(at, ')')) {
        int64_t value = 0;
        const char *digits = *at;
        for (; **at >= '0' && **at <= '9'; (*at)++)
            if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, **at - '0', &value))
                return false;
        if (*at == digits)
            return false;
        if (npy->dims < 4)
            npy->shape[npy->dims] = value;
        npy->dims++;
        if (!take(at, ',') && *skip_blank(*at) != ')')
            return false;
    }
    return true;
}

/* The whole dict into npy's dims, shape and dtype. */
static bool parse_header(const char *header, const char *path, struct npy *npy, struct reason *why)
{
    const char *at = header;
    char key[20], descr[20] = "";
    bool has_descr = false, has_order = false, has_shape = false, is_fortran = false;
    bool good = take(&at, '{');
    while (good && !take(&at, '}')) {
        good = take_string(&at, key, sizeof key) && take(&at, ':');
        at = skip_blank(at);
        if (good && !has_descr && strcmp(key, "descr") == 0) {
            good = has_descr = take_string(&at, descr, sizeof descr);
        } else if (good && !has_order && strcmp(key, "fortran_order") == 0) {
            is_fortran = strncmp(at, "True", 4) == 0;
            good = has_order = is_fortran || strncmp(at, "False", 5) == 0;
            at += is_fortran ? 4 : good ? 5 : 0;
        } else if (good && !has_shape && strcmp(key, "shape") == 0) {
            good = has_shape = take_shape(&at, npy);
        } else {
            good = false;
        }
        if (good && !take(&at, ',') && *skip_blank(at) != '}')
            good = false;
    }
    if (!good || *skip_blank(at) || !has_descr || !has_order || !has_shape)
        return refuse(why, path, "its .npy header cannot be read");
    if (is_fortran)
        return refuse(why, path, "is in Fortran order; must be in C order");
    if (npy->dims > 4)
        return refuse(why, path, "has %d dimensions; at most 4 are taken", npy->dims);
    if (strcmp(descr, "|b1") == 0) /* bool: one byte, 0 or 1 */
        snprintf(descr, sizeof descr, "%s", descrs[NPY_UINT8]);
    for (int type = NPY_FLOAT32; type <= NPY_UINT8; type++)
        if (strcmp(descr, descrs[type]) == 0) {
            npy->type = (enum npy_type)type;
            return true;
        }
    return refuse(why, path, "has dtype %s; must be <f4 (fp32), <f2 (fp16), <u2 (bf16 bits), |u1 or |b1", descr);
}

static bool read_bytes(FILE *file, void *buffer, size_t bytes, const char *path, struct reason *why)
{
    errno = 0;
    if (fread(buffer, 1, bytes, file) == bytes)
        return true;
    return refuse(why, path, "cannot be read: %s", ferror(file) ? strerror(errno) : "it ends too early");
}

/* Magic, version and the dict; *header_bytes is where the data begin. */
static bool read_header(FILE *file, int64_t file_bytes, const char *path, struct npy *npy, int64_t *header_bytes,
                        struct reason *why)
{
    unsigned char prefix[12];
    if (file_bytes < 10)
        return refuse(why, path, "is not a .npy file (%" PRId64 " bytes)", file_bytes);
    if (!read_bytes(file, prefix, 10, path, why))
        return false;
    if (memcmp(prefix, magic, sizeof magic) != 0)
        return refuse(why, path, "is not a .npy file (wrong magic)");
    const int major = prefix[6], minor = prefix[7];
    if ((major != 1 && major != 2) || minor != 0)
        return refuse(why, path, "is .npy version %d.%d; must be 1.0 or 2.0", major, minor);
    if (major == 2 && !read_bytes(file, prefix + 10, 2, path, why))
        return false;
    const int64_t high = major == 2 ? prefix[10] | (int64_t)prefix[11] << 8 : 0;
    const int64_t length = prefix[8] | prefix[9] << 8 | high << 16;
    *header_bytes = (major == 1 ? 10 : 12) + length;
    if (length > HEADER_LIMIT || *header_bytes > file_bytes)
        return refuse(why, path, "its .npy header is %" PRId64 " bytes long, the file %" PRId64, length, file_bytes);
    char *header = xmalloc((unsigned long)length + 1);
    header[length] = 0;
    bool good = read_bytes(file, header, (size_t)length, path, why);
    if (good && memchr(header, 0, (size_t)length))
        good = refuse(why, path, "its .npy header cannot be read");
    good = good && parse_header(header, path, npy, why);
    free(header);
    return good;
}

/* Bytes of the shape; false on overflow. */
static bool shape_bytes(const struct npy *npy, int64_t *bytes)
{
    *bytes = (int64_t)type_bytes(npy->type);
    for (int i = 0; i < npy->dims; i++)
        if (__builtin_mul_overflow(*bytes, npy->shape[i], bytes))
            return false;
    return true;
}

static bool read_open(FILE *file, const char *path, struct npy *npy, struct reason *why)
{
    struct stat status;
    int64_t header_bytes = 0, data_bytes;
    if (fstat(fileno(file), &status) != 0)
        return refuse(why, path, "cannot be read: %s", strerror(errno));
    if (!S_ISREG(status.st_mode))
        return refuse(why, path, "is not a regular file");
    if (!read_header(file, status.st_size, path, npy, &header_bytes, why))
        return false;
    if (!shape_bytes(npy, &data_bytes))
        return refuse(why, path, "its shape overflows 64 bits");
    if (data_bytes != status.st_size - header_bytes)
        return refuse(why, path, "holds %" PRId64 " bytes of data; its header says %" PRId64,
                      (int64_t)status.st_size - header_bytes, data_bytes);
    npy->bytes = (size_t)data_bytes;
    npy->data = malloc(npy->bytes ? npy->bytes : 1);
    if (!npy->data)
        return refuse(why, path, "needs %" PRId64 " bytes of memory, more than there are", data_bytes);
    return read_bytes(file, npy->data, npy->bytes, path, why);
}

bool npy_read(const char *path, struct npy *npy, struct reason *why)
{
    memset(npy, 0, sizeof *npy);
    /* O_NONBLOCK: otherwise opening a pipe without a writer would wait forever. */
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "rb");
    if (!file) {
        refuse(why, path, "cannot be opened: %s", strerror(errno));
        if (descriptor >= 0)
            close(descriptor);
        return false;
    }
    const bool good = read_open(file, path, npy, why);
    fclose(file);
    if (!good)
        npy_free(npy);
    return good;
}

void npy_free(struct npy *npy)
{
    free(npy->data);
    memset(npy, 0, sizeof *npy);
}

/* The version 1.0 header, padded so that the data begin at a multiple of 64 bytes. Returns its length. */
static size_t make_header(const struct npy *npy, char *header, size_t size)
{
    int length =
        10 + snprintf(header + 10, size - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (", descrs[npy->type]);
    for (int i = 0; i < npy->dims; i++)
        length += snprintf(header + length, size - (size_t)length, "%s%" PRId64 "%s", i ? " " : "", npy->shape[i],
                           i + 1 < npy->dims || npy->dims == 1 ? "," : "");
    length += snprintf(header + length, size - (size_t)length, "), }");
    while ((length + 1) % HEADER_ALIGN)
        header[length++] = ' ';
    header[length++] = '\n';
    memcpy(header, magic, sizeof magic);
    header[6] = 1;
    header[7] = 0;
    header[8] = (char)((length - 10) & 255);
    header[9] = (char)((length - 10) >> 8);
    return (size_t)length;
}

static bool write_bytes(int descriptor, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        const ssize_t written = write(descriptor, at, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return false;
        at += written;
        bytes -= (size_t)written;
    }
    return true;
}

bool npy_write(const char *path, const struct npy *npy, struct reason *why)
{
    struct stat status;
    char header[320];
    int64_t data_bytes;
    FABENCH_ASSERT(npy->dims >= 0 && npy->dims <= 4 && shape_bytes(npy, &data_bytes) &&
                       (size_t)data_bytes == npy->bytes,
                   "shape of %s and its %zu bytes differ", path, npy->bytes);
    /* A rename would replace a device or a pipe with a regular file, so these are refused. */
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return refuse(why, path, "is not a regular file");
    const size_t header_bytes = make_header(npy, header, sizeof header);
    char *temporary = xasprintf("%s.%ld.tmp", path, (long)getpid());
    unlink(temporary);
    const int descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool good = descriptor >= 0 && write_bytes(descriptor, header, header_bytes) &&
                write_bytes(descriptor, npy->data, npy->bytes) && fsync(descriptor) == 0;
    int error = errno;
    if (descriptor >= 0 && close(descriptor) != 0 && good) {
        good = false;
        error = errno;
    }
    if (good && rename(temporary, path) != 0) {
        good = false;
        error = errno;
    }
    if (!good) {
        if (descriptor >= 0)
            unlink(temporary);
        refuse(why, path, "cannot be written: %s", strerror(error));
    }
    free(temporary);
    return good;
}
