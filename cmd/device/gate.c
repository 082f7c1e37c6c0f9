#include "cmd/device/gate.h"

enum attn_status gate_try(gate_trial *trial, void *context, bool *waits, struct attn_message *why)
{
    enum attn_status status = ATTN_OK;
    *waits = true;
    for (int n = 0; n < GATE_TRIALS && *waits && status == ATTN_OK; n++)
        status = trial(context, waits, why);
    return status;
}
