/* Checks whether a path can be used, before any work is done. The checks do not change the disk; only path_make_dirs
 * and path_discard do. */
#ifndef FABENCH_PATHS_H
#define FABENCH_PATHS_H

#include <stdbool.h>
#include <stdio.h>

#include "cmd/base/log.h"

/* Each returns true, or false with the rest of a sentence that begins with the path ("is a directory; ..."). This one
 * checks a file to be written; "-" has no special meaning. dir_to_be (may be NULL): a directory that the program will
 * create before it writes. */
bool path_takes_file(const char *path, const char *dir_to_be, struct reason *why);
/* A directory to be written to; it and its parents may have to be made. */
bool path_takes_dir(const char *path, struct reason *why);
bool path_has_dir(const char *path, struct reason *why);  /* an existing directory that can be read */
bool path_has_file(const char *path, struct reason *why); /* an existing file that can be read */

/* True when both paths name the same regular file, also when it does not exist yet. */
bool path_is_same(const char *a, const char *b);

/* Removes a file that an earlier run wrote; for a link, truncates its target. What is not a regular file (a pipe, a
 * terminal) is left alone. True also when there is no such file. False after a sentence on stderr. */
bool path_discard(const char *path);

/* mkdir -p. False after a sentence on stderr. */
bool path_make_dirs(const char *path);

/* A path for use in a sentence: complete up to 199 bytes, longer ones shortened by text_cut_middle, so that the rest of
 * the sentence has room and the path cannot be taken for another file's. */
struct shown_path {
    char text[200];
};
struct shown_path path_shown(const char *path);

/* Passes over the byte-order mark (EF BB BF) with which some editors begin a text file in UTF-8. Returns its bytes: 3,
 * or 0 where there is none; the file is then as it was. It must be at its beginning and seekable. */
int file_skip_mark(FILE *);

#endif
