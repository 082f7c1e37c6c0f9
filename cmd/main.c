/* fabench: how fast is attention on this device, how close to what it can do, and is the answer right?
 *
 * The whole program in the order it happens:
 *   options      what is asked                                  options.c
 *   session      device, implementations, plan                  session.c, impls.c, plan.c
 *   supervisor   forks workers, owns the outputs                supervisor.c
 *   worker       per problem: buffers, reference, (poison, run, check), rounds, check, row    worker.c, cases.c
 *   outputs      table, CSV, JSONL, charts                      outputs.c, table.c, record.c, chart.c
 * Beside it:
 *   gates        two sides now, or a stored baseline            ab.c, gate.c, decide.c
 *   report       devices side by side, from records alone       report.c
 *   selftest     faults between kernel and judge                selftest.c, faults.c
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/terminal.h"
#include "cmd/chart/chart.h"
#include "cmd/gate/ab.h"
#include "cmd/gate/gate.h"
#include "cmd/inspect/inspect.h"
#include "cmd/options/options.h"
#include "cmd/options/options_parse.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"
#include "cmd/report/report.h"
#include "cmd/run/outputs.h"
#include "cmd/run/supervisor.h"
#include "cmd/selftest/selftest.h"

/* `fabench plot A.jsonl ...`: charts from records, no device needed; into the working folder unless --out says where. */
static int plot(const struct options *o, const struct overlay *overlay)
{
    const int count = o->files.count;
    struct record_file *files = xcalloc((unsigned long)count, sizeof *files);
    int status = EXIT_OK;
    for (int i = 0; i < count && status == EXIT_OK; i++) {
        struct attn_message why = {""};
        if (!record_read(o->files.names[i], &files[i], &why)) {
            log_error("%s", why.text);
            status = EXIT_NOT_COMPARABLE;
        } else if (files[i].cut) {
            log_warn("%s: its last line is cut; drawn up to there", o->files.names[i]);
        }
    }
    const char *dir = o->out_dir ? o->out_dir : ".";
    if (status == EXIT_OK && o->plot != PLOT_TERM && !path_make_dirs(dir))
        status = EXIT_IO;
    const struct chart_input input = {.files = files, .file_count = count, .overlay = overlay};
    if (status == EXIT_OK)
        status = charts_write(&input, dir, o->plot, terminal_width(), terminal_color(o->color));
    for (int i = 0; i < count; i++)
        record_file_free(&files[i]);
    free(files);
    return status;
}

static int run(const struct options *o, const struct overlay *overlay)
{
    struct attn_message why = {""};
    if (o->columns && !record_columns_valid(o->columns, &why)) {
        log_error("--columns: %s", why.text);
        return EXIT_USAGE;
    }
    switch (o->command) {
    case COMMAND_GATE:
        return gate_run(o);
    case COMMAND_AB:
        return ab_run(o);
    case COMMAND_REPORT:
        return report_run(o, overlay);
    case COMMAND_PLOT:
        return plot(o, overlay);
    case COMMAND_INFO:
        return supervisor_call(o, "info", inspect_info, 120);
    case COMMAND_LIST:
        return supervisor_call(o, "list", inspect_list, 120);
    case COMMAND_SELFTEST:
        return supervisor_call(o, "selftest", selftest_run, 0); /* it limits each launch itself */
    case COMMAND_SWEEP:
    case COMMAND_VERIFY:
        break;
    }
    if (o->dry_run)
        return supervisor_call(o, "--dry-run", inspect_dry_run, 120);
    if (o->profile)
        return inspect_profile(o); /* in this process: profilers do not follow a fork */
    return supervisor_run(o); /* its outputs read the published points again when they draw */
}

int main(int argc, char **argv)
{
    struct options options;
    bool done = false;
    int status = options_parse(argc, argv, &options, &done);
    if (status == EXIT_OK && !done) {
        log_set_quiet(options.quiet);
        struct overlay overlay = {.count = 0};
        struct attn_message why = {""};
        if (options.overlay_path && !overlay_read(options.overlay_path, &overlay, &why)) {
            log_error("--overlay %s", why.text);
            status = EXIT_NOT_COMPARABLE;
        } else {
            status = run(&options, options.overlay_path ? &overlay : NULL);
        }
        overlay_free(&overlay);
        options_free(&options);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        log_error("stdout could not be written");
        status = exit_worst(status, EXIT_IO);
    }
    return status;
}
