/* The manual made from the option table: docs/cli.md and the man page. */
#ifndef FABENCH_OPTIONS_MANUAL_H
#define FABENCH_OPTIONS_MANUAL_H

/* To stdout. The Markdown depends on nothing but the tables: every build prints the same. */
void options_print_markdown(void);
void options_print_man(void);

#endif
