/* One process, its options, its record. */
#include "cmd/gate_measure.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/decide.h"
#include "cmd/device_lock.h"
#include "cmd/log.h"
#include "cmd/probe.h"
#include "cmd/unit.h"

struct words {
    char *words[512];
    int count;
};

__attribute__((format(printf, 2, 3))) static void add(struct words *w, const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    FABENCH_ASSERT(w->count < 511, "%d words", w->count);
    w->words[w->count++] = xstrdup(text);
}

static void free_words(struct words *w)
{
    for (int i = 0; i < w->count; i++)
        free(w->words[i]);
}

/* The implementations of the baseline's rounds, by the names they were asked for: the same members share the device. */
static void add_members(struct words *w, const struct record_file *baseline)
{
    const json_t *members = json_object_get(json_object_get(baseline->header, "policy"), "round_members");
    char text[1024] = "";
    for (size_t i = 0; i < json_array_size(members); i++) {
        const char *name = json_string_value(json_array_get(members, i));
        if (name && strcmp(name, "gemm") != 0 && strlen(text) + strlen(name) + 2 < sizeof text)
            sprintf(text + strlen(text), "%s%s", *text ? "," : "", name);
    }
    if (*text)
        add(w, "--impl=%s", text);
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

/* The words of a sweep: the baseline's own, but for what was typed. False after a sentence. */
static bool add_sweep(struct words *w, const struct options *o, const struct record_file *baseline)
{
    struct options own = {0};
    if (baseline) {
        const char *line = json_string_value(json_object_get(baseline->header, "command_line"));
        if (!line || options_parse_line(line, &own) != EXIT_OK) {
            log_error("gate: the baseline's own options (%.300s) do not serve here; --current compares with a record",
                      line ? line : "not recorded");
            return false;
        }
        for (int i = 0; i < own.sweep_words.count; i++)
            if (!has_option(&o->sweep_words, own.sweep_words.names[i]))
                add(w, "%s", own.sweep_words.names[i]);
    }
    for (int i = 0; i < o->sweep_words.count; i++)
        add(w, "%s", o->sweep_words.names[i]);
    if (!baseline && !has_option(&o->sweep_words, "--preset"))
        add(w, o->device == DEVICE_CPU ? "--preset=quick" : "--preset=ci");
    if (!has_option(&own.sweep_words, "--preheat-s") && !has_option(&o->sweep_words, "--preheat-s"))
        add(w, "--preheat-s=%g", decide_defaults.preheat_s);
    options_free(&own);
    if (!o->impls.count && baseline)
        add_members(w, baseline);
    for (int i = 0; i < o->impls.count; i++) {
        char *before = i ? w->words[--w->count] : NULL;
        add(w, "%s%s%s", i ? before : "--impl=", i ? "," : "", o->impls.names[i]);
        free(before);
    }
    return true;
}

static int run_process(const struct options *o, struct words *w, const char *out, struct record_file *current)
{
    char *err = xasprintf("%s.err", out), what[420];
    struct unit_result result;
    struct attn_message why = {""};
    w->words[w->count] = NULL;
    const struct unit_request request = {
        .argv = w->words, .out_path = out, .err_path = err, .progress = "gate: measuring",
        .silence_limit_s = UNIT_PREPARE_LIMIT_S + 2 * o->timeout_s + (isnan(o->preheat_s) ? decide_defaults.preheat_s
                                                                                     : o->preheat_s)};
    unit_run(&request, &result);
    int code = EXIT_OK;
    if (result.end == UNIT_INTERRUPTED) {
        code = EXIT_INTERRUPTED;
    } else if (result.end != UNIT_EXITED || (result.code != EXIT_OK && result.code != EXIT_CHECK_FAILED &&
                                             result.code != EXIT_DEVICE)) {
        log_error("gate: the run %s", unit_describe(&result, what, sizeof what));
        code = result.end != UNIT_EXITED ? EXIT_DEVICE
               : result.code == EXIT_USAGE && !o->sweep_words.count ? EXIT_NOT_COMPARABLE
                                                                    : result.code;
    } else if (!record_read(out, current, &why)) {
        log_error("gate: the run %s", result.code ? unit_describe(&result, what, sizeof what) : why.text);
        code = result.code ? result.code : EXIT_IO;
    }
    unlink(err);
    free(err);
    return code;
}

int gate_measure(const struct options *o, const struct record_file *baseline, const char *folder,
                 struct record_file *current)
{
    const char *root = getenv("TMPDIR");
    struct probe probe;
    struct words words = {.count = 0};
    char program[PATH_MAX];
    int lock = -1;
    unit_catch_interrupts();
    int code = probe_device(o, "gate", NULL, &probe);
    if (code != EXIT_OK)
        return code;
    if (!realpath("/proc/self/exe", program)) {
        log_error("gate: this program's own path: %s", strerror(errno));
        return EXIT_IO;
    }
    char *out = folder ? xasprintf("%s/current.jsonl", folder)
                       : xasprintf("%s/fabench-gate-XXXXXX", root && *root ? root : "/tmp");
    const int made = folder ? -1 : mkstemp(out);
    if (!folder && made < 0) {
        log_error("%s: cannot be made: %s", out, strerror(errno));
        code = EXIT_IO;
    }
    if (made >= 0)
        close(made);
    add(&words, "%s", program);
    if (code == EXIT_OK && !add_sweep(&words, o, baseline))
        code = EXIT_NOT_COMPARABLE;
    if (o->device == DEVICE_CPU)
        add(&words, "--device=cpu");
    else
        add(&words, "--device=cuda:%d", o->device_ordinal);
    add(&words, "--jsonl=-");
    add(&words, "--out=none");
    add(&words, "--plot=none");
    add(&words, "--quiet");
    if (code == EXIT_OK)
        code = device_lock(probe.lock_name, unit_is_interrupted, &lock);
    if (code == EXIT_OK)
        code = run_process(o, &words, out, current);
    if (lock >= 0)
        device_unlock(lock);
    if (!folder)
        unlink(out);
    free_words(&words);
    free(out);
    return code;
}
