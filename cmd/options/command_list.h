/* The commands of the program. A new command needs one line in COMMAND_LIST, a row in cmd/commands.c, which names the
 * function it runs, and, where it has a new folder, that folder's line in cmd/CMakeLists.txt. */
#ifndef FABENCH_COMMAND_LIST_H
#define FABENCH_COMMAND_LIST_H

#include <stdbool.h>

/* COMMAND(ID, name as typed, arguments as --help shows them, takes positional arguments, summary), in the order of
 * --help. The first one is the default. */
#define COMMAND_LIST(COMMAND) \
    COMMAND(SWEEP, "sweep", "", false, "sweep, check, record, chart (the default command)") \
    COMMAND(VERIFY, "verify", "", false, "correctness only, on the hard shapes; no timing") \
    COMMAND(GATE, "gate", "--baseline A.jsonl ", false, "against a stored baseline; now, or --current B.jsonl") \
    COMMAND(AB, "ab", "OLD NEW ", true, "two programs or kernel libraries, in fresh processes") \
    COMMAND(TUNE, "tune", "[A.jsonl ...] ", true, "which variant of a kernel is the fastest, problem by problem") \
    COMMAND(REPORT, "report", "[LABEL=]A.jsonl ... ", true, "devices side by side: Markdown, CSV, HTML") \
    COMMAND(PLOT, "plot", "A.jsonl ... ", true, "charts from records, no device needed") \
    COMMAND(INFO, "info", "", false, "device, limits, clocks, power, versions, measured ceilings") \
    COMMAND(LIST, "list", "", false, "implementations: what each accepts, why each refuses here") \
    COMMAND(SELFTEST, "selftest", "", false, "puts faults into right results; the judge must catch each") \
    COMMAND(HELP, "help", "[COMMAND|reference] ", true, "this page, one command's options, or the reference page")

#define COMMAND_ID(id, ...) COMMAND_##id,
enum command { COMMAND_LIST(COMMAND_ID) };
#undef COMMAND_ID

#define COMMAND_ONE(...) +1
enum { COMMAND_COUNT = 0 COMMAND_LIST(COMMAND_ONE) };
#undef COMMAND_ONE

/* Sets of commands, for the rows of the option table: bits 1 << enum command. */
#define COMMAND_BIT(id, ...) FOR_##id = 1 << COMMAND_##id,
enum command_set {
    COMMAND_LIST(COMMAND_BIT) FOR_RUNS = FOR_SWEEP | FOR_VERIFY,
    FOR_GATES = FOR_GATE | FOR_AB,
    FOR_TIMED = FOR_SWEEP | FOR_GATES | FOR_TUNE,                  /* all that take problems and times of the user */
    FOR_PROBLEMS = FOR_RUNS | FOR_GATES | FOR_SELFTEST | FOR_TUNE, /* all that run problems on a device */
    FOR_ANY = (1 << COMMAND_COUNT) - 1
};
#undef COMMAND_BIT

struct command_def {
    const char *name, *arguments;
    bool takes_words;
    const char *summary;
    enum command command; /* the index of the row */
};
extern const struct command_def command_table[COMMAND_COUNT];

#endif
