/* .npy files: bytes as NumPy writes them, every way a file can be wrong, and writing that leaves no incomplete
 * files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/base/npy.h"

static char folder[] = "/tmp/fabench-npy-XXXXXX";
static char path[128];

static int enter(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/t.npy", folder);
    return 0;
}

static int leave(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static int entries(void)
{
    int count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void put(const void *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

#define PUT(literal) put(literal, sizeof literal - 1)

/* A file of the given version, header text and data. */
static void put_npy(int major, int minor, const char *header, const void *data, size_t bytes)
{
    unsigned char file[4096] = "\x93NUMPY";
    const size_t length = strlen(header), start = major == 1 ? 10 : 12;
    file[6] = (unsigned char)major;
    file[7] = (unsigned char)minor;
    file[8] = (unsigned char)(length & 255);
    file[9] = (unsigned char)(length >> 8);
    memcpy(file + start, header, length);
    if (bytes)
        memcpy(file + start + length, data, bytes);
    put(file, start + length + bytes);
}

static void refused_as(const char *part)
{
    struct npy npy;
    struct reason why = {""};
    if (npy_read(path, &npy, &why)) {
        npy_free(&npy);
        fail_msg("was read; should have said \"%s\"", part);
    }
    assert_null(npy.data);
    if (!strstr(why.text, part) || !strstr(why.text, path) || strchr(why.text, '\n'))
        fail_msg("\"%s\" does not say \"%s\"", why.text, part);
}

static void reads_what_numpy_writes(void **state)
{
    (void)state;
    /* numpy.save of arange(6, dtype='<f4').reshape(1, 2, 3, 1), byte for byte. */
    static const char header[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 1), }"
                                 "                                                    \n";
    const float data[] = {0, 1, 2, 3, 4, 5};
    struct npy npy;
    struct reason why;
    assert_int_equal((10 + strlen(header)) % 64, 0);
    put_npy(1, 0, header, data, sizeof data);
    assert_true(npy_read(path, &npy, &why));
    assert_int_equal(npy.dims, 4);
    assert_int_equal(npy.shape[0], 1);
    assert_int_equal(npy.shape[1], 2);
    assert_int_equal(npy.shape[2], 3);
    assert_int_equal(npy.shape[3], 1);
    assert_int_equal(npy.type, NPY_FLOAT32);
    assert_int_equal(npy.bytes, sizeof data);
    assert_memory_equal(npy.data, data, sizeof data);
    npy_free(&npy);
    assert_null(npy.data);
}

static void reads_other_spellings(void **state)
{
    (void)state;
    const uint16_t data[] = {0x3f80, 0x4000, 0x4040};
    struct npy npy;
    struct reason why;
    put_npy(2, 0, "{\"shape\": (3,),\n\"fortran_order\":False,'descr':'<u2'}", data, sizeof data);
    assert_true(npy_read(path, &npy, &why));
    assert_int_equal(npy.dims, 1);
    assert_int_equal(npy.shape[0], 3);
    assert_int_equal(npy.type, NPY_UINT16);
    assert_memory_equal(npy.data, data, sizeof data);
    npy_free(&npy);
    put_npy(1, 0, "{'descr': '<f2', 'fortran_order': False, 'shape': (), }  \n", data, 2);
    assert_true(npy_read(path, &npy, &why));
    assert_int_equal(npy.dims, 0);
    assert_int_equal(npy.type, NPY_FLOAT16);
    assert_int_equal(npy.bytes, 2);
    npy_free(&npy);
    put_npy(1, 0, "{'descr': '<f2', 'fortran_order': False, 'shape': (0, 4), }", NULL, 0);
    assert_true(npy_read(path, &npy, &why));
    assert_int_equal(npy.bytes, 0);
    npy_free(&npy);
}

static void refuses_what_is_no_npy(void **state)
{
    (void)state;
    unlink(path);
    refused_as("No such file");
    PUT("");
    refused_as("is not a .npy file (0 bytes)");
    PUT("\x93NUMPY");
    refused_as("is not a .npy file");
    PUT("PK\x03\x04 this is a zip, as .npz is");
    refused_as("wrong magic");
    put_npy(3, 0, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "1234", 4);
    refused_as("version 3.0; must be 1.0 or 2.0");
    put_npy(1, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "1234", 4);
    refused_as("version 1.1");
    PUT("\x93NUMPY\x01\x00\xff\xff{'descr'");
    refused_as("header is 65535 bytes long, the file 18");
    PUT("\x93NUMPY\x02\x00\xff\xff\xff\xff{'descr'");
    refused_as("header is 4294967295 bytes long");
    PUT("\x93NUMPY\x02\x00\x10\x00");
    refused_as("ends too early");
}

static void refuses_bad_headers(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "",
        "{",
        "{}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'shape': (1,)}",
        "{'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
        "{'descr': '<f4, 'fortran_order': False, 'shape': (1,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        put_npy(1, 0, headers[i], "1234", 4);
        refused_as("its .npy header cannot be read");
    }
    PUT("\x93NUMPY\x01\x00\x0a\x00{'descr\0':1234");
    refused_as("its .npy header cannot be read");
    PUT("\x93NUMPY\x01\x00\x39\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}\0x1234");
    refused_as("its .npy header cannot be read");
}

static void refuses_what_it_does_not_take(void **state)
{
    (void)state;
    static const struct {
        const char *header, *part;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", "is in Fortran order"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", "has dtype <f8; must be <f4"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "has dtype >f4"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }", "has dtype <i4"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1), }", "has 5 dimensions; at most 4"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296), }", "overflows 64 bits"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "holds 4 bytes of data; its header says 8"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (1,), }", "holds 4 bytes of data; its header says 2"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }", "holds 4 bytes of data; its header says 0"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }", "header says 4000000000000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_npy(1, 0, cases[i].header, "1234", 4);
        refused_as(cases[i].part);
    }
}

static void refuses_other_things_than_files(void **state)
{
    (void)state;
    struct npy npy;
    struct reason why;
    assert_false(npy_read(folder, &npy, &why));
    assert_non_null(strstr(why.text, "is not a regular file"));
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    refused_as("is not a regular file"); /* and does not wait for a writer */
}

static struct npy sample(void)
{
    static uint16_t data[2 * 3 * 5];
    for (size_t i = 0; i < sizeof data / sizeof data[0]; i++)
        data[i] = (uint16_t)(i * 2053);
    return (struct npy){.dims = 3, .shape = {2, 3, 5}, .type = NPY_FLOAT16, .data = data, .bytes = sizeof data};
}

static void writes_what_it_reads(void **state)
{
    (void)state;
    struct npy out = sample(), in;
    struct reason why;
    unlink(path);
    for (int dims = 0; dims <= 4; dims++)
        for (int type = NPY_FLOAT32; type <= NPY_UINT8; type++) {
            const int64_t shape[] = {1, 3, 1, 2};
            out.dims = dims;
            out.type = (enum npy_type)type;
            out.bytes = out.type == NPY_FLOAT32 ? 4 : out.type == NPY_UINT8 ? 1 : 2;
            memcpy(out.shape, shape, sizeof shape);
            for (int i = 0; i < dims; i++)
                out.bytes *= (size_t)shape[i];
            assert_true(npy_write(path, &out, &why));
            assert_int_equal(entries(), 1); /* no temporary file stays */
            assert_true(npy_read(path, &in, &why));
            assert_int_equal(in.dims, dims);
            assert_int_equal(in.type, type);
            assert_int_equal(in.bytes, out.bytes);
            assert_memory_equal(in.shape, shape, (size_t)dims * sizeof shape[0]);
            assert_memory_equal(in.data, out.data, out.bytes);
            npy_free(&in);
        }
}

static void writes_the_bytes_numpy_writes(void **state)
{
    (void)state;
    const struct npy npy = sample();
    struct reason why;
    char file[256] = {0};
    static const char head[] =
        "\x93NUMPY\x01\x00\x76\x00{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3, 5), }";
    assert_true(npy_write(path, &npy, &why));
    FILE *stream = fopen(path, "rb");
    assert_int_equal(fread(file, 1, sizeof file, stream), 128 + npy.bytes);
    fclose(stream);
    assert_memory_equal(file, head, sizeof head - 1);
    assert_int_equal(file[127], '\n');
    assert_memory_equal(file + 128, npy.data, npy.bytes);
    /* A tuple of one has its comma. */
    const struct npy one = {.dims = 1, .shape = {30}, .type = NPY_UINT16, .data = npy.data, .bytes = npy.bytes};
    assert_true(npy_write(path, &one, &why));
    stream = fopen(path, "rb");
    assert_int_equal(fread(file, 1, sizeof file, stream), 128 + one.bytes);
    fclose(stream);
    file[127] = 0;
    assert_non_null(strstr(file + 10, "{'descr': '<u2', 'fortran_order': False, 'shape': (30,), } "));
}

static void a_failed_write_keeps_the_old_file(void **state)
{
    (void)state;
    struct npy old = sample(), in;
    struct reason why;
    struct rlimit limit, small;
    assert_true(npy_write(path, &old, &why));
    static uint16_t much[100000];
    const struct npy large = {.dims = 1, .shape = {100000}, .type = NPY_UINT16, .data = much, .bytes = sizeof much};
    /* A file size limit stands for the full disk. */
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const bool written = npy_write(path, &large, &why);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_false(written);
    assert_non_null(strstr(why.text, "cannot be written: File too large"));
    assert_non_null(strstr(why.text, path));
    assert_int_equal(entries(), 1);
    assert_true(npy_read(path, &in, &why));
    assert_memory_equal(in.data, old.data, old.bytes);
    npy_free(&in);
}

static void refuses_to_write_elsewhere(void **state)
{
    (void)state;
    const struct npy npy = sample();
    struct reason why;
    assert_false(npy_write("/nonexistent/t.npy", &npy, &why));
    assert_string_equal(why.text, "/nonexistent/t.npy: cannot be written: No such file or directory");
    assert_false(npy_write(folder, &npy, &why));
    assert_non_null(strstr(why.text, "is not a regular file"));
    assert_false(npy_write("/dev/null", &npy, &why)); /* a rename would replace the device */
    assert_non_null(strstr(why.text, "is not a regular file"));
}

static void long_paths_fit_the_message(void **state)
{
    (void)state;
    char name[3000];
    struct npy npy;
    struct reason why;
    memset(name, 'x', sizeof name - 1);
    name[0] = '/';
    name[sizeof name - 1] = 0;
    assert_false(npy_read(name, &npy, &why));
    assert_non_null(strstr(why.text, "File name too long"));
    assert_true(strlen(why.text) < sizeof why.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_numpy_writes),
        cmocka_unit_test(reads_other_spellings),
        cmocka_unit_test(refuses_what_is_no_npy),
        cmocka_unit_test(refuses_bad_headers),
        cmocka_unit_test(refuses_what_it_does_not_take),
        cmocka_unit_test(refuses_other_things_than_files),
        cmocka_unit_test(writes_what_it_reads),
        cmocka_unit_test(writes_the_bytes_numpy_writes),
        cmocka_unit_test(a_failed_write_keeps_the_old_file),
        cmocka_unit_test(refuses_to_write_elsewhere),
        cmocka_unit_test(long_paths_fit_the_message),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
