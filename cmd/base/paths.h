/* Can this path be used as the user wants to? Answered before any work, without changing the disk; only
 * path_make_dirs and path_forget change it. */
#ifndef FABENCH_PATHS_H
#define FABENCH_PATHS_H

#include <stdbool.h>

#include "cmd/base/reason.h"

/* Each returns true, or false with the rest of a sentence that begins with the path ("is a directory; ...").
 * A file to be written: "-" is not known here. dir_to_be (may be NULL): a directory that will exist by then. */
bool path_takes_file(const char *path, const char *dir_to_be, struct reason *why);
/* A directory to be written to; it and its parents may have to be made. */
bool path_takes_dir(const char *path, struct reason *why);
bool path_has_dir(const char *path, struct reason *why);  /* an existing directory that can be read */
bool path_has_file(const char *path, struct reason *why); /* an existing file that can be read */

/* Would both name the same regular file? Also when neither exists yet. */
bool path_is_same(const char *a, const char *b);

/* Leaves nothing of a file that an earlier run wrote: removes it, or empties what a link leads to; what is no regular
 * file (a pipe, a terminal) stays. True when there is none. False after a sentence on stderr. */
bool path_forget(const char *path);

/* mkdir -p. False after a sentence on stderr. */
bool path_make_dirs(const char *path);

/* A path as a sentence shows it: whole up to 199 bytes, longer ones as text_cut_middle cuts them, so that it is not the
 * name of another file and the rest of the sentence has room. */
struct shown_path {
    char text[200];
};
struct shown_path path_shown(const char *path);

#endif
