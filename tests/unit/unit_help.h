/* For unit tests of modules that read files and say why they refuse: a folder that goes with the test, what is said on
 * stderr, and record files made from a few facts (as text, so that they do not depend on the structs under test). */
#ifndef FABENCH_UNIT_HELP_H
#define FABENCH_UNIT_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char help_folder[] = "/tmp/fabench-unit-XXXXXX";

/* Group set-up and tear-down of cmocka; a program may have several groups, one after the other. */
static inline int help_make_folder(void **state)
{
    (void)state;
    memcpy(help_folder + sizeof help_folder - sizeof "XXXXXX", "XXXXXX", sizeof "XXXXXX");
    return mkdtemp(help_folder) ? 0 : -1;
}

static inline int help_remove_folder(void **state)
{
    char command[80];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", help_folder);
    return system(command);
}

/* The path of a file in the folder; valid until the eighth call after it. */
static inline char *help_path(const char *name)
{
    static char paths[8][160];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", help_folder, name);
    return path;
}

static inline char *help_write(const char *name, const char *text)
{
    char *path = help_path(name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline const char *help_read(const char *path)
{
    static char text[16384];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static inline void assert_has(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("no '%s' in: %s", words, text);
}

/* The index of a word among the names of an enum; -1 for "" and words that are none. */
static inline int index_of(const char *const *names, const char *word)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], word) == 0)
            return i;
    return -1;
}

/* Between the two calls everything that goes to stdout and stderr is kept; help_said returns it. */
static int help_kept[2];
static inline void help_listen(void)
{
    fflush(NULL);
    for (int fd = 1; fd <= 2; fd++)
        help_kept[fd - 1] = dup(fd);
    remove(help_path("said"));
    FILE *file = fopen(help_path("said"), "a"); /* each write goes to the end, of stdout and of stderr */
    assert_non_null(file);
    dup2(fileno(file), 1);
    dup2(fileno(file), 2);
    fclose(file);
}

static inline const char *help_said(void)
{
    fflush(NULL);
    for (int fd = 1; fd <= 2; fd++) {
        dup2(help_kept[fd - 1], fd);
        close(help_kept[fd - 1]);
    }
    return help_read(help_path("said"));
}

/* One row of a record; what is 0 or NULL has the value of the comment. */
struct help_row {
    const char *impl, *asked;   /* fused_fake, and the same as impl */
    const char *status, *check; /* ok, pass */
    const char *mode;           /* fwd */
    const char *run_id;         /* run1, in now.jsonl run2 */
    const char *device;         /* Fake GPU */
    int n;                      /* q_len and kv_len: 128 */
    double time_ms;             /* 1; negative = not measured */
    double half_width_pct;      /* of its interval: 0.1 */
    int samples;                /* 30; fewer than 6 have no interval */
    double share;               /* pct_of_gemm; not measured */
    double tflops, gemm_tflops; /* what shape, time and share make */
    double err_used;            /* 0.5 where check is pass; negative = absent */
    double throttled_pct;       /* 0 */
    const char *more;           /* further keys, as ",\"reason\":\"...\"" */
};

static inline const char *help_or(const char *text, const char *otherwise) { return text ? text : otherwise; }

static inline void help_put_header(FILE *file, const char *device, const char *policy)
{
    fprintf(file,
            "{\"type\":\"header\",\"schema\":1,\"run_id\":\"run1\",\"command_line\":\"fabench --seqlen 128\","
            "\"device\":{%s},\"policy\":{%s}}\n",
            device, policy);
}

#define HELP_DEVICE "\"name\":\"Fake GPU\",\"driver\":\"580.65\",\"power_limit_w\":700"
#define HELP_POLICY "\"method\":\"3\",\"l2\":\"cold\",\"round_members\":[\"fused\"]"

static inline void help_put_row(FILE *file, const struct help_row *r)
{
    const char *impl = help_or(r->impl, "fused_fake"), *status = help_or(r->status, "ok");
    const int n = r->n ? r->n : 128;
    const double ms = r->time_ms == 0 ? 1 : r->time_ms, half = r->half_width_pct > 0 ? r->half_width_pct / 100 : 0.001;
    const double flops = (strcmp(help_or(r->mode, "fwd"), "bwd") ? 1 : 2.5) * 4 * 64 * 0.5 * n * n;
    const double tflops = r->tflops > 0 ? r->tflops : flops / ms * 1e-9;
    const char *check = help_or(r->check, strcmp(status, "ok") ? "off" : "pass");
    const int samples = r->samples ? r->samples : 30;
    fprintf(file,
            "{\"type\":\"row\",\"schema\":1,\"run_id\":\"%s\",\"method\":\"3\",\"device\":\"%s\","
            "\"driver\":\"580.65\",\"impl\":\"%s\",\"asked\":\"%s\",\"mode\":\"%s\",\"dtype\":\"fp32\","
            "\"causal\":1,\"batch\":1,\"q_heads\":1,\"kv_heads\":1,\"q_len\":%d,\"kv_len\":%d,\"head_dim\":64,"
            "\"layout\":\"bshd\",\"window_left\":-1,\"window_right\":-1,\"dropout\":0,\"scale\":0.125,\"dist\":"
            "\"normal\",\"seed\":1,\"l2\":\"cold\",\"status\":\"%s\",\"check\":\"%s\"",
            help_or(r->run_id, "run1"), help_or(r->device, "Fake GPU"), impl, help_or(r->asked, impl),
            help_or(r->mode, "fwd"), n, n, status, check);
    if (strcmp(status, "ok") == 0 && ms > 0)
        fprintf(file, ",\"samples\":%d,\"time_ms\":%.9g,\"flops\":%.9g,\"tflops\":%.9g,\"throttled_pct\":%g", samples,
                ms, flops, tflops, r->throttled_pct);
    if (strcmp(status, "ok") == 0 && ms > 0 && samples >= 6)
        fprintf(file, ",\"time_ms_ci_lo\":%.9g,\"time_ms_ci_hi\":%.9g", ms * (1 - half), ms * (1 + half));
    if (strcmp(check, "pass") == 0 && r->err_used >= 0)
        fprintf(file, ",\"err_used\":%g", r->err_used > 0 ? r->err_used : 0.5);
    if (r->share > 0)
        fprintf(file, ",\"pct_of_gemm\":%.9g,\"gemm_tflops\":%.9g", r->share,
                r->gemm_tflops > 0 ? r->gemm_tflops : flops / ms * 1e-9 / r->share * 100);
    fprintf(file, "%s}\n", help_or(r->more, ""));
}

/* A record with the usual header; returns its path. */
static inline char *help_record(const char *name, const struct help_row *rows, int count)
{
    char *path = help_path(name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    help_put_header(file, HELP_DEVICE, HELP_POLICY);
    for (int i = 0; i < count; i++) {
        struct help_row row = rows[i];
        if (!row.run_id && strcmp(name, "now.jsonl") == 0)
            row.run_id = "run2";
        help_put_row(file, &row);
    }
    assert_int_equal(fclose(file), 0);
    return path;
}

#endif
