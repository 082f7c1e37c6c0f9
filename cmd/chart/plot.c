/* The command `plot`. */
#include "cmd/chart/plot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/terminal.h"
#include "cmd/chart/chart.h"
#include "cmd/record/record_file.h"

static bool read_record(const char *path, struct record_file *file)
{
    struct attn_message why = {""};
    if (!record_read(path, file, &why)) {
        log_error("%s", why.text);
        return false;
    }
    if (file->cut)
        log_warn("%s: its last line is cut; the lines before it are drawn", path);
    return true;
}

int plot_run(const struct options *o, const struct overlay *overlay)
{
    const int count = o->files.count;
    const char *const dir = o->out_dir ? o->out_dir : ".";
    struct record_file *files = xcalloc((unsigned long)count, sizeof *files);
    int status = EXIT_OK, images = 0;
    for (int i = 0; i < count && status == EXIT_OK; i++)
        if (!read_record(o->files.names[i], &files[i]))
            status = EXIT_NOT_COMPARABLE;
    if (status == EXIT_OK && o->plot != PLOT_TERM && !path_make_dirs(dir))
        status = EXIT_IO;
    const struct chart_input input = {.files = files, .file_count = count, .overlay = overlay};
    if (status == EXIT_OK)
        status = charts_write(&input, dir, o->plot, terminal_width(), terminal_color(o->color), &images);
    if (images && !o->quiet)
        printf("%d chart%s in %s%s (*.%s, with the .gp and .dat that drew them)\n", images, images == 1 ? "" : "s", dir,
               dir[strlen(dir) - 1] == '/' ? "" : "/", o->plot == PLOT_PNG ? "png" : "svg");
    for (int i = 0; i < count; i++)
        record_file_free(&files[i]);
    free(files);
    return status;
}
