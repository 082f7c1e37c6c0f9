/* Chooses and opens the device that the options ask for. */
#include "cmd/device/backend.h"

#include <stdio.h>

#include "cmd/base/log.h"

void backend_say_no_device(int driver, int runtime, const char *error, struct attn_message *why)
{
    if (driver == 0)
        snprintf(why->text, sizeof why->text,
                 "no CUDA device: this machine has no NVIDIA driver, or libcuda.so.1 is not where the loader looks");
    else if (driver / 1000 < runtime / 1000)
        snprintf(why->text, sizeof why->text,
                 "no CUDA device: the driver here serves CUDA %d.%d at most, and this program was built with CUDA "
                 "%d.%d; a newer driver, or a build with an older toolkit, is needed",
                 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else
        snprintf(why->text, sizeof why->text, "no CUDA device: %s", error);
}

enum attn_status backend_open(struct backend *be, enum device_choice choice, int ordinal, struct attn_message *why)
{
    struct attn_message reason = {""};
    if (choice == DEVICE_CPU)
        return backend_open_cpu(be, why);
#ifdef FABENCH_WITH_CUDA
    const enum attn_status status = backend_open_cuda(be, choice == DEVICE_CUDA ? ordinal : 0, &reason);
    if (status == ATTN_OK)
        return ATTN_OK;
#else
    (void)ordinal;
    snprintf(reason.text, sizeof reason.text, "this build has no CUDA");
#endif
    if (choice == DEVICE_CUDA) {
        *why = reason;
        return ATTN_ERROR;
    }
    snprintf(why->text, sizeof why->text, "no usable GPU (%.400s): running on the CPU", reason.text);
    return backend_open_cpu(be, why);
}
