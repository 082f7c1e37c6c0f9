/* Width and colour, from the terminal driver and the environment. */
#include "cmd/base/terminal.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

int terminal_width(void)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    const long wanted = columns ? strtol(columns, NULL, 10) : 0;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return wanted > 0 && wanted < 1000 ? (int)wanted : 110;
}

bool terminal_color(enum color_choice choice)
{
    if (choice != COLOR_AUTO)
        return choice == COLOR_ALWAYS;
    const char *none = getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) && !(none && *none);
}
