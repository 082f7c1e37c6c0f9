/* Runs a fuzz target without libFuzzer, so that the corpus is a regression test with any compiler.
 *
 *   fuzz_<target> --corpus CORPUS        runs the inputs of the target's kind (corpus.txt says how they are written)
 *   fuzz_<target> --unpack DIR CORPUS    writes the inputs of every kind to DIR/KIND/NAME
 *   fuzz_<target> FILE...                runs files, one input each
 *
 * Exit code 0 when all were run or written, 2 when an argument cannot be read, is no corpus, or has no input for it. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/base/log.h"
#include "cmd/base/text.h"
#include "tests/fuzz/fuzz.h"

struct corpus_input {
    char kind[32], name[64];
    struct text bytes;
};
typedef bool input_function(const struct corpus_input *input, const char *folder);

static FILE *out; /* the real stdout */
static int count;

static bool refuse(const char *path, const char *sentence)
{
    fprintf(out, "%s: %s\n", path, sentence);
    return false;
}

static void run_bytes(const char *name, const void *bytes, size_t size)
{
    uint8_t *copy = xmalloc(size ? size : 1); /* of just this size, so that AddressSanitizer sees a read behind it */
    if (size)
        memcpy(copy, bytes, size);
    fprintf(out, "%s\n", name); /* before it runs: the last name is the input that stopped the program */
    fflush(out);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    count++;
}

static bool run_file(const char *path)
{
    char part[4096];
    struct text bytes = {0};
    size_t size;
    FILE *in = fopen(path, "re");
    if (!in)
        return refuse(path, "cannot be opened");
    while ((size = fread(part, 1, sizeof part, in)) > 0)
        text_add_bytes(&bytes, part, size);
    const bool is_read = !ferror(in);
    fclose(in);
    if (is_read)
        run_bytes(path, text_string(&bytes), bytes.length);
    text_free(&bytes);
    return is_read || refuse(path, "cannot be read");
}

/* ---- the corpus ---- */

static bool run_input(const struct corpus_input *input, const char *folder)
{
    (void)folder;
    if (strcmp(input->kind, FUZZ_KIND) == 0)
        run_bytes(input->name, text_string(&input->bytes), input->bytes.length);
    return true;
}

static bool write_input(const struct corpus_input *input, const char *folder)
{
    char *kind = xasprintf("%s/%s", folder, input->kind), *path = xasprintf("%s/%s", kind, input->name);
    mkdir(folder, 0777);
    mkdir(kind, 0777);
    FILE *file = fopen(path, "we");
    bool is_written = file && fwrite(text_string(&input->bytes), 1, input->bytes.length, file) == input->bytes.length;
    if (file && fclose(file) != 0)
        is_written = false;
    if (!is_written)
        refuse(path, "cannot be written");
    count++;
    free(path);
    free(kind);
    return is_written;
}

/* The bytes that one line of the corpus stands for. */
static bool add_line(struct text *bytes, const char *line)
{
    for (; *line; line++) {
        if (*line != '\\') {
            text_add_char(bytes, *line);
        } else if (line[1] == '\0') {
            return true;
        } else if (line[1] == 'x' && isxdigit((unsigned char)line[2]) && isxdigit((unsigned char)line[3])) {
            const char digits[] = {line[2], line[3], '\0'};
            text_add_char(bytes, (char)strtoul(digits, NULL, 16));
            line += 3;
        } else if (*++line == '\\') {
            text_add_char(bytes, '\\');
        } else {
            return false;
        }
    }
    text_add_char(bytes, '\n');
    return true;
}

static bool read_corpus(const char *path, input_function *use, const char *folder)
{
    struct corpus_input input = {.kind = ""};
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    bool is_good = true;
    FILE *in = fopen(path, "re");
    if (!in)
        return refuse(path, "cannot be opened");
    while (is_good && (length = getline(&line, &room, in)) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "== ", 3) == 0) {
            is_good = !*input.kind || use(&input, folder);
            text_clear(&input.bytes);
            if (sscanf(line, "== %31s %63s", input.kind, input.name) != 2)
                is_good = refuse(line, "is no line \"== KIND NAME\"");
        } else if (*input.kind && !add_line(&input.bytes, line)) {
            is_good = refuse(input.name, "has a backslash before something else than \\, xHH or a line's end");
        }
    }
    if (is_good && *input.kind)
        is_good = use(&input, folder);
    fclose(in);
    free(line);
    text_free(&input.bytes);
    return is_good && (count > 0 || refuse(path, "holds no input of this kind"));
}

int main(int argc, char **argv)
{
    bool is_good = argc > 1;
    out = stdout; /* the next call replaces stdout */
    LLVMFuzzerInitialize(&argc, &argv);
    if (argc == 3 && strcmp(argv[1], "--corpus") == 0)
        is_good = read_corpus(argv[2], run_input, NULL);
    else if (argc == 4 && strcmp(argv[1], "--unpack") == 0)
        is_good = read_corpus(argv[3], write_input, argv[2]);
    else
        for (int i = 1; i < argc && is_good; i++)
            is_good = run_file(argv[i]);
    fprintf(out, "%d inputs\n", count);
    fflush(out);
    return is_good ? 0 : 2;
}
