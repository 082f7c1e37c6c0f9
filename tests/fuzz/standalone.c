/* Runs a fuzz target over files: fuzz_<target> FILE-OR-FOLDER... The corpus is a regression test wherever libFuzzer is
 * not. Exit code 0 when all were run, 2 when an argument cannot be read or holds no file. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/base/log.h"
#include "tests/fuzz/fuzz.h"

static int count;

static int refuse(FILE *out, const char *path, const char *sentence)
{
    fprintf(out, "%s: %s\n", path, sentence);
    return 2;
}

static int run_file(FILE *out, const char *path)
{
    struct stat status;
    FILE *in = fopen(path, "re");
    if (!in || fstat(fileno(in), &status) != 0)
        return refuse(out, path, "cannot be opened");
    const size_t size = (size_t)status.st_size;
    uint8_t *bytes = xmalloc(size ? size : 1); /* of just this size, so that AddressSanitizer sees a read behind it */
    const bool is_read = fread(bytes, 1, size, in) == size;
    fclose(in);
    if (!is_read)
        return refuse(out, path, "cannot be read");
    fprintf(out, "%s\n", path); /* before it runs: the last name is the input that stopped the program */
    fflush(out);
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    count++;
    return 0;
}

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static int run_folder(FILE *out, const char *folder)
{
    struct dirent **entries;
    const int found = scandir(folder, &entries, is_visible, alphasort);
    if (found < 0)
        return refuse(out, folder, "cannot be opened");
    int status = found ? 0 : refuse(out, folder, "holds no file");
    for (int i = 0; i < found; i++) {
        char *path = xasprintf("%s/%s", folder, entries[i]->d_name);
        if (status == 0)
            status = run_file(out, path);
        free(path);
        free(entries[i]);
    }
    free(entries);
    return status;
}

int main(int argc, char **argv)
{
    FILE *const out = stdout; /* the next call replaces stdout */
    int status = argc > 1 ? 0 : 2;
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc && status == 0; i++) {
        struct stat facts;
        if (stat(argv[i], &facts) != 0)
            status = refuse(out, argv[i], "does not exist");
        else
            status = S_ISDIR(facts.st_mode) ? run_folder(out, argv[i]) : run_file(out, argv[i]);
    }
    fprintf(out, "%d inputs\n", count);
    fflush(out);
    return status;
}
