/* report: two records (or one twice) as a page in each of its formats. */
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/options/options_parse.h"
#include "cmd/report/report_groups.h"
#include "cmd/report/report_page.h"
#include "tests/fuzz/fuzz.h"

static struct options options_of(int files)
{
    struct options o;
    bool done;
    char *words[] = {xstrdup("fabench"),    xstrdup("report"),     xstrdup("--plot=none"),
                     xstrdup("--out=none"), xstrdup(fuzz_path(0)), xstrdup(fuzz_path(1))};
    enum { WORDS = sizeof words / sizeof *words };
    FUZZ_CHECK(options_parse(WORDS - 2 + files, words, &o, &done) == EXIT_OK);
    for (int i = 0; i < WORDS; i++)
        free(words[i]);
    return o;
}

static void write_all(const struct report *r)
{
    struct page *page = report_page(r, &(struct report_charts){0}, NULL), *brief = report_brief(r);
    page_write_markdown(page, stdout, false);
    FUZZ_CHECK(page_write_html(page, stdout, "/"));
    page_write_text(brief, stdout, 80);
    report_write_csv(r, stdout);
    page_close(page);
    page_close(brief);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct options one, two;
    struct fuzz_input rest = {data, size};
    struct report_input input;
    struct report report;
    if (!one.files.count) {
        one = options_of(1);
        two = options_of(2);
    }
    const struct fuzz_input first = fuzz_part(&rest);
    fuzz_put(0, first.data, first.size);
    fuzz_put(1, rest.data, rest.size);
    if (report_input_read(rest.size ? &two : &one, &input) == EXIT_OK) {
        report_make(&report, &input);
        report_make_groups(&report);
        write_all(&report);
        report_free(&report);
    }
    report_input_free(&input);
    return 0;
}
