/* Opens the builds, makes the command lines of their processes, runs the processes and reads their records. */
#include "cmd/gate/ab_report.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/process.h"
#include "cmd/gate/fresh_process.h"
#include "cmd/record/record_figures.h"
#include "cmd/record/record_row.h"

/* `--version` needs no device and prints one line: a program that takes longer or prints more is not fabench. */
static const double VERSION_LIMIT_S = 20, VERSION_LIMIT_MB = 1;

/* ---- names ---- */

const char *ab_subject_of(const struct ab_setup *s, const struct record_row *row)
{
    for (int i = 0; i < s->subjects.count; i++)
        if (strcmp(s->subjects.names[i], row->asked) == 0)
            return s->subjects.names[i];
    return s->control && strcmp(s->control, row->asked) == 0 ? s->control : NULL;
}

/* ---- opening ---- */

static bool is_library_name(const char *path)
{
    const char *const end = strrchr(path, '/') ? strrchr(path, '/') : path, *const so = strstr(end, ".so");
    return so && (so[3] == 0 || so[3] == '.');
}

static int open_folder(struct ab_setup *s)
{
    const char *wanted = s->options->out_dir, *root = getenv("TMPDIR");
    if (wanted && strcmp(wanted, "none") != 0) {
        s->folder = xstrdup(wanted);
        return path_make_dirs(s->folder) ? EXIT_OK : EXIT_IO;
    }
    s->folder = xasprintf("%s/fabench-ab-XXXXXX", root && *root ? root : "/tmp");
    s->is_temporary = mkdtemp(s->folder) != NULL;
    if (!s->is_temporary)
        log_error("%s: cannot be made: %s", s->folder, strerror(errno));
    return s->is_temporary ? EXIT_OK : EXIT_IO;
}

/* Runs the program with --version: it must be fabench; reads its commit. */
static int ask_version(struct ab_setup *s, struct ab_build *build)
{
    char *out = xasprintf("%s/%s-version.txt", s->folder, build->name),
         *err = xasprintf("%s/%s-version.err", s->folder, build->name);
    char *argv[] = {build->program, "--version", NULL}, line[200] = "", what[400];
    const struct fresh_request request = {.argv = argv,
                                          .out_path = out,
                                          .err_path = err,
                                          .silence_limit_s = VERSION_LIMIT_S,
                                          .wall_limit_s = VERSION_LIMIT_S,
                                          .output_limit_mb = VERSION_LIMIT_MB};
    struct fresh_result result;
    int code = EXIT_OK;
    fresh_run(&request, &result);
    FILE *in = fopen(out, "re");
    if (in && !fgets(line, sizeof line, in))
        line[0] = 0;
    if (in)
        fclose(in);
    if (result.end == FRESH_INTERRUPTED) {
        code = EXIT_INTERRUPTED;
    } else if (result.end == FRESH_SILENT || result.end == FRESH_TOO_LONG || result.end == FRESH_TOO_MUCH) {
        log_error("ab %s %s: does not answer to --version: %s", build->name, build->path,
                  fresh_describe(&result, what, sizeof what));
        code = EXIT_DEVICE;
    } else if (result.end != FRESH_EXITED || result.code != 0 || strncmp(line, "fabench ", 8) != 0) {
        log_error("ab %s %s: is no fabench program: --version %s%s", build->name, build->path,
                  result.end == FRESH_EXITED && result.code == 0 ? "answers something else"
                                                                 : fresh_describe(&result, what, sizeof what),
                  result.end == FRESH_NOT_STARTED ? "; must be a fabench program, or a library named *.so" : "");
        code = EXIT_USAGE;
    } else {
        const char *open = strchr(line, '(');
        if (open)
            snprintf(build->commit, sizeof build->commit, "%.*s", (int)strcspn(open + 1, ")\n"), open + 1);
    }
    free(out);
    free(err);
    return code;
}

static int open_build(struct ab_setup *s, int index)
{
    struct ab_build *build = &s->builds[index];
    struct reason why;
    char resolved[PATH_MAX];
    build->name = index == AB_OLD ? "OLD" : "NEW";
    build->path = s->options->files.names[index];
    build->is_library = is_library_name(build->path);
    if (!path_has_file(build->path, &why)) {
        log_error("ab %s %s: %s", build->name, build->path, why.text);
        return EXIT_USAGE;
    }
    if (!realpath(build->is_library ? "/proc/self/exe" : build->path, resolved)) {
        log_error("ab %s %s: %s", build->name, build->path, strerror(errno));
        return EXIT_USAGE;
    }
    build->program = xstrdup(resolved);
    return build->is_library ? EXIT_OK : ask_version(s, build);
}

/* Libraries: compares the implementations that both have, or those of --impl. */
static int choose_of_libraries(struct ab_setup *s, const struct device_probe *old, const struct device_probe *new)
{
    struct name_list in_new = {0};
    int code = EXIT_OK;
    for (int i = 0; i < new->impl_count; i++)
        name_list_add(&in_new, new->impls[i]);
    for (int i = 0; i < old->impl_count; i++) {
        if (s->options->impls.count && !name_list_has(&s->options->impls, old->impls[i]))
            continue;
        name_list_add(name_list_has(&in_new, old->impls[i]) ? &s->subjects : &s->lost, old->impls[i]);
    }
    for (int i = 0; i < s->options->impls.count && code == EXIT_OK; i++) {
        const char *name = s->options->impls.names[i];
        if (name_list_has(&s->subjects, name) || name_list_has(&s->lost, name))
            continue;
        log_error("--impl %s: %s has no such implementation for this device", name, s->builds[AB_OLD].path);
        code = EXIT_USAGE;
    }
    if (code == EXIT_OK && !s->subjects.count && !s->lost.count) {
        log_error("ab: %s has no implementation for this device", s->builds[AB_OLD].path);
        code = EXIT_NOT_COMPARABLE;
    }
    name_list_free(&in_new);
    return code;
}

static void choose_control(struct ab_setup *s)
{
    const char *candidate = role_name(strcmp(s->probe.lock_name, "cpu") == 0 ? ATTN_ROLE_NAIVE : ATTN_ROLE_PEER);
    s->control = name_list_has(&s->subjects, candidate) ? NULL : candidate;
}

static int open_builds(struct ab_setup *s)
{
    struct device_probe new_probe = {0};
    int code = open_folder(s);
    for (int i = 0; i < AB_BUILDS && code == EXIT_OK; i++)
        code = open_build(s, i);
    const bool is_library = s->builds[AB_OLD].is_library;
    if (code == EXIT_OK && is_library != s->builds[AB_NEW].is_library) {
        log_error("ab %s %s: one is a program, the other a library; must be of one kind", s->builds[AB_OLD].path,
                  s->builds[AB_NEW].path);
        return EXIT_USAGE;
    }
    if (code == EXIT_OK)
        code = probe_device(s->options, "ab", is_library ? s->builds[AB_OLD].path : NULL, &s->probe);
    if (code == EXIT_OK && is_library)
        code = probe_device(s->options, "ab", s->builds[AB_NEW].path, &new_probe);
    if (code != EXIT_OK)
        return code;
    if (is_library)
        code = choose_of_libraries(s, &s->probe, &new_probe);
    else if (!s->options->impls.count)
        name_list_add(&s->subjects, "fused");
    else
        for (int i = 0; i < s->options->impls.count; i++)
            name_list_add(&s->subjects, s->options->impls.names[i]);
    choose_control(s);
    return code;
}

int ab_open(struct ab_setup *s, const struct options *o, const struct decide_rules *rules)
{
    memset(s, 0, sizeof *s);
    s->options = o;
    s->rules = rules;
    const int code = open_builds(s);
    return code == EXIT_OK ? device_lock(s->probe.lock_name, process_is_interrupted, &s->lock) : code;
}

static void remove_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    if (rmdir(folder) != 0)
        log_warn("%s: cannot be removed: %s", folder, strerror(errno));
}

void ab_close(struct ab_setup *s)
{
    device_unlock(&s->lock);
    if (s->is_temporary)
        remove_folder(s->folder);
    free(s->folder);
    for (int i = 0; i < AB_BUILDS; i++)
        free(s->builds[i].program);
    name_list_free(&s->subjects);
    name_list_free(&s->lost);
}

/* ---- one process ---- */

/* Was this option on the command line of `ab`? */
static bool is_typed(const struct options *o, const char *name)
{
    const size_t length = strlen(name);
    for (int i = 0; i < o->sweep_words.count; i++) {
        const char *word = o->sweep_words.names[i];
        if (strncmp(word, name, length) == 0 && (word[length] == '=' || word[length] == 0))
            return true;
    }
    return false;
}

static void add_number(struct name_list *argv, const struct options *o, const char *name, double value,
                       const char *unit)
{
    if (!is_typed(o, name))
        name_list_print(argv, "%s=%g%s", name, value, unit);
}

static void add_impls(struct name_list *argv, const struct ab_setup *s)
{
    char *subjects = name_list_join(&s->subjects);
    name_list_print(argv, "--impl=%s%s%s", subjects, s->subjects.count && s->control ? "," : "",
                    s->control ? s->control : "");
    free(subjects);
}

static void add_points(struct name_list *argv, const struct ab_task *task)
{
    struct name_list points = {0};
    for (int i = 0; i < task->point_count; i++)
        name_list_print(&points, "%d", task->points[i]);
    char *text = name_list_join(&points);
    name_list_print(argv, "--points=%s", text);
    free(text);
    name_list_free(&points);
}

static void make_argv(const struct ab_setup *s, const struct ab_task *task, struct name_list *argv)
{
    const struct options *o = s->options;
    const struct ab_build *build = &s->builds[task->build];
    char device[24];
    snprintf(device, sizeof device, o->device == DEVICE_CPU ? "cpu" : "cuda:%d", o->device_ordinal);
    name_list_add(argv, build->program);
    if (build->is_library)
        name_list_print(argv, "--impl-lib=%s", build->path);
    if (!is_typed(o, "--preset")) /* the problems of ci take hours on a CPU */
        name_list_add(argv, o->device == DEVICE_CPU ? "--preset=quick" : "--preset=ci");
    for (int i = 0; i < o->sweep_words.count; i++) {
        static const char *const timing[] = {"--warmup-ms=", "--min-time-ms=", "--samples=", "--preheat-s="};
        bool is_timing = false;
        for (size_t t = 0; t < sizeof timing / sizeof timing[0]; t++)
            is_timing |= strncmp(o->sweep_words.names[i], timing[t], strlen(timing[t])) == 0;
        if (!task->is_check || !is_timing)
            name_list_add(argv, o->sweep_words.names[i]);
    }
    add_impls(argv, s);
    name_list_print(argv, "--device=%s", device);
    if (task->is_check) {
        static const char *const words[] = {"--check=full", "--warmup-ms=0", "--min-time-ms=0", "--samples=1"};
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            name_list_add(argv, words[i]);
    } else {
        name_list_add(argv, "--check=off");
        add_number(argv, o, "--preheat-s", s->rules->preheat_s, "");
        add_number(argv, o, "--warmup-ms", s->rules->warmup_ms, "");
        add_number(argv, o, "--min-time-ms", s->rules->min_time_ms, "");
        add_number(argv, o, "--samples", s->rules->samples, "");
    }
    name_list_add(argv, "--sustain-s=0"); /* only burst figures are compared */
    /* Sampling must not go on until the noise is low: the spread between processes is what counts here. */
    add_number(argv, o, "--max-noise", 100, "%");
    if (task->points)
        add_points(argv, task);
    static const char *const output[] = {"--jsonl=-", "--out=none", "--plot=none", "--quiet"};
    for (size_t i = 0; i < sizeof output / sizeof output[0]; i++)
        name_list_add(argv, output[i]);
}

/* All processes must have the same device, driver and timing method, and the same cuDNN where it is the control. */
static int compare_header(struct ab_setup *s, const struct ab_build *build, const json_t *header)
{
    const json_t *device = json_object_get(header, "device"), *policy = json_object_get(header, "policy");
    const struct {
        const char *what, *now;
        char *first;
        size_t size;
    } facts[] = {
        {"device", json_string_value(json_object_get(device, "name")), s->device, sizeof s->device},
        {"driver", json_string_value(json_object_get(device, "driver")), s->driver, sizeof s->driver},
        {"timing method", json_string_value(json_object_get(policy, "method")), s->method, sizeof s->method},
        /* The last one is compared only where it is the control. */
        {"cuDNN", json_string_value(json_object_get(device, "cudnn")), s->cudnn, sizeof s->cudnn},
    };
    const bool has_cudnn = s->control && role_of_name(s->control) == ATTN_ROLE_PEER;
    for (size_t i = 0; i < sizeof facts / sizeof facts[0] - !has_cudnn; i++) {
        const char *now = facts[i].now ? facts[i].now : "";
        if (!s->has_header) {
            snprintf(facts[i].first, facts[i].size, "%s", now);
        } else if (strcmp(facts[i].first, now) != 0) {
            log_error("ab: process %d (%s) ran with %s '%s', the first with '%s': they cannot be compared",
                      s->process_count, build->name, facts[i].what, now, facts[i].first);
            return EXIT_NOT_COMPARABLE;
        }
    }
    s->has_header = true;
    return EXIT_OK;
}

/* Turns the end of a process and its output into an exit code and records. */
static int read_result(struct ab_setup *s, const struct ab_build *build, const struct fresh_result *result,
                       const char *out, struct record_file *records, struct attn_message *why)
{
    char what[420];
    if (result->end == FRESH_INTERRUPTED)
        return EXIT_INTERRUPTED;
    fresh_describe(result, what, sizeof what);
    const bool may_have_records =
        result->end == FRESH_EXITED &&
        (result->code == EXIT_OK || result->code == EXIT_DEVICE || result->code == EXIT_CHECK_FAILED);
    if (result->end == FRESH_EXITED && result->code == EXIT_USAGE) {
        snprintf(why->text, sizeof why->text, "%s", result->last_line);
        return EXIT_USAGE;
    }
    if (!may_have_records) {
        log_error("ab %s %s: process %d %s", build->name, build->path, s->process_count, what);
        return result->end == FRESH_EXITED && result->code == EXIT_IO ? EXIT_IO : EXIT_DEVICE;
    }
    if (!record_read(out, records, why)) {
        if (result->code == EXIT_DEVICE)
            log_error("ab %s %s: process %d %s", build->name, build->path, s->process_count, what);
        else
            log_error("ab %s %s: process %d wrote no record that this program reads: %s", build->name, build->path,
                      s->process_count, why->text);
        return result->code == EXIT_DEVICE ? EXIT_DEVICE : EXIT_NOT_COMPARABLE;
    }
    if (records->cut)
        log_error("ab %s %s: the record of process %d is cut", build->name, build->path, s->process_count);
    else if (!record_file_agrees(records, why))
        log_error("ab %s %s: the record of process %d is not used: %s", build->name, build->path, s->process_count,
                  why->text);
    else
        return compare_header(s, build, records->header);
    return EXIT_NOT_COMPARABLE;
}

int ab_run_process(struct ab_setup *s, const struct ab_task *task, struct record_file *records,
                   struct attn_message *why)
{
    const struct ab_build *build = &s->builds[task->build];
    const struct options *o = s->options;
    struct name_list argv = {0};
    struct fresh_result result;
    s->process_count++;
    char *stem = xasprintf("%s/%02d-%s%s", s->folder, s->process_count, build->name, task->is_check ? "-check" : "");
    char *out = xasprintf("%s.jsonl", stem), *err = xasprintf("%s.err", stem);
    make_argv(s, task, &argv);
    const double preheat_s = isnan(o->preheat_s) ? s->rules->preheat_s : o->preheat_s;
    const double warmup_ms = isnan(o->warmup_ms) ? s->rules->warmup_ms : o->warmup_ms;
    const struct fresh_request request = {.argv = name_list_argv(&argv),
                                          .out_path = out,
                                          .err_path = err,
                                          .progress = task->progress,
                                          .silence_limit_s =
                                              FRESH_PREPARE_LIMIT_S + 2 * o->timeout_s + preheat_s + 1e-3 * warmup_ms};
    memset(records, 0, sizeof *records);
    fresh_run(&request, &result);
    const int code = read_result(s, build, &result, out, records, why);
    if (code != EXIT_OK)
        record_file_free(records);
    name_list_free(&argv);
    free(out);
    free(err);
    free(stem);
    return code;
}
