/* Chooses and opens the device that the options ask for. */
#include "cmd/device/backend.h"

#include <stdio.h>

#include "cmd/base/log.h"

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
