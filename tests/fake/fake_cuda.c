/* A made-up libcuda.so.1: the driver of a machine with FAKE_GPUS GPUs, which no build can use. FAKE_CU_INIT: what
 * cuInit returns. */
#include <stdlib.h>

static int number_of(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);

int cuInit(unsigned flags)
{
    (void)flags;
    return number_of("FAKE_CU_INIT");
}

int cuDeviceGetCount(int *count)
{
    *count = number_of("FAKE_GPUS");
    return 0;
}
