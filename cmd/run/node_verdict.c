/* Lines and object are made from the same findings. */
#include "cmd/run/node_verdict.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/base/host.h"
#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/text.h"
#include "cmd/problem/problem.h"
#include "cmd/record/record.h"

enum { FINDINGS_MAX = 64 };

static struct {
    struct {
        char pci[24], measured[160], expected[160], limit[160], cause[160];
    } findings[FINDINGS_MAX];
    int count;
    json_t *boards; /* NULL = none were named */
} verdict;

/* In a value no quote ends the text, and no control character reaches a terminal. */
static void put(char *to, size_t size, const char *from)
{
    text_clean(from, to, size);
    for (char *at = to; *at; at++)
        if (*at == '"')
            *at = '\'';
}

void node_verdict_add(const struct node_finding *f)
{
    if (verdict.count == FINDINGS_MAX)
        return;
    const int i = verdict.count++;
    put(verdict.findings[i].pci, sizeof verdict.findings[i].pci, f->pci);
    put(verdict.findings[i].measured, sizeof verdict.findings[i].measured, f->measured);
    put(verdict.findings[i].expected, sizeof verdict.findings[i].expected, f->expected);
    put(verdict.findings[i].limit, sizeof verdict.findings[i].limit, f->limit);
    put(verdict.findings[i].cause, sizeof verdict.findings[i].cause, f->cause);
}

static bool is_first_failure(const struct record_row *rows, int at)
{
    for (int i = 0; i < at; i++)
        if (rows[i].check == CHECKED_FAIL && strcmp(rows[i].pci, rows[at].pci) == 0)
            return false;
    return rows[at].check == CHECKED_FAIL;
}

void node_verdict_add_rows(const struct record_row *rows, int count)
{
    for (int i = 0; i < count; i++) {
        char measured[80], cause[160], label[PROBLEM_LABEL_SIZE];
        if (!is_first_failure(rows, i))
            continue;
        snprintf(measured, sizeof measured, "%.4g of the bound (%s)", rows[i].err_used, rows[i].err_tensor);
        snprintf(cause, sizeof cause, "%s %s failed its check", rows[i].impl,
                 problem_key_label(&rows[i].key, label, sizeof label));
        node_verdict_add(&(struct node_finding){rows[i].pci, measured, "at most 1", "1", cause});
    }
}

void node_verdict_boards(json_t *list)
{
    json_decref(verdict.boards);
    verdict.boards = list;
}

static void print_finding(FILE *out, const char *host, int i)
{
    fprintf(out, "fabench-drain: host=%s pci=%s measured=\"%s\" expected=\"%s\" limit=\"%s\" cause=\"%s\"\n", host,
            verdict.findings[i].pci[0] ? verdict.findings[i].pci : "none", verdict.findings[i].measured,
            verdict.findings[i].expected, verdict.findings[i].limit, verdict.findings[i].cause);
}

/* What a code means, in the words of Nagios' one line. */
static const char *meaning_of(int exit_code)
{
    switch (exit_code) {
    case EXIT_OK: return "every result checked";
    case EXIT_CHECK_FAILED: return "a check failed";
    case EXIT_USAGE: return "usage error";
    case EXIT_REGRESSION: return "a board is slow";
    case EXIT_INCONCLUSIVE: return "undecided";
    case EXIT_NOT_COMPARABLE: return "not comparable";
    case EXIT_DEVICE: return "no usable device, an error of the device, or a time limit";
    case EXIT_INTERRUPTED: return "interrupted";
    default: return "a file or an internal error";
    }
}

static void print_lines(const struct options *o, int exit_code, const char *host)
{
    const bool is_taken = (o->jsonl_path && !strcmp(o->jsonl_path, "-")) || (o->csv_path && !strcmp(o->csv_path, "-"));
    FILE *out = is_taken ? stderr : stdout;
    const enum node_state state = exit_style_state(exit_code);
    if (o->exit_style == EXIT_STYLE_NAGIOS)
        fprintf(out, "FABENCH %s: %s (exit %d)\n", exit_style_state_name(state), meaning_of(exit_code), exit_code);
    for (int i = 0; i < verdict.count && state == NODE_CRITICAL && o->exit_style != EXIT_STYLE_PLAIN; i++)
        print_finding(out, host, i);
}

static json_t *verdict_object(const struct options *o, int exit_code, const char *host)
{
    char now[24] = "", command[1024];
    const time_t seconds = time(NULL);
    struct tm utc;
    json_t *findings = json_array();
    if (gmtime_r(&seconds, &utc))
        strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &utc);
    text_clean(o->command_line, command, sizeof command);
    for (int i = 0; i < verdict.count; i++)
        json_array_append_new(
            findings, record_must(json_pack("{s:s, s:s, s:s, s:s, s:s}", "pci", verdict.findings[i].pci, "measured",
                                            verdict.findings[i].measured, "expected", verdict.findings[i].expected,
                                            "limit", verdict.findings[i].limit, "cause", verdict.findings[i].cause)));
    json_t *object = record_must(json_pack("{s:s, s:i, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:o}", "type", "verdict",
                                           "schema", (int)RECORD_SCHEMA, "host", host, "time_utc", now, "command_line",
                                           command, "state", exit_style_state_name(exit_style_state(exit_code)), "exit",
                                           exit_code, "nagios", exit_style_code(EXIT_STYLE_NAGIOS, exit_code), "slurm",
                                           exit_style_code(EXIT_STYLE_SLURM, exit_code), "findings", findings));
    if (verdict.boards)
        json_object_set(object, "boards", verdict.boards);
    return object;
}

static int write_verdict(const struct options *o, int exit_code, const char *host)
{
    json_t *object = verdict_object(o, exit_code, host);
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    FILE *file = text ? fopen(o->verdict_path, "we") : NULL;
    const bool written = file && fprintf(file, "%s\n", text) > 0;
    const bool closed = file && fclose(file) == 0;
    json_decref(object);
    free(text);
    if (written && closed)
        return EXIT_OK;
    log_error("--verdict %s: %s", path_shown(o->verdict_path).text, strerror(errno));
    return EXIT_IO;
}

int node_verdict_end(const struct options *o, int exit_code)
{
    char name[256], host[256];
    host_name(name, sizeof name);
    put(host, sizeof host, name);
    if (o->verdict_path && write_verdict(o, exit_code, host) != EXIT_OK)
        exit_code = exit_worst(exit_code, EXIT_IO);
    print_lines(o, exit_code, host);
    json_decref(verdict.boards);
    memset(&verdict, 0, sizeof verdict);
    return exit_code;
}
