/* fabench: how fast is attention on this device, how close to what it can do, and is the answer right?
 *
 * The program in the order in which a sweep goes through its folders:
 *   options    the command line                              options_parse.c, options_table.c
 *   run        session: device, implementations, plan        session.c; device/, plan/
 *              supervisor: starts workers, owns the outputs  supervisor.c
 *              worker: buffers, reference, checks, timing    worker.c, case_run.c; judge/, measure/
 *              outputs: table, CSV, JSONL, charts            outputs.c; table/, record/, chart/
 * The other commands: gate and ab (gate/), report, plot (chart/), info and list (inspect/), selftest. commands.c says
 * which function each one runs.
 */
#include <signal.h>
#include <stdio.h>

#include "cmd/base/log.h"
#include "cmd/base/program.h"
#include "cmd/commands.h"
#include "cmd/options/options.h"

int main(int argc, char **argv)
{
    struct options options;
    bool done = false;
    const enum exit_style style = exit_style_of(argc, argv);
    program_set_name(argv[0]);
    signal(SIGXFSZ, SIG_IGN); /* a file at its limit of size (ulimit -f) is a write error then, as on a full disk */
    int status = options_parse(argc, argv, &options, &done);
    if (status == EXIT_OK && !done) {
        log_set_quiet(options.quiet);
        status = command_run(&options);
        options_free(&options);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        log_error("stdout could not be written");
        status = exit_worst(status, EXIT_IO);
    }
    return exit_style_code(style, status);
}
