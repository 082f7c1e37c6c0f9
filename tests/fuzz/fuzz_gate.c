/* gate: a baseline, the current record, and floors where the input has a third part. All outputs are written. */
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/gate/gate.h"
#include "cmd/options/options_parse.h"
#include "tests/fuzz/fuzz.h"

static void put_part(int file, struct fuzz_input part) { fuzz_put(file, part.data, part.size); }

/* The options of `gate` with or without --floors. */
static struct options options_of(const char *folder, bool has_floors)
{
    struct options o;
    bool done;
    char *words[] = {xstrdup("fabench"),
                     xstrdup("gate"),
                     xasprintf("--out=%s", folder),
                     xstrdup("--junit=/dev/null"),
                     xasprintf("--baseline=%s", fuzz_path(0)),
                     xasprintf("--current=%s", fuzz_path(1)),
                     xstrdup("--subset"),
                     xasprintf("--floors=%s", fuzz_path(2))};
    enum { WORDS = sizeof words / sizeof *words };
    FUZZ_CHECK(options_parse(has_floors ? WORDS : WORDS - 1, words, &o, &done) == EXIT_OK);
    for (int i = 0; i < WORDS; i++)
        free(words[i]);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct options plain, with_floors;
    struct fuzz_input rest = {data, size};
    if (!plain.baseline) {
        static const char *const names[] = {"verdicts.csv", NULL};
        const char *const folder = fuzz_folder(names);
        plain = options_of(folder, false);
        with_floors = options_of(folder, true);
        plain.is_subset = false;
        FUZZ_CHECK(setenv("GITHUB_ACTIONS", "true", 1) == 0);
    }
    const struct fuzz_input baseline = fuzz_part(&rest), current = fuzz_part(&rest);
    put_part(0, baseline);
    put_part(1, current.size ? current : baseline);
    put_part(2, rest);
    const int code = gate_run(rest.size ? &with_floors : &plain);
    FUZZ_CHECK(code >= EXIT_OK && code <= EXIT_IO);
    return 0;
}
