/* Which function each command runs. */
#include "cmd/commands.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/chart/chart.h"
#include "cmd/chart/overlay.h"
#include "cmd/gate/gate.h"
#include "cmd/inspect/inspect.h"
#include "cmd/options/options_text.h"
#include "cmd/record/record_file.h"
#include "cmd/report/report.h"
#include "cmd/run/accepted.h"
#include "cmd/run/node_verdict.h"
#include "cmd/run/supervisor.h"
#include "cmd/selftest/selftest.h"
#include "cmd/tune/tune.h"

/* Reads the published points before the command begins, so that a file that cannot be read ends it at once. */
static int with_overlay(const struct options *o, int (*run)(const struct options *, const struct overlay *))
{
    struct overlay overlay = {.count = 0};
    struct attn_message why = {""};
    int status = EXIT_NOT_COMPARABLE;
    if (!o->overlay_path)
        return run(o, NULL);
    if (overlay_read(o->overlay_path, &overlay, &why))
        status = run(o, &overlay);
    else
        log_error("--overlay %s", why.text);
    overlay_free(&overlay);
    return status;
}

/* sweep and verify. The published points are not passed on: whoever draws the charts at the end reads them again. */
static int run_sweep(const struct options *o, const struct overlay *overlay)
{
    (void)overlay;
    if (o->dry_run)
        return supervisor_call(o, "--dry-run", inspect_dry_run, 120);
    const int listed = accepted_begin(o);
    if (listed != EXIT_OK)
        return listed;
    if (o->junit_path && !path_discard(o->junit_path)) /* a run that ends early leaves no file of an earlier one */
        return EXIT_IO;
    if (o->profile)
        return inspect_profile(o); /* in this process: profilers do not follow a fork */
    if (o->verdict_path && !path_discard(o->verdict_path))
        return EXIT_IO;
    return node_verdict_end(o, supervisor_run(o));
}

static int help(const struct options *o)
{
    if (o->files.count == 1 && strcmp(o->files.names[0], "reference") == 0) {
        reference_page_print();
        return EXIT_OK;
    }
    return options_print_help_on(&o->files) ? EXIT_OK : EXIT_USAGE;
}

static int sweep(const struct options *o) { return with_overlay(o, run_sweep); }
static int plot(const struct options *o) { return with_overlay(o, plot_run); }
static int report(const struct options *o) { return with_overlay(o, report_run); }

/* A command in_child runs in a child process that is killed after limit_s seconds; 0 = no limit, for a command that
 * limits each launch itself. */
static const struct {
    int (*run)(const struct options *);
    bool in_child;
    double limit_s;
} commands[COMMAND_COUNT] = {
    [COMMAND_SWEEP] = {sweep},
    [COMMAND_VERIFY] = {sweep},
    [COMMAND_GATE] = {gate_run},
    [COMMAND_AB] = {ab_run},
    [COMMAND_TUNE] = {tune_run},
    [COMMAND_REPORT] = {report},
    [COMMAND_PLOT] = {plot},
    [COMMAND_INFO] = {inspect_info, .in_child = true, .limit_s = 120},
    [COMMAND_LIST] = {inspect_list, .in_child = true, .limit_s = 120},
    [COMMAND_SELFTEST] = {selftest_run, .in_child = true},
    [COMMAND_HELP] = {help},
};

int command_run(const struct options *o)
{
    struct attn_message why = {""};
    if (o->columns && !record_columns_valid(o->columns, &why)) {
        char *all = record_columns_all();
        const char *const last = strrchr(why.text, '?');
        log_error("--columns: %s%s columns: %s", why.text, last && !last[1] ? " All" : "; all", all);
        free(all);
        return EXIT_USAGE;
    }
    FABENCH_ASSERT(commands[o->command].run, "command %s has no function", command_table[o->command].name);
    if (commands[o->command].in_child && options_has_boards(o))
        return supervisor_call_boards(o, command_table[o->command].name, commands[o->command].run,
                                      commands[o->command].limit_s);
    if (commands[o->command].in_child)
        return supervisor_call(o, command_table[o->command].name, commands[o->command].run,
                               commands[o->command].limit_s);
    return commands[o->command].run(o);
}
