/* The steps of `fabench tune`: rounds of all variants, the race, the file. */
#include "cmd/tune/tune.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/process.h"
#include "cmd/base/program.h"
#include "cmd/device/device_lock.h"
#include "cmd/device/implementations.h"
#include "cmd/gate/fresh_process.h"
#include "cmd/options/options_line.h"

struct tune {
    const struct options *options;
    const char *impl;
    struct tune_probe *probe;
    struct tune_list list;
    struct tuned tuned; /* what the file has */
    FILE *out;
    double started_ms;
    int done_here; /* problems of this run */
    char program[PATH_MAX];
};

/* ---- a process ---- */

/* The words of a sweep that runs this problem with these variants; the caller frees the list. False after a sentence.
 * */
static bool make_words(const struct tune *t, const struct tune_problem *problem, const int *variants, int count,
                       struct name_list *words)
{
    char *line = options_repro(t->options, COMMAND_SWEEP, "fabench", NULL, &problem->key);
    struct name_list typed = {0}, impls = {0};
    const bool good = text_split_shell(line, &typed);
    name_list_add(words, t->program);
    for (int i = 1; i < typed.count; i++)
        name_list_add(words, typed.names[i]);
    for (int i = 0; i < count; i++)
        name_list_print(&impls, "%s:%s", t->impl, t->probe->variants[variants[i]]);
    char *joined = name_list_join(&impls);
    name_list_print(words, "--impl=%s", joined);
    name_list_add(words, "--jsonl=-");
    name_list_add(words, "--out=none");
    name_list_add(words, "--plot=none");
    name_list_add(words, "--quiet");
    free(joined);
    free(line);
    name_list_free(&impls);
    name_list_free(&typed);
    return good;
}

/* Names the rows that failed their check. */
static bool say_failures(const struct record_file *file)
{
    bool failed = false;
    for (int i = 0; i < file->count; i++) {
        const struct record_row *row = &file->rows[i];
        char label[PROBLEM_LABEL_SIZE];
        if (row->check != CHECKED_FAIL)
            continue;
        failed = true;
        log_error("tune: %s %s fails its check (%s is %.3g times its bound)", row->impl,
                  problem_key_label(&row->key, label, sizeof label), row->err_tensor, row->err_used);
    }
    return failed;
}

/* Runs the variants in rounds of their own and reads the record. EXIT_OK, or EXIT_CHECK_FAILED with the record, where a
 * variant failed; else the code after a sentence. */
static int run_rounds(const struct tune *t, const struct tune_problem *problem, const int *variants, int count,
                      const char *progress, struct record_file *file)
{
    const char *root = getenv("TMPDIR");
    char *out = xasprintf("%s/fabench-tune-XXXXXX", root && *root ? root : "/tmp"), *err = NULL, what[420];
    struct name_list words = {0};
    struct fresh_result result;
    struct attn_message why = {""};
    const int made = mkstemp(out);
    int code = EXIT_OK;
    if (made < 0) {
        log_error("tune: %s: cannot be made: %s", out, strerror(errno));
        free(out);
        return EXIT_IO;
    }
    close(made);
    err = xasprintf("%s.err", out);
    const bool good = make_words(t, problem, variants, count, &words);
    const struct fresh_request request = {.argv = name_list_argv(&words),
                                          .out_path = out,
                                          .err_path = err,
                                          .progress = progress,
                                          .silence_limit_s = FRESH_PREPARE_LIMIT_S + count * t->options->timeout_s};
    if (good)
        fresh_run(&request, &result);
    if (!good || result.end == FRESH_INTERRUPTED) {
        code = good ? EXIT_INTERRUPTED : EXIT_IO;
    } else if (result.end != FRESH_EXITED ||
               (result.code != EXIT_OK && result.code != EXIT_CHECK_FAILED && result.code != EXIT_DEVICE)) {
        log_error("tune: a run %s", fresh_describe(&result, what, sizeof what));
        code = result.end != FRESH_EXITED ? EXIT_DEVICE : result.code;
    } else if (!record_read(out, file, &why)) {
        log_error("tune: a run %s", result.code ? fresh_describe(&result, what, sizeof what) : why.text);
        code = result.code ? result.code : EXIT_IO;
    } else if (say_failures(file)) {
        code = EXIT_CHECK_FAILED;
    }
    unlink(out);
    unlink(err);
    free(out);
    free(err);
    name_list_free(&words);
    return code;
}

static bool has_record(int code) { return code == EXIT_OK || code == EXIT_CHECK_FAILED; }

/* ---- a problem ---- */

static int index_of(const struct tune *t, const char *variant)
{
    for (int v = 0; v < t->probe->variant_count; v++)
        if (strcmp(t->probe->variants[v], variant) == 0)
            return v;
    return -1;
}

/* The fastest variant in rounds of all of them; where there are more than a process takes, in the rounds of several. */
static int find_fastest(const struct tune *t, const struct tune_problem *problem, const struct tune_candidates *c,
                        const char *progress, struct tuned_choice *choice)
{
    int variants[IMPL_MAX_SLOTS], count = 0, worst = EXIT_OK;
    double best_ms = INFINITY;
    for (int v = 0; v < t->probe->variant_count; v++) {
        if (c->takers >> v & 1) {
            variants[count++] = v;
            choice->candidates++;
        }
        if (count == 0 || (count < IMPL_MAX_SLOTS && v + 1 < t->probe->variant_count))
            continue;
        struct record_file file;
        const int code = run_rounds(t, problem, variants, count, progress, &file);
        if (!has_record(code))
            return code;
        const struct record_row *row = tune_fastest(&file, t->impl);
        if (row && row->time_ms < best_ms) {
            best_ms = row->time_ms;
            snprintf(choice->fastest, sizeof choice->fastest, "%s", row->impl + strlen(t->impl) + 1);
        }
        record_file_free(&file);
        worst = (int)exit_worst((enum exit_code)worst, (enum exit_code)code);
        count = 0;
    }
    return worst;
}

/* Fills the choice. EXIT_OK, EXIT_CHECK_FAILED where a variant failed its check, or a code that ends the command. */
static int tune_problem(const struct tune *t, const struct tune_problem *problem, const struct tune_candidates *c,
                        const char *progress, struct tuned_choice *choice)
{
    const char *own = t->probe->variants[c->built_in];
    *choice = (struct tuned_choice){.key = problem->key, .gain_pct = NAN};
    snprintf(choice->impl, sizeof choice->impl, "%s", t->impl);
    snprintf(choice->variant, sizeof choice->variant, "%s", own);
    snprintf(choice->built_in, sizeof choice->built_in, "%s", own);
    snprintf(choice->fastest, sizeof choice->fastest, "%s", own);
    choice->candidates = 0;
    if ((c->takers & (c->takers - 1)) == 0) { /* there is no other */
        choice->candidates = 1;
        return EXIT_OK;
    }
    int code = find_fastest(t, problem, c, progress, choice);
    if (!has_record(code) || strcmp(choice->fastest, own) == 0)
        return code;
    struct record_file file;
    const int pair[2] = {c->built_in, index_of(t, choice->fastest)};
    const int raced = run_rounds(t, problem, pair, 2, progress, &file);
    if (!has_record(raced))
        return raced;
    choice->gain_pct = tune_gain_pct(&file, t->impl, choice->fastest, own);
    if (choice->gain_pct >= TUNE_LEAST_GAIN_PCT)
        snprintf(choice->variant, sizeof choice->variant, "%s", choice->fastest);
    record_file_free(&file);
    return (int)exit_worst((enum exit_code)code, (enum exit_code)raced);
}

/* ---- the file ---- */

static bool write_line(FILE *out, json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT);
    json_decref(line);
    const bool good = fprintf(out, "%s\n", text) > 0 && fflush(out) == 0;
    free(text);
    return good;
}

/* Opens the file of --write, and reads what it has where the run goes on with it. */
static int open_file(struct tune *t)
{
    const char *path = t->options->tuned_out;
    struct attn_message why = {""};
    json_t *header = tuned_header(&t->probe->device);
    int code = EXIT_OK;
    const bool goes_on = t->options->resume && access(path, F_OK) == 0;
    if (goes_on && !tuned_read(path, &t->tuned, &why)) {
        log_error("tune: --resume: %s", why.text);
        code = EXIT_NOT_COMPARABLE;
    } else if (goes_on && !tuned_fits(&t->tuned, header, &why)) {
        log_error("tune: --resume: %s %s", path_shown(path).text, why.text);
        code = EXIT_NOT_COMPARABLE;
    } else if (goes_on && truncate(path, (off_t)t->tuned.whole_bytes) != 0) { /* a cut last line */
        log_error("tune: %s: cannot be changed: %s", path_shown(path).text, strerror(errno));
        code = EXIT_IO;
    }
    if (code == EXIT_OK)
        t->out = fopen(path, goes_on ? "ae" : "we");
    if (code == EXIT_OK && (!t->out || (!goes_on && !write_line(t->out, json_incref(header))))) {
        log_error("tune: %s: cannot be written: %s", path_shown(path).text, strerror(errno));
        code = EXIT_IO;
    }
    json_decref(header);
    return code;
}

static bool is_done(const struct tune *t, const struct tune_problem *problem)
{
    return tuned_find(&t->tuned, t->impl, &problem->key) != NULL;
}

static int keep(struct tune *t, const struct tuned_choice *choice)
{
    char label[PROBLEM_LABEL_SIZE], gain[80] = "";
    t->tuned.choices = xrealloc(t->tuned.choices, (unsigned long)(t->tuned.count + 1) * sizeof *t->tuned.choices);
    t->tuned.choices[t->tuned.count++] = *choice;
    t->done_here++;
    if (!write_line(t->out, tuned_line(choice))) {
        log_error("tune: %s: cannot be written: %s", path_shown(t->options->tuned_out).text, strerror(errno));
        return EXIT_IO;
    }
    if (!isnan(choice->gain_pct))
        snprintf(gain, sizeof gain, "  %+.1f %% in the race with %.40s%s", choice->gain_pct, choice->fastest,
                 strcmp(choice->variant, choice->built_in) ? ", written" : "");
    if (!t->options->quiet)
        printf("%-42s %s of %d%s\n", problem_key_label(&choice->key, label, sizeof label), choice->built_in,
               choice->candidates, gain);
    fflush(stdout);
    return EXIT_OK;
}

/* ---- all problems ---- */

/* "tune: problem 4 of 40, 9 min left: fwd causal d128 4k bf16". */
static void print_progress(const struct tune *t, int number, char *text, size_t size)
{
    char label[PROBLEM_LABEL_SIZE], left[40] = "";
    int open = 0;
    for (int i = number; i < t->list.count; i++)
        open += !is_done(t, &t->list.items[i]);
    if (t->done_here > 0)
        snprintf(left, sizeof left, ", %.0f min left", ceil((clock_ms() - t->started_ms) / t->done_here * open / 60e3));
    snprintf(text, size, "tune: problem %d of %d%s: %.80s", number + 1, t->list.count, left,
             problem_key_label(&t->list.items[number].key, label, sizeof label));
}

static bool is_over(const struct tune *t)
{
    return t->done_here > 0 && t->options->max_time_s > 0 && clock_ms() - t->started_ms > 1e3 * t->options->max_time_s;
}

static int tune_all(struct tune *t)
{
    int worst = EXIT_OK, refused = 0;
    for (int i = 0; i < t->list.count; i++) {
        const struct tune_candidates *c = &t->probe->candidates[i];
        struct tuned_choice choice;
        char progress[200];
        if (is_done(t, &t->list.items[i]))
            continue;
        if (c->built_in < 0) {
            refused++;
            continue;
        }
        if (is_over(t) || process_is_interrupted()) {
            log_note("tune: %s with %d of %d problems done; the same command with --resume goes on",
                     process_is_interrupted() ? "interrupted" : "stopped at --max-time-s", t->tuned.count,
                     t->list.count - refused);
            return EXIT_INTERRUPTED;
        }
        print_progress(t, i, progress, sizeof progress);
        const int code = tune_problem(t, &t->list.items[i], c, progress, &choice);
        if (!has_record(code))
            return code;
        worst = (int)exit_worst((enum exit_code)worst, (enum exit_code)code);
        const int kept = keep(t, &choice);
        if (kept != EXIT_OK)
            return kept;
    }
    if (refused)
        log_note("tune: %s refuses %d of %d problems", t->impl, refused, t->list.count);
    if (refused == t->list.count)
        return EXIT_DEVICE;
    return worst;
}

static void print_summary(const struct tune *t)
{
    const struct tune_summary s = tune_summarise(&t->tuned, t->impl);
    if (s.problems == 0 || t->options->quiet)
        return;
    printf("\n%d problems, %d with another variant than %s takes by itself. Its own choice loses more than 3 %% at %d "
           "(%.1f %%), more than 10 %% at %d; geometric mean of the losses %.2f %%.\n",
           s.problems, s.kept, t->impl, s.above_3_pct, 100.0 * s.above_3_pct / s.problems, s.above_10_pct,
           s.geomean_loss_pct);
    printf("Next: %s --tuned %s --impl %s ...\n", program_name(), path_shown(t->options->tuned_out).text, t->impl);
}

int tune_run(const struct options *o)
{
    struct tune t = {.options = o, .impl = o->impls.names[0]};
    struct device_hold lock = {.count = 0};
    process_catch_interrupts();
    if (!o->resume && !o->overwrite && access(o->tuned_out, F_OK) == 0) {
        log_error("--write %s: there is such a file; --resume goes on with it, --overwrite replaces it",
                  path_shown(o->tuned_out).text);
        return EXIT_USAGE;
    }
    if (!realpath("/proc/self/exe", t.program)) {
        log_error("tune: this program's own path: %s", strerror(errno));
        return EXIT_IO;
    }
    int code = tune_probe_make(o, &t.probe);
    if (code == EXIT_OK)
        code = tune_list_make(o, t.probe->platform, &t.list);
    if (code == EXIT_OK && t.list.count != t.probe->problem_count) {
        log_error("tune: the records have changed while they were read");
        code = EXIT_IO;
    }
    if (code == EXIT_OK)
        code = open_file(&t);
    if (code == EXIT_OK)
        code = device_lock(t.probe->lock_name, process_is_interrupted, &lock);
    t.started_ms = clock_ms();
    if (code == EXIT_OK) {
        code = tune_all(&t);
        log_progress_clear();
        print_summary(&t);
    }
    device_unlock(&lock);
    if (t.out && fclose(t.out) != 0 && code == EXIT_OK) {
        log_error("tune: %s: cannot be written: %s", path_shown(o->tuned_out).text, strerror(errno));
        code = EXIT_IO;
    }
    tuned_free(&t.tuned);
    tune_list_free(&t.list);
    tune_probe_free(t.probe);
    return code;
}
