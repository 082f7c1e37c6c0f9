/* plot: a record, and published figures where the input has a second part, as charts. Every page is written, to
 * /dev/null. gnuplot is not run: for the terminal it is looked for in a PATH without it. */
#include <stdlib.h>

#include "cmd/base/log.h"
#include "cmd/chart/chart.h"
#include "cmd/chart/chart_gnuplot.h"
#include "tests/fuzz/fuzz.h"

static const char *folder; /* NULL before the first input */

static void prepare(void)
{
    static const char *const names[] = {"page.gp", "page.dat", NULL};
    FUZZ_CHECK(setenv("PATH", "/nonexistent", 1) == 0);
    folder = fuzz_folder(names);
}

static void draw(const struct chart_set *set, const struct chart_panel *panel)
{
    for (int kind = 0; kind < CHART_KIND_COUNT; kind++) {
        const struct chart_page page = {(enum chart_kind)kind, panel, 1, 1, "page"};
        FUZZ_CHECK(chart_write_page(set, &page, folder, PLOT_SVG) >= 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input rest = {data, size};
    struct record_file file;
    struct overlay overlay = {.count = 0};
    struct chart_set set;
    struct attn_message why = {""};
    if (!folder)
        prepare();
    const struct fuzz_input record = fuzz_part(&rest);
    if (!record_read(fuzz_put(0, record.data, record.size), &file, &why))
        return 0;
    const bool has_overlay = rest.size && overlay_read(fuzz_put(1, rest.data, rest.size), &overlay, &why);
    const struct chart_input input = {&file, 1, NULL, has_overlay ? &overlay : NULL};
    chart_set_make(&set, &input);
    for (int i = 0; i < set.panel_count && i < 4; i++)
        draw(&set, &set.panels[i]);
    chart_set_free(&set);
    int images = 0;
    if (size % 64 == 0) /* not always: it looks for gnuplot in a child process, which takes longer than all the rest */
        FUZZ_CHECK(charts_write(&input, NULL, PLOT_TERM, 80, false, &images) == EXIT_OK);
    overlay_free(&overlay);
    record_file_free(&file);
    return 0;
}
