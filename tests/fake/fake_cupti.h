/* The controls of the fake CUPTI (fake_cupti.c): a test loads the library, finds `fake_cupti_state` in it and sets its
 * answers. For the program itself they come from the environment: FAKE_CUPTI_FAILS=FUNCTION:STATUS,
 * FAKE_CUPTI_VALUES=METRIC=VALUE,..., of each range. All values are invented. */
#ifndef FABENCH_TEST_FAKE_CUPTI_H
#define FABENCH_TEST_FAKE_CUPTI_H

#include <stdbool.h>

enum { FAKE_METRICS_MAX = 16 };

struct fake_cupti {
    const char *failing; /* the function that answers `status`; NULL = all succeed */
    int status;
    int metrics_per_pass, passes_per_metric; /* 0 = 1 */
    const char *unknown;                     /* metrics whose name has this part are not known; NULL = all are */
    struct {
        const char *metric;
        double value, behind; /* of the first range and of the second; others are 0 */
    } values[FAKE_METRICS_MAX];
    int hosts, profilers, initialized; /* open now */
    int decoded;                       /* how often what was counted was asked for */
    int pass, passes_more;             /* of the configuration, ended; more than the library says before */
    bool is_started, is_pushed;
};

struct fake_cupti *fake_cupti_state(void);
typedef struct fake_cupti *(*fake_cupti_state_function)(void);

#ifdef FAKE_CUPTI /* the unit tests, each of which includes this once */
#include <dlfcn.h>
#include <stdlib.h>

static struct fake_cupti *fake_cupti;

/* Makes the fake the program's CUPTI: a GH100 on which all succeeds, four metrics in a pass. */
static int fake_cupti_use(void)
{
    void *handle = dlopen(FAKE_CUPTI, RTLD_NOW | RTLD_LOCAL); /* stays loaded, so that the state does */
    fake_cupti_state_function find = NULL;
    if (handle)
        *(void **)&find = dlsym(handle, "fake_cupti_state");
    if (!find)
        return -1;
    fake_cupti = find();
    *fake_cupti = (struct fake_cupti){.metrics_per_pass = 4};
    return setenv("FABENCH_CUPTI", FAKE_CUPTI, 1);
}
#endif

#endif
