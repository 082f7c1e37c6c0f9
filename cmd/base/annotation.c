#include "cmd/base/annotation.h"

#include <stdlib.h>
#include <string.h>

bool annotation_is_wanted(void)
{
    const char *const in_actions = getenv("GITHUB_ACTIONS");
    return in_actions && strcmp(in_actions, "true") == 0;
}

/* Per cent, line ends and, in properties, the separators are written as %XX. */
static void put_escaped(FILE *out, const char *text, bool is_property)
{
    for (; *text; text++)
        if (*text == '%' || *text == '\r' || *text == '\n' || (is_property && (*text == ':' || *text == ',')))
            fprintf(out, "%%%02X", (unsigned char)*text);
        else
            fputc(*text, out);
}

void annotation_put(FILE *out, const char *level, const char *title, const char *text)
{
    fprintf(out, "::%s title=", level);
    put_escaped(out, title, true);
    fputs("::", out);
    put_escaped(out, text, false);
    fputc('\n', out);
}
