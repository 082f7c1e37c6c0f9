/* gnuplot as a child process: files instead of pipes on both sides, so that neither waits for the other. */
#include "cmd/chart/gnuplot.h"

#include <errno.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/base/log.h"
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
    extern char **environ;
    char *const arguments[] = {"gnuplot", "-d", (char *)(uintptr_t)script, NULL};
    posix_spawn_file_actions_t actions;
    FILE *errors = tmpfile();
    int status = 0;
    pid_t child = -1;
    if (!errors) {
        log_error("gnuplot's messages: %s", strerror(errno));
        return GNUPLOT_FAILED;
    }
    int error = posix_spawn_file_actions_init(&actions);
    if (!error && dir)
        error = posix_spawn_file_actions_addchdir_np(&actions, dir);
    if (!error)
        error = input ? posix_spawn_file_actions_adddup2(&actions, fileno(input), STDIN_FILENO)
                      : posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", 0, 0);
    if (!error)
        error = output ? posix_spawn_file_actions_adddup2(&actions, fileno(output), STDOUT_FILENO)
                       : posix_spawn_file_actions_adddup2(&actions, fileno(errors), STDOUT_FILENO);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, fileno(errors), STDERR_FILENO);
    /* Without a UTF-8 locale gnuplot complains about its own degree sign, once a chart. */
    if (!error && setenv("LC_ALL", "C.UTF-8", 1) != 0)
        error = errno;
    if (!error)
        error = posix_spawnp(&child, "gnuplot", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (!error)
        while (waitpid(child, &status, 0) < 0)
            if (errno != EINTR) {
                error = errno;
                break;
            }
    const bool is_absent = error == ENOENT || (!error && WIFEXITED(status) && WEXITSTATUS(status) == 127);
    if (!is_absent && error)
        log_error("gnuplot (%s): %s", name, strerror(error));
    if (!is_absent && !error) {
        report_stderr(errors, name);
        if (WIFSIGNALED(status))
            log_error("gnuplot (%s) was ended by signal %d", name, WTERMSIG(status));
        else if (WEXITSTATUS(status) != 0)
            log_error("gnuplot (%s) ended with %d", name, WEXITSTATUS(status));
    }
    fclose(errors);
    return is_absent ? GNUPLOT_ABSENT : error || status ? GNUPLOT_FAILED : GNUPLOT_DONE;
}

