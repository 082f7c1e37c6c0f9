/* A stand-in for fabench that writes its record format, for the tests of `ab` and `gate`. The rows are synthetic;
 * nothing is measured. Its answers are set in <this program>.conf: NAME=VALUE, separated by blanks, semicolons or
 * newlines, where a value is a word, a text in double quotes (\" is a quote in it), or a list: (1.0 2.0 3.0).
 *
 *   times=(1.0 2.0 3.0)   milliseconds of each problem of its plan (lengths 128, 256, 512, ...)
 *   shares=(50 40 30)     pct_of_gemm of each; empty = a device without a GEMM; gemm_tflops follows from it
 *   overs=(2.5 2.5 2.5)   times as fast as the control, naive; empty = the record does not say
 *   statuses=(ok ok ok)   or unsupported, error
 *   checks=(pass pass pass)
 *   noise=0.2             largest deviation of a process, per cent; a fixed sequence
 *   shifts=(0 0.6 0)      added to the time of each problem times -1, 0, 1, -1, ... of process 0, 1, 2, 3, ...
 *   gemm_shift=0.05       likewise of all shares, relative
 *   arch=cpu load=4.0 cpus=2 wait=60   of the machine; empty = the record does not say
 *   device method schema throttled impl control control_share version
 *                         facts of the record; control empty = an implementation that is refused
 *   clock=1.0             factor of the times that shares do not show
 *   sleep_s=0             seconds before any answer, --version included
 *   run=""                a shell command before a measuring process; where it fails, the process ends as it did
 *   run_instead=""        a shell command in the place of a measuring process
 *   always_instead=""     likewise, and in the place of the checking one too
 *
 * Each process but --version adds its arguments as a line to <this program>.log. */
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROBLEMS_MAX = 8, TEXT_BYTES = 512 };

struct list {
    char items[PROBLEMS_MAX][32];
    int count;
};

static struct list times = {{"1.0", "2.0", "3.0"}, 3}, shares = {{"50", "40", "30"}, 3}, overs, shifts,
                   statuses = {{"ok", "ok", "ok"}, 3}, checks = {{"pass", "pass", "pass"}, 3};
static char noise[TEXT_BYTES] = "0.2", gemm_shift[TEXT_BYTES] = "0", device[TEXT_BYTES] = "Fake GPU",
            method[TEXT_BYTES] = "1", schema[TEXT_BYTES] = "1", throttled[TEXT_BYTES] = "0",
            impl[TEXT_BYTES] = "fused_fake", control[TEXT_BYTES] = "naive", control_share[TEXT_BYTES] = "20",
            version[TEXT_BYTES] = "fabench 9.9 (fake)", clock_factor[TEXT_BYTES] = "1.0", sleep_s[TEXT_BYTES] = "0",
            arch[TEXT_BYTES], load[TEXT_BYTES], cpus[TEXT_BYTES], cpu_wait[TEXT_BYTES], run[TEXT_BYTES],
            run_instead[TEXT_BYTES], always_instead[TEXT_BYTES];

static const struct {
    const char *name;
    struct list *list; /* one of the two */
    char *text;
} settings[] = {{"times", &times, NULL},
                {"shares", &shares, NULL},
                {"overs", &overs, NULL},
                {"shifts", &shifts, NULL},
                {"statuses", &statuses, NULL},
                {"checks", &checks, NULL},
                {"noise", NULL, noise},
                {"gemm_shift", NULL, gemm_shift},
                {"device", NULL, device},
                {"method", NULL, method},
                {"schema", NULL, schema},
                {"throttled", NULL, throttled},
                {"impl", NULL, impl},
                {"control", NULL, control},
                {"control_share", NULL, control_share},
                {"arch", NULL, arch},
                {"load", NULL, load},
                {"cpus", NULL, cpus},
                {"wait", NULL, cpu_wait},
                {"version", NULL, version},
                {"clock", NULL, clock_factor},
                {"sleep_s", NULL, sleep_s},
                {"run", NULL, run},
                {"run_instead", NULL, run_instead},
                {"always_instead", NULL, always_instead}};

__attribute__((noreturn, format(printf, 1, 2))) static void stop(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("fake_fabench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(99); /* no code of fabench: the test fails */
}

/* ---- settings ---- */

/* "(a b c)": fills the list, returns what follows the bracket. */
static const char *read_list(const char *at, struct list *list)
{
    list->count = 0;
    for (at += strspn(at, " "); *at != ')'; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " )");
        if (!at[length] || length >= sizeof list->items[0] || list->count == PROBLEMS_MAX)
            stop("a list that is not closed or too long: %s", at);
        snprintf(list->items[list->count++], sizeof list->items[0], "%.*s", (int)length, at);
        at += length;
    }
    return at + 1;
}

/* A word or "a text": fills it, returns what follows. */
static const char *read_text(const char *at, char *text)
{
    const bool is_quoted = *at == '"';
    size_t used = 0;
    at += is_quoted;
    while (*at && (is_quoted ? *at != '"' : !strchr(" ;\n", *at))) {
        if (is_quoted && at[0] == '\\' && at[1] == '"')
            at++;
        if (used + 1 >= TEXT_BYTES)
            stop("a text that is too long");
        text[used++] = *at++;
    }
    text[used] = 0;
    if (is_quoted && *at++ != '"')
        stop("a quote that is not closed");
    return at;
}

static void read_settings(const char *path)
{
    static char text[8192];
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    for (const char *at = text + strspn(text, " ;\n"); *at; at += strspn(at, " ;\n")) {
        const size_t length = strcspn(at, "=");
        size_t i = 0;
        while (i < sizeof settings / sizeof settings[0] &&
               (strlen(settings[i].name) != length || strncmp(settings[i].name, at, length) != 0))
            i++;
        if (i == sizeof settings / sizeof settings[0] || !at[length] || (at[length + 1] == '(') != !settings[i].text)
            stop("%s: no such setting: %s", path, at);
        at += length + 1;
        at = settings[i].list ? read_list(at + 1, settings[i].list) : read_text(at, settings[i].text);
    }
}

static double number(const char *text) { return strtod(text, NULL); }

/* ---- processes ---- */

static void replace_by(const char *command)
{
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    stop("/bin/sh cannot be started");
}

/* Runs a command; where it fails, this process ends as it did. */
static void run_before(const char *command)
{
    const int status = system(command);
    if (WIFSIGNALED(status))
        raise(WTERMSIG(status));
    if (status != 0)
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
}

/* Adds the arguments to the log; returns its number of lines before. */
static int add_to_log(const char *path, int argc, char **argv)
{
    int lines = 0;
    FILE *file = fopen(path, "a+e");
    if (!file)
        stop("%s cannot be written", path);
    rewind(file);
    for (int c; (c = getc(file)) != EOF;)
        lines += c == '\n';
    for (int i = 1; i < argc; i++)
        fprintf(file, "%s%s", i > 1 ? " " : "", argv[i]);
    fputc('\n', file);
    fclose(file);
    return lines;
}

/* ---- the record ---- */

static void print_header(int count)
{
    printf("{\"type\":\"header\",\"schema\":%s,\"run_id\":\"fake%d\",\"command_line\":\"fabench --seqlen 128\",",
           schema, count);
    printf("\"device\":{\"name\":\"%s\",\"driver\":\"1.2\"%s%s%s},", device, *arch ? ",\"arch\":\"" : "", arch,
           *arch ? "\"" : "");
    if (*load)
        printf("\"host\":{\"load\":%s%s%s},", load, *cpus ? ",\"cpus\":" : "", cpus);
    printf("\"policy\":{\"method\":\"%s\",\"l2\":\"cold\",\"round_members\":[\"fused\"]}}\n", method);
}

struct result {
    const char *impl, *asked, *status, *check;
    double time_ms;
    const char *share, *over; /* "" = not measured */
    double share_factor;
};

/* One line of the record; `count` is the number of this process, `n` the length of the problem. */
static void print_row(const struct result *r, int count, int n)
{
    const int step = (count * 7919 + n * 31 + (int)strlen(r->impl)) % 13 - 6; /* -6 to 6 */
    const double factor = 1 + number(noise) / 100 * step / 6, ms = r->time_ms * number(clock_factor) * factor;
    const double flops = 4.0 * 64 * n * n, share = number(r->share) * r->share_factor / factor;
    printf(
        "{\"type\":\"row\",\"schema\":%s,\"run_id\":\"fake%d\",\"method\":\"%s\",\"device\":\"%s\",\"driver\":\"1.2\",",
        schema, count, method, device);
    printf(
        "\"impl\":\"%s\",\"asked\":\"%s\",\"mode\":\"fwd\",\"dtype\":\"fp16\",\"causal\":0,\"batch\":1,\"q_heads\":1,"
        "\"kv_heads\":1,",
        r->impl, r->asked);
    printf("\"q_len\":%d,\"kv_len\":%d,\"head_dim\":64,\"layout\":\"bshd\",\"dist\":\"normal\",\"seed\":1,"
           "\"l2\":\"cold\",\"status\":\"%s\"",
           n, n, r->status);
    if (strcmp(r->status, "ok") != 0) {
        printf(",\"check\":\"off\",\"reason\":\"%s on purpose\"}\n", r->status);
        return;
    }
    printf(",\"check\":\"%s\",\"samples\":30,\"time_ms\":%.9g,\"time_ms_ci_lo\":%.9g,\"time_ms_ci_hi\":%.9g,"
           "\"throttled_pct\":%s,\"sm_clock_mhz\":1500",
           r->check, ms, ms * 0.999, ms * 1.001, throttled);
    if (*cpu_wait)
        printf(",\"cpu_wait_pct\":%s", cpu_wait);
    if (strcmp(r->check, "fail") != 0)
        printf(",\"tflops\":%.9g", flops / ms * 1e-9);
    if (strcmp(r->check, "pass") == 0)
        printf(",\"err_used\":0.5");
    if (*r->share)
        printf(",\"pct_of_gemm\":%.9g,\"gemm_tflops\":%.9g", share, flops / ms * 1e-9 / share * 100);
    if (*r->over)
        printf(",\"speedup_vs_naive\":%.9g", number(r->over) / factor);
    if (strcmp(r->check, "fail") == 0)
        printf(",\"err_tensor\":\"o\",\"err_used\":7.5");
    printf("}\n");
}

static const char *item(const struct list *list, int i) { return i < list->count ? list->items[i] : ""; }

/* Both rows of a problem. Returns the exit code that it asks for. `before`: processes before this one. */
static int print_problem(int p, const char *asked, bool is_checked, int before)
{
    const int n = 128 << p, cycle = before % 3 - 1;
    const char *check = is_checked ? item(&checks, p) : "off";
    const bool fails = strcmp(check, "fail") == 0;
    const struct result own = {.impl = impl,
                               .asked = asked,
                               .status = item(&statuses, p),
                               .check = check,
                               .time_ms = number(item(&times, p)) + cycle * number(item(&shifts, p)),
                               .share = item(&shares, p),
                               .over = item(&overs, p),
                               .share_factor = 1 + cycle * number(gemm_shift)};
    print_row(&own, before + 1, n);
    const struct result beside = {.impl = control,
                                  .asked = control,
                                  .status = "ok",
                                  .check = fails ? "pass" : check,
                                  .time_ms = 5,
                                  .share = *own.share ? control_share : "",
                                  .over = "",
                                  .share_factor = own.share_factor};
    if (*control)
        print_row(&beside, before + 1, n);
    return strcmp(own.status, "error") == 0 ? 6 : fails;
}

int main(int argc, char **argv)
{
    static char self[PATH_MAX], path[PATH_MAX + 8], asked[64] = "fused";
    const char *points = NULL;
    bool is_checked = false;
    int code = 0;
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0)
        stop("/proc/self/exe cannot be read");
    snprintf(path, sizeof path, "%s.conf", self);
    read_settings(path);
    if (number(sleep_s) > 0)
        usleep((useconds_t)(1e6 * number(sleep_s)));
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        puts(version);
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--check=", 8) == 0)
            is_checked = strcmp(argv[i] + 8, "full") == 0;
        if (strncmp(argv[i], "--points=", 9) == 0)
            points = argv[i] + 9;
        if (strncmp(argv[i], "--impl=", 7) == 0) {
            const char *comma = strchr(argv[i], ',');
            snprintf(asked, sizeof asked, "%.*s", (int)strcspn(argv[i] + 7, ","), argv[i] + 7);
            if (comma && !*control) {
                fprintf(stderr, "fabench: --impl %s: unknown implementation\n", comma + 1);
                return 2;
            }
        }
    }
    if (*always_instead)
        replace_by(always_instead);
    snprintf(path, sizeof path, "%s.log", self);
    const int before = add_to_log(path, argc, argv);
    if (!is_checked && *run_instead)
        replace_by(run_instead);
    if (!is_checked && *run)
        run_before(run);
    print_header(before + 1);
    for (int p = 0; p < times.count; p++) {
        char word[16];
        snprintf(word, sizeof word, ",%d,", p);
        char *list = NULL;
        const bool is_asked = !points || (asprintf(&list, ",%s,", points) > 0 && strstr(list, word));
        free(list);
        const int wanted = is_asked ? print_problem(p, asked, is_checked, before) : 0;
        code = wanted > code ? wanted : code;
    }
    return code;
}
