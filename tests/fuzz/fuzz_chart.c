/* plot: a record, and published figures where the input has a second part, as charts. Every page is written, to
 * /dev/null through two links in a folder of its own. gnuplot is not run. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/chart/chart_gnuplot.h"
#include "tests/fuzz/fuzz.h"

static char folder[] = "/tmp/fabench-fuzz-XXXXXX", script[60], values[60];

static void remove_folder(void)
{
    unlink(script);
    unlink(values);
    rmdir(folder);
}

static void make_folder(void)
{
    FUZZ_CHECK(mkdtemp(folder) && atexit(remove_folder) == 0);
    snprintf(script, sizeof script, "%s/page.gp", folder);
    snprintf(values, sizeof values, "%s/page.dat", folder);
    FUZZ_CHECK(symlink("/dev/null", script) == 0 && symlink("/dev/null", values) == 0);
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
    if (!script[0])
        make_folder();
    const struct fuzz_input record = fuzz_part(&rest);
    if (!record_read(fuzz_put(0, record.data, record.size), &file, &why))
        return 0;
    const bool has_overlay = rest.size && overlay_read(fuzz_put(1, rest.data, rest.size), &overlay, &why);
    chart_set_make(&set, &(struct chart_input){&file, 1, NULL, has_overlay ? &overlay : NULL});
    for (int i = 0; i < set.panel_count && i < 4; i++)
        draw(&set, &set.panels[i]);
    chart_set_free(&set);
    overlay_free(&overlay);
    record_file_free(&file);
    return 0;
}
