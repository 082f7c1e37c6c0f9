/* Lines, matrix, rows. */
#include "cmd/selftest/selftest_report.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/program.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/options/options.h"

enum {
    FAULTS_MAX = 32,
    LIES_MAX = 16,
    NAME_WIDTH = 24,
    PROBLEM_WIDTH = 27,
    PROBLEM_SIZE = 160,
    LIE_WIDTH = 26,
    WIDTH = 108
};

/* A line of the matrix: one fault (or, in the last slot, the right result) over all problems. */
struct tally {
    int injected, good, by_rule[RULE_COUNT];
    bool applies[RULE_COUNT]; /* whether the rule applied at least once */
    double nearest;           /* fault: the smallest strength; right result: the largest */
    char where[80];
};

/* A line of the table of lies: one lie or, in the last slot, honest launches. */
struct lie_tally {
    int tried, good, timed, idle;
    char found_by[24]; /* the rule of the last finding, empty where there was none */
};

struct selftest_report {
    FILE *out;
    bool color, verbose;
    int64_t failures, max_failures; /* results with the wrong verdict; how many of them are printed */
    struct record_writer *writer;
    struct junit *junit;
    char lacking[16][160]; /* "mine has no bwd: reason", each once */
    int lacking_count;
    struct selftest_problem problem;
    struct tally faults[FAULTS_MAX], correct;
    struct lie_tally lies[LIES_MAX], honest;
    /* Of the current problem. */
    double correct_used, least;
    char correct_text[40], least_text[64];
    int injected, caught;
};

__attribute__((format(printf, 2, 3))) static void print(const struct selftest_report *r, const char *format, ...)
{
    va_list arguments;
    if (!r->out)
        return;
    va_start(arguments, format);
    vfprintf(r->out, format, arguments);
    va_end(arguments);
}

static void print_wrapped(const struct selftest_report *r, const char *text, bool is_command)
{
    if (r->out && is_command) {
        char *command = program_command(text);
        wrap_command(r->out, WIDTH, 2, command);
        free(command);
    } else if (r->out)
        wrap_words(r->out, WIDTH, 2, 4, text);
}

static const char *paint(const struct selftest_report *r, bool is_good)
{
    return !r->color ? "" : is_good ? "\033[32m" : "\033[1;31m";
}
static const char *unpaint(const struct selftest_report *r) { return r->color ? "\033[0m" : ""; }

/* "fwd causal d=64 n=1k bf16 left 100 dropout 0.1" */
static const char *name_of(const struct plan_item *item, char *text)
{
    const struct problem_key key = plan_item_key(item, L2_COLD);
    char name[64], extras[PROBLEM_LABEL_SIZE];
    snprintf(text, PROBLEM_SIZE, "%s%.90s", problem_print(&item->problem, item->mode, name, sizeof name),
             problem_key_extras(&key, extras, sizeof extras));
    return text;
}

/* The name of a problem as the first cell of a line; one that is too long stands in a line of its own. */
static void print_name(const struct selftest_report *r, const struct plan_item *item)
{
    char text[PROBLEM_SIZE];
    const bool is_long = strlen(name_of(item, text)) > PROBLEM_WIDTH;
    print(r, "%-*s%s%*s ", PROBLEM_WIDTH, text, is_long ? "\n" : "", is_long ? PROBLEM_WIDTH : 0, "");
}

/* ---- deciding ---- */

void selftest_decide(const struct fault *fault, int tensor, enum attn_mode mode, const struct record_tensor *tensors,
                     int count, double (*by_rule)[JUDGE_RULES], struct selftest_verdict *v)
{
    const unsigned named = fault ? fault->rules[mode] : (1u << RULE_COUNT) - 1;
    memset(v, 0, sizeof *v);
    v->fault = fault;
    v->tensor = tensor;
    v->tensor_count = count;
    v->strength = -1;
    for (int r = 0; r < RULE_COUNT; r++)
        v->used[r] = NAN;
    v->used[RULE_GUARD] = 0;
    bool passes = count > 0;
    for (int i = 0; i < count; i++) {
        v->tensors[i] = tensors[i];
        passes = passes && tensors[i].used <= 1;
        if (tensor >= 0 && strcmp(tensors[i].name, problem_tensor_name((enum problem_tensor)tensor)))
            continue;
        for (int r = 0; r < JUDGE_RULES; r++) {
            /* A rule that applies but had nothing to compare counts as 0 of its bound; rule naive applies only where it
             * compared. */
            const bool is_lse = !strcmp(tensors[i].name, problem_tensor_name(TENSOR_LSE));
            const bool applies = r == RULE_NONFINITE || (is_lse ? r == RULE_LSE : r != RULE_LSE && r != RULE_NAIVE);
            v->used[r] = fmax(v->used[r], fmax(by_rule[i][r], applies ? 0 : NAN));
        }
        if (!strcmp(tensors[i].rule, judge_rule_name(RULE_GUARD)))
            v->used[RULE_GUARD] = tensors[i].used;
    }
    for (int r = 0; r < RULE_COUNT; r++)
        if (named & 1u << r && v->used[r] > v->strength) {
            v->strength = v->used[r];
            v->strongest = (enum judge_rule)r;
        }
    v->is_good = fault ? v->strength > 1 : passes;
}

/* NULL where there is none. */
static const struct record_tensor *worst_tensor(const struct record_tensor *tensors, int count)
{
    const struct record_tensor *worst = count > 0 ? tensors : NULL;
    for (int i = 1; i < count; i++)
        if (!(tensors[i].used <= worst->used))
            worst = &tensors[i];
    return worst;
}

/* ---- rows ---- */

static json_t *named_rules(const struct fault *fault, enum attn_mode mode)
{
    json_t *list = json_array();
    for (int r = 0; r < RULE_COUNT; r++)
        if (fault->rules[mode] & 1u << r)
            json_array_append_new(list, json_string(judge_rule_name((enum judge_rule)r)));
    return list;
}

static int write_object(const struct selftest_report *r, json_t *object)
{
    const int error = record_write_json(r->writer, object);
    json_decref(object);
    if (error == 0)
        return EXIT_OK;
    log_error("--jsonl: %s", strerror(error));
    return EXIT_IO;
}

static int write_row(const struct selftest_report *r, const struct selftest_verdict *v, const struct record_row *row)
{
    json_t *object = record_row_json(row), *used = json_object();
    json_object_set_new(object, "type", json_string("fault"));
    json_object_set_new(object, "computed", json_string(problem_dtype_name(r->problem.computed)));
    json_object_set_new(object, "fault", json_string(v->fault ? v->fault->name : "none"));
    if (v->tensor >= 0)
        json_object_set_new(object, "fault_tensor", json_string(problem_tensor_name((enum problem_tensor)v->tensor)));
    if (v->fault) {
        json_object_set_new(object, "named_rules", named_rules(v->fault, r->problem.item->mode));
        json_object_set_new(object, "caught", json_boolean(v->is_good));
    }
    for (int i = 0; i < RULE_COUNT; i++)
        if (isfinite(v->used[i]))
            json_object_set_new(used, judge_rule_name((enum judge_rule)i), json_real(v->used[i]));
    FABENCH_ASSERT(json_object_set_new(object, "used", used) == 0, "%s", "a row of the self-test");
    return write_object(r, object);
}

static int write_lie_row(const struct selftest_report *r, const struct lie_verdict *v, const struct record_row *row)
{
    json_t *object = record_row_json(row), *used = json_object();
    json_object_set_new(object, "type", json_string("fault"));
    json_object_set_new(object, "computed", json_string(problem_dtype_name(v->item->problem.dtype)));
    json_object_set_new(object, "fault", json_string(v->lie ? lie_name(v->lie) : "none"));
    if (v->lie)
        json_object_set_new(object, "caught", json_boolean(v->is_good));
    json_object_set_new(object, "timed_launches", json_integer(v->timed));
    json_object_set_new(object, "without_work", json_integer(v->idle));
    const struct record_tensor *worst = worst_tensor(v->tensors, v->tensor_count);
    if (worst && isfinite(worst->used))
        json_object_set_new(used, worst->rule, json_real(worst->used));
    FABENCH_ASSERT(json_object_set_new(object, "used", used) == 0, "%s", "a row of the self-test");
    return write_object(r, object);
}

/* ---- one problem ---- */

struct selftest_report *selftest_report_open(FILE *out, bool color, bool verbose, int64_t max_failures,
                                             struct record_writer *writer, struct junit *junit)
{
    struct selftest_report *r = xcalloc(1, sizeof *r);
    r->out = out;
    r->color = color;
    r->verbose = verbose;
    r->max_failures = max_failures;
    r->writer = writer;
    r->junit = junit;
    r->correct.nearest = -1;
    for (int i = 0; i < FAULTS_MAX; i++)
        r->faults[i].nearest = INFINITY;
    return r;
}

void selftest_report_heading(struct selftest_report *r, const char *device_line, int problems)
{
    int count;
    fault_table(&count);
    print(r,
          "%s\n%d faults between kernel and judge, %d problem%s; least = by how much the weakest is over its bound\n",
          device_line, count, problems, problems == 1 ? "" : "s");
    print(r, "%-*s %-18s %-16s  %-6s  %s\n", PROBLEM_WIDTH, "problem", "right result of", "err/bound", "caught",
          "least");
}

void selftest_report_begin(struct selftest_report *r, const struct selftest_problem *problem)
{
    r->problem = *problem;
    r->injected = r->caught = 0;
    r->least = INFINITY;
    r->correct_used = 0;
    r->correct_text[0] = r->least_text[0] = 0;
}

static void add_up(const struct selftest_report *r, struct tally *t, const struct selftest_verdict *v)
{
    t->injected++;
    t->good += v->is_good;
    for (int i = 0; i < RULE_COUNT; i++) {
        t->by_rule[i] += v->used[i] > 1;
        t->applies[i] = t->applies[i] || isfinite(v->used[i]);
    }
    if (v->fault ? v->strength < t->nearest : v->strength > t->nearest) {
        char name[64];
        t->nearest = v->strength;
        snprintf(t->where, sizeof t->where, "%s",
                 problem_print(&r->problem.item->problem, r->problem.item->mode, name, sizeof name));
    }
}

static const char *share(double used, char *text, size_t size)
{
    if (used >= 100)
        snprintf(text, size, ">99");
    else if (used > 0 && used < 0.001)
        snprintf(text, size, "<0.001");
    else
        number_print_short(used, text, size);
    return text;
}

/* Writes every broken rule; a star marks those that must catch the fault. */
static void print_verdict(const struct selftest_report *r, const struct selftest_verdict *v)
{
    char text[16];
    print(r, "  %s%s%s:", v->fault->name, v->tensor >= 0 ? " in " : "",
          v->tensor >= 0 ? problem_tensor_name((enum problem_tensor)v->tensor) : "");
    for (int i = 0; i < RULE_COUNT; i++)
        if (v->used[i] > 1)
            print(r, " %s%s %s", judge_rule_name((enum judge_rule)i),
                  v->fault->rules[r->problem.item->mode] & 1u << i ? "*" : "", share(v->used[i], text, sizeof text));
    print(r, "\n");
}

static void add_case(const struct selftest_report *r, const struct plan_item *item, const char *impl, const char *what,
                     enum junit_result result, const char *message)
{
    char problem[PROBLEM_SIZE], *class_name = xasprintf("fabench.selftest.%s", impl);
    char *name = xasprintf("%s: %s", name_of(item, problem), what);
    junit_add(r->junit, class_name, name, result, message);
    free(name);
    free(class_name);
}

static void add_verdict_case(const struct selftest_report *r, const struct selftest_verdict *v)
{
    char used[16], *what, *message;
    if (v->fault)
        what = xasprintf("%s%s%s", v->fault->name, v->tensor >= 0 ? " in " : "",
                         v->tensor >= 0 ? problem_tensor_name((enum problem_tensor)v->tensor) : "");
    else
        what = xstrdup("the right result");
    const char *const verdict = v->fault ? (v->is_good ? "caught" : "not caught") : v->is_good ? "passes" : "fails";
    message = xasprintf("%s: rule %s at %s of its bound%s%s", verdict, judge_rule_name(v->strongest),
                        share(v->strength, used, sizeof used),
                        v->is_good ? "" : "; again: ", v->is_good ? "" : r->problem.repro);
    add_case(r, r->problem.item, r->problem.impl, what, v->is_good ? JUNIT_PASSED : JUNIT_FAILED, message);
    free(message);
    free(what);
}

int selftest_report_add(struct selftest_report *r, const struct selftest_verdict *v, const struct record_row *row)
{
    char text[16];
    const bool is_shown = !v->is_good && r->failures++ < r->max_failures;
    if (r->junit)
        add_verdict_case(r, v);
    if (!v->fault) {
        const struct record_tensor *worst = &v->tensors[0];
        for (int i = 1; i < v->tensor_count; i++)
            if (!(v->tensors[i].used <= worst->used))
                worst = &v->tensors[i];
        add_up(r, &r->correct, v);
        r->correct_used = worst->used;
        snprintf(r->correct_text, sizeof r->correct_text, "%s %s %s",
                 v->is_good ? share(worst->used, text, sizeof text) : "FAIL", worst->name, worst->rule);
        if (is_shown) {
            print(r, "%sthe right result FAILS its check%s:\n", paint(r, false), unpaint(r));
            print_wrapped(r, worst->failure, false);
        }
        return r->writer ? write_row(r, v, row) : EXIT_OK;
    }
    int count;
    const int index = (int)(v->fault - fault_table(&count));
    FABENCH_ASSERT(index >= 0 && index < count && count <= FAULTS_MAX, "fault %d", index);
    add_up(r, &r->faults[index], v);
    r->injected++;
    r->caught += v->is_good;
    if (v->strength < r->least) {
        r->least = v->strength;
        snprintf(r->least_text, sizeof r->least_text, "%s x %s: %s", share(v->strength, text, sizeof text),
                 judge_rule_name(v->strongest), v->fault->name);
    }
    if (r->verbose)
        print_verdict(r, v);
    if (is_shown) {
        print(r, "%sNOT CAUGHT%s: %s%s%s: rule %s at %s of its bound; again:\n", paint(r, false), unpaint(r),
              v->fault->name, v->tensor >= 0 ? " in " : "",
              v->tensor >= 0 ? problem_tensor_name((enum problem_tensor)v->tensor) : "", judge_rule_name(v->strongest),
              share(v->strength, text, sizeof text));
        print_wrapped(r, r->problem.repro, true);
    }
    return r->writer ? write_row(r, v, row) : EXIT_OK;
}

/* ---- lies about work ---- */

static void add_lie_case(const struct selftest_report *r, const struct lie_verdict *v, const char *impl,
                         const char *repro)
{
    const struct record_tensor *worst = worst_tensor(v->tensors, v->tensor_count);
    char *message =
        xasprintf("%s: %d timed launches, %d without work; rule %s%s%s",
                  v->lie ? (v->is_good ? "caught" : "not caught") : (v->is_good ? "passes" : "fails"), v->timed,
                  v->idle, worst ? worst->rule : "none", v->is_good ? "" : "; again: ", v->is_good ? "" : repro);
    add_case(r, v->item, impl, v->lie ? lie_name(v->lie) : "honest launches", v->is_good ? JUNIT_PASSED : JUNIT_FAILED,
             message);
    free(message);
}

static void print_lie_failure(const struct selftest_report *r, const struct lie_verdict *v, const char *repro)
{
    const struct record_tensor *worst = worst_tensor(v->tensors, v->tensor_count);
    if (v->lie) {
        print(r, "%sNOT CAUGHT%s: %s: %d timed launches, %d without work; again:\n", paint(r, false), unpaint(r),
              lie_name(v->lie), v->timed, v->idle);
        print_wrapped(r, repro, true);
        return;
    }
    print(r, "%shonest launches FAIL%s:\n", paint(r, false), unpaint(r));
    print_wrapped(r, worst ? worst->failure : "nothing was checked", false);
}

static struct lie_tally *tally_of(struct selftest_report *r, const struct lie *lie)
{
    int index = 0;
    while (lie_at(index) && lie_at(index) != lie)
        index++;
    FABENCH_ASSERT(index < LIES_MAX, "lie %d", index);
    return lie ? &r->lies[index] : &r->honest;
}

int selftest_report_add_lie(struct selftest_report *r, const struct lie_verdict *v, const struct record_row *row)
{
    struct lie_tally *t = tally_of(r, v->lie);
    const struct record_tensor *worst = worst_tensor(v->tensors, v->tensor_count);
    t->tried++;
    t->good += v->is_good;
    t->timed += v->timed;
    t->idle += v->idle;
    if (worst && !(worst->used <= 1))
        snprintf(t->found_by, sizeof t->found_by, "%s", worst->rule);
    if (r->junit)
        add_lie_case(r, v, row->impl, row->repro);
    if (r->verbose)
        print(r, "  %s: %d timed launches, %d without work; %s\n", v->lie ? lie_name(v->lie) : "honest launches",
              v->timed, v->idle, worst && !(worst->used <= 1) ? worst->failure : "no finding");
    if (!v->is_good && r->failures++ < r->max_failures)
        print_lie_failure(r, v, row->repro);
    return r->writer ? write_lie_row(r, v, row) : EXIT_OK;
}

void selftest_report_end(struct selftest_report *r)
{
    char who[64], caught[16];
    const struct plan_item *item = r->problem.item;
    snprintf(who, sizeof who, "%s%s%s", r->problem.impl, r->problem.computed == item->problem.dtype ? "" : " in ",
             r->problem.computed == item->problem.dtype ? "" : problem_dtype_name(r->problem.computed));
    snprintf(caught, sizeof caught, "%d/%d", r->caught, r->injected);
    print_name(r, item);
    print(r, "%-18s %-16s  %s%-6s%s  %s\n", who, r->correct_text, paint(r, r->caught == r->injected && r->injected > 0),
          caught, unpaint(r), r->least_text);
    if (r->out)
        fflush(r->out);
}

static void print_absent(const struct selftest_report *r, const struct plan_item *item, const char *reason)
{
    print_name(r, item);
    print(r, "not run: %s\n", reason);
}

void selftest_report_absent(struct selftest_report *r, const struct plan_item *item, const char *impl,
                            const char *reason)
{
    print_absent(r, item, reason);
    if (r->junit)
        add_case(r, item, impl, "not run", JUNIT_ERROR, reason);
}

void selftest_report_left_out(struct selftest_report *r, const struct plan_item *item, const char *impl,
                              const char *what, const char *reason)
{
    char line[sizeof r->lacking[0]];
    print_absent(r, item, reason);
    if (r->junit)
        add_case(r, item, impl, "not run", JUNIT_SKIPPED, reason);
    snprintf(line, sizeof line, "%s: the %s was not tested: %s", impl, what, reason);
    for (int i = 0; i < r->lacking_count; i++)
        if (strcmp(r->lacking[i], line) == 0)
            return;
    if (r->lacking_count < (int)(sizeof r->lacking / sizeof r->lacking[0]))
        memcpy(r->lacking[r->lacking_count++], line, sizeof line);
}

/* ---- the matrix ---- */

static void print_line(const struct selftest_report *r, const char *name, const struct tally *t, unsigned named)
{
    char cell[24], text[16];
    print(r, "%-*s %5d", NAME_WIDTH, name, t->injected);
    for (int i = 0; i < RULE_COUNT; i++) {
        const bool is_named = named & 1u << i;
        if (t->injected == 0 || !t->applies[i])
            snprintf(cell, sizeof cell, "-");
        else if (t->by_rule[i] == 0)
            snprintf(cell, sizeof cell, is_named ? "0*" : ".");
        else
            snprintf(cell, sizeof cell, "%d%s", t->by_rule[i], is_named ? "*" : "");
        print(r, "  %*s", (int)strlen(judge_rule_name((enum judge_rule)i)), cell);
    }
    if (t->injected == 0) {
        print(r, "  %9s\n", "-");
        return;
    }
    snprintf(cell, sizeof cell, "%d/%d", t->good, t->injected);
    print(r, "  %s%9s%s  %5s\n", paint(r, t->good == t->injected), cell, unpaint(r),
          share(t->nearest, text, sizeof text));
}

static void print_matrix(const struct selftest_report *r)
{
    int count;
    const struct fault *faults = fault_table(&count);
    print(r, "\n%-*s %5s", NAME_WIDTH, "fault \\ rule", "tries");
    for (int i = 0; i < RULE_COUNT; i++)
        print(r, "  %s", judge_rule_name((enum judge_rule)i));
    print(r, "  %9s  %5s\n", "caught", "least");
    for (int i = 0; i < count; i++)
        print_line(r, faults[i].name, &r->faults[i], faults[i].rules[0] | faults[i].rules[1]);
    print(r, "%-*s %5s", NAME_WIDTH, "", "");
    for (int i = 0; i < RULE_COUNT; i++)
        print(r, "  %*s", (int)strlen(judge_rule_name((enum judge_rule)i)), "");
    print(r, "  %9s  %5s\n", "passed", "most");
    print_line(r, "the right result", &r->correct, 0);
    print(r, "How many results broke a rule; * the rule meant for the fault; . none; - does not apply.\n");
}

static void print_lie_line(const struct selftest_report *r, const char *name, const struct lie_tally *t)
{
    char cell[24];
    snprintf(cell, sizeof cell, "%d/%d", t->good, t->tried);
    print(r, "%-*s %5d  %5d  %12d  %-9s  %s%6s%s\n", LIE_WIDTH, name, t->tried, t->timed, t->idle,
          t->found_by[0] ? t->found_by : "-", paint(r, t->good == t->tried), cell, unpaint(r));
}

static void print_lies(const struct selftest_report *r)
{
    print(r, "\n%-*s %5s  %5s  %12s  %-9s  %6s\n", LIE_WIDTH, "lie about work", "tries", "timed", "without work",
          "found by", "caught");
    for (int i = 0; lie_at(i); i++)
        print_lie_line(r, lie_name(lie_at(i)), &r->lies[i]);
    print(r, "%-*s %5s  %5s  %12s  %-9s  %6s\n", LIE_WIDTH, "", "", "", "", "", "passed");
    print_lie_line(r, "honest launches", &r->honest);
    print(
        r,
        "Timed launches, and those that did not compute. A lie that had to compute at each of them is caught, too.\n");
}

static void count_lies(const struct selftest_report *r, int *tried, int *caught)
{
    *tried = *caught = 0;
    for (int i = 0; lie_at(i); i++) {
        *tried += r->lies[i].tried;
        *caught += r->lies[i].good;
    }
}

static void count_all(const struct selftest_report *r, int *injected, int *caught, int *untried)
{
    int count;
    fault_table(&count);
    *injected = *caught = *untried = 0;
    for (int i = 0; i < count; i++) {
        *injected += r->faults[i].injected;
        *caught += r->faults[i].good;
        *untried += r->faults[i].injected == 0;
    }
}

bool selftest_report_is_good(const struct selftest_report *r)
{
    int injected, caught, untried, lies, lies_caught;
    count_all(r, &injected, &caught, &untried);
    count_lies(r, &lies, &lies_caught);
    return injected > 0 && caught == injected && r->correct.good == r->correct.injected && lies_caught == lies &&
           r->honest.good == r->honest.tried;
}

static void print_untried(const struct selftest_report *r)
{
    int count;
    const struct fault *faults = fault_table(&count);
    struct text line = {0};
    for (int i = 0; i < count; i++)
        if (r->faults[i].injected == 0)
            text_add(&line, "%s%s", line.length ? ", " : "not tried by these options: ", faults[i].name);
    char *words = text_take(&line);
    if (r->out)
        wrap_words(r->out, WIDTH, 0, 2, words);
    free(words);
}

void selftest_report_close(struct selftest_report *r, double elapsed_s, const char *jsonl_path, int exit_code)
{
    int injected, caught, untried, lies, lies_caught;
    count_all(r, &injected, &caught, &untried);
    count_lies(r, &lies, &lies_caught);
    if (injected > 0) {
        print_matrix(r);
        if (untried)
            print_untried(r);
    }
    if (r->honest.tried > 0)
        print_lies(r);
    for (int i = 0; i < r->lacking_count; i++)
        print(r, "%s\n", r->lacking[i]);
    if (r->failures > r->max_failures)
        print(r, "%lld failures, the first %lld are shown (--max-failures)\n", (long long)r->failures,
              (long long)r->max_failures);
    if (jsonl_path && strcmp(jsonl_path, "-"))
        print(r, "rows: %s\n", jsonl_path);
    const char *const verdict = exit_code == EXIT_OK ? "PASS" : exit_code == EXIT_IO ? "FAILED" : "INCOMPLETE";
    char *counts =
        xasprintf("%d of %d faults and %d of %d lies about work caught, %d of %d right results pass; %.0f s, exit %d",
                  caught, injected, lies_caught, lies, r->correct.good, r->correct.injected, elapsed_s, exit_code);
    print(r, "%s%s%s: %s\n", paint(r, exit_code == EXIT_OK), verdict, unpaint(r), counts);
    if (!r->out && exit_code != EXIT_OK)
        log_error("selftest: %s: %s", verdict, counts);
    free(counts);
    free(r);
}
