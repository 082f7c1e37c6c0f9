/* How long the name of an implementation may be, in records and on the command line. */
#ifndef FABENCH_BASE_IMPL_NAME_H
#define FABENCH_BASE_IMPL_NAME_H

/* With its NUL: NAME:VARIANT:deterministic:invariant:fast, each as long as it may be. */
enum { IMPL_NAME_SIZE = 80 };

#endif
