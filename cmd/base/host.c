/* Reads /proc and /sys. A file that is absent or says something else sets no limit. */
#include "cmd/base/host.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/terminal.h"

/* The first line of a file without its newline; false where there is none. */
static bool read_line(const char *root, const char *path, char *line, size_t size)
{
    char whole[PATH_MAX];
    FILE *file;
    bool good;
    if (snprintf(whole, sizeof whole, "%s%s", root, path) >= (int)sizeof whole || !(file = fopen(whole, "re")))
        return false;
    good = fgets(line, (int)size, file) != NULL;
    fclose(file);
    if (good)
        line[strcspn(line, "\n")] = 0;
    return good;
}

/* The text after `key` in the first line of a file that begins with it. */
static bool read_key(const char *root, const char *path, const char *key, char *text, size_t size)
{
    char whole[PATH_MAX], line[4096];
    bool found = false;
    snprintf(whole, sizeof whole, "%s%s", root, path);
    FILE *file = fopen(whole, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        found = strncmp(line, key, strlen(key)) == 0;
        if (found) {
            const char *at = line + strlen(key);
            snprintf(text, size, "%.*s", (int)strcspn(at + strspn(at, " \t"), "\n"), at + strspn(at, " \t"));
        }
    }
    if (file)
        fclose(file);
    return found;
}

bool host_cpu_name(const char *root, char *name, size_t size)
{
    static const char path[] = "/proc/cpuinfo";
    char family[16], model[16], word[64];
    if (!read_key(root, path, "model name\t:", word, sizeof word) || !word[0])
        return false;
    snprintf(name, size, "%s", word);
    if (!strpbrk(word, "0123456789") && read_key(root, path, "cpu family\t:", family, sizeof family) &&
        read_key(root, path, "model\t\t:", model, sizeof model))
        snprintf(name, size, "%.40s (%s/%s)", word, family, model);
    return true;
}

void host_name(char *name, size_t size)
{
    char own[256] = "";
    const char *named = getenv("FABENCH_HOST");
    if (gethostname(own, sizeof own - 1) != 0)
        own[0] = 0;
    text_clean(named && *named ? named : own, name, size);
}

/* A whole number at the start of a text; -1 where there is none. */
static int64_t number_at(const char *text)
{
    char *end;
    const long long value = strtoll(text, &end, 10);
    return end == text || value < 0 ? -1 : value;
}

/* ---- CPUs ---- */

/* The number of CPUs in "0-3,8", and the first of them. */
static int count_cpus(const char *list, int *first)
{
    int count = 0;
    *first = 0;
    for (const char *at = list; *at >= '0' && *at <= '9';) {
        char *end;
        const long from = strtol(at, &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
        if (to < from || to - from > HOST_THREADS_MAX)
            return 0;
        if (!count)
            *first = (int)from;
        count += (int)(to - from) + 1;
        at = *end == ',' ? end + 1 : end;
    }
    return count;
}

static int64_t cache_bytes(const char *root, int cpu)
{
    int64_t bytes = 0, level = 0;
    for (int index = 0; index < 8; index++) {
        char path[120], text[40];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/level", cpu, index);
        if (!read_line(root, path, text, sizeof text) || number_at(text) < level)
            continue;
        const int64_t here = number_at(text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/size", cpu, index);
        if (!read_line(root, path, text, sizeof text) || number_at(text) <= 0)
            continue;
        const char unit = text[strspn(text, "0123456789")];
        level = here;
        bytes = number_at(text) * (unit == 'K' ? 1 << 10 : unit == 'M' ? 1 << 20 : unit == 'G' ? 1 << 30 : 1);
    }
    return level >= 2 ? bytes : 0;
}

/* ---- control groups ---- */

/* The quota of one group in CPUs; +inf = none. */
static double quota_of(const char *root, const char *folder, bool is_v2)
{
    char path[PATH_MAX], text[80];
    int64_t quota = -1, period = -1;
    if (is_v2) {
        snprintf(path, sizeof path, "%s/cpu.max", folder);
        if (!read_line(root, path, text, sizeof text) || (quota = number_at(text)) < 0)
            return INFINITY; /* absent, or "max" */
        period = number_at(text + strcspn(text, " "));
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
        quota = read_line(root, path, text, sizeof text) ? number_at(text) : -1;
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
        period = read_line(root, path, text, sizeof text) ? number_at(text) : -1;
    }
    return quota > 0 && period > 0 ? (double)quota / (double)period : INFINITY;
}

/* The memory of one group in bytes; INT64_MAX = no limit. */
static int64_t memory_of(const char *root, const char *folder, bool is_v2)
{
    char path[PATH_MAX], text[80];
    snprintf(path, sizeof path, "%s/%s", folder, is_v2 ? "memory.max" : "memory.limit_in_bytes");
    const int64_t bytes = read_line(root, path, text, sizeof text) ? number_at(text) : -1;
    return bytes > 0 ? bytes : INT64_MAX;
}

/* Applies the limits of a group and of all groups above it. mount: where its tree is; group: its path there. In a
 * container the tree may begin at the group itself: then the path does not exist, and the root of the tree counts. */
static void apply_group(const char *root, const char *mount, const char *group, bool is_v2, bool has_cpu,
                        bool has_memory, struct host_limits *h)
{
    char folder[PATH_MAX];
    if (snprintf(folder, sizeof folder, "%s%s", mount, group) >= (int)sizeof folder)
        return;
    for (;;) {
        const size_t length = strlen(folder);
        if (length > strlen(mount) && folder[length - 1] == '/')
            folder[length - 1] = 0;
        if (has_cpu)
            h->cpu_quota = fmin(h->cpu_quota, quota_of(root, folder, is_v2));
        if (has_memory) {
            const int64_t bytes = memory_of(root, folder, is_v2);
            if (h->memory_limit == 0 || bytes < h->memory_limit)
                h->memory_limit = bytes;
        }
        char *slash = strrchr(folder, '/');
        if (!slash || strlen(folder) <= strlen(mount))
            return;
        *slash = 0;
    }
}

/* Is a word in a list with commas? */
static bool has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == 0))
            return true;
    return false;
}

/* One line of /proc/self/cgroup: "0::/path" of version 2, "3:cpu,cpuacct:/path" of version 1. */
static void apply_line(const char *root, char *line, struct host_limits *h)
{
    char mount[PATH_MAX];
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return;
    *group++ = 0;
    controllers++;
    if (!*controllers) {
        apply_group(root, "/sys/fs/cgroup", group, true, true, true, h);
        apply_group(root, "/sys/fs/cgroup/unified", group, true, true, true, h);
        return;
    }
    const bool has_cpu = has_word(controllers, "cpu"), has_memory = has_word(controllers, "memory");
    if (!has_cpu && !has_memory)
        return;
    snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controllers);
    apply_group(root, mount, group, false, has_cpu, has_memory, h);
    snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", has_cpu ? "cpu" : "memory");
    apply_group(root, mount, group, false, has_cpu, has_memory, h);
}

static void apply_groups(const char *root, struct host_limits *h)
{
    char path[PATH_MAX], line[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        apply_line(root, line, h);
    }
    if (file)
        fclose(file);
}

/* ---- the whole ---- */

struct host_limits host_limits(const char *root)
{
    struct host_limits h = {.cpu_quota = INFINITY, .load = NAN};
    char text[4096];
    int first = 0;
    if (read_key(root, "/proc/self/status", "Cpus_allowed_list:", text, sizeof text) ||
        read_line(root, "/sys/devices/system/cpu/online", text, sizeof text))
        h.cpus = count_cpus(text, &first);
    if (read_key(root, "/proc/meminfo", "MemTotal:", text, sizeof text) && number_at(text) > 0)
        h.memory_bytes = number_at(text) << 10;
    apply_groups(root, &h);
    if (h.memory_limit == 0 || h.memory_limit > h.memory_bytes)
        h.memory_limit = h.memory_bytes;
    const double threads = floor(fmin(h.cpus > 0 ? h.cpus : 1, h.cpu_quota));
    h.threads = threads < 1 ? 1 : (int)threads;
    h.l3_bytes = cache_bytes(root, first);
    if (read_line(root, "/proc/loadavg", text, sizeof text)) {
        char *end;
        const double load = strtod(text, &end);
        h.load = end != text && load >= 0 ? load : NAN;
    }
    return h;
}

/* ---- threads ---- */

bool host_thread_times(const char *root, struct host_thread_times *times)
{
    char path[PATH_MAX], text[120];
    bool is_known = false;
    *times = (struct host_thread_times){0, 0};
    snprintf(path, sizeof path, "%s/proc/self/task", root);
    DIR *const tasks = opendir(path);
    for (const struct dirent *task; tasks && (task = readdir(tasks)) != NULL;) {
        double ran_ns, waited_ns;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", task->d_name);
        if (!read_line(root, path, text, sizeof text) || sscanf(text, "%lf %lf", &ran_ns, &waited_ns) != 2)
            continue; /* the folders above, or a thread that has ended */
        times->ran_s += ran_ns * 1e-9;
        times->waited_s += waited_ns * 1e-9;
        is_known = true;
    }
    if (tasks)
        closedir(tasks);
    return is_known;
}

double host_wait_pct(const struct host_thread_times *from, const struct host_thread_times *to)
{
    const double ran_s = to->ran_s - from->ran_s, waited_s = to->waited_s - from->waited_s;
    /* Less than before: a thread has ended, and its times are no longer there. */
    return ran_s > 0 && waited_s >= 0 ? 100 * waited_s / (ran_s + waited_s) : NAN;
}

int host_threads_wanted(const char *value)
{
    char *end;
    if (!value || !*value)
        return 0;
    const long long wanted = strtoll(value, &end, 10);
    return end == value || (*end && *end != ',') || wanted < 1 || wanted > HOST_THREADS_MAX ? -1 : (int)wanted;
}
