/* Exit codes in the words of others: monitoring (Nagios) and batch systems (Slurm), which know fewer than this program
 * and read some of them as another thing. */
#ifndef FABENCH_EXIT_STYLE_H
#define FABENCH_EXIT_STYLE_H

enum exit_style { EXIT_STYLE_PLAIN, EXIT_STYLE_NAGIOS, EXIT_STYLE_SLURM };

/* What a code says about the node: nothing is wrong; it is not decided; a result is wrong or a board is slow; nothing
 * was found out, as after a usage error, without a device or after a time limit. The values are Nagios' codes. */
enum node_state { NODE_OK, NODE_WARNING, NODE_CRITICAL, NODE_UNKNOWN };
enum node_state exit_style_state(int exit_code);
const char *exit_style_state_name(enum node_state); /* OK WARNING CRITICAL UNKNOWN */

/* The code to end with. nagios: the state; slurm: 1 where the state is critical, else 0, so that no other code drains a
 * node. */
int exit_style_code(enum exit_style, int exit_code);

/* The style on a command line, also on one that is not valid otherwise. */
enum exit_style exit_style_of(int argc, char **argv);

extern const char *const exit_style_names[]; /* plain nagios slurm; NULL ends them */

#endif
