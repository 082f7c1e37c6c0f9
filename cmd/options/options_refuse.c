/* Prints the error line for an invalid option. */
#include "cmd/options/options_refuse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/log.h"

bool options_refuse(const char *name, const char *value, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    int length = snprintf(text, sizeof text, "%.80s%s%s%.100s%s: ", name, value ? " " : "",
                          value && !*value ? "''" : "", value ? value : "", value && strlen(value) > 100 ? "..." : "");
    va_start(arguments, format);
    vsnprintf(text + length, sizeof text - (size_t)length, format, arguments);
    va_end(arguments);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = '?';
    log_error("%s", text);
    return false;
}
