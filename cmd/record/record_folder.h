/* The record files of a folder. */
#ifndef FABENCH_RECORD_FOLDER_H
#define FABENCH_RECORD_FOLDER_H

#include "cmd/base/text.h"

/* Calls take(context, file) for `path` where it is a file, else for each file named *.jsonl in it and in folders below,
 * a link to nothing too, in the order of their names. Folders that cannot be read are said and added to `unread`. False
 * where there was one, or a call returned false; all others are called nevertheless. */
bool record_folder_each(const char *path, bool (*take)(void *context, const char *file), void *context,
                        struct name_list *unread);

#endif
