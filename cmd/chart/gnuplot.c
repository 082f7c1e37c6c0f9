/* Runs gnuplot as a child process, with files instead of pipes for input and output, so that neither can block the
 * other. */
#include "cmd/chart/chart_gnuplot.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/process.h"
#include "cmd/base/text.h"
#include "cmd/record/record.h"

/* Passes on what gnuplot wrote to its stderr, a few lines of it. */
static void report_stderr(FILE *errors, const char *name)
{
    char line[256];
    int count = 0;
    rewind(errors);
    while (count < 6 && fgets(line, sizeof line, errors)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[strspn(line, " \t\r^")] == '\0')
            continue;
        char clean[sizeof line];
        text_clean(line, clean, sizeof clean);
        log_warn("gnuplot (%s): %s", name, clean);
        count++;
    }
}

enum gnuplot_result gnuplot_run(const char *dir, const char *script, FILE *input, FILE *output, const char *name)
{
    char *const arguments[] = {"gnuplot", "-d", (char *)(uintptr_t)script, NULL};
    FILE *errors = tmpfile();
    struct process process;
    struct process_result result = {.end = PROCESS_STUCK};
    char how[100];
    if (!errors) {
        log_error("gnuplot's messages: %s", strerror(errno));
        return GNUPLOT_FAILED;
    }
    const struct process_request request = {.argv = arguments,
                                            .dir = dir,
                                            .in = input ? fileno(input) : PROCESS_NO_FILE,
                                            .out = fileno(output ? output : errors),
                                            .err = fileno(errors)};
    /* Without a UTF-8 locale gnuplot warns about its own degree sign in every chart. */
    int error = setenv("LC_ALL", "C.UTF-8", 1) != 0 ? errno : process_start(&request, &process);
    if (!error)
        process_watch(&process, &(struct process_watch){.limit_s = 0}, &result);
    const bool is_absent = error == ENOENT || (!error && result.end == PROCESS_EXITED && result.code == 127);
    const bool is_done = !error && result.end == PROCESS_EXITED && result.code == 0;
    if (error && !is_absent)
        log_error("gnuplot (%s): %s", name, strerror(error));
    if (!error && !is_absent) {
        report_stderr(errors, name);
        if (!is_done)
            log_error("gnuplot (%s) %s", name, process_describe(&result, how, sizeof how));
    }
    fclose(errors);
    return is_absent ? GNUPLOT_ABSENT : is_done ? GNUPLOT_DONE : GNUPLOT_FAILED;
}
