/* Shared by the fuzz targets. A target is a function of targets_*.c: it gives one input to readers of the program and
 * stops the process where one of their promises is broken. Each is a program of its own, where LLVMFuzzerTestOneInput
 * is the target that CMake chose (FUZZ_TARGET). With clang, libFuzzer calls it (CMake option FABENCH_FUZZ); otherwise
 * standalone.c calls it once for each input of the corpus.
 *
 * stdout and stderr of the program go to a sink: it stops the process when a control character other than a line end is
 * printed, because what a file holds must not reach a terminal as a command. */
#ifndef FABENCH_FUZZ_H
#define FABENCH_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef int fuzz_target(const uint8_t *data, size_t size);
fuzz_target fuzz_text, fuzz_options;                                              /* targets_file.c */
fuzz_target fuzz_npy, fuzz_csv, fuzz_floors, fuzz_overlay, fuzz_dump, fuzz_tuned; /* targets_file.c */
fuzz_target fuzz_record, fuzz_resume, fuzz_gate, fuzz_report, fuzz_chart;         /* targets_record.c */

/* Stops the process, with the condition on the real stderr. */
#define FUZZ_CHECK(condition) ((condition) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #condition))
_Noreturn void fuzz_fail(const char *file, int line, const char *condition);

/* Regular files in memory, so that readers that take a path need no disk. fuzz_put replaces the bytes of one. */
enum { FUZZ_FILES = 3 };
const char *fuzz_path(int file);
const char *fuzz_put(int file, const void *bytes, size_t size);

/* A new folder whose `names` (NULL ends them) are links to /dev/null, for writers that take a folder. It is removed at
 * exit. */
const char *fuzz_folder(const char *const *names);

/* The input as a string: a copy up to its first NUL byte, which the caller frees. */
char *fuzz_string(const uint8_t *data, size_t size);

/* The part of the input before the next line "---", which is removed with it; what remains is the next part. */
struct fuzz_input {
    const uint8_t *data;
    size_t size;
};
struct fuzz_input fuzz_part(struct fuzz_input *rest);

/* The next byte of the input, 0 at its end. */
unsigned fuzz_byte(struct fuzz_input *rest);

#endif
