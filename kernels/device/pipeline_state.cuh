/* Where a producer or a consumer is in a circular buffer of pipeline stages in shared memory. Each stage has two
 * barriers (mbarrier.cuh): `full` and `empty`. */
#pragma once
#include <cstdint>

namespace device {

/* The stage that is used next, and the parity of the phase to wait for: a consumer waits for `full` with `phase`, a
 * producer for `empty` with `phase ^ 1`. */
template <int STAGES> struct PipelineState {
    int stage = 0;
    uint32_t phase = 0;

    __device__ __forceinline__ void advance()
    {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

} // namespace device
