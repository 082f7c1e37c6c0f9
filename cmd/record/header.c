/* Reading a record's header. */
#include "cmd/record/header.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/text.h"

json_t *header_value(const json_t *header, const char *path)
{
    const char *dot = strchr(path, '.');
    char object[24];
    snprintf(object, sizeof object, "%.*s", (int)(dot - path), path);
    return json_object_get(json_object_get(header, object), dot + 1);
}

char *header_value_text(const json_t *value, char *buffer, size_t size)
{
    char *json = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(10)) : NULL;
    snprintf(buffer, size, "%s", json ? json : "absent");
    free(json);
    return buffer;
}

const char *header_difference(const json_t *a, const json_t *b, const char *const *paths, int count, char *a_text,
                              char *b_text, size_t size)
{
    for (int i = 0; i < count; i++) {
        const json_t *one = header_value(a, paths[i]), *two = header_value(b, paths[i]);
        if (one == two || json_equal(one, two))
            continue;
        header_value_text(one, a_text, size);
        header_value_text(two, b_text, size);
        return paths[i];
    }
    return NULL;
}

char *header_line(const json_t *header)
{
    const json_t *device = json_object_get(header, "device"), *tool = json_object_get(header, "tool");
    const json_t *limit = json_object_get(device, "power_limit_w"), *ecc = json_object_get(device, "ecc");
    const json_t *driver = json_object_get(device, "driver"), *others = json_object_get(device, "other_processes");
    const json_t *threads = json_object_get(device, "threads");
    const char *clocks = json_string_value(header_value(header, "policy.clocks"));
    struct text line = {0};
    text_add(&line, "%s %.0f GiB", json_string_value(json_object_get(device, "name")),
             json_number_value(json_object_get(device, "memory_gb")) * 1e9 / (1 << 30));
    if (threads)
        text_add(&line, ", %d threads", (int)json_integer_value(threads));
    if (limit)
        text_add(&line, ", %.0f W", json_number_value(limit));
    if (ecc)
        text_add(&line, ", ECC %s", json_is_true(ecc) ? "on" : "off");
    if (driver)
        text_add(&line, ", driver %s", json_string_value(driver));
    if (clocks && strcmp(clocks, "unknown"))
        text_add(&line, ", clocks %s", clocks);
    if (others && json_integer_value(others) > 0)
        text_add(&line, ", %d other process%s", (int)json_integer_value(others),
                 json_integer_value(others) == 1 ? "" : "es");
    else if (others)
        text_add(&line, ", no other process");
    text_add(&line, " | fabench %s (%.12s)", json_string_value(json_object_get(tool, "version")),
             json_string_value(json_object_get(tool, "commit")));
    return text_take(&line);
}

char *header_folder_name(const json_t *header)
{
    const char *name = json_string_value(header_value(header, "device.name"));
    const char *started = json_string_value(json_object_get(header, "started_utc"));
    char slug[40], stamp[24];
    size_t n = 0, s = 0;
    if (!strncmp(name, "NVIDIA ", 7))
        name += 7;
    if (header_value(header, "device.threads"))
        name = "cpu";
    for (; *name && n + 1 < sizeof slug; name++)
        if (isalnum((unsigned char)*name))
            slug[n++] = (char)tolower((unsigned char)*name);
        else if (n && slug[n - 1] != '-')
            slug[n++] = '-';
    slug[n] = 0;
    for (; *started && s + 1 < sizeof stamp; started++)
        if (*started != '-' && *started != ':')
            stamp[s++] = *started;
    stamp[s] = 0;
    return xasprintf("%s-%s", slug, stamp);
}
