/* The commands as a table. */
#include "cmd/options/command_list.h"

#define COMMAND_ROW(id, name, arguments, takes_words, summary) {name, arguments, takes_words, summary, COMMAND_##id},
const struct command_def command_table[] = {COMMAND_LIST(COMMAND_ROW)};
