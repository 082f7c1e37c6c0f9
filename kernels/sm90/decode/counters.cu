/* The kernel ahead of the sm_90 decode: sets the workspace's counters to 0. The decode starts beside it and waits for
 * it only before its first addition of parts, so that its time is hidden; a memset on the stream costs a launch. */
#include "kernels/device/grid_order.cuh"
#include "kernels/sm90/decode/params.h"

namespace {

__global__ void __launch_bounds__(FUSED_SM90_DECODE_ZERO_THREADS)
    zero_counters_kernel(const __grid_constant__ fused_sm90_decode_zeros zeros)
{
    device::grid_let_next_start();
    for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < zeros.count;
         i += int64_t(gridDim.x) * blockDim.x)
        zeros.counters[i] = 0;
}

} // namespace

extern "C" const void *const fused_sm90_decode_zero_counters = (const void *)zero_counters_kernel;
