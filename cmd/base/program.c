/* The name of the program in hints. */
#include "cmd/base/program.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/text.h"

static const char *name_set = NULL;

void program_set_name(const char *argv0) { name_set = argv0; }

const char *program_name(void)
{
    static char *quoted = NULL;
    struct text text = {0};
    const char *const called_as = getenv("FABENCH_CALLED_AS");
    text_add_quoted(&text, called_as && *called_as ? called_as : name_set && *name_set ? name_set : "fabench");
    free(quoted);
    quoted = text_take(&text);
    return quoted;
}

char *program_command(const char *line)
{
    static const char word[] = "fabench";
    const size_t length = sizeof word - 1;
    if (strncmp(line, word, length) != 0 || (line[length] && line[length] != ' '))
        return xstrdup(line);
    return xasprintf("%s%s", program_name(), line + length);
}
