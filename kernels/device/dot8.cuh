/* The dot product of eight 16-bit elements, in fp32. */
#pragma once
#include <cstdint>

#include "kernels/device/pack.cuh"

namespace device {

template <typename T> __device__ __forceinline__ float dot8(const uint4 &x, const uint4 &y)
{
    const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 a = unpack2<T>(xs[i]), b = unpack2<T>(ys[i]);
        sum = fmaf(a.x, b.x, fmaf(a.y, b.y, sum));
    }
    return sum;
}

} // namespace device
