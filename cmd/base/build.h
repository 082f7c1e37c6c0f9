/* Identity of this build, for --version and the record header. */
#ifndef FABENCH_BASE_BUILD_H
#define FABENCH_BASE_BUILD_H

const char *build_version(void);     /* "0.1.0" */
const char *build_commit(void);      /* of the checkout, with "-dirty" where it had changes; "unknown" without git */
const char *build_description(void); /* build type, compiler, CUDA toolkit and code targets */

#endif
