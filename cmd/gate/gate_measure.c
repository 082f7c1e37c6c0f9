/* Makes the command line of the measuring process, runs it and reads its record. */
#include "cmd/gate/gate_measure.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/base/process.h"
#include "cmd/device/device_lock.h"
#include "cmd/device/implementations.h"
#include "cmd/gate/decide.h"
#include "cmd/gate/fresh_process.h"
#include "cmd/options/options.h"
#include "cmd/record/record.h"

static void add_impls(struct name_list *w, const struct name_list *impls)
{
    char *text = name_list_join(impls);
    if (impls->count)
        name_list_print(w, "--impl=%s", text);
    free(text);
}

/* Adds the implementations of the baseline's rounds, by the names that were requested, so that the rounds have the same
 * members. */
static void add_members(struct name_list *w, const struct record_file *baseline)
{
    const json_t *members = header_value(baseline->header, "policy.round_members");
    struct name_list impls = {0};
    for (size_t i = 0; i < json_array_size(members); i++) {
        const char *name = json_string_value(json_array_get(members, i));
        if (name && strcmp(name, "gemm") != 0 && strcmp(name, "read") != 0)
            name_list_add(&impls, name);
    }
    add_impls(w, &impls);
    name_list_free(&impls);
}

/* Do two words set the same option? --no-causal is --causal=no. */
static bool is_same_option(const char *a, const char *b)
{
    const size_t length = strcspn(a, "=");
    const bool is_mask = strncmp(a, "--causal", 8) == 0 || strncmp(a, "--no-causal", 11) == 0;
    const bool is_mask_too = strncmp(b, "--causal", 8) == 0 || strncmp(b, "--no-causal", 11) == 0;
    return (is_mask && is_mask_too) || (length == strcspn(b, "=") && strncmp(a, b, length) == 0);
}

static bool has_option(const struct name_list *list, const char *word)
{
    for (int i = 0; i < list->count; i++)
        if (is_same_option(list->names[i], word))
            return true;
    return false;
}

/* The first of two values that is set, else the fallback; NaN = not set. */
static double given(double typed, double own, double fallback)
{
    return !isnan(typed) ? typed : !isnan(own) ? own : fallback;
}

/* Adds the options of the sweep: those of the baseline's run, except where the command line sets the same option.
 * *silence_s: the time in seconds that preheat and the sustained regions of one problem may add before its rows appear.
 * False after a message on stderr. */
static bool add_sweep(struct name_list *w, const struct options *o, const struct record_file *baseline,
                      double *silence_s)
{
    struct options own = {.preheat_s = NAN, .sustain_s = NAN};
    if (baseline) {
        const char *line = json_string_value(json_object_get(baseline->header, "command_line"));
        if (!line || options_parse_line(line, &own) != EXIT_OK) {
            log_error("gate: the options that made the baseline (%.300s) cannot be used here; --current compares with "
                      "a record",
                      line ? line : "not recorded");
            return false;
        }
        for (int i = 0; i < own.sweep_words.count; i++)
            if (!has_option(&o->sweep_words, own.sweep_words.names[i]))
                name_list_add(w, own.sweep_words.names[i]);
    }
    for (int i = 0; i < o->sweep_words.count; i++)
        name_list_add(w, o->sweep_words.names[i]);
    if (!baseline && !has_option(&o->sweep_words, "--preset"))
        name_list_add(w, o->device == DEVICE_CPU ? "--preset=quick" : "--preset=ci");
    if (!has_option(&own.sweep_words, "--preheat-s") && !has_option(&o->sweep_words, "--preheat-s"))
        name_list_print(w, "--preheat-s=%g", decide_defaults.preheat_s);
    *silence_s = given(o->preheat_s, own.preheat_s, decide_defaults.preheat_s) +
                 IMPL_MAX_SLOTS * given(o->sustain_s, own.sustain_s, 0); /* those of a preset fit into the limit */
    options_free(&own);
    if (!o->impls.count && baseline)
        add_members(w, baseline);
    add_impls(w, &o->impls);
    return true;
}

/* Does a row of the record explain this exit code? */
static bool is_explained(int code, const struct record_file *file)
{
    for (int i = 0; i < file->count; i++) {
        const struct record_row *row = &file->rows[i];
        if (code == EXIT_CHECK_FAILED ? row->check == CHECKED_FAIL : record_row_is_broken(row))
            return true;
    }
    return code == EXIT_OK;
}

static int run_process(const struct options *o, struct name_list *w, double silence_s, const char *out, int number,
                       struct record_file *current, int *ended)
{
    char *err = xasprintf("%s.err", out), what[420], progress[60];
    snprintf(progress, sizeof progress, number > 1 ? "gate: measuring, process %d" : "gate: measuring", number);
    struct fresh_result result;
    struct attn_message why = {""};
    const struct fresh_request request = {.argv = name_list_argv(w),
                                          .out_path = out,
                                          .err_path = err,
                                          .progress = progress,
                                          .silence_limit_s = FRESH_PREPARE_LIMIT_S + 2 * o->timeout_s + silence_s};
    fresh_run(&request, &result);
    int code = EXIT_OK;
    if (result.end == FRESH_INTERRUPTED) {
        code = EXIT_INTERRUPTED;
    } else if (result.end != FRESH_EXITED ||
               (result.code != EXIT_OK && result.code != EXIT_CHECK_FAILED && result.code != EXIT_DEVICE)) {
        log_error("gate: the run %s", fresh_describe(&result, what, sizeof what));
        code = result.end != FRESH_EXITED ? EXIT_DEVICE
               : result.code == EXIT_USAGE && !o->sweep_words.count && !o->impls.count && !o->impl_libs.count
                   ? EXIT_NOT_COMPARABLE
                   : result.code;
    } else if (!record_read(out, current, &why)) {
        log_error("gate: the run %s", result.code ? fresh_describe(&result, what, sizeof what) : why.text);
        code = result.code ? result.code : EXIT_IO;
    } else if (!is_explained(result.code, current)) {
        log_error("gate: the run %s; no row of its record explains it", fresh_describe(&result, what, sizeof what));
        *ended = result.code;
    }
    unlink(err);
    free(err);
    return code;
}

int gate_measure(const struct options *o, const struct record_file *baseline, const char *folder, int number,
                 struct record_file *current, int *ended)
{
    const char *root = getenv("TMPDIR");
    struct device_probe probe;
    struct name_list words = {.count = 0};
    char program[PATH_MAX];
    double silence_s = 0;
    struct device_hold lock = {.count = 0};
    process_catch_interrupts();
    int code = probe_device(o, "gate", NULL, &probe);
    if (code != EXIT_OK)
        return code;
    if (!realpath("/proc/self/exe", program)) {
        log_error("gate: this program's own path: %s", strerror(errno));
        return EXIT_IO;
    }
    char *out = folder && number > 1 ? xasprintf("%s/current-%d.jsonl", folder, number)
                : folder             ? xasprintf("%s/current.jsonl", folder)
                                     : xasprintf("%s/fabench-gate-XXXXXX", root && *root ? root : "/tmp");
    const int made = folder ? -1 : mkstemp(out);
    if (!folder && made < 0) {
        log_error("%s: cannot be made: %s", out, strerror(errno));
        code = EXIT_IO;
    }
    if (made >= 0)
        close(made);
    name_list_add(&words, program);
    if (code == EXIT_OK && !add_sweep(&words, o, baseline, &silence_s))
        code = EXIT_NOT_COMPARABLE;
    if (o->device == DEVICE_CPU)
        name_list_add(&words, "--device=cpu");
    else
        name_list_print(&words, "--device=cuda:%d", o->device_ordinal);
    name_list_add(&words, "--jsonl=-");
    name_list_add(&words, "--out=none");
    name_list_add(&words, "--plot=none");
    name_list_add(&words, "--quiet");
    if (code == EXIT_OK)
        code = device_lock(probe.lock_name, process_is_interrupted, &lock);
    if (code == EXIT_OK)
        code = run_process(o, &words, silence_s, out, number, current, ended);
    device_unlock(&lock);
    if (!folder)
        unlink(out);
    name_list_free(&words);
    free(out);
    return code;
}
