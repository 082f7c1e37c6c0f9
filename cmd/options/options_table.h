/* The rows of the option table, for the options_*.c files alone. */
#ifndef FABENCH_OPTIONS_TABLE_H
#define FABENCH_OPTIONS_TABLE_H

#include "cmd/options/options.h"

enum option_kind {
    KIND_FLAG,       /* bool */
    KIND_CHOICE,     /* an enum */
    KIND_CHOICE_SET, /* bool[], comma-separated */
    KIND_CAUSAL,     /* bool[2]; the value only after '=' */
    KIND_NO_CAUSAL,  /* the same field, without a value */
    KIND_COUNT,      /* int64_t or uint64_t */
    KIND_COUNT_LIST, /* struct int_list */
    KIND_DIMS,       /* struct int_list of dims_of; 192x128 beside plain numbers */
    KIND_WINDOWS,    /* struct int_list; `none` or -1 is -1 */
    KIND_SHAPES,     /* struct int_list; 32x8,64x8 is 32 8 64 8 */
    KIND_REAL,       /* double */
    KIND_REAL_LIST,  /* struct real_list, comma-separated */
    KIND_PERCENT,    /* double */
    KIND_NAMES,      /* struct name_list, comma-separated */
    KIND_LIBRARY,    /* struct name_list, one path each time */
    KIND_WORDS,      /* struct name_list, comma-separated, of any characters but commas */
    KIND_TEXT,       /* char * */
    KIND_OUT_FILE,   /* char *; checked by options_check */
    KIND_OUT_DIR,    /* char * */
    KIND_IN_DIR,     /* char * */
    KIND_IN_FILE,    /* char *; exists and can be read */
    KIND_TEXTS,      /* struct name_list, one text each time */
    KIND_DEVICE,     /* enum device_choice and the ordinal */
    KIND_HELP,
    KIND_VERSION
};

enum option_group { GROUP_PROBLEM, GROUP_IMPL, GROUP_CHECK, GROUP_MEASURE, GROUP_GATES, GROUP_OUTPUT, GROUP_COUNT };

struct option_group_def {
    const char *name;  /* of --help=NAME */
    const char *title; /* says what the group is */
};
extern const struct option_group_def option_groups[GROUP_COUNT];

struct option_def {
    const char *name, *alias; /* as typed; two rows may have one name, for different commands */
    enum option_kind kind;
    size_t offset;              /* offset of the field in struct options */
    size_t given_offset;        /* offset of the bool that says whether it was given; 0 = none */
    double min, max;            /* counts, reals, per cents; each value of a list */
    int64_t multiple;           /* 0 = any */
    const char *fallback;       /* the default as --help shows it; NULL = none */
    bool is_late;               /* the default depends on more than the option: the field stays "not given" */
    const char *unit;           /* name of the value in --help; NULL = the choices */
    const char *const *choices; /* terminated by NULL; the index is the value */
    int choices_shown;          /* in --help; 0 = all */
    const char *help;           /* a few words, for --help; NULL = joined with the next row, which has them */
    const char *detail;         /* whole sentences, for the long help and the manual; NULL = the text of `help` */
    enum option_group group;
    unsigned commands; /* enum command_set */
    bool is_joined;    /* --help shows it on one line with the next row, whose help describes both */
    bool is_rare;      /* in the long help only */
    bool is_hidden;    /* not in any help: for processes that the program starts itself */
};

extern const struct option_def option_table[];
extern const int option_count;

/* One pass over a command line. */
struct parse {
    struct options *o;
    const struct command_def *command;
    bool is_named;         /* the command was typed */
    bool is_replay;        /* parses another run's command line: its outputs are ignored */
    const char **value;    /* value of each row of the table, as typed, "" for a flag; NULL = not given */
    const char **replaced; /* the first value of an option that was given again; NULL = given once at most */
};

/* The row whose name or alias is word[0, length), preferably one of this command; NULL when there is none. */
const struct option_def *option_find(const struct command_def *, const char *word, size_t length);
bool option_takes_value(const struct option_def *);
bool option_serves(const struct option_def *, const struct command_def *);
bool option_is_preset(const struct option_def *);
bool option_is_dtype(const struct option_def *);

/* Rules between options (options_rules.c): sizes, outputs, pairs that contradict each other; and how an invalid option
 * is refused. */

/* Call it after all options were parsed. Returns false after a sentence on stderr. */
bool options_check(const struct parse *);

/* "fabench: NAME VALUE: sentence" on one line of stderr; value NULL = none. Always false. */
__attribute__((format(printf, 3, 4))) bool options_refuse(const char *name, const char *value, const char *format, ...);

#endif
