/* The elements that JUnit files have in common. */
#include "cmd/base/junit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/xml.h"

void junit_add(struct junit *j, const char *class_name, const char *name, enum junit_result result, const char *message)
{
    j->cases = xrealloc(j->cases, (unsigned long)(j->count + 1) * sizeof *j->cases);
    j->cases[j->count++] = (struct junit_case){
        .class_name = xstrdup(class_name), .name = xstrdup(name), .message = xstrdup(message), .result = result};
}

void junit_detail(struct junit *j, double time_s, const char *body)
{
    struct junit_case *const c = &j->cases[j->count - 1];
    c->time_s = time_s > 0 ? time_s : 0;
    free(c->body);
    c->body = body ? xstrdup(body) : NULL;
}

int junit_count(const struct junit *j, enum junit_result result)
{
    int count = 0;
    for (int i = 0; i < j->count; i++)
        count += j->cases[i].result == result;
    return count;
}

static void put_case(FILE *out, const struct junit_case *c)
{
    static const char *const elements[] = {[JUNIT_PASSED] = "system-out",
                                           [JUNIT_SKIPPED] = "skipped",
                                           [JUNIT_FAILED] = "failure",
                                           [JUNIT_ERROR] = "error"};
    fputs("    <testcase classname=\"", out);
    xml_put_text(out, c->class_name);
    fputs("\" name=\"", out);
    xml_put_text(out, c->name);
    fprintf(out, "\" time=\"%.3f\"><%s", c->time_s, elements[c->result]);
    if (c->result != JUNIT_PASSED) {
        fputs(" message=\"", out);
        xml_put_text(out, c->message);
        fputc('"', out);
    }
    fputc('>', out);
    xml_put_text(out, c->result == JUNIT_PASSED ? c->message : c->body ? c->body : "");
    fprintf(out, "</%s></testcase>\n", elements[c->result]);
}

bool junit_write(const struct junit *j, const char *suite, const char *summary, const char *path)
{
    FILE *out = fopen(path, "we");
    if (out) {
        fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"", out);
        xml_put_text(out, suite);
        fprintf(out, "\" tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\">\n", j->count,
                junit_count(j, JUNIT_FAILED), junit_count(j, JUNIT_ERROR), junit_count(j, JUNIT_SKIPPED));
        for (int i = 0; i < j->count; i++)
            put_case(out, &j->cases[i]);
        fputs("    <system-out>", out);
        xml_put_text(out, summary);
        fputs("</system-out>\n  </testsuite>\n</testsuites>\n", out);
    }
    const bool is_written = out && !ferror(out);
    const bool is_closed = out && fclose(out) == 0;
    if (!is_written || !is_closed)
        log_error("%s: cannot be written: %s", path, strerror(errno));
    return is_written && is_closed;
}

void junit_free(struct junit *j)
{
    for (int i = 0; i < j->count; i++) {
        free(j->cases[i].class_name);
        free(j->cases[i].name);
        free(j->cases[i].message);
        free(j->cases[i].body);
    }
    free(j->cases);
    *j = (struct junit){0};
}
