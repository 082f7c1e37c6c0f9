/* A ring of slots in shared memory, each with a barrier (mbarrier.cuh) that says full and one that says empty. */
#pragma once
#include <cstdint>

namespace device {

/* The slot whose turn it is, and the parity of the phase that its next user awaits: of `full`; of `empty` the other one. */
template <int STAGES> struct Ring {
    int slot = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ void advance()
    {
        if (++slot == STAGES) {
            slot = 0;
            parity ^= 1;
        }
    }
};

} // namespace device
